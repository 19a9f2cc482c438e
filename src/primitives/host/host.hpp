// The Host backend: the verbs on CPU threads over shared memory. This is their living definition: plain
// loads and stores of cache-coherent memory, ordered by acquire and release. One Host per rank of a
// communicator; one thread at a time uses it (the executor sees to that).
//
// Sleeping: a rank whose wait is long sets `sleeping` in its window, looks once more, and waits on `bell`.
// Whoever moves a mailbox or a line there looks at `sleeping` afterwards: when it begins to wait in earnest
// itself and, at the latest, when its operation ends. It passes no fence in between, which would take as long
// as the line takes to the other core. So its look may come before its store is seen, and the sleeper's last
// look too: then no bell rings. A store is seen a microsecond later at the most, so a sleeper's sleeps are
// short until it has slept one out, and what was missed is found at its end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/rank_set.hpp"
#include "platform/clock.hpp"
#include "primitives/backend.hpp"
#include "primitives/host/copy.hpp"
#include "primitives/host/norm.hpp"
#include "primitives/host/reduce.hpp"

namespace stretto {

// One thread takes part.
struct SoloCoop {
  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }
  static void sync() {}
};

// How a wait spends its time, from the number of ranks and cores; the same for all waits of a communicator.
struct WaitPolicy {
  int quickPolls = 64;        // polls before a wait counts as long,
  uint64_t spinTicks = 0;     // then spin this long,
  uint32_t yields = 0;        // then offer the core this many times,
  uint64_t timeoutTicks = 0;  // then sleep, until this long after the wait began
  bool polls = false;         // no bell rings for some of what is waited for: sleeps are short
  // Of a wait that has become so long the log tells, once; and whoever asked for it (WaitStage::kLate).
  uint64_t warnTicks = std::numeric_limits<uint64_t>::max();
  uint64_t lateTicks = std::numeric_limits<uint64_t>::max();
};

// What the Host reports of a wait that begins to sleep, on the thread that waits. kLate comes once in a wait.
enum class WaitStage { kSleeps, kLate, kOver };

// Counts of what waits cost, for counters().
struct WaitCounters {
  uint64_t slow = 0;         // waits that did not end in the first polls
  uint64_t sleeps = 0;       // times this rank slept
  uint64_t wakeups = 0;      // times this rank woke a peer
  uint64_t allocations = 0;  // times scratch grew
};

class Host;
struct Difference;

// What a wait has seen of others that may be the reason why it does not end.
struct Doubts {
  uint64_t since = 0;        // ticks when a peer was first seen to have given up
  uint32_t missed = 0;       // looks at a peer that has left without taking part,
  uint64_t missedSince = 0;  // and ticks at the first of them
};

// What a wait is for: one rank, or, in transfers, any of several.
struct AwaitedWord {
  int peer = -1;                         // named when the wait fails; -1: nobody in particular
  RankSet anyOf = {};                    // who could end the wait; empty: `peer` alone
  const CallRecord* transfer = nullptr;  // the first of the transfers

  // Who could end the wait, of `all` ranks.
  RankSet ranks(int all) const {
    if (!anyOf.empty()) return anyOf;
    return peer < 0 ? RankSet::below(all) : RankSet::of(peer);
  }
};

// What a rank can see of its peers in memory that is here.
struct PeersInSight {
  std::span<const Peer> near;  // those whose windows are here, this rank's own among them
  std::span<uint8_t> heard;    // by rank: not 0 once there is anything in its header; empty: there is in all

  bool hears(const Peer& other) const {
    return heard.empty() ||
           std::atomic_ref(heard[static_cast<size_t>(other.rank)]).load(std::memory_order_acquire) != 0;
  }
};

// Ranks that wait for each other and for nobody else, as one rank has seen them. It is looked for among the
// first kMaxRanks ranks only, which are all of a communicator within one host.
struct StandstillSeen {
  uint64_t members = 0;  // a bit each; 0: none seen. The rest is of members only
  uint64_t tickets[kMaxRanks];
  uint64_t looks[kMaxRanks];
};

