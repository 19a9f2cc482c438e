// Runs a model in every order there is: breadth first over all states, each kept whole (a hash only finds
// it), so the answer is exact and the trace to a violation is a shortest one. For the tests of this folder
// only.
//
// Checked in every reachable state:
//   wrong payload  a reader that took a cell for ready found another payload than the one it waited for
//   lost update    a store landed on a payload that its reader had not read yet
//   deadlock       nothing can move and some program is not at its end, or some store has not landed
// Every move either advances a program or lands a store, and there are finitely many of both: the state graph
// has no cycle. So "no deadlock" is "every run ends", without any assumption of fairness.
//
// Reduction (optional). Two moves can disagree about their order only if both touch the same cell. Issuing a
// store, passing a wait on a counter that only grows, passing a fence or a join, and the landing of a signal
// touch no cell; each stays enabled once it is, none disables or alters another move, and all three
// properties are decided by the order of moves that touch a common cell. So when such a move is enabled,
// exploring it alone reaches every outcome (it is a persistent set; without cycles nothing can be put off for
// ever). checker_test.cpp compares the reduced with the full exploration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/verbs.hpp"

namespace stretto::model {

struct Options {
  bool reduce = false;
  size_t limit = 5'000'000;  // states; reaching it is a failure, never a pass
};

struct Verdict {
  size_t states = 0;
  size_t moves = 0;
  size_t ends = 0;      // states in which everything is done
  int largestLead = 0;  // operations finished by one actor and not by another, at most
  bool complete = false;
  // A shortest run in words; empty if there is none. The search stops at the first wrong payload or deadlock.
  std::string wrongPayload, lostUpdate, deadlock;

  bool holds() const { return complete && wrongPayload.empty() && lostUpdate.empty() && deadlock.empty(); }
};

// The set of states seen: rows of equal length, found again through open addressing.
class StateSet {
 public:
  explicit StateSet(size_t width) : width_(width), table_(1 << 12, kFree) {}

  // Index of the row, and whether it is new.
  std::pair<uint32_t, bool> insert(const uint8_t* row) {
    if ((size_ + 1) * 2 > table_.size()) grow();
    size_t at = hash(row) & (table_.size() - 1);
    for (; table_[at] != kFree; at = (at + 1) & (table_.size() - 1)) {
      if (std::memcmp(this->row(table_[at]), row, width_) == 0) return {table_[at], false};
    }
    table_[at] = static_cast<uint32_t>(size_);
    rows_.insert(rows_.end(), row, row + width_);
    return {static_cast<uint32_t>(size_++), true};
  }
  const uint8_t* row(size_t index) const { return rows_.data() + index * width_; }
  size_t size() const { return size_; }

 private:
  static constexpr uint32_t kFree = ~0u;

  uint64_t hash(const uint8_t* row) const {
    uint64_t h = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < width_; i += 8) {
      uint64_t word;
      std::memcpy(&word, row + i, 8);
      h = (h ^ word) * 0xff51afd7ed558ccdull;
      h ^= h >> 32;
    }
    return h;
  }
  void grow() {
    std::vector<uint32_t> old(table_.size() * 2, kFree);
    old.swap(table_);
    for (uint32_t index : old) {
      if (index == kFree) continue;
      size_t at = hash(row(index)) & (table_.size() - 1);
      while (table_[at] != kFree) at = (at + 1) & (table_.size() - 1);
      table_[at] = index;
    }
  }

  size_t width_;
  size_t size_ = 0;
  std::vector<uint8_t> rows_;
  std::vector<uint32_t> table_;
};

class Explorer {
 public:
  Explorer(const Model& model, Options options);
  Verdict run();

  // After run(): the states in which the slowest actor is in epoch `base`, written relative to that epoch.
  // Successors of such states do not depend on absolute epochs: when the operations repeat with a period that
  // is a multiple of the number of slots, shapesAt(k) and the next period's shapes determine all later ones
  // in the same way. So if shapesAt(k) == shapesAt(k + period), the same shapes recur for ever, and what was
  // checked on them holds for any number of operations. (The programs must be long enough for nobody to reach
  // their end from these states.)
  std::set<std::string> shapesAt(int base) const;

 private:
  // One deferred step: which actor issues it and where in its program, what must land before it, and who
  // reads it.
  struct Item {
    int actor;
    int index;
    std::vector<int> before;
    std::vector<int> readers;  // touches_ that expect this payload
  };
  struct Touch {  // a read of some payload; it is done when the step is past, or its item (if it lingers)
                  // performed
    int actor;
    int index;
    int item;
  };
  struct Origin {
    uint32_t parent;
    uint16_t move;
  };
  enum class Outcome { kFine, kWrongPayload, kLostUpdate };

  // A state: the program counters, one bit per item (landed), and what every cell holds (item + 1, 0
  // nothing). A move: an actor's next step, or (from actors() on) the landing of an item.
  int actors() const { return static_cast<int>(model_.actors.size()); }
  const Step& stepOf(const Item& item) const { return model_.actors[item.actor].program[item.index]; }
  uint8_t* cellOf(uint8_t* s, const Step& step) const {
    return s + cellsAt_ + step.rank * model_.cells + step.cell;
  }
  uint8_t cellOf(const uint8_t* s, const Step& step) const {
    return s[cellsAt_ + step.rank * model_.cells + step.cell];
  }
  bool landed(const uint8_t* s, int item) const { return s[bitsAt_ + item / 8] >> (item % 8) & 1; }
  bool issued(const uint8_t* s, int item) const { return s[items_[item].actor] > items_[item].index; }

  void collectItems();
  void linkItem(int item);
  void linkReaders();

  int count(const uint8_t* s, const Step& wait) const;
  bool looksReady(const uint8_t* s, const Step& step) const;
  bool joined(const uint8_t* s, int actor) const;
  bool drained(const uint8_t* s, int actor, const Step* touching) const;
  bool enabled(const uint8_t* s, int actor) const;
  bool canLand(const uint8_t* s, int item) const;
  bool consumed(const uint8_t* s, const Touch& touch) const;
  bool touchesNoCell(int move, const uint8_t* s) const;

  void listMoves(const uint8_t* s, std::vector<int>& moves) const;
  Outcome apply(uint8_t* s, int move) const;
  Outcome readAt(const uint8_t* s, const Step& step) const;
  Outcome land(uint8_t* s, int item) const;
  bool done(const uint8_t* s) const;
  int epochOf(const uint8_t* s, int actor) const;
  int lead(const uint8_t* s) const;
  int firstOf(int actor, int epoch) const;
  std::string shapeOf(const uint8_t* s, int base) const;
  bool expand(uint32_t from, Verdict& verdict);

  std::string who(int actor) const;
  std::string what(const Step& step) const;
  std::string describeStep(const uint8_t* s, int actor) const;
  std::string describeLanding(const uint8_t* s, int item) const;
  std::string describeWaiting(const uint8_t* s) const;
  std::string trace(uint32_t state, int move) const;

  const Model& model_;
  Options options_;
  std::vector<Item> items_;
  std::vector<Touch> touches_;
  std::vector<std::vector<int>> itemOfStep_;  // by actor and index; -1 where the step is not deferred
  size_t bitsAt_ = 0, cellsAt_ = 0, width_ = 0;
  StateSet seen_;
  std::vector<Origin> origins_;
  std::vector<int> moves_;
  std::vector<uint8_t> scratch_;
};

inline Verdict explore(const Model& model, Options options = {}) {
  return Explorer(model, options).run();
}

}  // namespace stretto::model

#include "model/explorer_inl.hpp"
