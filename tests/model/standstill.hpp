// How ranks find that they wait for each other for ever, as a model: ranks that signal and wait, publish
// their long waits, and a reader of what they publish (primitives/host/standstill.cpp has the argument;
// Patience in primitives/host/host.cpp publishes; executors/host/transfers.cpp waits for one of several). For
// the tests of this folder only.
//
// What a rank runs is a list of
//   signal(peer)       stores a counter in the peer's window that says how often this rank has signalled
//   wait(peers)        until one of `peers` has signalled at least so often
//   waitAndSignal      the same, and what it finds lets it signal before its wait has ended in its window:
//                      progressAll moves data first, then Patience is destroyed
// A wait looks; if nothing has come, it stores `peers`, then an odd ticket, then passes a fence (publish and
// the arming in sleepStep); then it looks, counts that look if it was in vain, and so on; when it has found
// something it stores an even ticket, if it had stored an odd one. A rank may stop for ever between any two
// steps: then the system has stopped it.
//
// The reader is nobody of the set, though in the library it is a member between two looks of its own: so it
// may read at more moments than there are. It takes the steps of Host::standstill one load at a time and in
// its order, starting with the set of one rank, and starts again where the library does.
//
// Memory: a rank's stores linger, four at most and in order, until they land or a fence waits for them; loads
// are in order. A number of looks only matters by how many were counted since the reader has read it, up to
// two, so the model keeps that: the states are finitely many though ranks look for ever.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace stretto::model {

struct Action {
  uint8_t peers = 0;    // to wait for one of these; 0: does not wait
  uint8_t times = 0;    // that it has signalled so often
  int8_t signals = -1;  // then to signal this one
};
inline Action signal(int peer) {
  return {0, 0, static_cast<int8_t>(peer)};
}
inline Action waitFor(std::initializer_list<int> peers, int times = 1) {
  Action action;
  for (const int peer : peers) action.peers |= static_cast<uint8_t>(1 << peer);
  action.times = static_cast<uint8_t>(times);
  return action;
}
inline Action waitAndSignal(std::initializer_list<int> peers, int peer, int times = 1) {
  Action action = waitFor(peers, times);
  action.signals = static_cast<int8_t>(peer);
  return action;
}

struct StandstillSetting {
  std::vector<std::vector<Action>> programs;  // of each rank
  int first = 0;                              // the reader's set starts with this rank
  // The rules; a test takes one away to see that it is needed.
  bool ticketsBeforeLooks = true;  // step 1 of the argument
  int looks = 2;                   // further looks of each member
  bool readsTicketsAgain = true;   // at all in step 2
  bool ticketsLast = true;         // after the looks, not only before them
  bool peersBeforeTicket = true;   // publish()
  bool countsLooks = true;
  // The next look comes after the last one is seen to be counted. In the library sleepStep passes a
  // full fence between the two.
  bool fenceAfterCount = true;
};

class StandstillModel {
 public:
  static constexpr int kMost = 3;
  static constexpr int kMostLingering = 4;
  // Where a rank is in its action.
  enum Phase : uint8_t {
    kFresh,
    kSaysPeers,
    kSaysTicket,
    kFence,
    kLooks,
    kCounts,
    kCountFence,
    kFound,
    kLeaves
  };
  // A store that has not landed: of a counter at rank 0, 1, 2; of the peers, with them; of looks or ticket.
  enum Store : uint8_t { kNone, kSignals = 0x10, kPeers = 0x20, kCount = 0x30, kTicket = 0x40 };
  struct Rank {
    uint8_t at = 0;  // in its program
    uint8_t phase = kFresh;
    uint8_t ticket = 0;  // as others see them, like the rest of its window
    uint8_t peers = 0;
    uint8_t since = 0;                 // looks counted since the reader has read their number, at most two
    std::array<uint8_t, kMost> got{};  // signals from each
    std::array<uint8_t, kMostLingering> lingering{};
  };
  enum Stage : uint8_t {
    kLooksFirst,
    kSet,
    kSetPeers,
    kLookNumbers,
    kCheck,
    kFurtherLooks,
    kCheckAgain,
    kSure
  };
  struct Reader {
    uint8_t stage = kSet;
    uint8_t members = 0;
    uint8_t open = 0;     // members to be read in this stage
    uint8_t counted = 0;  // members of which `since` counts
    std::array<uint8_t, kMost> tickets{};
    uint8_t unused = 0;
  };
  struct State {
    std::array<Rank, kMost> ranks{};
    Reader reader;
    std::array<uint8_t, 4> unused{};
  };
  struct Move {
    int who;  // kMost: the reader
    std::string (*words)(const Move&);
    uint8_t detail;
    State next;
    bool fate() const { return false; }
  };

