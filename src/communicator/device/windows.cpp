#include "communicator/device/windows.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "platform/clock.hpp"
#include "platform/cuda/device.hpp"
#include "primitives/call_record.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {
namespace {

// A while, the longer the longer it has been.
void rest(uint64_t began) {
  constexpr double kLeast = 20e-6, kMost = 5e-3;
  std::this_thread::sleep_for(
      std::chrono::duration<double>(std::clamp(platform::secondsSince(began) / 16, kLeast, kMost)));
}

}  // namespace

DeviceWindows::DeviceWindows(const DeviceConnections& connections, const Connections& host,
                             double timeoutSeconds)
    : connections_(connections),
      host_(host),
      timeoutSeconds_(timeoutSeconds),
      own_(connections.self, connections.shape, host.region, host.windowOfferOffset()),
      pending_(host.peers.size()) {
  std::iota(pending_.begin(), pending_.end(), 0);
}

bool DeviceWindows::isMissing() const {
  return std::any_of(host_.peers.begin(), host_.peers.end(), [&](const Peer& peer) {
    return host_.windowOffer(peer.rank).read() == WindowOffer::kNothing;
  });
}

bool DeviceWindows::isWanted() const {
  return !isOpen_.load() && std::any_of(host_.peers.begin(), host_.peers.end(), [&](const Peer& peer) {
    return host_.windowOffer(peer.rank).read() != WindowOffer::kNothing;
  });
}

bool DeviceWindows::isOver() const {
  WindowHeader& own = host_.header();
  return std::atomic_ref(own.abort).load() != 0 || callsNothingMore(own);
}

bool DeviceWindows::hasLeft(int peer) const {
  return hasGone(headerOf(peer));
}

// One thread serves; what is asked of it meanwhile it looks at once more.
void DeviceWindows::serve() {
  if (asked_.fetch_add(1) != 0) return;
  for (uint32_t seen = asked_.load(); seen != 0 && !isOver();) {
    Status status = offer();
    if (status.ok()) status = open(kEverybody);
    // A rank that fails or leaves serves nobody, and one whose window cannot be made has said so in its post.
    if (!status.ok() && !isOver() && bytes() != 0) {
      STRETTO_LOG(kWarn, kInit,
                  "rank %d could not open the device windows of all peers before it uses them: %s",
                  connections_.self.rank, lastError().c_str());
    }
    if (asked_.compare_exchange_strong(seen, 0)) seen = 0;
  }
}

Status DeviceWindows::open(int needed) {
  const platform::cuda::ScopedDevice current(connections_.device);
  STRETTO_TRY(current.status());
  const uint64_t began = platform::monotonicNanoseconds();
  for (;;) {
    const auto missing = openOffered(needed);
    if (!missing.ok()) return missing.status();
    if (missing.value() < 0) return kOkStatus;
    STRETTO_TRY(mayWait(missing.value(), began));
    rest(began);
  }
}

// One that fails does not keep the others closed, and is no error to who does not need it.
Result<int> DeviceWindows::openOffered(int needed) {
  const std::lock_guard lock(mutex_);
  Status first;
  std::string words;
  std::erase_if(pending_, [&](int peer) {
    const auto settled = settle(peer);
    if (settled.ok()) return settled.value();
    // A refusal is the reason of those who have given up because of it.
    const bool explains = first.code == Code::kRemote && settled.status().code != Code::kRemote;
    if ((first.ok() || explains) && (needed == kEverybody || needed == peer)) {
      first = settled.status();
      words = lastError();
    }
    return false;
  });
  isOpen_.store(pending_.empty());
  if (!first.ok()) {
    setLastError(words);
    return first;
  }
  if (needed == kEverybody) return pending_.empty() ? -1 : pending_.front();
  return std::find(pending_.begin(), pending_.end(), needed) == pending_.end() ? -1 : needed;
}

