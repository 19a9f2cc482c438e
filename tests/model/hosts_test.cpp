// Liveness belongs to the living, in every interleaving: whoever dies, and whoever hosts, all who live are
// told, and nobody who lives is taken for lost. And what goes wrong without one of the rules.
#include "model/hosts.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "harness/watchdog.hpp"

namespace stretto::model {
namespace {

HostsVerdict run(const std::string& name, const HostsSetting& setting) {
  const testing::Watchdog watchdog(name.c_str(), 120);
  const auto start = std::chrono::steady_clock::now();
  const HostsModel model(setting);
  HostsVerdict verdict = HostsSearch(model).run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("  %-58s %9zu states %10zu moves %6.2f s\n", name.c_str(), verdict.states, verdict.moves,
              took.count());
  return verdict;
}

void expectTold(const std::string& name, const HostsSetting& setting) {
  const HostsVerdict verdict = run(name, setting);
  EXPECT_EQ(verdict.problem, "") << name << "\n" << verdict.problem;
  EXPECT_GT(verdict.states, 10u) << name;
}

// A negative control: the search must find that it goes wrong, and how; the shortest run is printed.
void expectForgotten(const std::string& name, const HostsSetting& setting, const std::string& how) {
  const HostsVerdict verdict = run(name, setting);
  EXPECT_NE(verdict.problem.find(how), std::string::npos) << name << "\n" << verdict.problem;
  std::printf("%s", verdict.problem.c_str());
}

TEST(HostsModel, EveryDeathIsToldToAllWhoLive) {
  for (const bool makerIsMember : {true, false}) {
    const std::string maker = makerIsMember ? ", member 0 made the id" : ", the maker is no member";
    HostsSetting setting;
    setting.makerIsMember = makerIsMember;
    setting.members = 3;
    setting.deaths = 3;
    expectTold("3 members, 3 deaths" + maker, setting);
    setting.deaths = 2;
    setting.stops = 1;
    expectTold("3 members, 2 deaths, 1 stop" + maker, setting);
    setting.members = 4;
    setting.deaths = 1;
    expectTold("4 members, 1 death, 1 stop" + maker, setting);
    setting.stops = 0;
    setting.leaves = 1;
    setting.members = makerIsMember ? 4 : 3;
    expectTold((makerIsMember ? "4" : "3") + std::string(" members, 1 death, 1 goodbye") + maker, setting);
    setting.leaves = 0;
    if (!makerIsMember) continue;  // two deaths more would be millions of states
    setting.deaths = 3;
    expectTold("4 members, 3 deaths" + maker, setting);
  }
}

TEST(HostsModel, BrokenWithoutCalls) {
  HostsSetting setting;
  setting.calls = false;
  expectForgotten("a new host does not call who has not come", setting, "has not been told");
}

TEST(HostsModel, BrokenWithoutSuccession) {
  HostsSetting setting;
  setting.deaths = 3;
  setting.succession = false;
  expectForgotten("nobody takes over", setting, "has not been told");
}

TEST(HostsModel, BrokenWithOneHost) {
  HostsSetting setting;
  setting.stops = 1;
  setting.deaths = 1;
  setting.wanted = 1;
  expectForgotten("one host, which can be stopped", setting, "has not been told");
}

TEST(HostsModel, BrokenWhenSilenceIsDeath) {
  HostsSetting setting;
  setting.stops = 1;
  setting.waitsForLife = false;
  expectForgotten("a member that does not speak is taken for lost", setting, "takes a living member");
}

// The limit of what a goodbye can do: the rendezvous dies, and then, before others have come to it, the one
// host that has heard the goodbye.
TEST(HostsModel, AGoodbyeDiesWithAllWhoKnewOfIt) {
  HostsSetting setting;
  setting.makerIsMember = false;
  setting.members = 3;
  setting.deaths = 2;
  setting.leaves = 1;
  expectForgotten("a goodbye, and two deaths", setting, "has not been told");
}

// A death leaves a connection or an address that says so; a goodbye does not.
TEST(HostsModel, BrokenWhenNewcomersAreNotToldWhoIsGone) {
  HostsSetting setting;
  setting.deaths = 1;
  setting.leaves = 1;
  setting.letsKnow = false;
  expectForgotten("a newcomer is not told whom its host knows to be gone", setting, "has not been told");
}

}  // namespace
}  // namespace stretto::model
