// The end of direct operations as a model: ranks that read each other's own buffers, and deaths, aborts and
// errors at any moment (docs/decisions/0023-what-holds-after-a-fault.md; `directly` in algorithms/direct.hpp;
// beginReading, goOnReading, endReading and awaitReaders in primitives/host/host.cpp). For the tests of this
// folder only.
//
// What a step stands for:
//   kAnnounce   exchangeBuffers puts this rank's buffers into one peer's window
//   kWaitBuffers, kWaitResult, kWaitEnd   Host::wait: goes on when what it waits for has come, even if this
//               rank has been told of a loss; otherwise it may give up when this rank has been told, when a
//               peer shows that it has failed (Host::disagreement), or with an error of its own (a deadline)
//   kSayReading, kFence, kLook            beginReading (no kFence if it is light), and kLook goOnReading
//   kRead       loads a piece of a peer's send buffer, kTake of its receive buffer; a read may fail too
//   kKeep       the owner's shard is complete in its receive buffer
//   kSayResult  signalAll(kScatter), kSignal signalAll(kGather), one peer a step
//   kSayDone, kVerify                     endReading
//   kSucceed    the caller has its buffers back, with success
//   kSayFailed, kSayDone, kFence, kAwait  awaitReaders
//   kFencePeer  heavyFence(), for one peer: a moment at which nothing of that peer lingers
//   kFail       the caller has its buffers back, with an error
//   kOverwrite  the caller uses its buffers for something else
//
// One look reads the words of all peers in one step. That leaves nothing out: they only ever go from good to
// failed, so a look that reads them one after the other ends as one that read all at its first load, or all
// at the load that found a failure. The same holds for waits, whose flags only rise.
//
// Memory: the stores to `reading` and `failed` linger in a store buffer, in order, until they land or a fence
// waits for them; a dead rank's still land. Every other store is a release, or the caller's own: it waits for
// what lingers. Loads are in order, as endReading's fence has it; a variant looks before it reads. Buffers
// are distinct: what operations in place add is not modelled.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace stretto::model {

struct DirectSetting {
  int ranks = 2;
  bool reduces = false;  // all-reduce: owners reduce a shard, others take it from there; else all-gather
  int pieces = 1;        // of each peer's send buffer; a look between two
  // Faults, so many in all.
  int deaths = 1;
  int aborts = 1;  // a rank's own ncclCommAbort or ncclCommRevoke
  int errors = 1;  // an error of a rank's own, of which its window shows nothing yet
  // Whom an owner may be tired of, so that it returns after 0.3 s though that rank says that it reads:
  // nobody; who waits meanwhile, for a result or for the reason why a peer has failed, and is not stopped; or
  // anybody, who is stopped then.
  enum class Tires { kNever, kOfWaiting, kOfAnybody };
  Tires tires = Tires::kNever;
  bool lateIsWrong = true;  // to read what its owner has back, unless the reader was stopped; else only wrong
                            // data is looked for
  // The rules; a test takes one away to see that it is needed.
  bool waitsSeeFailures = true;  // of peers, also in waits for others
  bool looksAfterWaits = true;   // for a result
  bool looksAtBegin = true;
  bool fenceAtBegin = true;  // of a reader
  bool verifies = true;
  bool readsBeforeVerifying = true;  // else the last read comes behind the look
  bool readsBeforeSignalling = true;
  bool verifiesBeforeSignalling = true;
  bool saysFailedFirst = true;  // before the caller has its buffers back
  bool fenceAtAwait = true;
  bool heavyFence = false;  // and all peers pass one with it
  bool awaitsReaders = true;
  bool forgivesLost = true;     // an owner waits for nobody whom it knows to be lost
  bool quietBeforeLost = true;  // an abort is told to the others when nothing of that rank runs any more
};

