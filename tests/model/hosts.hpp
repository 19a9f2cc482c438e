// The hand-over of liveness as a model: members of a session, each in a process of its own, the processes
// that host it (src/bootstrap/hosts.hpp has the rules), and deaths and one stop at any moment. Connections
// break when a process dies, what it sent before is still read, and every message may be late. For the tests
// of this folder only.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stretto::model {

struct HostsSetting {
  int members = 4;
  bool makerIsMember = true;  // the id was made by member 0; otherwise by a process that is no member
  int deaths = 2;
  int stops = 0;
  int leaves = 0;  // members that say goodbye, in processes that live on
  // The rules; a test takes one away to see that it is needed.
  int wanted = 2;            // hosts besides the rendezvous
  bool succession = true;    // when one is gone, the next takes over
  bool calls = true;         // a host calls members that have not come to it
  bool letsKnow = true;      // a host and its newcomer tell each other whom they know to be gone
  bool waitsForLife = true;  // a call that is accepted is an answer, though nobody speaks
};

// Processes are 0 .. members - 1, and the last is a maker that is no member. Sets of them are bits.
class HostsModel {
 public:
  static constexpr int kMost = 5;
  struct State {
    uint8_t alive = 0;
    uint8_t stopped = 0;
    uint8_t deaths = 0;
    uint8_t stops = 0;
    uint8_t left = 0;
    uint8_t leaves = 0;
    std::array<uint8_t, kMost> known{};  // whom each process knows to be gone: its member, and what it hosts
    std::array<uint8_t, kMost> connected{};                // by member: to which hosts
    std::array<std::array<uint8_t, kMost>, kMost> news{};  // on its way from a host to a member
    bool operator==(const State&) const = default;
  };
  enum class Kind : uint8_t {
    kDies,
    kStops,
    kLeaves,
    kReads,
    kSeesHostEnd,
    kRefused,
    kComes,
    kSeesMemberEnd,
    kCalls
  };
  struct Move {
    Kind kind;
    int who;
    int other;
    State next;
    bool fate() const { return kind <= Kind::kLeaves; }  // not the protocol's doing
  };

  std::string describe(const Move& move) const {
    const std::string who = name(move.who);
    const std::string other = name(move.other);
    switch (move.kind) {
      case Kind::kDies:
        return who + " dies";
      case Kind::kStops:
        return who + " is stopped";
      case Kind::kLeaves:
        return who + " leaves";
      case Kind::kReads:
        return who + " reads what " + other + " has sent";
      case Kind::kSeesHostEnd:
        return who + " sees its connection to " + other + " end";
      case Kind::kRefused:
        return who + " is refused where " + other + " was";
      case Kind::kComes:
        return who + " comes to " + other;
      case Kind::kSeesMemberEnd:
        return who + " sees the connection of " + other + " end";
      case Kind::kCalls:
        return who + " calls " + other + " in vain";
    }
    return "";
  }

  explicit HostsModel(const HostsSetting& setting) : rules(setting) {}

  const HostsSetting rules;
  int processes() const { return rules.members + (rules.makerIsMember ? 0 : 1); }
  int maker() const { return rules.makerIsMember ? 0 : rules.members; }

  State start() const {
    State state;
    state.alive = static_cast<uint8_t>((1 << processes()) - 1);
    for (int member = 0; member < rules.members; ++member) {
      if (member != maker()) state.connected[at(member)] = bit(maker());
    }
    return state;
  }

  // The hosts that `member` wants.
  uint8_t desired(const State& state, int member) const {
    uint8_t wanted = 0;
    const uint8_t gone = rules.succession ? state.known[at(member)] : 0;
    for (int host = 0; host < rules.members && std::popcount(wanted) < rules.wanted; ++host) {
      if ((gone & bit(host)) == 0) wanted |= bit(host);
    }
    return wanted;
  }

  std::vector<Move> moves(const State& state) const {
    std::vector<Move> all;
    for (int process = 0; process < processes(); ++process) {
      fates(state, process, all);
      if (!runs(state, process)) continue;
      if (process < rules.members && (state.left & bit(process)) == 0) asMember(state, process, all);
      asHost(state, process, all);
    }
    return all;
  }

