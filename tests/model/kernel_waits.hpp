// When a look was made that a rank's process has counted, as a model of communicator/device/kernel_waits.cpp:
// threads of a kernel that wait for a peer's word, the process that reads what they say of it, and a reader
// of what the process publishes. For the tests of this folder only.
//
// A thread looks whether the peer's word has come; if not, it stores one that says so, and looks again. The
// process reads that word now and then, and counts a look if it has changed. The peer's word comes from an
// earlier kernel than the one that the peer publishes: so it is there when the peer's launch is published.
// From then on the reader takes its picture, counts the looks, and is sure after so many. A verdict is wrong
// if the word was there, as the threads will see it.
//
// The GPU may stop and go on between any two steps, and so may the process and the reader. A thread needs a
// moment from its look to its word, and while the GPU runs all threads run. So what a thread was in the midst
// of it has done
//   * before the GPU, once it goes on, stops again (`wholeSlices`), and
//   * before the process reads again, if the GPU runs all the time meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "communicator/device/kernel_waits.hpp"

namespace stretto::model {

struct KernelWaitsSetting {
  int threads = 1;
  int looks = static_cast<int>(communicator::Standstill::kLooks);
  bool wordComes = true;  // else the ranks stand still
  bool wholeSlices = true;
};

class KernelWaitsModel {
 public:
  static constexpr int kMostThreads = 4;
  enum Phase : uint8_t { kLooks, kHasLooked, kGoesOn };
  struct Thread {
    uint8_t phase = kLooks;
    uint8_t sinceSlice = 0;  // in the midst since the GPU went on
    uint8_t sinceRead = 0;   // and since the last read, with the GPU running all the time
    uint8_t unused = 0;
  };
  struct State {
    std::array<Thread, kMostThreads> threads{};
    uint8_t runs = 1;
    uint8_t hasCome = 0;    // the peer's word
    uint8_t published = 0;  // the peer's launch
    uint8_t pictured = 0;
    uint8_t changed = 0;  // what the threads say, since the last read
    uint8_t mustCount = 0;
    uint8_t counted = 0;  // since the picture
    uint8_t unused = 0;
  };
  struct Move {
    std::string words;
    State next;
    bool fate() const { return false; }
  };

  explicit KernelWaitsModel(KernelWaitsSetting setting) : rules(setting) {}

  const KernelWaitsSetting rules;

  State start() const { return {}; }

  void moves(const State& state, std::vector<Move>& all) const {
    if (isSure(state)) return;
    peerMoves(state, all);
    for (int i = 0; i < rules.threads && state.runs != 0; ++i) threadMoves(state, i, all);
    gpuMoves(state, all);
    processMoves(state, all);
    if (state.published != 0 && state.pictured == 0) {
      add(state, all, "the reader takes its picture", [](State& next) { next.pictured = 1; });
    }
  }

  std::string problem(const State& state, bool) const {
    return isSure(state) && state.hasCome != 0 ? "is said to wait for ever, and goes on" : "";
  }
  bool aim(const State& state) const { return rules.wordComes || isSure(state); }
  std::string describe(const Move& move) const { return move.words; }

 private:
  bool isSure(const State& state) const { return state.counted >= rules.looks; }
  template <typename Change>
  static void add(const State& state, std::vector<Move>& all, std::string words, Change change) {
    all.push_back({std::move(words), state});
    change(all.back().next);
  }
  static std::string name(int thread) { return "thread " + std::to_string(thread); }
  bool anyInTheMidst(const State& state, uint8_t Thread::*since) const {
    return std::any_of(state.threads.begin(), state.threads.end(),
                       [&](const Thread& thread) { return thread.*since != 0; });
  }

  void peerMoves(const State& state, std::vector<Move>& all) const {
    if (rules.wordComes && state.hasCome == 0) {
      add(state, all, "the peer's earlier kernel stores its word", [](State& next) { next.hasCome = 1; });
    }
    if (state.hasCome == (rules.wordComes ? 1 : 0) && state.published == 0) {
      add(state, all, "the peer publishes its next launch", [](State& next) { next.published = 1; });
    }
  }

  static void threadMoves(const State& state, int i, std::vector<Move>& all) {
    const auto at = static_cast<size_t>(i);
    if (state.threads[at].phase == kLooks) {
      const bool found = state.hasCome != 0;
      add(state, all, name(i) + (found ? " looks, and goes on" : " looks in vain"),
          [&](State& next) { next.threads[at].phase = found ? kGoesOn : kHasLooked; });
    } else if (state.threads[at].phase == kHasLooked) {
      add(state, all, name(i) + " says that it has looked", [&](State& next) {
        next.threads[at] = {};
        next.changed = 1;
      });
    }
  }

  void gpuMoves(const State& state, std::vector<Move>& all) const {
    if (state.runs == 0) {
      add(state, all, "the GPU goes on", [](State& next) {
        next.runs = 1;
        for (Thread& thread : next.threads) thread.sinceSlice = thread.phase == kHasLooked ? 1 : 0;
      });
    } else if (!rules.wholeSlices || !anyInTheMidst(state, &Thread::sinceSlice)) {
      add(state, all, "the GPU stops", [](State& next) {
        next.runs = 0;
        for (Thread& thread : next.threads) thread.sinceSlice = thread.sinceRead = 0;
      });
    }
  }

  void processMoves(const State& state, std::vector<Move>& all) const {
    if (state.mustCount != 0) {
      add(state, all, "the process counts a look", [](State& next) {
        next.mustCount = 0;
        next.counted = static_cast<uint8_t>(next.counted + next.pictured);
      });
    } else if (!anyInTheMidst(state, &Thread::sinceRead)) {
      add(state, all, state.changed != 0 ? "the process reads another word" : "the process reads",
          [](State& next) {
            next.mustCount = next.changed;
            next.changed = 0;
            for (Thread& thread : next.threads) {
              thread.sinceRead = next.runs != 0 && thread.phase == kHasLooked ? 1 : 0;
            }
          });
    }
  }
};

}  // namespace stretto::model
