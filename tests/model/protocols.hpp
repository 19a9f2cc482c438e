// The specification that is checked: how operations use slots, and how a link uses credits, written in the
// verbs of verbs.hpp. Read `Participant` for the rules and `oneShot` to `reduce` for the operations; the rest
// is set-up. For the tests of this folder only.
//
// The rules (docs/decisions/0002-two-slots.md argues them):
//   - operation e uses slot e mod `slots` of every window; e is the same number on every rank
//   - a rank begins e + 1 when it has finished e: pushed its part and read everything sent to it
//   - nothing marks the end of an operation to the peers
// The layout inside a slot is packed by the operation's own size, so that a line of one operation lies where
// another operation, of another size or kind, keeps the line of another source: the hardest case.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "model/verbs.hpp"

namespace stretto::model {

enum class Collective { kOneShot, kTwoShot, kRing, kBroadcast, kReduce, kNothing };
enum class Protocol { kLines, kChunks, kSentinel };

struct Operation {
  Collective collective = Collective::kOneShot;
  int lines = 1;  // of one message: lines, or words of a chunk
  Protocol protocol = Protocol::kLines;
  int owners = 0;  // two-shot: ranks whose shard is not empty (0: all)
  int turn = 0;    // which coop takes which line: line i belongs to coop (i + turn) mod coops
};

struct Setting {
  int ranks = 2;
  int slots = 2;
  int coops = 1;
  std::vector<Operation> operations;
  bool joined = true;     // a rank's coops all finish e before one of them begins e + 1 (a launch does that)
  bool flushed = true;    // a rank's own stores have landed before it begins e + 1 (a launch does that too)
  bool ownRegion = true;  // each protocol has its own part of a slot
  // Faults, for negative controls.
  Ready ready = Ready::kAtLeast;
  bool signalReleases = true;
  bool readsLinger =
      false;  // the payload is loaded after the flag, and the verb returns before the load does
};

class Participant {
 public:
  Participant(const Setting& setting, int rank, int coop) : setting_(setting), actor_{rank, coop, {}} {}

  int rank() const { return actor_.rank; }
  int ranks() const { return setting_.ranks; }
  const Operation& operation() const { return *operation_; }
  Actor actor() && { return std::move(actor_); }

  void begin(int epoch) {
    epoch_ = epoch;
    operation_ = &setting_.operations[epoch - 1];
  }

  // Sends this rank's message of one region (a phase of the operation) to a peer.
  void push(int peer, int region) {
    forMyLines([&](int line) {
      Step step{chunks() ? Verb::kPut : Verb::kPutLine, peer, cellOf(peer, region, rank(), line)};
      step.tag = {rank(), epoch_, region * operation().lines + line};
      add(step);
    });
    if (!chunks()) return;
    Step signal{Verb::kSignal, peer, counterOf(rank())};
    signal.tag = {rank(), epoch_, region};
    signal.ordered = setting_.signalReleases;
    add(signal);
  }

  // Waits for a peer's message and reads it.
  void take(int peer, int region) {
    if (chunks()) {
      Step wait{Verb::kWait, rank(), counterOf(peer), ++taken_[counterOf(peer)]};
      wait.tag = {peer, epoch_, region};
      add(wait);
    }
    forMyLines([&](int line) {
      Step step{chunks() ? Verb::kRead : Verb::kReadLine, rank(), cellOf(rank(), region, peer, line)};
      step.tag = {peer, epoch_, region * operation().lines + line};
      takeCell(step);
    });
  }

  void end() {
    Step step{Verb::kJoin, rank()};
    step.tag = {rank(), epoch_, 0};
    if (setting_.coops > 1 && setting_.joined) add(step);
    step.verb = Verb::kFence;
    if (operation().protocol == Protocol::kSentinel && setting_.flushed) add(step);
  }

 private:
  void add(const Step& step) { actor_.program.push_back(step); }
  bool chunks() const { return operation().protocol == Protocol::kChunks; }
  int slot() const { return epoch_ % setting_.slots; }

  template <typename Body>
  void forMyLines(Body body) const {
    for (int line = 0; line < operation().lines; ++line) {
      if ((line + operation().turn) % setting_.coops == actor_.coop) body(line);
    }
  }

