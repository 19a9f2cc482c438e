// A verdict of primitives/host/standstill.cpp is right in every interleaving, and ranks that stand still are
// found. And what goes wrong without each step of the argument, with the shortest run.
#include "model/standstill.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "model/search.hpp"

namespace stretto::model {
namespace {

using Programs = std::vector<std::vector<Action>>;

struct StandstillCase {
  const char* name;
  Programs programs;
};

// Every rank as the one with which the reader starts.
void expectRight(const StandstillCase& one) {
  for (size_t first = 0; first < one.programs.size(); ++first) {
    StandstillSetting setting;
    setting.programs = one.programs;
    setting.first = static_cast<int>(first);
    expectRight(one.name + std::string(", from rank ") + std::to_string(first), StandstillModel(setting));
  }
}

void expectWrong(const std::string& name, const StandstillSetting& setting) {
  expectWrong(name, StandstillModel(setting), "is said to wait for ever, and goes on");
}

// Searches all of them from rank 0 and prints one line.
void expectAllRight(const std::string& name, const std::vector<Programs>& all) {
  size_t states = 0;
  size_t found = 0;
  for (const Programs& programs : all) {
    StandstillSetting setting;
    setting.programs = programs;
    const StandstillModel model(setting);
    Search<StandstillModel> search(model);
    const SearchVerdict verdict = search.run();
    EXPECT_EQ(verdict.problem + search.allReachAim(), "") << name;
    states += verdict.states;
    found += model.aim(model.start()) ? 0u : 1u;
  }
  std::printf("  %s: %zu programs, of which %zu come to stand still, %zu states\n", name.c_str(), all.size(),
              found, states);
  EXPECT_GT(found, 0u);
  EXPECT_LT(found, all.size());
}

// Every list of `length` actions towards `peer`: signals, waits for one signal more, or (`transfers`) that
// and a signal before the wait has ended.
std::vector<std::vector<Action>> everyProgram(int length, int peer, bool transfers) {
  std::vector<std::vector<Action>> all{{}};
  for (int step = 0; step < length; ++step) {
    std::vector<std::vector<Action>> longer;
    for (const std::vector<Action>& program : all) {
      const auto isWait = [](const Action& action) { return action.peers != 0; };
      const int times = 1 + static_cast<int>(std::count_if(program.begin(), program.end(), isWait));
      std::vector<Action> choices{signal(peer), waitFor({peer}, times)};
      if (transfers) choices.push_back(waitAndSignal({peer}, peer, times));
      for (const Action& choice : choices) {
        longer.push_back(program);
        longer.back().push_back(choice);
      }
    }
    all = std::move(longer);
  }
  return all;
}

TEST(Standstill, EveryShortProgramOfTwoRanks) {
  const testing::Watchdog watchdog("every short program of two ranks", 120);
  for (const bool transfers : {false, true}) {
    const int length = transfers ? 2 : 3;
    std::vector<Programs> all;
    for (const auto& first : everyProgram(length, 1, transfers)) {
      for (const auto& second : everyProgram(length, 0, transfers)) all.push_back({first, second});
    }
    expectAllRight("every program of " + std::to_string(length) + (transfers ? " transfers" : " actions"),
                   all);
  }
}

TEST(Standstill, TwoRanks) {
  expectRight({"2 ranks, both wait first", {{waitFor({1}), signal(1)}, {waitFor({0}), signal(0)}}});
  expectRight({"2 ranks, both signal first", {{signal(1), waitFor({1})}, {signal(0), waitFor({0})}}});
  expectRight({"2 ranks, one signals first", {{signal(1), waitFor({1})}, {waitFor({0}), signal(0)}}});
  expectRight({"2 ranks, twice, then both wait",
               {{signal(1), waitFor({1}), waitFor({1}, 2)}, {waitAndSignal({0}, 0), waitFor({0}, 2)}}});
  expectRight({"2 ranks, to and fro",
               {{signal(1), waitAndSignal({1}, 1), waitFor({1}, 2)},
                {waitAndSignal({0}, 0), waitAndSignal({0}, 0, 2)}}});
}

TEST(Standstill, ThreeRanks) {
  expectRight({"3 ranks, a ring of waits", {{waitFor({1})}, {waitFor({2})}, {waitFor({0})}}});
  expectRight({"3 ranks, a chain", {{waitFor({1})}, {waitFor({2}), signal(0)}, {signal(1)}}});
  expectRight({"3 ranks, a ring that one opens",
               {{signal(2), waitFor({1})}, {waitFor({2}), signal(0)}, {waitFor({0}), signal(1)}}});
  expectRight({"3 ranks, two stand still, one only waits for them",
               {{waitFor({1}), signal(2)}, {waitFor({0})}, {waitFor({0}), signal(1)}}});
}

// A rank that waits for one of two goes on when either comes.
TEST(Standstill, ThreeRanksWithTransfers) {
  expectRight({"3 ranks, one of two, and one comes",
               {{waitAndSignal({1, 2}, 1)}, {waitFor({0})}, {signal(0), waitFor({1})}}});
  expectRight({"3 ranks, one of two, and none comes",
               {{waitAndSignal({1, 2}, 1)}, {waitFor({0}), signal(0)}, {waitFor({1})}}});
}

// ---- what each rule is for

StandstillSetting toAndFro() {
  StandstillSetting setting;
  setting.programs = {{signal(1), waitFor({1})}, {waitFor({0}), signal(0)}};
  return setting;
}

TEST(Standstill, BrokenWhenLooksAreReadBeforeTickets) {
  StandstillSetting setting = toAndFro();
  setting.ticketsBeforeLooks = false;
  expectWrong("looks are read before tickets", setting);
}

TEST(Standstill, BrokenWithOneLook) {
  StandstillSetting setting = toAndFro();
  setting.looks = 1;
  expectWrong("one look instead of two", setting);
}

TEST(Standstill, BrokenWhenTicketsAreNotReadAgain) {
  StandstillSetting setting = toAndFro();
  setting.programs = {{signal(1), waitFor({1}), signal(1), waitFor({1}, 2)},
                      {waitFor({0}), signal(0), waitFor({0}, 2), signal(0)}};
  setting.ticketsLast = false;
  expectWrong("tickets are not read after the looks", setting);
  setting.readsTicketsAgain = false;
  expectWrong("tickets are not read again", setting);
}

TEST(Standstill, BrokenWhenTheTicketIsStoredBeforeThePeers) {
  StandstillSetting setting = toAndFro();
  setting.peersBeforeTicket = false;
  expectWrong("the ticket is stored before the peers", setting);
}

TEST(Standstill, NotFoundWhenLooksAreNotCounted) {
  StandstillSetting setting;
  setting.programs = {{waitFor({1})}, {waitFor({0})}};
  setting.countsLooks = false;
  expectWrong("looks are not counted", StandstillModel(setting), "the aim is out of reach");
}

TEST(Standstill, BrokenWithoutAFenceAfterTheCount) {
  StandstillSetting setting = toAndFro();
  setting.fenceAfterCount = false;
  expectWrong("a look may come before the last one is seen to be counted", setting);
}

}  // namespace
}  // namespace stretto::model
