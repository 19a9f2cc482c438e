// The specification of operations over slots, in the verbs of verbs.hpp. Read `Participant` for the rules,
// and `oneShot` to `reduce` for the operations; the rest is set-up. For the tests of this folder only.
//
// The rules (docs/decisions/0002-two-slots.md argues them):
//   - operation e uses slot e mod `slots` of every window; e is the same number on every rank
//   - a rank begins e + 1 when it has finished e: pushed its part and read everything sent to it
//   - nothing marks the end of an operation to the peers
// "Operation" is here what takes one epoch; a collective of several chunks is several of them in a row.
// The layout inside a slot is packed by the operation's own size, so that a line of one operation lies where
// another operation, of another size or kind, keeps the line of another source. The library's layout is
// tamer.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "model/verbs.hpp"

namespace stretto::model {

enum class Collective { kOneShot, kTwoShot, kRing, kDirect, kBroadcast, kReduce, kNothing };
enum class Protocol { kLL, kSimple, kLamport };

struct Operation {
  Collective collective = Collective::kOneShot;
  int lines = 1;  // of one message: lines, or words of a chunk
  Protocol protocol = Protocol::kLL;
  int owners = 0;  // two-shot: ranks whose shard is not empty, the others take no part in it (0: all)
  int turn = 0;    // which coop takes which line: line i belongs to coop (i + turn) mod coops
};

struct Setting {
  int ranks = 2;
  int slots = 2;
  int coops = 1;
  std::vector<Operation> operations;  // that of epoch e is operations[e - 1]
  // Conditions of the argument, and faults; each is turned round by a negative control.
  bool joined = true;     // all coops of a rank finish e before one of them begins e + 1 (a launch does that)
  bool flushed = true;    // a rank's own stores have landed before it begins e + 1 (so does that)
  bool ownRegion = true;  // each protocol has its own part of a slot
  bool endBarrier = true;      // direct: nobody parts before all have read
  bool signalReleases = true;  // a signal lands after what it speaks of
  bool readsLinger = false;    // payload is loaded after its flag, and the verb returns before the load does
  Ready ready = Ready::kAtLeast;
};

class Participant {
 public:
  Participant(const Setting& setting, int rank, int coop) : setting_(setting), actor_{rank, coop, {}} {}

  int rank() const { return actor_.rank; }
  int ranks() const { return setting_.ranks; }
  const Operation& operation() const { return *operation_; }
  const Setting& setting() const { return setting_; }
  Actor actor() && { return std::move(actor_); }

  void begin(int epoch) {
    epoch_ = epoch;
    operation_ = &setting_.operations[static_cast<size_t>(epoch - 1)];
  }

  // Sends this rank's message of one region (a phase of the operation) to a peer.
  void push(int peer, int region) {
    forMyLines([&](int line) {
      Verb verb = chunks() ? Verb::kPut : Verb::kPutLine;
      add({verb, peer, cellOf(peer, region, rank(), line)}, rank(), partOf(region, line));
    });
    if (chunks()) signal(peer, region);
  }

  // Waits for a peer's message and reads it.
  void take(int peer, int region) {
    if (chunks()) wait(peer, region);
    forMyLines([&](int line) {
      Verb verb = chunks() ? Verb::kRead : Verb::kReadLine;
      takeCell({verb, rank(), cellOf(rank(), region, peer, line)}, peer, partOf(region, line));
    });
  }

  void signal(int peer, int region) {
    Step step{Verb::kSignal, peer, counterOf(region, rank()), epoch_};
    step.ordered = setting_.signalReleases;
    add(step, rank(), region);
  }
  void wait(int peer, int region) {
    add({Verb::kWait, rank(), counterOf(region, peer), epoch_}, peer, region);
  }

  // The user's own buffer, which peers read where it is: written before the operation, complete when it
  // starts.
  void writeInput() {
    add({Verb::kPut, rank(), inputCell(setting_)}, rank(), kInput);
    add({Verb::kFence, rank()}, rank(), kInput);
  }
  void readInputOf(int peer) { add({Verb::kRead, peer, inputCell(setting_)}, peer, kInput); }

  void end() {
    if (setting_.coops > 1 && setting_.joined) add({Verb::kJoin, rank()}, rank(), 0);
    if (operation().protocol == Protocol::kLamport && setting_.flushed)
      add({Verb::kFence, rank()}, rank(), 0);
  }

  // Sizes, in cells. A window is `slots` slots, then the user's buffer.
  static int regionsOf(const Operation& operation, int ranks) {
    if (operation.collective == Collective::kRing) return 2 * (ranks - 1);
    return operation.collective == Collective::kTwoShot ? 2 : 1;
  }
  static int cellsFor(const Setting& setting, bool chunks) {
    int most = 0;
    for (const Operation& op : setting.operations) {
      if ((op.protocol == Protocol::kSimple) != chunks) continue;
      most = std::max(most, regionsOf(op, setting.ranks) * (setting.ranks - 1) * op.lines);
    }
    return most;
  }
  static int slotCells(const Setting& setting) {
    int lines = cellsFor(setting, false), words = cellsFor(setting, true);
    return setting.ownRegion ? lines + words : std::max(lines, words);
  }
  static int inputCell(const Setting& setting) { return setting.slots * slotCells(setting); }
  static int counters(const Setting& setting) {
    return setting.slots * 2 * setting.ranks * setting.ranks * setting.coops;
  }