class DirectModel {
 public:
  static constexpr int kMost = 3;
  enum Flag : uint16_t {
    kReading = 1,  // the words of its window, as peers see them
    kFailed = 2,
    kTold = 4,  // `abort`
    kDead = 8,
    kReturned = 16,
    kSucceeded = 32,
    kOverwritten = 64,
    kTainted = 128,  // it has read a byte from after its owner's operation had ended, or one made of such
    kBadResult = 256,
    kTired = 512,  // it returns though a reader is stopped
    kFailing = 1024
  };
  enum Lingering : uint8_t { kNothing, kStoreReading, kStoreDone, kStoreFailed };
  struct Rank {
    uint16_t flags = 0;
    uint8_t at = 0;         // in its program
    uint8_t lingering = 0;  // stores, 2 bits each, the oldest lowest
    uint8_t lost = 0;       // whom its process knows to be lost
    uint8_t announced = 0;  // the peers that have its buffers
    uint8_t results = 0;    // the peers that it has told of its result
    uint8_t signalled = 0;  // the peers that have its signal of the end barrier
    bool operator==(const Rank&) const = default;
  };
  struct State {
    std::array<Rank, kMost> ranks{};
    uint8_t deaths = 0, aborts = 0, errors = 0;
    uint8_t late = 0;  // somebody has read a buffer after its owner had returned
    uint32_t unused = 0;
  };
  enum Verb : uint8_t {
    kAnnounce,
    kWaitBuffers,
    kSayReading,
    kFence,
    kFencePeer,
    kLook,
    kRead,
    kKeep,
    kSayResult,
    kWaitResult,
    kTake,
    kSayDone,
    kVerify,
    kSignal,
    kWaitEnd,
    kSucceed,
    kSayFailed,
    kAwait,
    kFail,
    kOverwrite
  };
  struct Step {
    Verb verb;
    int peer = -1;
  };
  enum class Kind : uint8_t { kStep, kGivesUp, kError, kTired, kLands, kDies, kAborts, kToldOf };
  struct Move {
    Kind kind;
    Step step;
    int who;
    State next;
    bool fate() const { return kind == Kind::kError || kind == Kind::kDies || kind == Kind::kAborts; }
  };

  explicit DirectModel(const DirectSetting& setting) : rules(setting) {
    for (int rank = 0; rank < rules.ranks; ++rank) write(rank);
  }

  const DirectSetting rules;

  State start() const { return {}; }

  void moves(const State& state, std::vector<Move>& all) const {
    for (int who = 0; who < rules.ranks; ++who) {
      land(state, who, all);
      if (has(state, who, kDead)) continue;
      proceed(state, who, all);
      if (!has(state, who, kReturned)) befall(state, who, all);
    }
  }

  std::string problem(const State& state, bool still) const {
    if (state.late != 0 && rules.lateIsWrong) return "a buffer was read after its owner had returned";
    for (int who = 0; who < rules.ranks; ++who) {
      if (has(state, who, kSucceeded) && has(state, who, kTainted)) {
        return name(who) + " reports success with wrong data";
      }
      if (still && !has(state, who, kDead) && !has(state, who, kReturned)) {
        return name(who) + " is stuck";
      }
    }
    return "";
  }

  std::string describe(const Move& move) const {
    const std::string who = name(move.who);
    const std::string peer = move.step.peer < 0 ? "" : " " + name(move.step.peer);
    switch (move.kind) {
      case Kind::kStep:
        return who + " " + nameOf(move.step.verb) + peer +
               (move.step.verb == kLook || move.step.verb == kVerify
                    ? has(move.next, move.who, kFailing) ? ": a failure" : ": all is well"
                    : "");
      case Kind::kGivesUp:
        return who + " gives up: it " + nameOf(move.step.verb) + peer;
      case Kind::kError:
        return who + " has an error of its own: it " + nameOf(move.step.verb) + peer;
      case Kind::kTired:
        return who + " has waited 0.3 s for its readers";
      case Kind::kLands:
        return "a store of " + who + " lands";
      case Kind::kDies:
        return who + " dies";
      case Kind::kAborts:
        return who + " is aborted by its user";
      case Kind::kToldOf:
        return who + " is told that" + peer + " is lost";
    }
    return "";
  }