  // What is wrong with a state in which only fate can do anything more (`still`), or with any.
  std::string problem(const State& state, bool still) const {
    const int members = (1 << rules.members) - 1;
    const int gone = members & (~state.alive | state.left);
    for (int process = 0; process < processes(); ++process) {
      if ((state.alive & bit(process)) == 0) continue;
      const uint8_t known = state.known[at(process)];
      if ((known & ~gone) != 0) return name(process) + " takes a living member for lost";
      const bool member = process < rules.members && (state.left & bit(process)) == 0;
      if (still && member && runs(state, process) && known != gone) {
        return name(process) + " has not been told who is gone";
      }
    }
    return "";
  }

 private:
  static size_t at(int process) { return static_cast<size_t>(process); }
  static uint8_t bit(int process) { return static_cast<uint8_t>(1 << process); }
  std::string name(int process) const {
    return process < rules.members ? "member " + std::to_string(process) : "the maker";
  }
  static bool runs(const State& state, int process) {
    return (state.alive & ~state.stopped & bit(process)) != 0;
  }

  void fates(const State& state, int process, std::vector<Move>& all) const {
    if ((state.alive & bit(process)) == 0) return;
    if (process < rules.members) leave(state, process, all);
    if (state.deaths < rules.deaths) {
      Move move{Kind::kDies, process, process, state};
      move.next.alive &= static_cast<uint8_t>(~bit(process));
      ++move.next.deaths;
      all.push_back(std::move(move));
    }
    if (state.stops < rules.stops && (state.stopped & bit(process)) == 0) {
      Move move{Kind::kStops, process, process, state};
      move.next.stopped |= bit(process);
      ++move.next.stops;
      all.push_back(std::move(move));
    }
  }

  // The goodbye goes to all hosts, and one of them must vouch for it. Whoever still runs in the process
  // answers calls, so that nothing but the goodbye says that the member is gone.
  void leave(const State& state, int member, std::vector<Move>& all) const {
    if (state.leaves == rules.leaves || (state.left & bit(member)) != 0 || !runs(state, member)) return;
    Move move{Kind::kLeaves, member, member, state};
    move.next.left |= bit(member);
    ++move.next.leaves;
    move.next.connected[at(member)] = 0;
    bool vouched = false;
    for (int other = 0; other < rules.members; ++other) {  // what this very process hosts says so too
      if ((state.connected[at(other)] & bit(member)) != 0)
        move.next.news[at(member)][at(other)] |= bit(member);
    }
    for (int host = 0; host < processes(); ++host) {
      const bool hears = (state.connected[at(member)] & bit(host)) != 0 && runs(state, host);
      if (!hears) continue;
      learn(move.next, host, bit(member));
      vouched = vouched || host == maker() || (state.left & bit(host)) == 0;
    }
    if (vouched) all.push_back(std::move(move));
  }

  // `process` learns that members are gone, and passes it on to those who are connected to it.
  void learn(State& state, int process, uint8_t gone) const {
    const auto fresh = static_cast<uint8_t>(gone & ~state.known[at(process)] & ~bit(process));
    if (fresh == 0) return;
    state.known[at(process)] |= fresh;
    for (int member = 0; member < rules.members; ++member) {
      if ((state.connected[at(member)] & bit(process)) != 0) state.news[at(process)][at(member)] |= fresh;
    }
  }

  void asMember(const State& state, int member, std::vector<Move>& all) const {
    const uint8_t connected = state.connected[at(member)];
    for (int host = 0; host < processes(); ++host) {
      const uint8_t news = state.news[at(host)][at(member)];
      if ((connected & bit(host)) == 0) continue;
      if (news != 0) {
        Move move{Kind::kReads, member, host, state};
        move.next.news[at(host)][at(member)] = 0;
        learn(move.next, member, news);
        all.push_back(std::move(move));
      } else if ((state.alive & bit(host)) == 0) {
        Move move{Kind::kSeesHostEnd, member, host, state};
        move.next.connected[at(member)] &= static_cast<uint8_t>(~bit(host));
        if (host < rules.members) learn(move.next, member, bit(host));
        all.push_back(std::move(move));
      }
    }
    const uint8_t missing = desired(state, member) & ~connected & ~bit(member) & ~state.known[at(member)];
    for (int host = 0; host < rules.members; ++host) {
      if ((missing & bit(host)) != 0) comeTo(state, member, host, all);
    }
  }

