#include "primitives/host/host.hpp"

#include <utility>

#include "platform/fence.hpp"
#include "platform/futex.hpp"
#include "platform/shared_memory.hpp"
#include "primitives/disagreement.hpp"
#include "primitives/ending.hpp"

namespace stretto {
namespace {

// Counters of two cores may differ a little where a hypervisor does not keep them together: no time then.
uint64_t elapsed(uint64_t now, uint64_t since) {
  return now > since ? now - since : 0;
}

// Several places to push to: a tile at a time, copied on from the first place while it is in the nearest
// cache.
void reduceTiles(const ReduceSpec& spec, Destinations to, const std::byte* const* sources, int sourceCount,
                 size_t count, bool stream) {
  constexpr size_t kTileBytes = 16384;
  const size_t elementBytes = sizeOf(spec.type);
  const void* tile[kMaxRanks];
  for (size_t begin = 0; begin < count; begin += kTileBytes / elementBytes) {
    const size_t size = std::min(count - begin, kTileBytes / elementBytes);
    const size_t offset = begin * elementBytes;
    for (int source = 0; source < sourceCount; ++source) tile[source] = sources[source] + offset;
    reduceTwo(spec, to.own + offset, to.pushed[0] + offset, tile, sourceCount, size, stream);
    for (int place = 1; place < to.pushedCount; ++place) {
      copyBytes(to.pushed[place] + offset, to.pushed[0] + offset, size * elementBytes);
    }
  }
}

}  // namespace

static_assert(ReachingBackend<Host>);

Host::Host(int rank, std::span<const Peer> peers, const WindowLayout& layout, const WaitPolicy& policy,
           Importer* importer, PeersInSight sight)
    : rank_(rank),
      peers_(peers),
      sight_(sight.near.empty() ? PeersInSight{peers, {}} : sight),
      layout_(layout),
      linesBegin_(layout.lines(0, Phase::kScatter, 0)),
      linksBegin_(layout.link(0, 0)),
      policy_(policy),
      importer_(importer),
      lightFences_(std::all_of(peers.begin(), peers.end(),
                               [](const Peer& peer) { return peer.header().heavyFence != 0; })) {}

void Host::signal(Coop, int peer, Mailbox* mailbox, uint64_t value) {
  std::atomic_ref(mailbox->tag).store(tag_, std::memory_order_relaxed);
  std::atomic_ref(mailbox->count).store(value, std::memory_order_release);
  ringDue_ = peer != rank_ || ringDue_;
}

void Host::putLines(Coop, int peer, const void* from, size_t bytes, Phase phase) {
  std::byte* line = at(peer, linesBegin_ + layout_.linesWithin(parity(), phase, rank_));
  const auto* source = static_cast<const std::byte*>(from);
  const uint64_t flag = lineFlag();
  do {
    const size_t part = std::min(bytes, kLinePayload);
    if (part == kLinePayload) [[likely]] {
      std::memcpy(line, source, kLinePayload);
    } else {
      std::memcpy(line, source, part);
    }
    auto& word = *reinterpret_cast<uint64_t*>(line + kLinePayload);
    std::atomic_ref(word).store(flag, std::memory_order_release);
    line += kLineBytes;
    source += part;
    bytes -= part;
  } while (bytes > 0);
  ringDue_ = true;
}

Status Host::readLines(Coop, int peer, void* to, size_t bytes, Phase phase) {
  const std::byte* line = at(rank_, linesBegin_ + layout_.linesWithin(parity(), phase, peer));
  auto* destination = static_cast<std::byte*>(to);
  const uint64_t flag = lineFlag();
  do {
    const size_t part = std::min(bytes, kLinePayload);
    const auto* word = reinterpret_cast<const uint64_t*>(line + kLinePayload);
    STRETTO_TRY(waitWord(word, epoch_ << kTagBits, peer));
    if (load(word) != flag) [[unlikely]] {
      return mismatch(peer);
    }
    if (part == kLinePayload) [[likely]] {
      std::memcpy(destination, line, kLinePayload);
    } else {
      std::memcpy(destination, line, part);
    }
    line += kLineBytes;
    destination += part;
    bytes -= part;
  } while (bytes > 0);
  return kOkStatus;
}

Status Host::reduceLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own,
                         size_t bytes) {
  const std::byte* sources[kMaxRanks];
  const size_t tile = sizeof lineScratch_ / static_cast<size_t>(ranks());
  const size_t stride = bytes <= tile ? tile : WindowLayout::kMostLinePayload;
  std::byte* place = bytes <= tile ? lineScratch_ : scratch(stride * static_cast<size_t>(ranks()));
  for (int source = 0; source < ranks(); ++source) {
    std::byte* part = place + static_cast<size_t>(source) * stride;
    sources[source] = source == rank_ ? own : part;
    if (source != rank_) {
      STRETTO_TRY(readLines(coop, source, part, bytes));
    }
  }
  reduce(coop, spec, {to}, sources, ranks(), bytes / sizeOf(spec.type), false);
  return kOkStatus;
}