 private:
  static uint8_t bit(int rank) { return static_cast<uint8_t>(1 << rank); }
  static std::string name(int rank) { return "rank " + std::to_string(rank); }
  static bool has(const State& state, int rank, unsigned flags) {
    return (state.ranks[size_t(rank)].flags & flags) != 0;
  }
  static void set(Rank& rank, unsigned flags) { rank.flags = static_cast<uint16_t>(rank.flags | flags); }

  template <typename Body>
  void forPeers(int rank, Body body) const {
    for (int step = 1; step < rules.ranks; ++step) body((rank + step) % rules.ranks);
  }

  // ---- the program of one rank

  void write(int rank) {
    std::vector<Step>& program = programs_[size_t(rank)];
    const auto add = [&](Verb verb, int peer = -1) { program.push_back({verb, peer}); };
    forPeers(rank, [&](int peer) { add(kAnnounce, peer); });
    add(kWaitBuffers);
    add(kSayReading);
    if (rules.fenceAtBegin) add(kFence);
    if (rules.looksAtBegin) add(kLook);
    const Step last = rules.reduces ? reduceAndTake(rank, program) : readAll(rank, program);
    std::vector<Step> signals;
    forPeers(rank, [&](int peer) { signals.push_back({kSignal, peer}); });
    const auto signal = [&] { program.insert(program.end(), signals.begin(), signals.end()); };
    if (!rules.readsBeforeSignalling) signal();
    if (rules.readsBeforeVerifying) program.push_back(last);
    add(kSayDone);
    if (rules.readsBeforeSignalling && !rules.verifiesBeforeSignalling) signal();
    if (rules.verifies) add(kVerify);
    if (!rules.readsBeforeVerifying) program.push_back(last);
    if (rules.readsBeforeSignalling && rules.verifiesBeforeSignalling) signal();
    add(kWaitEnd);
    add(kSucceed);
    add(kOverwrite);
    failures_[size_t(rank)] = program.size();
    giveUp(rank, program);
  }

  // All but the last read, which is returned.
  Step readAll(int rank, std::vector<Step>& program) const {
    bool first = true;
    forPeers(rank, [&](int peer) {
      for (int piece = 0; piece < rules.pieces; ++piece) {
        if (!first) program.push_back({kLook});  // the library looks before the first as well
        first = false;
        program.push_back({kRead, peer});
      }
    });
    const Step last = program.back();
    program.pop_back();
    return last;
  }

  Step reduceAndTake(int rank, std::vector<Step>& program) const {
    program.push_back(readAll(rank, program));
    program.push_back({kKeep});
    forPeers(rank, [&](int peer) { program.push_back({kSayResult, peer}); });
    forPeers(rank, [&](int peer) {
      program.push_back({kWaitResult, peer});
      if (rules.looksAfterWaits) program.push_back({kLook});
      program.push_back({kTake, peer});
    });
    const Step last = program.back();
    program.pop_back();
    return last;
  }

  void giveUp(int rank, std::vector<Step>& program) const {
    const auto add = [&](Verb verb) { program.push_back({verb}); };
    if (rules.saysFailedFirst) add(kSayFailed);
    add(kSayDone);
    if (rules.fenceAtAwait) add(kFence);
    if (rules.heavyFence) forPeers(rank, [&](int peer) { program.push_back({kFencePeer, peer}); });
    if (rules.awaitsReaders) add(kAwait);
    add(kFail);
    add(kOverwrite);
    if (!rules.saysFailedFirst) add(kSayFailed);
  }

  // ---- what can happen

  Rank& moveOn(const State& state, int who, Kind kind, Step step, std::vector<Move>& all) const {
    all.push_back({kind, step, who, state});
    return all.back().next.ranks[size_t(who)];
  }
  void fail(Rank& rank, int who) const {
    set(rank, kFailing);
    rank.at = static_cast<uint8_t>(failures_[size_t(who)]);
  }

