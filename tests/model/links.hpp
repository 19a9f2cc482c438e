// The specification of links with credits, and of operations over them, in the verbs of verbs.hpp. Read
// `LinkEnds` for the rules (the library's are in algorithms/link_channel.hpp), and the programs below it for
// the operations. For the tests of this folder only.
//
// The rules, for each ordered pair of ranks:
//   - in the receiver's window lies a ring of `depth` slots, each with a counter; message k uses slot k mod
//   depth and
//     grows its counter to k
//   - in the sender's window lies a credit counter; the receiver grows it to k after it has read k messages,
//   every
//     `creditEvery` messages
//   - message k is sent when credit >= k - depth; what is left unacknowledged when an operation ends stays so
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "model/verbs.hpp"

namespace stretto::model {

struct LinkSetting {
  int ranks = 2;
  int messages = 8;  // of an operation: chunks
  int depth = 2;
  int words = 1;  // of a message
  int creditEvery = 1;
  bool lines = false;  // readiness in the lines instead of a signal
  int lag = 1;         // all-reduce along a chain: chunks that go up before the first comes down
  // Conditions, turned round by negative controls.
  bool credits = true;
  bool signalReleases = true;
};

// All link ends of one rank.
class LinkEnds {
 public:
  LinkEnds(const LinkSetting& setting, int rank) : setting_(setting), actor_{rank, 0, {}} {}

  int rank() const { return actor_.rank; }
  int ranks() const { return setting_.ranks; }
  const LinkSetting& setting() const { return setting_; }
  Actor actor() && { return std::move(actor_); }

  // Sending is: wait for a free slot, write the message, say that it is there.
  void acquire(int peer) {
    int message = sent_[peer] + 1;
    if (!setting_.credits || message <= setting_.depth) return;
    add({Verb::kWait, rank(), creditOf(peer), message - setting_.depth}, peer, message, 0);
  }
  void publish(int peer) {
    int message = ++sent_[peer];
    Verb verb = setting_.lines ? Verb::kPutLine : Verb::kPut;
    for (int word = 0; word < setting_.words; ++word) {
      add({verb, peer, cellOf(rank(), message, word)}, rank(), message, word);
    }
    if (!setting_.lines) signal(peer, counterOf(rank(), message), message);
  }
  void send(int peer) {
    acquire(peer);
    publish(peer);
  }

  // Receiving is: wait for the message, read it, and give credit back.
  void await(int peer) {
    int message = received_[peer] + 1;
    if (!setting_.lines) add({Verb::kWait, rank(), counterOf(peer, message), message}, peer, message, 0);
  }
  void read(int peer) {
    int message = received_[peer] + 1;
    Verb verb = setting_.lines ? Verb::kReadLine : Verb::kRead;
    for (int word = 0; word < setting_.words; ++word) {
      add({verb, rank(), cellOf(peer, message, word), message}, peer, message, word);
    }
  }
  void release(int peer) {
    int message = ++received_[peer];
    if (setting_.credits && message % setting_.creditEvery == 0) signal(peer, creditOf(rank()), message);
  }
  void receive(int peer) {
    await(peer);
    read(peer);
    release(peer);
  }

 private:
  void add(Step step, int source, int message, int word) {
    step.tag = {source, message, word};
    actor_.program.push_back(step);
  }
  void signal(int peer, int counter, int message) {
    Step step{Verb::kSignal, peer, counter, message};
    step.ordered = setting_.signalReleases;
    add(step, rank(), message, 0);
  }
  int cellOf(int source, int message, int word) const {
    return (source * setting_.depth + message % setting_.depth) * setting_.words + word;
  }
  int counterOf(int source, int message) const { return source * setting_.depth + message % setting_.depth; }
  int creditOf(int receiver) const { return ranks() * setting_.depth + receiver; }