// How far one wait has come. step() is called each time nothing was ready: it spins, yields, arms the sleep
// (the caller looks once more), sleeps. Ends the sleeping state when destroyed.
class Patience {
 public:
  Patience(Host& host, AwaitedWord awaited);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // Not ok: aborted, past the deadline, or the ranks disagree; the caller gives up.
  Status step();

 private:
  Status sleepStep();
  void publish();
  uint64_t sleepMicroseconds(double waitedSeconds) const;

  Host& host_;
  AwaitedWord awaited_;
  uint64_t startedTicks_ = 0;
  uint32_t yields_ = 0;
  uint32_t bell_ = 0;
  bool armed_ = false;
  bool slept_ = false;  // a first sleep to its end
  bool warned_ = false;
  double wonderSeconds_ = 0;  // when that is due again
  bool late_ = false;
  Doubts doubts_;
  StandstillSeen standstill_;
};

class Host {
 public:
  using Coop = SoloCoop;
  static constexpr size_t kLineBytes = 64;
  static constexpr size_t kLinePayload = kLineBytes - sizeof(uint64_t);

  // `peers` has one entry per rank, this one included, and outlives the Host, as what `sight` has does: all
  // of them, where that is not said. `importer` may be null: nothing outside windows is shared then.
  Host(int rank, std::span<const Peer> peers, const WindowLayout& layout, const WaitPolicy& policy,
       Importer* importer = nullptr, PeersInSight sight = {});
  virtual ~Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Called with the rank that a long wait is for; -1 if that is nobody in particular.
  void reportWaits(std::function<void(WaitStage stage, int peer)> report) { report_ = std::move(report); }

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }
  Coop coop() const { return {}; }
  const WindowLayout& layout() const { return layout_; }
  size_t lineBytes() const { return WindowLayout::kMostLinePayload; }
  const WaitCounters& waitCounters() const { return counters_; }
  WindowHeader& header() const { return self().header(); }
  int quickPolls() const { return policy_.quickPolls; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  // Frame of one operation. `tag` is equal on all ranks exactly if they run the same operation; it travels
  // with every signal and line. end() wakes whoever still sleeps.
  void begin(uint64_t tag, uint64_t sequence) {
    tag_ = tag;
    sequence_ = sequence;
  }
  void end() { ringIfDue(); }

  // Slots rotate by epoch; an epoch is one exchange in which every rank receives from all ranks.
  uint64_t nextEpoch() { return ++epoch_; }
  uint64_t epoch() const { return epoch_; }

  // Places of the current epoch: mine in a peer's window, a peer's in mine.
  std::byte* slotAt(int peer, Phase phase) const { return at(peer, layout_.slot(parity(), phase, rank_)); }
  const std::byte* slotFrom(int source, Phase phase) const {
    return at(rank_, layout_.slot(parity(), phase, source));
  }
  Mailbox* mailboxAt(int peer, Phase phase) const {
    return mailbox(peer, layout_.mailbox(parity(), phase, rank_));
  }
  const Mailbox* mailboxFrom(int source, Phase phase) const {
    return mailbox(rank_, layout_.mailbox(parity(), phase, source));
  }

  // Links: ordered pairs with credits (see algorithms/link_channel.hpp, which owns the protocol).
  struct LinkCursors {
    uint64_t sent = 0;
    uint64_t received = 0;
    uint64_t credited = 0;  // of what was sent, when that was looked at last
  };
  LinkCursors& cursors(int peer) { return cursors_[static_cast<size_t>(peer)]; }
  Mailbox* linkAt(int peer, uint64_t chunk) const {
    return mailbox(peer, linksBegin_ + layout_.linkWithin(rank_, chunk));
  }
  const Mailbox* linkFrom(int source, uint64_t chunk) const {
    return mailbox(rank_, linksBegin_ + layout_.linkWithin(source, chunk));
  }
  Mailbox* creditAt(int sender) const { return mailbox(sender, layout_.credit(rank_)); }
  const Mailbox* creditFrom(int receiver) const { return mailbox(rank_, layout_.credit(receiver)); }

  // The verbs (primitives/backend.hpp).
  void put(Coop, int /*peer*/, void* to, const void* from, size_t bytes) { copyBytes(to, from, bytes); }
  void signal(Coop, int peer, Mailbox* mailbox, uint64_t value);
  Status wait(Coop, int peer, const Mailbox* mailbox, uint64_t value) {
    STRETTO_TRY(waitWord(&mailbox->count, value, peer));
    return mailbox->tag == tag_ ? kOkStatus : mismatch(peer);
  }
  // A wait without a tag: for credits, which outlive the operation that gave them.
  Status waitCount(Coop, int peer, const Mailbox* mailbox, uint64_t value) {
    return waitWord(&mailbox->count, value, peer);
  }
  void putLines(Coop, int peer, const void* from, size_t bytes, Phase phase = Phase::kScatter);
  Status readLines(Coop, int peer, void* to, size_t bytes, Phase phase = Phase::kScatter);
  Status reduceLines(Coop, const ReduceSpec& spec, std::byte* to, const std::byte* own, size_t bytes);
  Status get(Coop, int peer, void* to, const void* from, size_t bytes);
  // One-sided: into memory of a peer's that is in no window of ours, at `here` in this rank's addresses or,
  // if that is null, at `there` in the peer's own; a counter of the peer's that this rank alone moves; and
  // one of this rank's. `call` is what a long wait tells of itself.
  Status putOutside(int peer, std::byte* here, uint64_t there, const void* from, size_t bytes);
  Status signalWord(int peer, uint64_t* word, uint64_t value);
  Status waitSignal(int peer, const uint64_t* word, uint64_t value, const CallRecord& call);
  // For algorithms that read peers' buffers. locate() sets `at` to null where only get() can read them.
  Shareable describe(const void* buffer, size_t bytes);
  Status locate(int peer, const Shareable& what, const std::byte*& at);
  // The frame of reading peers' buffers; awaitReaders(why) is for an operation that has failed with `why`.
  Status beginReading();
  Status goOnReading() const;
  void pauseReading() const;
  Status endReading();
  void awaitReaders(Status why);
  // A thread of this process: its addresses are ours, and ours its.
  bool sharesAddresses(int peer) const {
    return peers_[static_cast<size_t>(peer)].reach == PeerAccess::kAddress;
  }
  void reduce(Coop, const ReduceSpec& spec, Destinations to, const std::byte* const* sources, int sourceCount,
              size_t count, bool stream);
  void copy(Coop, void* to, const void* from, size_t bytes, bool stream) {
    if (to == from) return;
    if (stream) {
      copyStream(to, from, bytes);
    } else {
      copyBytes(to, from, bytes);
    }
  }

  void addNorm(Coop, const Arguments& arguments, const NormTokens& tokens) {
    stretto::addNorm(arguments, tokens);
  }
  std::byte* sums(size_t bytes);

  // Memory of this rank alone, at least `bytes`; valid until the next call.
  std::byte* scratch(size_t bytes);

  size_t scratchBytes() const { return scratch_.bytes + sums_.bytes; }
  void releaseScratch() {
    scratch_ = {};
    sums_ = {};
  }

  // How far `mailbox` has come, and whether that is `value`: for who looks before it waits, or at several
  // things.
  uint64_t count(const Mailbox* mailbox) const { return load(&mailbox->count); }
  bool ready(const Mailbox* mailbox, uint64_t value) const { return count(mailbox) >= value; }
  // The tag check of a mailbox that ready() reported.
  Status check(int peer, const Mailbox* mailbox) const {
    return mailbox->tag == tag_ ? kOkStatus : mismatch(peer);
  }
  // What a tag that differs means, in words: both calls.
  Status mismatch(int peer) const;
  // Tells peers that this rank's transfer and what `peer` called do not belong together.
  void disagrees(int peer, const CallRecord& transfer) const;
  uint64_t tag() const { return tag_; }
  void setTag(uint64_t tag) { tag_ = tag; }
  // For executors that serve other backends too: what is put is there, and what peers say can be read.
  static Status progress(const RankSet& /*peers*/ = {}) { return kOkStatus; }
  static Status finish() { return kOkStatus; }
  static void hear(int /*peer*/) {}
  // Not ok once that rank takes no part any more, in the words "rank 0 <what> rank 1, ...". What it did
  // before is in sight by then. With `writes`, for one-sided operations, the reason why it has failed is
  // waited for, half a second at most.
  Status isWithUs(int peer, const char* what, bool writes = false) const;

 protected:
  // For backends that reach some peers by other ways (links/net/spread_host.hpp).
  // Now and then in a long wait: to find out how those of `peers` are whose windows are not here.
  virtual void wonder(const RankSet& /*peers*/) const {}
  // Whether what a peer sent before it left may still come, however long that takes.
  virtual bool isOnItsWay(int /*peer*/) const { return false; }
  void noteSlowWait() { ++counters_.slow; }
  Status peerFailed(int peer, const std::string& what, Code code = Code::kRemote) const;

 private:
  friend class Patience;
  static constexpr int kTagBits = 20;  // of a line's flag; the other 44 are the epoch

  const Peer& self() const { return peers_[static_cast<size_t>(rank_)]; }
  uint32_t parity() const { return static_cast<uint32_t>(epoch_ % WindowLayout::kSlots); }
  std::byte* at(int peer, size_t offset) const { return peers_[static_cast<size_t>(peer)].window + offset; }
  Mailbox* mailbox(int peer, size_t offset) const { return reinterpret_cast<Mailbox*>(at(peer, offset)); }
  static uint64_t load(const uint64_t* word) {
    return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
  }
  uint64_t lineFlag() const { return epoch_ << kTagBits | (tag_ & ((1u << kTagBits) - 1)); }

  Status waitWord(const uint64_t* word, uint64_t value, int peer) {
    for (int poll = 0; poll < policy_.quickPolls; ++poll) {
      if (load(word) >= value) [[likely]] {
        return kOkStatus;
      }
      platform::relax();
    }
    return waitLong(word, value, {.peer = peer});
  }
  Status waitLong(const uint64_t* word, uint64_t value, AwaitedWord awaited);
  void report(WaitStage stage, int peer) const {
    if (report_) report_(stage, peer);
  }
  Status givenUp() const;
  Status timedOut(int peer) const;
  void warnOf(int peer, uint64_t waitedTicks) const;
  std::string missingPart(int peer) const;
  Status disagreement(Doubts& doubts, const AwaitedWord& awaited) const;
  bool hasGivenUp(const Peer& other, Doubts& doubts) const;
  bool hasLeft(const Peer& other, const AwaitedWord& awaited) const;
  bool mayStillCome(Doubts& doubts) const;
  Status standstill(StandstillSeen& seen, int waitedFor) const;
  bool seesStandstill(StandstillSeen& seen) const;
  bool isUnchanged(const StandstillSeen& seen) const;
  std::string current() const;
  int failedPeer() const;
  Status reasonSoon(int peer) const;
  Status mismatch(int peer, const Difference& calls) const;
  Status parted(int peer, const RankSet& members) const;
  Status hasFailed(int lost) const;
  void reportDisagreeing(const RankSet& members) const;
  void ringIfDue() {
    if (ringDue_) ring();
  }
  void ring();

  int rank_;
  std::span<const Peer> peers_;
  PeersInSight sight_;
  WindowLayout layout_;
  size_t linesBegin_;
  size_t linksBegin_;
  WaitPolicy policy_;
  std::function<void(WaitStage stage, int peer)> report_;
  Importer* importer_;
  bool lightFences_;  // suffice this rank as a reader, because every owner that fails passes a heavy one
  uint64_t epoch_ = 0;
  uint64_t tag_ = 0;
  uint64_t sequence_ = 0;
  bool ringDue_ = false;
  WaitCounters counters_;
  LinkCursors cursors_[kMaxRanks];
  // reduceLines unpacks here: the small place for most calls; the big one grows at need.
  alignas(kMailboxBytes) std::byte lineScratch_[kMaxRanks * 128];
  struct Grown {
    std::unique_ptr<std::byte[]> memory;
    size_t bytes = 0;
  };
  std::byte* grow(Grown& place, size_t bytes);
  Grown scratch_;
  Grown sums_;
};

}  // namespace stretto