  void land(const State& state, int who, std::vector<Move>& all) const {
    const uint8_t lingering = state.ranks[size_t(who)].lingering;
    if (lingering == 0) return;
    Rank& rank = moveOn(state, who, Kind::kLands, {}, all);
    const int store = lingering & 3;
    if (store == kStoreReading) set(rank, kReading);
    if (store == kStoreDone) rank.flags = static_cast<uint16_t>(rank.flags & ~kReading);
    if (store == kStoreFailed) set(rank, kFailed);
    rank.lingering = static_cast<uint8_t>(lingering >> 2);
  }

  // Liveness, and the user. Who is told of a loss may be told of another. A rank that lives is told to be
  // lost only when its abort has ended its operation.
  void befall(const State& state, int who, std::vector<Move>& all) const {
    if (state.deaths < rules.deaths) {
      set(moveOn(state, who, Kind::kDies, {}, all), kDead);
      ++all.back().next.deaths;
    }
    if (state.aborts < rules.aborts && !has(state, who, kTold)) {
      set(moveOn(state, who, Kind::kAborts, {}, all), kTold);
      ++all.back().next.aborts;
    }
    forPeers(who, [&](int peer) {
      const bool ended = has(state, peer, kReturned) && !has(state, peer, kSucceeded);
      const bool early = !rules.quietBeforeLost && has(state, peer, kTold);
      const bool isLost = has(state, peer, kDead) || ended || early;
      if (!isLost || (state.ranks[size_t(who)].lost & bit(peer)) != 0) return;
      Rank& rank = moveOn(state, who, Kind::kToldOf, {kLook, peer}, all);
      rank.lost |= bit(peer);
      set(rank, kTold);
    });
  }

  bool anyPeer(const State& state, int who, unsigned flags) const {
    bool any = false;
    forPeers(who, [&](int peer) { any = any || has(state, peer, flags); });
    return any;
  }

  bool hasCome(const State& state, int who, const Step& wait) const {
    bool all = true;
    forPeers(who, [&](int peer) {
      const Rank& from = state.ranks[size_t(peer)];
      const uint8_t sent = wait.verb == kWaitBuffers  ? from.announced
                           : wait.verb == kWaitResult ? from.results
                                                      : from.signalled;
      all = all && ((sent & bit(who)) != 0 || (wait.peer >= 0 && wait.peer != peer));
    });
    return all;
  }

  void proceed(const State& state, int who, std::vector<Move>& all) const {
    const Rank& me = state.ranks[size_t(who)];
    if (me.at == programs_[size_t(who)].size()) return;
    const Step step = programs_[size_t(who)][me.at];
    switch (step.verb) {
      case kWaitBuffers:
      case kWaitResult:
      case kWaitEnd:
        if (hasCome(state, who, step)) break;
        if (has(state, who, kTold) || (rules.waitsSeeFailures && anyPeer(state, who, kFailed))) {
          fail(moveOn(state, who, Kind::kGivesUp, step, all), who);
        }
        return strike(state, who, step, all);
      case kRead:
      case kTake:
        strike(state, who, step, all);
        break;
      case kFence:
        if (me.lingering != 0) return;
        break;
      case kFencePeer:
        if (state.ranks[size_t(step.peer)].lingering != 0) return;
        break;
      case kAwait:
        if (!stillReads(state, who)) break;
        return tire(state, who, step, all);
      case kAnnounce:
      case kSayResult:
      case kSignal:
      case kOverwrite:
        if (me.lingering != 0) return;
        break;
      default:
        break;
    }
    if (step.verb == kOverwrite && me.at + 1u == failures_[size_t(who)]) {  // the end of a success
      Rank& rank = moveOn(state, who, Kind::kStep, step, all);
      set(rank, kOverwritten);
      rank.at = static_cast<uint8_t>(programs_[size_t(who)].size());
      return;
    }
    ++moveOn(state, who, Kind::kStep, step, all).at;
    perform(state, who, step, all.back().next);
  }