  const LinkSetting& setting_;
  Actor actor_;
  std::map<int, int> sent_, received_;  // by peer
};

// A chain of ranks: 0 sends, the others pass on what they received. Two ranks: one link.
inline void broadcastChain(LinkEnds& me) {
  bool first = me.rank() == 0, last = me.rank() + 1 == me.ranks();
  for (int message = 0; message < me.setting().messages; ++message) {
    if (!first) me.await(me.rank() - 1);
    if (!last) me.acquire(me.rank() + 1);
    if (!first) me.read(me.rank() - 1);
    if (!last) me.publish(me.rank() + 1);
    if (!first) me.release(me.rank() - 1);
  }
}

// Chunks go up the chain to rank 0 and their sums come down again, `lag` chunks later.
inline void allReduceChain(LinkEnds& me) {
  bool root = me.rank() == 0, leaf = me.rank() + 1 == me.ranks();
  int above = me.rank() - 1, below = me.rank() + 1, chunks = me.setting().messages;
  for (int turn = 0; turn < chunks + me.setting().lag; ++turn) {
    if (turn < chunks) {
      if (!leaf) me.await(below);
      if (!root) me.acquire(above);
      if (!leaf) me.read(below);
      if (!root) me.publish(above);
      if (!leaf) me.release(below);
    }
    if (turn < me.setting().lag) continue;
    if (!root) me.await(above);
    if (!leaf) me.send(below);
    if (!root) me.read(above);
    if (!root) me.release(above);
  }
}

// A ring: n - 1 steps that reduce, n - 1 that gather, for each of `messages` windows.
inline void allReduceRing(LinkEnds& me) {
  int right = (me.rank() + 1) % me.ranks(), left = (me.rank() + me.ranks() - 1) % me.ranks();
  for (int window = 0; window < me.setting().messages; ++window) {
    me.send(right);
    for (int step = 1; step <= 2 * (me.ranks() - 1); ++step) {
      bool forward = step < 2 * (me.ranks() - 1);
      me.await(left);
      if (forward) me.acquire(right);
      me.read(left);
      if (forward) me.publish(right);
      me.release(left);
    }
  }
}

// The same with a gather phase both ways round: finished blocks come in turns from either side, and go half
// as far.
inline void allReduceRingBothWays(LinkEnds& me) {
  int right = (me.rank() + 1) % me.ranks(), left = (me.rank() + me.ranks() - 1) % me.ranks();
  for (int window = 0; window < me.setting().messages; ++window) {
    me.send(right);
    for (int step = 1; step < me.ranks(); ++step) {
      me.await(left);
      me.acquire(right);
      me.read(left);
      me.publish(right);
      me.release(left);
    }
    me.send(left);
    for (int block = 1; block < me.ranks(); ++block) {
      int from = block % 2 == 1 ? left : right, onward = block % 2 == 1 ? right : left;
      me.await(from);
      if (block + 2 < me.ranks()) me.send(onward);
      me.read(from);
      me.release(from);
    }
  }
}

// Everybody to everybody, pairwise: round t sends to rank + t and receives from rank - t.
inline void allToAllPairwise(LinkEnds& me) {
  for (int round = 1; round < me.ranks(); ++round) {
    for (int message = 0; message < me.setting().messages; ++message) {
      me.send((me.rank() + round) % me.ranks());
      me.receive((me.rank() + me.ranks() - round) % me.ranks());
    }
  }
}

// Two ranks that each send everything before they receive anything: send and receive that are not in one
// group.
inline void crossedSends(LinkEnds& me) {
  for (int message = 0; message < me.setting().messages; ++message) me.send(1 - me.rank());
  for (int message = 0; message < me.setting().messages; ++message) me.receive(1 - me.rank());
}

// The operations in a row, on the same links.
inline Model linksModel(const LinkSetting& setting, const std::vector<void (*)(LinkEnds&)>& operations) {
  Model model{setting.ranks,
              setting.ranks * setting.depth * setting.words,
              setting.ranks * (setting.depth + 1),
              "message",
              {}};
  for (int rank = 0; rank < setting.ranks; ++rank) {
    LinkEnds me(setting, rank);
    for (auto operation : operations) operation(me);
    model.actors.push_back(std::move(me).actor());
  }
  return model;
}

}  // namespace stretto::model