// Nobody needs the window of a rank that has left without waiting for it, and its memory may be another's by
// now.
Result<bool> DeviceWindows::settle(int peer) {
  // Before the look at its post: who leaves or fails after that has posted.
  const bool left = hasLeft(peer);
  const bool failed = hasFailed(headerOf(peer));
  const WindowOffer& offer = host_.windowOffer(peer);
  const WindowOffer::State state = offer.read();
  if (left) return true;
  if (state == WindowOffer::kRefused) {
    return failAbout(peer, static_cast<Code>(offer.code), "rank %d could not make its device window: %.*s",
                     peer, static_cast<int>(sizeof offer.text) - 1, offer.text);
  }
  if (state == WindowOffer::kNothing) {
    // Why it has given up its peers hear as well: another's post, or word of a loss.
    if (failed && failedSince_ == 0) failedSince_ = platform::monotonicNanoseconds();
    if (!failed || platform::secondsSince(failedSince_) < kSecondHandSeconds) return false;
    return failAbout(peer, Code::kRemote, "rank %d, whose device window rank %d waits for, has given up",
                     peer, connections_.self.rank);
  }
  STRETTO_TRY(openOne(peer));
  return true;
}

std::array<std::byte*, kMaxRanks> DeviceWindows::addresses() const {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

// A peer that leaves meanwhile takes its window with it.
Status DeviceWindows::openOne(int peer) {
  links::DeviceEndpoint theirs = host_.windowOffer(peer).endpoint;
  theirs.rank = peer;
  const std::string before = lastError();
  auto link = openWindow(theirs, timeoutSeconds_, connections_);
  if (!link.ok()) {
    if (!hasLeft(peer)) return link.status();
    setLastError(before);
    return kOkStatus;
  }
  addresses_[static_cast<size_t>(peer)] = link.value().window;
  links_.push_back(std::move(link.value()));
  std::atomic_ref(host_.windowOffer(connections_.self.rank).opened)
      .fetch_or(uint64_t{1} << peer, std::memory_order_release);
  return kOkStatus;
}

// What ends a kernel's wait ends this one.
Status DeviceWindows::mayWait(int peer, uint64_t began) const {
  constexpr auto kUntilTheWord = std::chrono::milliseconds(5);
  const int rank = connections_.self.rank;
  const bool over = isOver();
  if (over) std::this_thread::sleep_for(kUntilTheWord);  // who fails says so before it says why
  if (const uint32_t word = std::atomic_ref(host_.header().abort).load(); word != 0) {
    return failAbout(statusOfAbort(word).peer, statusOfAbort(word).code,
                     "rank %d waited for the device window of rank %d", rank, peer);
  }
  if (over) return fail(Code::kAborted, "rank %d needs no device windows any more", rank);
  if (platform::secondsSince(began) <= timeoutSeconds_) return kOkStatus;
  return failAbout(peer, Code::kTimeout,
                   "rank %d waited longer than STRETTO_TIMEOUT (%g s) for the device window of rank %d: its "
                   "process or its GPU is stopped or very busy, or it has called nothing and the process of "
                   "rank 0, which could have asked it, has ended. Look at that rank with `stretto doctor`.",
                   rank, timeoutSeconds_, peer);
}

int DeviceWindows::awaitOpened(double seconds) const {
  const int rank = connections_.self.rank;
  const uint64_t began = platform::monotonicNanoseconds();
  const auto needsIt = [&](const Peer& peer) {
    const uint64_t opened =
        std::atomic_ref(host_.windowOffer(peer.rank).opened).load(std::memory_order_acquire);
    return peer.rank != rank && host_.windowOffer(peer.rank).read() == WindowOffer::kOffered &&
           (opened >> rank & 1) == 0 && !callsNothingMore(peer.header());
  };
  for (;;) {
    const auto peer = std::find_if(host_.peers.begin(), host_.peers.end(), needsIt);
    if (peer == host_.peers.end()) return -1;
    if (std::atomic_ref(host_.header().abort).load() != 0 || platform::secondsSince(began) > seconds)
      return peer->rank;
    rest(began);
  }
}

}  // namespace stretto::communicator