Status Host::get(Coop, int peer, void* to, const void* from, size_t bytes) {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  if (other.reach == PeerAccess::kAddress || peer == rank_) {
    copyStream(to, from, bytes);
    return kOkStatus;
  }
  if (!platform::readProcess(other.process, to, from, bytes)) {
    pauseReading();
    return peerFailed(
        peer, "cannot read " + std::to_string(bytes) + " bytes of process " + std::to_string(other.process));
  }
  return kOkStatus;
}

Status Host::isWithUs(int peer, const char* what, bool writes) const {
  if (std::atomic_ref(header().abort).load(std::memory_order_relaxed) != 0) return givenUp();
  if (!sight_.hears(peers_[static_cast<size_t>(peer)])) return kOkStatus;
  const WindowHeader& other = peers_[static_cast<size_t>(peer)].header();
  if (stretto::hasFailed(other)) {
    if (writes) STRETTO_TRY(reasonSoon(peer));
    return failAbout(peer, Code::kRemote,
                     "rank %d %s rank %d, which has given up on this communicator; its own error says why",
                     rank_, what, peer);
  }
  if (!hasBegunToLeave(other)) return kOkStatus;
  return failAbout(peer, Code::kRemote, "rank %d %s rank %d, which has finalised its communicator%s", rank_,
                   what, peer, writes ? ": signals tell when a rank may leave" : "");
}

// Looked at between pieces, so that a rank which has failed is written to no longer than a piece takes.
Status Host::putOutside(int peer, std::byte* here, uint64_t there, const void* from, size_t bytes) {
  constexpr size_t kPiece = size_t{4} << 20;
  const Peer& other = peers_[static_cast<size_t>(peer)];
  const auto* source = static_cast<const std::byte*>(from);
  for (size_t done = 0; done < bytes; done += kPiece) {
    STRETTO_TRY(isWithUs(peer, "puts into a window of", true));
    const size_t piece = std::min(kPiece, bytes - done);
    if (here != nullptr) {
      copyBytes(here + done, source + done, piece);
    } else if (!platform::writeProcess(other.process, reinterpret_cast<void*>(there + done), source + done,
                                       piece)) {
      return peerFailed(peer, "cannot write " + std::to_string(piece) + " bytes of process " +
                                  std::to_string(other.process));
    }
  }
  return kOkStatus;
}

Status Host::signalWord(int peer, uint64_t* word, uint64_t value) {
  STRETTO_TRY(isWithUs(peer, "signals", true));
  std::atomic_ref(*word).store(value, std::memory_order_release);
  ringDue_ = peer != rank_ || ringDue_;
  return kOkStatus;
}