  void takeCell(Step step) {
    step.ready = operation().protocol == Protocol::kSentinel ? Ready::kNotSentinel : setting_.ready;
    step.value = step.ready == Ready::kDiffers ? std::max(0, epoch_ - setting_.slots) : epoch_;
    if (step.verb == Verb::kReadLine || !setting_.readsLinger) add(step);
    if (setting_.readsLinger) {
      step.verb = Verb::kRead;
      step.ordered = false;
      add(step);
    }
    step.verb = Verb::kClear;
    if (operation().protocol == Protocol::kSentinel) add(step);
  }

  // One counter for each source and slot (and coop, which has its own).
  int counterOf(int source) const {
    return (source * setting_.slots + slot()) * setting_.coops + actor_.coop;
  }

  int cellOf(int receiver, int region, int source, int line) const {
    int place = source < receiver ? source : source - 1;  // a window has no cells for its own rank
    int cell = (region * (ranks() - 1) + place) * operation().lines + line;
    if (setting_.ownRegion && chunks()) cell += lineCells(setting_);
    return slot() * slotCells(setting_) + cell;
  }

 public:
  static int regionsOf(const Operation& operation, int ranks) {
    if (operation.collective == Collective::kRing) return 2 * (ranks - 1);
    return operation.collective == Collective::kTwoShot ? 2 : 1;
  }
  static int cellsFor(const Setting& setting, bool chunks) {
    int most = 0;
    for (const Operation& op : setting.operations) {
      if ((op.protocol == Protocol::kChunks) != chunks) continue;
      most = std::max(most, regionsOf(op, setting.ranks) * (setting.ranks - 1) * op.lines);
    }
    return most;
  }
  static int lineCells(const Setting& setting) { return cellsFor(setting, false); }
  static int slotCells(const Setting& setting) {
    int lines = cellsFor(setting, false), words = cellsFor(setting, true);
    return setting.ownRegion ? lines + words : std::max(lines, words);
  }

 private:
  const Setting& setting_;
  Actor actor_;
  int epoch_ = 0;
  const Operation* operation_ = nullptr;
  std::map<int, int> taken_;  // messages taken so far, by counter: counters grow by one and are never reset
};

template <typename Body>
void forPeers(const Participant& me, Body body) {
  for (int hop = 1; hop < me.ranks(); ++hop) body((me.rank() + hop) % me.ranks());
}

// Everybody sends everything to everybody. All-gather, reduce-scatter and all-to-all by push have this shape
// too: what differs is the payload, which the model does not look into.
inline void oneShot(Participant& me) {
  forPeers(me, [&](int peer) { me.push(peer, 0); });
  forPeers(me, [&](int peer) { me.take(peer, 0); });
}

// Scatter: each rank sends each owner its shard. Gather: each owner sends the reduced shard to everybody.
// Both in one epoch, in two regions of one slot. An owner whose shard is empty is sent nothing and has
// nothing to send.
inline void twoShot(Participant& me) {
  int owners = me.operation().owners ? me.operation().owners : me.ranks();
  bool owner = me.rank() < owners;
  enum Region { kScatter, kGather };
  forPeers(me, [&](int peer) { peer < owners ? me.push(peer, kScatter) : void(); });
  forPeers(me, [&](int peer) { owner ? me.take(peer, kScatter) : void(); });
  forPeers(me, [&](int peer) { owner ? me.push(peer, kGather) : void(); });
  forPeers(me, [&](int peer) { peer < owners ? me.take(peer, kGather) : void(); });
}

// Reduce-scatter then all-gather around a ring, a region for each step: only the right neighbour is sent to.
inline void ring(Participant& me) {
  int right = (me.rank() + 1) % me.ranks(), left = (me.rank() + me.ranks() - 1) % me.ranks();
  for (int step = 0; step < 2 * (me.ranks() - 1); ++step) {
    me.push(right, step);
    me.take(left, step);
  }
}

// These two must not use slots: the root hears from nobody, or the others do not.
inline void broadcast(Participant& me) {
  if (me.rank() == 0) forPeers(me, [&](int peer) { me.push(peer, 0); });
  if (me.rank() != 0) me.take(0, 0);
}
inline void reduce(Participant& me) {
  if (me.rank() != 0) me.push(0, 0);
  if (me.rank() == 0) forPeers(me, [&](int peer) { me.take(peer, 0); });
}

inline void perform(Participant& me) {
  switch (me.operation().collective) {
    case Collective::kOneShot:
      return oneShot(me);
    case Collective::kTwoShot:
      return twoShot(me);
    case Collective::kRing:
      return ring(me);
    case Collective::kBroadcast:
      return broadcast(me);
    case Collective::kReduce:
      return reduce(me);
    case Collective::kNothing:
      return;
  }
}

inline Model slotsModel(const Setting& setting) {
  Model model;
  model.ranks = setting.ranks;
  model.cells = setting.slots * Participant::slotCells(setting);
  model.counters = setting.ranks * setting.slots * setting.coops;
  for (int rank = 0; rank < setting.ranks; ++rank) {
    for (int coop = 0; coop < setting.coops; ++coop) {
      Participant me(setting, rank, coop);
      for (int epoch = 1; epoch <= static_cast<int>(setting.operations.size()); ++epoch) {
        me.begin(epoch);
        perform(me);
        me.end();
      }
      model.actors.push_back(std::move(me).actor());
    }
  }
  return model;
}

// ---- links

struct LinkSetting {
  int messages = 6;
  int depth = 2;  // messages the ring holds
  int words = 2;  // words of a chunk, or lines, of one message
  Protocol protocol = Protocol::kChunks;
  int hops = 1;         // a chain of hops + 1 ranks, each passing on what it took
  bool credits = true;  // false: the negative control
  bool signalReleases = true;
};

// One end of a link between neighbours of a chain. At the consumer's window: a ring of `depth` messages and
// the data counter. At the producer's window: the credit counter, which the consumer signals after it has
// read a message.
class LinkEnd {
 public:
  static constexpr int kData = 0, kCredit = 1;