 private:
  static constexpr int kInput = 100;  // the part number of the user's buffer

  void add(Step step, int source, int part) {
    step.tag = {source, epoch_, part};
    actor_.program.push_back(step);
  }
  bool chunks() const { return operation().protocol == Protocol::kSimple; }
  int slot() const { return epoch_ % setting_.slots; }
  int partOf(int region, int line) const { return region * operation().lines + line; }

  template <typename Body>
  void forMyLines(Body body) const {
    for (int line = 0; line < operation().lines; ++line) {
      if ((line + operation().turn) % setting_.coops == actor_.coop) body(line);
    }
  }

  void takeCell(Step step, int source, int part) {
    step.ready = operation().protocol == Protocol::kLamport ? Ready::kNotSentinel : setting_.ready;
    step.value = step.ready == Ready::kDiffers ? std::max(0, epoch_ - setting_.slots) : epoch_;
    if (step.verb == Verb::kReadLine || !setting_.readsLinger) add(step, source, part);
    if (setting_.readsLinger) {
      step.verb = Verb::kRead;
      step.ordered = false;
      add(step, source, part);
    }
    step.verb = Verb::kClear;
    if (operation().protocol == Protocol::kLamport) add(step, source, part);
  }

  // One counter for each slot, region, source and coop: one writer each.
  int counterOf(int region, int source) const {
    int index = (slot() * 2 * ranks() + region) * ranks() + source;
    return index * setting_.coops + actor_.coop;
  }

  int cellOf(int receiver, int region, int source, int line) const {
    int place = source < receiver ? source : source - 1;  // a window has no cells for its own rank
    int cell = (region * (ranks() - 1) + place) * operation().lines + line;
    if (setting_.ownRegion && chunks()) cell += cellsFor(setting_, false);
    return slot() * slotCells(setting_) + cell;
  }

  const Setting& setting_;
  Actor actor_;
  int epoch_ = 0;
  const Operation* operation_ = nullptr;
};

template <typename Body>
void forPeers(const Participant& me, Body body) {
  for (int hop = 1; hop < me.ranks(); ++hop) body((me.rank() + hop) % me.ranks());
}

enum Region { kScatter, kGather };

// Everybody sends everything to everybody. All-gather, reduce-scatter and all-to-all by push have this shape
// too: what differs is the payload, which the model does not look into.
inline void oneShot(Participant& me) {
  forPeers(me, [&](int peer) { me.push(peer, kScatter); });
  forPeers(me, [&](int peer) { me.take(peer, kScatter); });
}

// Scatter: each rank sends each owner its shard. Gather: each owner sends the reduced shard to everybody.
// Both in one epoch, in two regions of one slot.
inline void twoShot(Participant& me) {
  int owners = me.operation().owners ? me.operation().owners : me.ranks();
  auto isOwner = [&](int rank) { return rank < owners; };
  forPeers(me, [&](int peer) { isOwner(peer) ? me.push(peer, kScatter) : void(); });
  forPeers(me, [&](int peer) { isOwner(me.rank()) ? me.take(peer, kScatter) : void(); });
  forPeers(me, [&](int peer) { isOwner(me.rank()) ? me.push(peer, kGather) : void(); });
  forPeers(me, [&](int peer) { isOwner(peer) ? me.take(peer, kGather) : void(); });
}

// Reduce-scatter then all-gather around a ring, a region for each step: only the right neighbour is sent to.
inline void ring(Participant& me) {
  int right = (me.rank() + 1) % me.ranks(), left = (me.rank() + me.ranks() - 1) % me.ranks();
  for (int step = 0; step < 2 * (me.ranks() - 1); ++step) {
    me.push(right, step);
    me.take(left, step);
  }
}

// Addresses travel in lines, then everybody reads everybody's buffer where it is. No slot holds the payload,
// so rotation does not protect it: the end barrier does.
inline void direct(Participant& me) {
  me.writeInput();
  oneShot(me);
  forPeers(me, [&](int peer) { me.readInputOf(peer); });
  if (!me.setting().endBarrier) return;
  forPeers(me, [&](int peer) { me.signal(peer, kGather); });
  forPeers(me, [&](int peer) { me.wait(peer, kGather); });
}

// These two must not use slots: the root hears from nobody, or nobody hears from the others.
inline void broadcast(Participant& me) {
  if (me.rank() == 0) forPeers(me, [&](int peer) { me.push(peer, kScatter); });
  if (me.rank() != 0) me.take(0, kScatter);
}
inline void reduce(Participant& me) {
  if (me.rank() != 0) me.push(0, kScatter);
  if (me.rank() == 0) forPeers(me, [&](int peer) { me.take(peer, kScatter); });
}

inline void perform(Participant& me) {
  switch (me.operation().collective) {
    case Collective::kOneShot:
      return oneShot(me);
    case Collective::kTwoShot:
      return twoShot(me);
    case Collective::kRing:
      return ring(me);
    case Collective::kDirect:
      return direct(me);
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
  model.cells = Participant::inputCell(setting) + 1;
  model.counters = Participant::counters(setting);
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

}  // namespace stretto::model