  explicit StandstillModel(StandstillSetting setting) : rules(std::move(setting)) {}

  const StandstillSetting rules;

  State start() const {
    State state;
    restart(state.reader);
    return state;
  }

  void moves(const State& state, std::vector<Move>& all) const {
    if (state.reader.stage == kSure) return;
    for (int who = 0; who < ranks(); ++who) {
      if (state.ranks[size_t(who)].lingering[0] != 0) land(state, who, all);
      if (state.ranks[size_t(who)].at < rules.programs[size_t(who)].size()) proceed(state, who, all);
    }
    read(state, all);
  }

  // A verdict is right if nobody in the set gets past its wait, whatever the others still do. Signals are
  // never taken back, so it is enough to let everybody go as far as it can, in any order.
  std::string problem(const State& state, bool) const {
    if (state.reader.stage != kSure) return "";
    const std::vector<size_t> ends = furthest(state);
    for (int who = 0; who < ranks(); ++who) {
      const bool member = (state.reader.members & bit(who)) != 0;
      if (member && ends[size_t(who)] != state.ranks[size_t(who)].at) {
        return name(who) + " is said to wait for ever, and goes on";
      }
    }
    return "";
  }

  // That the reader finds out, if the rank with which it starts comes to stand still. If that rank ends, or
  // waits for one that ends, other rules tell it (Host::disagreement).
  bool aim(const State& state) const { return state.reader.stage == kSure || !standsStill(furthest(state)); }

  std::string describe(const Move& move) const { return name(move.who) + " " + move.words(move); }

 private:
  static uint8_t bit(int rank) { return static_cast<uint8_t>(1 << rank); }
  static std::string name(int rank) { return rank == kMost ? "the reader" : "rank " + std::to_string(rank); }
  static std::string number(const Move& move) { return std::to_string(move.detail); }
  int ranks() const { return static_cast<int>(rules.programs.size()); }
  uint8_t everybody() const { return static_cast<uint8_t>((1 << ranks()) - 1); }

  // ---- what really happens in the end

  std::vector<size_t> furthest(const State& state) const {
    std::vector<size_t> at(rules.programs.size());
    std::array<std::array<uint8_t, kMost>, kMost> got{};  // by receiver and source
    for (size_t who = 0; who < at.size(); ++who) {
      at[who] = state.ranks[who].at;
      for (size_t from = 0; from < at.size(); ++from) got[who][from] += state.ranks[who].got[from];
      for (const uint8_t store : state.ranks[who].lingering) {
        if ((store & 0xf0) == kSignals) ++got[store & 15][who];
      }
    }
    const auto canGo = [&](size_t who) {
      if (at[who] == rules.programs[who].size()) return false;
      const Action& action = rules.programs[who][at[who]];
      return action.peers == 0 || (at[who] == state.ranks[who].at && state.ranks[who].phase >= kFound) ||
             hasCome(got[who], action);
    };
    for (bool any = true; any;) {
      any = false;
      for (size_t who = 0; who < at.size(); ++who) {
        for (; canGo(who); any = true, ++at[who]) {
          const Action& action = rules.programs[who][at[who]];
          const bool sent = at[who] == state.ranks[who].at && state.ranks[who].phase == kLeaves;
          if (action.signals >= 0 && !sent) ++got[size_t(action.signals)][who];
        }
      }
    }
    return at;
  }