  LinkEnd(const LinkSetting& setting, Actor& actor) : setting_(setting), actor_(actor) {}

  void send(int peer, int message) {
    if (setting_.credits && message > setting_.depth) {
      add({Verb::kWait, actor_.rank, kCredit, message - setting_.depth}, peer, message, 0);
    }
    bool chunks = setting_.protocol == Protocol::kChunks;
    for (int word = 0; word < setting_.words; ++word) {
      add({chunks ? Verb::kPut : Verb::kPutLine, peer, cellOf(message, word)}, actor_.rank, message, word);
    }
    if (chunks) signal(peer, kData, message);
  }

  void receive(int peer, int message) {
    bool chunks = setting_.protocol == Protocol::kChunks;
    if (chunks) add({Verb::kWait, actor_.rank, kData, message}, peer, message, 0);
    for (int word = 0; word < setting_.words; ++word) {
      add({chunks ? Verb::kRead : Verb::kReadLine, actor_.rank, cellOf(message, word), message}, peer,
          message, word);
    }
    if (setting_.credits) signal(peer, kCredit, message);
  }

 private:
  int cellOf(int message, int word) const { return message % setting_.depth * setting_.words + word; }
  void add(Step step, int source, int message, int word) {
    step.tag = {source, message, word};
    actor_.program.push_back(step);
  }
  void signal(int peer, int counter, int message) {
    Step step{Verb::kSignal, peer, counter};
    step.ordered = setting_.signalReleases;
    add(step, actor_.rank, message, 0);
  }

  const LinkSetting& setting_;
  Actor& actor_;
};

inline Model linkModel(const LinkSetting& setting) {
  Model model{setting.hops + 1, setting.depth * setting.words, 2, "message", {}};
  for (int rank = 0; rank <= setting.hops; ++rank) {
    Actor actor{rank, 0, {}};
    LinkEnd end(setting, actor);
    for (int message = 1; message <= setting.messages; ++message) {
      if (rank > 0) end.receive(rank - 1, message);
      if (rank < setting.hops) end.send(rank + 1, message);
    }
    model.actors.push_back(std::move(actor));
  }
  return model;
}

// Two ranks that each send `messages` to the other before they take one: what happens to send and receive
// that are not in one group.
inline Model crossedSendsModel(const LinkSetting& setting) {
  Model model{2, setting.depth * setting.words, 2, "message", {}};
  for (int rank = 0; rank < 2; ++rank) {
    Actor actor{rank, 0, {}};
    LinkEnd end(setting, actor);
    for (int message = 1; message <= setting.messages; ++message) end.send(1 - rank, message);
    for (int message = 1; message <= setting.messages; ++message) end.receive(1 - rank, message);
    model.actors.push_back(std::move(actor));
  }
  return model;
}

}  // namespace stretto::model