  void strike(const State& state, int who, const Step& step, std::vector<Move>& all) const {
    if (state.errors == rules.errors) return;
    fail(moveOn(state, who, Kind::kError, step, all), who);
    ++all.back().next.errors;
  }

  // Whether somebody reads, as far as its owner can see. `outsideWaits`: and neither waits for a result nor
  // has given up and looks for the reason (Host::reasonSoon).
  bool stillReads(const State& state, int who, bool outsideWaits = false) const {
    bool any = false;
    forPeers(who, [&](int peer) {
      const Rank& reader = state.ranks[size_t(peer)];
      const bool forgiven = rules.forgivesLost && (state.ranks[size_t(who)].lost & bit(peer)) != 0;
      const bool waits = reader.at < programs_[size_t(peer)].size() &&
                         programs_[size_t(peer)][reader.at].verb == kWaitResult;
      const bool counts = !outsideWaits || (!waits && !has(state, peer, kFailing));
      any = any || (!forgiven && counts && has(state, peer, kReading));
    });
    return any;
  }

  void tire(const State& state, int who, const Step& step, std::vector<Move>& all) const {
    const bool stopped = rules.tires == DirectSetting::Tires::kOfAnybody;
    if (rules.tires == DirectSetting::Tires::kNever || (!stopped && stillReads(state, who, true))) return;
    Rank& rank = moveOn(state, who, Kind::kTired, step, all);
    if (stopped) set(rank, kTired);
    ++rank.at;
  }

  static void linger(Rank& rank, Lingering store) {
    const int used = (std::bit_width(unsigned(rank.lingering)) + 1) / 2;
    rank.lingering = static_cast<uint8_t>(rank.lingering | store << (2 * used));
  }

  void perform(const State& state, int who, const Step& step, State& next) const {
    Rank& me = next.ranks[size_t(who)];
    switch (step.verb) {
      case kAnnounce:
        me.announced |= bit(step.peer);
        break;
      case kSayReading:
        linger(me, kStoreReading);
        break;
      case kSayDone:
        linger(me, kStoreDone);
        break;
      case kSayFailed:
        linger(me, kStoreFailed);
        break;
      case kLook:
        if (has(state, who, kTold)) fail(me, who);
        [[fallthrough]];
      case kVerify:
        if (anyPeer(state, who, kFailed | kTold)) fail(me, who);
        break;
      case kRead:
      case kTake:
        load(state, me, step, next);
        break;
      case kKeep:
        if ((me.flags & kTainted) != 0) set(me, kBadResult);
        break;
      case kSayResult:
        me.results |= bit(step.peer);
        break;
      case kSignal:
        me.signalled |= bit(step.peer);
        break;
      case kSucceed:
        set(me, kReturned | kSucceeded);
        break;
      case kFail:
        set(me, kReturned);
        break;
      case kOverwrite:
        set(me, kOverwritten);
        break;
      default:
        break;
    }
  }

  void load(const State& state, Rank& me, const Step& step, State& next) const {
    if (has(state, step.peer, kReturned) && !has(state, step.peer, kTired)) next.late = 1;
    const unsigned bad = kOverwritten | (step.verb == kTake ? unsigned(kBadResult) : 0u);
    if (has(state, step.peer, bad)) set(me, kTainted);
  }

  static const char* nameOf(Verb verb) {
    static constexpr const char* kNames[] = {"announces its buffers to",   "waits for the others' buffers",
                                             "says that it reads",         "passes a fence",
                                             "makes a fence be passed by", "looks",
                                             "reads the send buffer of",   "completes its shard",
                                             "signals its result to",      "waits for the result of",
                                             "takes the result of",        "says that it has read",
                                             "looks after its reads",      "signals the end to",
                                             "waits for the end",          "returns success",
                                             "says that it has failed",    "finds that nobody reads",
                                             "returns an error",           "overwrites its buffers"};
    return kNames[verb];
  }

  std::array<std::vector<Step>, kMost> programs_;
  std::array<size_t, kMost> failures_{};  // where a rank goes on that gives up
};

}  // namespace stretto::model