  // Whether the first rank's set is closed in the end: all in it wait, for members only.
  bool standsStill(const std::vector<size_t>& at) const {
    uint8_t members = bit(rules.first);
    for (uint8_t open = members; open != 0;) {
      const auto who = static_cast<size_t>(std::countr_zero(open));
      if (at[who] == rules.programs[who].size()) return false;
      const auto more = static_cast<uint8_t>(rules.programs[who][at[who]].peers & ~members);
      members |= more;
      open = static_cast<uint8_t>((open & (open - 1)) | more);
    }
    return true;
  }

  static bool hasCome(const std::array<uint8_t, kMost>& got, const Action& action) {
    for (int peer = 0; peer < kMost; ++peer) {
      if ((action.peers & bit(peer)) != 0 && got[size_t(peer)] >= action.times) return true;
    }
    return false;
  }

  // ---- a rank

  static void land(const State& state, int who, std::vector<Move>& all) {
    const uint8_t store = state.ranks[size_t(who)].lingering[0];
    static constexpr auto kWords = [](const Move& move) -> std::string {
      switch (move.detail & 0xf0) {
        case kSignals:
          return "has signalled rank " + std::to_string(move.detail & 15) + ": it lands";
        case kPeers:
          return "has stored for whom it waits: it lands";
        case kCount:
          return "has counted a look: it lands";
        default:
          return "has stored a ticket: it lands";
      }
    };
    all.push_back({who, kWords, store, state});
    State& next = all.back().next;
    Rank& me = next.ranks[size_t(who)];
    std::rotate(me.lingering.begin(), me.lingering.begin() + 1, me.lingering.end());
    me.lingering.back() = kNone;
    const int detail = store & 15;
    if ((store & 0xf0) == kSignals) ++next.ranks[size_t(detail)].got[size_t(who)];
    if ((store & 0xf0) == kPeers) me.peers = static_cast<uint8_t>(detail);
    if ((store & 0xf0) == kTicket) ++me.ticket;
    if ((store & 0xf0) == kCount && (state.reader.counted & bit(who)) != 0 && me.since < 2) ++me.since;
  }

  static bool canStore(const Rank& me) { return me.lingering.back() == kNone; }
  static void store(Rank& me, int what) {
    *std::find(me.lingering.begin(), me.lingering.end(), kNone) = static_cast<uint8_t>(what);
  }

  void proceed(const State& state, int who, std::vector<Move>& all) const {
    const Rank& me = state.ranks[size_t(who)];
    const Action& action = rules.programs[size_t(who)][me.at];
    const bool stores = me.phase != kFence && me.phase != kLooks && me.phase != kCountFence;
    if ((me.phase == kFence || me.phase == kCountFence) && me.lingering[0] != kNone) return;
    if (stores && !canStore(me)) return;
    State next = state;
    Rank& then = next.ranks[size_t(who)];
    step(then, action);
    static constexpr auto kWords = [](const Move& move) -> std::string {
      static constexpr const char* kNames[] = {"begins its next action",
                                               "publishes",
                                               "publishes",
                                               "passes a fence",
                                               "looks",
                                               "counts its look",
                                               "passes a fence",
                                               "goes on: it has found something",
                                               "ends its wait"};
      return kNames[move.detail];
    };
    all.push_back({who, kWords, me.phase, next});
  }