  void comeTo(const State& state, int member, int host, std::vector<Move>& all) const {
    if ((state.alive & bit(host)) == 0) {
      Move move{Kind::kRefused, member, host, state};
      learn(move.next, member, bit(host));
      all.push_back(std::move(move));
    } else if (runs(state, host) && (state.left & bit(host)) == 0) {
      Move move{Kind::kComes, member, host, state};
      move.next.connected[at(member)] |= bit(host);
      if (rules.letsKnow) {
        const uint8_t known = state.known[at(member)];
        move.next.news[at(host)][at(member)] |= state.known[at(host)];
        learn(move.next, host, known);
      }
      all.push_back(std::move(move));
    }
  }

  void asHost(const State& state, int host, std::vector<Move>& all) const {
    const bool further = host < rules.members && (desired(state, host) & bit(host)) != 0 && host != maker();
    for (int member = 0; member < rules.members; ++member) {
      if (member == host || (state.known[at(host)] & bit(member)) != 0) continue;
      const bool here = (state.connected[at(member)] & bit(host)) != 0;
      const bool dead = (state.alive & bit(member)) == 0;
      const bool silent = dead || (!rules.waitsForLife && !runs(state, member));
      if (here && dead) {
        Move move{Kind::kSeesMemberEnd, host, member, state};
        move.next.connected[at(member)] &= static_cast<uint8_t>(~bit(host));
        learn(move.next, host, bit(member));
        all.push_back(std::move(move));
      } else if (!here && silent && further && rules.calls) {
        Move move{Kind::kCalls, host, member, state};
        learn(move.next, host, bit(member));
        all.push_back(std::move(move));
      }
    }
  }
};

struct HostsVerdict {
  size_t states = 0;
  size_t moves = 0;
  std::string problem;  // the shortest run that goes wrong, a move per line; empty when none does
};

// All states, the nearest first.
class HostsSearch {
 public:
  explicit HostsSearch(const HostsModel& model) : model_(model) {}

  HostsVerdict run() {
    HostsVerdict verdict;
    visit(model_.start(), nullptr);
    while (!open_.empty() && verdict.problem.empty()) {
      const State* const state = open_.front();
      open_.pop_front();
      bool still = true;
      for (const HostsModel::Move& move : model_.moves(*state)) {
        ++verdict.moves;
        still = still && move.fate();
        visit(move.next, state);
      }
      const std::string problem = model_.problem(*state, still);
      if (!problem.empty()) verdict.problem = wayTo(state) + "    " + problem + "\n";
    }
    verdict.states = from_.size();
    return verdict;
  }

 private:
  using State = HostsModel::State;
  static_assert(sizeof(State) == 6 + 2 * HostsModel::kMost + HostsModel::kMost * HostsModel::kMost);
  struct Hash {
    size_t operator()(const State& state) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&state), sizeof state});
    }
  };

  void visit(const State& state, const State* from) {
    const auto [found, fresh] = from_.try_emplace(state, from);
    if (fresh) open_.push_back(&found->first);
  }

  std::string wayTo(const State* state) const {
    std::string way;
    for (const State* from = from_.at(*state); from != nullptr; state = from, from = from_.at(*from)) {
      for (const HostsModel::Move& move : model_.moves(*from)) {
        if (!(move.next == *state)) continue;
        way = "    " + model_.describe(move) + "\n" + way;
        break;
      }
    }
    return way;
  }

  const HostsModel& model_;
  std::unordered_map<State, const State*, Hash> from_;  // how each state was first reached
  std::deque<const State*> open_;
};

}  // namespace stretto::model