Status Host::waitSignal(int peer, const uint64_t* word, uint64_t value, const CallRecord& call) {
  for (int poll = 0; poll < policy_.quickPolls; ++poll) {
    if (load(word) >= value) return kOkStatus;
    platform::relax();
  }
  return waitLong(word, value, {.peer = peer, .transfer = &call});
}

// The first peer that has given up, or -1.
int Host::failedPeer() const {
  for (const Peer& other : sight_.near) {
    WindowHeader& window = other.header();
    const uint32_t failed = std::atomic_ref(window.failed).load(std::memory_order_relaxed) |
                            std::atomic_ref(window.abort).load(std::memory_order_relaxed);
    if (failed != 0 && other.rank != rank_) return other.rank;
  }
  return -1;
}

// A peer that fails stores its failure, then looks whether this rank reads; this rank stores that it reads,
// then looks for failures. With full fences between, one of the two sees the other. Readers come
// often and failures hardly ever, so the peer's fence is the heavy one where all ranks have it.
Status Host::beginReading() {
  std::atomic_ref(header().reading).store(sequence_, std::memory_order_relaxed);
  if (lightFences_) {
    platform::lightFence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return goOnReading();
}

Status Host::goOnReading() const {
  if (std::atomic_ref(header().abort).load(std::memory_order_relaxed) != 0) return givenUp();
  const int failed = failedPeer();
  if (failed < 0) return kOkStatus;
  pauseReading();  // its owner waits for that, and what is said next may take a while
  return peerFailed(failed, "it failed while its buffers were read");
}

// Before a wait: whoever fails meanwhile need not wait for this rank. beginReading() goes on.
void Host::pauseReading() const {
  std::atomic_ref(header().reading).store(0, std::memory_order_release);
}

// What was read before the fence was right if its owner has not failed by the time of the look behind it: who
// fails says so before its caller may change a buffer. Loads are before loads: no full fence.
Status Host::endReading() {
  pauseReading();
  std::atomic_thread_fence(std::memory_order_acquire);
  const int failed = failedPeer();
  return failed < 0 ? kOkStatus : peerFailed(failed, "it failed while its buffers were read");
}

void Host::awaitReaders(Status why) {
  WindowHeader& window = header();
  uint32_t none = 0;
  std::atomic_ref(window.failed).compare_exchange_strong(none, abortWord(why));
  pauseReading();
  // Readers that passed light fences are seen for certain only after a heavy one. If the kernel refuses it
  // now, though it had promised it, or takes long, the readers are given the whole time: a store is seen long
  // before.
  const platform::HeavyFence fence;
  const auto readersShow = [&] { return window.heavyFence == 0 || fence.isPassed(); };
  const auto anybodyReads = [&] {
    const RankSet lost = RankSet::ofBits(std::atomic_ref(window.lost).load(std::memory_order_acquire));
    return std::any_of(sight_.near.begin(), sight_.near.end(), [&](const Peer& other) {
      const uint64_t reading = std::atomic_ref(other.header().reading).load(std::memory_order_acquire);
      return other.rank != rank_ && !lost.has(other.rank) && reading == sequence_;
    });
  };
  constexpr double kMostSeconds = 0.3;   // a reader that takes longer is stopped, and fails when it goes on
  constexpr double kMostOfALook = 0.01;  // longer, and this rank was stopped itself, perhaps with the reader
  constexpr uint64_t kSliceMicroseconds = 50;
  double waited = 0;
  for (uint64_t looked = platform::ticks(); (!readersShow() || anybodyReads()) && waited < kMostSeconds;) {
    const uint32_t bell = std::atomic_ref(window.bell).load(std::memory_order_relaxed);
    platform::futexWait(&window.bell, bell, kSliceMicroseconds);
    const uint64_t now = platform::ticks();
    waited += std::min(platform::tickSeconds(elapsed(now, looked)), kMostOfALook);
    looked = now;
  }
}

Shareable Host::describe(const void* buffer, size_t bytes) {
  Shareable what;
  if (importer_ != nullptr) what = importer_->describe(buffer, bytes);
  what.address = reinterpret_cast<uint64_t>(buffer);
  return what;
}

Status Host::locate(int peer, const Shareable& what, const std::byte*& at) {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  at = nullptr;
  if (peer == rank_ || other.reach == PeerAccess::kAddress) {
    at = reinterpret_cast<const std::byte*>(what.address);
  } else if (what.id != 0 && importer_ != nullptr) {
    const auto mapped = importer_->map(peer, other.process, what);
    if (!mapped.ok()) return peerFailed(peer, lastError(), mapped.status().code);
    at = mapped.value();
  }
  return kOkStatus;
}

void Host::reduce(Coop, const ReduceSpec& spec, Destinations to, const std::byte* const* sources,
                  int sourceCount, size_t count, bool stream) {
  const auto* pointers = reinterpret_cast<const void* const*>(sources);
  if (to.pushedCount == 0) {
    stretto::reduce(spec, to.own, pointers, sourceCount, count, stream);
  } else if (to.pushedCount == 1) {
    reduceTwo(spec, to.own, to.pushed[0], pointers, sourceCount, count, stream);
  } else {
    reduceTiles(spec, to, sources, sourceCount, count, stream);
  }
}

void Host::ring() {
  ringDue_ = false;
  platform::lightFence();
  for (const Peer& other : sight_.near) {
    WindowHeader& window = other.header();
    if (std::atomic_ref(window.sleeping).load(std::memory_order_relaxed) != 0 && other.rank != rank_) {
      std::atomic_ref(window.bell).fetch_add(1, std::memory_order_release);
      platform::futexWake(&window.bell);
      ++counters_.wakeups;
    }
  }
}

std::byte* Host::grow(Grown& place, size_t bytes) {
  if (bytes > place.bytes) {
    place = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
    ++counters_.allocations;
  }
  return place.memory.get();
}

std::byte* Host::scratch(size_t bytes) {
  return grow(scratch_, bytes);
}

// Apart from scratch(), which an all-reduce may use for itself.
std::byte* Host::sums(size_t bytes) {
  return grow(sums_, bytes);
}

Status Host::waitLong(const uint64_t* word, uint64_t value, AwaitedWord awaited) {
  ++counters_.slow;
  Patience patience(*this, std::move(awaited));
  while (load(word) < value) {
    const Status status = patience.step();
    // What had come when the reason to give up was seen counts: whoever failed had sent it before.
    if (!status.ok()) return load(word) < value ? status : kOkStatus;
  }
  return kOkStatus;
}

Patience::Patience(Host& host, AwaitedWord awaited) : host_(host), awaited_(std::move(awaited)) {}

Patience::~Patience() {
  if (!armed_) return;
  std::atomic_ref(host_.header().sleeping).store(0, std::memory_order_relaxed);
  std::atomic_ref ticket(host_.header().wait.ticket);
  ticket.store(ticket.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  host_.report(WaitStage::kOver, awaited_.peer);
}

// What the wait is for, then that there is one.
void Patience::publish() {
  LongWait& wait = host_.header().wait;
  const uint64_t ticket = std::atomic_ref(wait.ticket).load(std::memory_order_relaxed) + 1;
  std::atomic_ref(wait.peers).store(awaited_.ranks(host_.ranks()).bits(), std::memory_order_relaxed);
  std::atomic_ref(wait.sequence).store(host_.sequence_, std::memory_order_relaxed);
  if (awaited_.transfer != nullptr) recordTransfer(wait, *awaited_.transfer);
  std::atomic_ref(wait.ticket).store(ticket, std::memory_order_release);
}

Status Patience::step() {
  WindowHeader& window = host_.header();
  if (std::atomic_ref(window.abort).load(std::memory_order_relaxed) != 0) {
    return host_.givenUp();
  }
  const uint64_t now = platform::ticks();
  if (startedTicks_ == 0) {
    startedTicks_ = now;
    host_.ringIfDue();
    return kOkStatus;
  }
  if (elapsed(now, startedTicks_) < host_.policy_.spinTicks) {
    platform::relax();
    return kOkStatus;
  }
  if (yields_ < host_.policy_.yields) {
    ++yields_;
    platform::yieldCore();
    return kOkStatus;
  }
  return sleepStep();
}

// The first sleep is short, as host.hpp says. Where no bell rings, sleeps grow with the wait, which they
// prolong by a sixteenth. None goes past the moment at which the wait is late.
uint64_t Patience::sleepMicroseconds(double waitedSeconds) const {
  constexpr uint64_t kFirst = 100, kSlice = 20000, kPollingSlice = 2000;
  uint64_t most = kFirst;
  if (slept_ && !host_.policy_.polls) most = kSlice;
  if (slept_ && host_.policy_.polls) {
    most = std::clamp(static_cast<uint64_t>(waitedSeconds * 1e6 / 16), kFirst, kPollingSlice);
  }
  const double left = (platform::tickSeconds(host_.policy_.lateTicks) - waitedSeconds) * 1e6;
  return !late_ && left > 0 && left < static_cast<double>(most) ? static_cast<uint64_t>(left) + 1 : most;
}

Status Patience::sleepStep() {
  WindowHeader& window = host_.header();
  constexpr double kDoubtfulSeconds = 0.03;  // after which it is looked whether the wait can end at all
  // After which those are asked who cannot be looked at. The questions take the network that the data wait
  // for, so that waits of an operation that merely goes on should not come to them.
  constexpr double kAskSeconds = 0.25;
  if (!armed_) {
    armed_ = true;
    publish();
    bell_ = std::atomic_ref(window.bell).load(std::memory_order_relaxed);
    host_.report(WaitStage::kSleeps, awaited_.peer);
    std::atomic_ref(window.sleeping).store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return kOkStatus;  // the caller looks once more: what came before `sleeping` was set rang no bell
  }
  // The caller has looked since the last step.
  std::atomic_ref looks(window.wait.looks);
  looks.store(looks.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the next look comes after it (standstill.cpp)
  STRETTO_TRY(host_.disagreement(doubts_, awaited_));
  const uint64_t waited = elapsed(platform::ticks(), startedTicks_);
  if (waited > host_.policy_.timeoutTicks) {
    return host_.timedOut(awaited_.peer);
  }
  if (waited > host_.policy_.warnTicks && !std::exchange(warned_, true)) {
    host_.warnOf(awaited_.peer, waited);
  }
  if (waited > host_.policy_.lateTicks && !std::exchange(late_, true)) {
    host_.report(WaitStage::kLate, awaited_.peer);
  }
  const double waitedSeconds = platform::tickSeconds(waited);
  if (waitedSeconds > kDoubtfulSeconds) {
    // What one of many ranks asks all hear of, so each asks the less often.
    const double pauses = std::max(1.0, static_cast<double>(host_.ranks()) / kMaxRanks);
    if (waitedSeconds > std::max({wonderSeconds_, kAskSeconds, kDoubtfulSeconds * pauses})) {
      host_.wonder(awaited_.ranks(host_.ranks()));
      wonderSeconds_ = waitedSeconds + std::clamp(waitedSeconds, kAskSeconds, 1.0) * pauses;
    }
    STRETTO_TRY(host_.standstill(standstill_, awaited_.peer));
  }
  ++host_.counters_.sleeps;
  // A bell that somebody else rang says nothing of the one that was missed.
  if (platform::futexWait(&window.bell, bell_, sleepMicroseconds(waitedSeconds))) slept_ = true;
  bell_ = std::atomic_ref(window.bell).load(std::memory_order_acquire);
  return kOkStatus;
}

}  // namespace stretto