  void step(Rank& me, const Action& action) const {
    const bool found = action.peers == 0 || hasCome(me.got, action);
    const auto finish = [&] {
      ++me.at;
      me.phase = kFresh;
    };
    switch (me.phase) {
      case kFresh:  // what has come already is taken, and then nothing was published
        if (!found) {
          me.phase = kSaysPeers;
          break;
        }
        if (action.signals >= 0) store(me, kSignals | action.signals);
        finish();
        break;
      case kSaysPeers:
        store(me, rules.peersBeforeTicket ? kPeers | action.peers : int(kTicket));
        me.phase = kSaysTicket;
        break;
      case kSaysTicket:
        store(me, rules.peersBeforeTicket ? int(kTicket) : kPeers | action.peers);
        me.phase = kFence;
        break;
      case kFence:
        me.phase = kLooks;
        break;
      case kLooks:
        me.phase = found ? kFound : kCounts;
        break;
      case kCounts:
        if (rules.countsLooks) store(me, kCount);
        me.phase = rules.fenceAfterCount ? kCountFence : kLooks;
        break;
      case kCountFence:
        me.phase = kLooks;
        break;
      case kFound:
        if (action.signals >= 0) store(me, kSignals | action.signals);
        me.phase = kLeaves;
        break;
      default:
        store(me, kTicket);
        finish();
    }
  }

  // ---- the reader

  void restart(Reader& reader) const {
    reader = {};
    reader.stage = rules.ticketsBeforeLooks ? kSet : kLooksFirst;
    reader.members = rules.ticketsBeforeLooks ? bit(rules.first) : everybody();  // to read their looks
    reader.open = reader.members;
  }

  void read(const State& state, std::vector<Move>& all) const {
    const int rank = std::countr_zero(state.reader.open);
    static constexpr auto kWords = [](const Move& move) -> std::string {
      static constexpr const char* kNames[] = {
          "reads the number of looks of rank ", "reads the ticket of rank ",
          "reads the peers of rank ",           "reads the number of looks of rank ",
          "reads the ticket again of rank ",    "reads again the number of looks of rank ",
          "reads the ticket last of rank "};
      return kNames[move.detail >> 4] + std::to_string(move.detail & 15);
    };
    all.push_back({kMost, kWords, static_cast<uint8_t>(state.reader.stage << 4 | rank), state});
    readOne(all.back().next, rank);
  }

  // `rank` is read; after the last one comes the next stage, which begins with all members.
  void advance(Reader& reader, int rank, Stage stage) const {
    reader.open &= static_cast<uint8_t>(~bit(rank));
    if (reader.open != 0) return;
    reader.stage = stage;
    if (stage != kSure) reader.open = reader.members;
  }

  void forget(State& next) const {
    restart(next.reader);
    for (Rank& rank : next.ranks) rank.since = 0;
  }

  void readOne(State& next, int rank) const {
    Reader& reader = next.reader;
    Rank& of = next.ranks[size_t(rank)];
    const bool same = of.ticket == reader.tickets[size_t(rank)];
    switch (reader.stage) {
      case kLooksFirst:
      case kLookNumbers:
        reader.counted |= bit(rank);
        of.since = 0;
        if (reader.stage == kLookNumbers) return advance(reader, rank, checked(kCheck));
        advance(reader, rank, kSet);
        if (reader.stage == kSet) reader.open = reader.members = bit(rules.first);
        return;
      case kSet:
        if (of.ticket % 2 == 0) return forget(next);
        reader.tickets[size_t(rank)] = of.ticket;
        reader.stage = kSetPeers;
        return;
      case kSetPeers: {
        const auto more = static_cast<uint8_t>(of.peers & ~reader.members);
        reader.members |= more;
        reader.open |= more;
        reader.stage = kSet;
        return advance(reader, rank, rules.ticketsBeforeLooks ? kLookNumbers : checked(kCheck));
      }
      case kCheck:
        return same ? advance(reader, rank, kFurtherLooks) : forget(next);
      case kFurtherLooks:
        if (of.since >= rules.looks) {
          return advance(reader, rank, checked(rules.ticketsLast ? kCheckAgain : kSure));
        }
        break;
      default:  // kCheckAgain
        if (same) return advance(reader, rank, kSure);
        break;
    }
    reader.open = reader.members;  // another time, from the tickets on
    reader.stage = checked(kCheck);
  }

  // Where the tickets would be read again, the next stage if they are not.
  Stage checked(Stage stage) const {
    if (rules.readsTicketsAgain) return stage;
    return stage == kCheck ? kFurtherLooks : kSure;
  }
};

}  // namespace stretto::model
