// Runs a model that is written as states and moves, in every order there is: breadth first, so that the run
// that is printed for what goes wrong is a shortest one. For models whose programs branch, fail and die,
// which the verbs of explorer.hpp do not say. For the tests of this folder only.
//
// A model M has
//   M::State   plain bytes without padding, a multiple of 8 of them
//   M::Move    what happens, and `next`: the state after it; fate() if it may as well never happen
//   State start() const
//   void moves(const State&, std::vector<Move>&) const     all that can happen next
//   std::string problem(const State&, bool still) const    what is wrong with a state, or nothing. `still`:
//                                                          only fate can still do anything
//   std::string describe(const Move&) const
//   bool aim(const State&) const                           optional: a state that accepts must stay in reach
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/watchdog.hpp"
#include "model/explorer.hpp"

namespace stretto::model {

struct SearchVerdict {
  size_t states = 0;
  size_t moves = 0;
  std::string problem;  // the shortest run that goes wrong, a move per line; empty when none does
};

template <typename M>
class Search {
 public:
  using State = typename M::State;
  using Move = typename M::Move;
  static_assert(std::has_unique_object_representations_v<State> && std::is_trivially_copyable_v<State>);
  static_assert(sizeof(State) % 8 == 0);
  static constexpr size_t kMostStates = 5'000'000;  // reaching it is a failure, never a pass

  explicit Search(const M& model) : model_(model), seen_(sizeof(State)) {}

  SearchVerdict run() {
    SearchVerdict verdict;
    visit(model_.start(), 0);
    std::vector<Move> moves;
    for (size_t at = 0; at < seen_.size() && verdict.problem.empty(); ++at) {
      const State state = stateAt(at);
      moves.clear();
      model_.moves(state, moves);
      for (const Move& move : moves) visit(move.next, static_cast<uint32_t>(at));
      const bool still =
          std::all_of(moves.begin(), moves.end(), [](const Move& move) { return move.fate(); });
      verdict.moves += moves.size();
      const std::string problem = model_.problem(state, still);
      if (!problem.empty()) verdict.problem = wayTo(at) + "    " + problem + "\n";
      if (seen_.size() > kMostStates) verdict.problem = "    not exhaustive\n";
    }
    verdict.states = seen_.size();
    return verdict;
  }

  // After run(): whether from every state seen one that aim() accepts can be reached. If not, the way to the
  // nearest state from which none can.
  std::string allReachAim() const {
    std::vector<std::vector<uint32_t>> before(seen_.size());
    std::vector<uint32_t> open;
    std::vector<bool> reaches(seen_.size());
    std::vector<Move> moves;
    StateSet seen = seen_;
    for (size_t at = 0; at < seen_.size(); ++at) {
      const State state = stateAt(at);
      moves.clear();
      model_.moves(state, moves);
      for (const Move& move : moves) before[seen.insert(bytesOf(move.next)).first].push_back(uint32_t(at));
      if (!model_.aim(state)) continue;
      reaches[at] = true;
      open.push_back(static_cast<uint32_t>(at));
    }
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      for (const uint32_t from : before[at]) {
        if (reaches[from]) continue;
        reaches[from] = true;
        open.push_back(from);
      }
    }
    const auto lost = std::find(reaches.begin(), reaches.end(), false);
    if (lost == reaches.end()) return "";
    return wayTo(static_cast<size_t>(lost - reaches.begin())) + "    the aim is out of reach\n";
  }

 private:
  static const uint8_t* bytesOf(const State& state) { return reinterpret_cast<const uint8_t*>(&state); }
  State stateAt(size_t at) const {
    State state;
    std::memcpy(&state, seen_.row(at), sizeof state);
    return state;
  }

  void visit(const State& state, uint32_t from) {
    if (seen_.insert(bytesOf(state)).second) from_.push_back(from);
  }

  std::string wayTo(size_t at) const {
    std::string way;
    std::vector<Move> moves;
    for (; at != 0; at = from_[at]) {
      moves.clear();
      model_.moves(stateAt(from_[at]), moves);
      const auto taken = std::find_if(moves.begin(), moves.end(), [&](const Move& move) {
        return std::memcmp(&move.next, seen_.row(at), sizeof(State)) == 0;
      });
      way.insert(0, "    " + model_.describe(*taken) + "\n");
    }
    return way;
  }

  const M& model_;
  StateSet seen_;               // in the order of their distance from the start
  std::vector<uint32_t> from_;  // how each state was first reached
};

// Runs one model under the watchdog, and says on the test's output what it cost.
template <typename M>
SearchVerdict searchAll(const std::string& name, const M& model) {
  const testing::Watchdog watchdog(name.c_str(), 120);
  const auto start = std::chrono::steady_clock::now();
  Search<M> search(model);
  SearchVerdict verdict = search.run();
  if constexpr (requires { model.aim(model.start()); }) {
    if (verdict.problem.empty()) verdict.problem = search.allReachAim();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("  %-64s %8zu states %9zu moves %5.2f s\n", name.c_str(), verdict.states, verdict.moves,
              took.count());
  return verdict;
}

template <typename M>
void expectRight(const std::string& name, const M& model) {
  const SearchVerdict verdict = searchAll(name, model);
  EXPECT_EQ(verdict.problem, "") << name << "\n" << verdict.problem;
  EXPECT_GT(verdict.states, 10u) << name;
}

// A negative control: the search must find that it goes wrong, and in this way; the shortest run is printed.
template <typename M>
void expectWrong(const std::string& name, const M& model, const std::string& how) {
  const SearchVerdict verdict = searchAll(name, model);
  EXPECT_NE(verdict.problem.find(how), std::string::npos) << name << "\n" << verdict.problem;
  std::printf("%s", verdict.problem.c_str());
}

}  // namespace stretto::model
