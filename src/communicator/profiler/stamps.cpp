#include "communicator/profiler/stamps.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>

#include "base/log.hpp"
#include "platform/clock.hpp"

namespace stretto::communicator {
namespace {

constexpr size_t kMostExpected = 4096;     // operations, and as many stamps that wait for theirs
constexpr size_t kMostCaptured = 1 << 20;  // calls
constexpr uint64_t kHeldNanoseconds = 10'000'000;

}  // namespace

void StampMatcher::expect(uint64_t launch, int stamps, void* parent, int peer, bool isSend) {
  if (stamps <= 0) return;
  std::vector<Expected>& expected = expected_[launch];
  if (expected.empty()) launches_.push_back(launch);
  expected.push_back({parent, peer, isSend, stamps});
  if (launches_.size() > kMostExpected) {
    expected_.erase(launches_.front());
    launches_.pop_front();
  }
  // Replays of graphs hold many stamps, all of launches long past: then there is none to look for.
  if (launch > newestHeld_) return;
  std::erase_if(held_, [&](const Held& held) { return held.stamp.launch == launch && match(held.stamp); });
}

void StampMatcher::captured(uint64_t launch, void* call) {
  if (captured_.size() < kMostCaptured) captured_.emplace(launch, call);
}

// A transfer's stamp is that of all messages of its queue; a collective's launch has but one event.
bool StampMatcher::match(const KernelStamp& stamp) {
  if (const auto call = captured_.find(stamp.launch); call != captured_.end()) {
    matched_.push_back({nullptr, stamp, call->second});
    return true;
  }
  const auto found = expected_.find(stamp.launch);
  if (found == expected_.end()) return false;
  bool matched = false;
  for (Expected& one : found->second) {
    if (one.peer != stamp.peer || (one.peer >= 0 && one.isSend != stamp.isSend) || one.left == 0) continue;
    --one.left;
    matched = true;
    matched_.push_back({one.parent, stamp, nullptr});
  }
  return matched;
}

void StampMatcher::arrived(const KernelStamp& stamp, uint64_t nowNanoseconds) {
  if (match(stamp)) return;
  held_.push_back({stamp, nowNanoseconds});
  newestHeld_ = std::max(newestHeld_, stamp.launch);
  if (held_.size() > kMostExpected) giveUpBefore(held_.front().since + 1);
}

void StampMatcher::giveUpBefore(uint64_t nanoseconds) {
  while (!held_.empty() && held_.front().since < nanoseconds) {
    matched_.push_back({nullptr, held_.front().stamp, nullptr});
    held_.pop_front();
  }
}

StampFollower::StampFollower(Take take, Report tell)
    : take_(std::move(take)), report_(std::move(tell)), thread_([this] { follow(); }) {}

StampFollower::~StampFollower() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  // Bounded: a graph that still replays brings new ones for ever.
  constexpr int kMostRounds = 16;
  for (int round = 0; round < kMostRounds && collect() > 0; ++round) {
  }
  reportMatched(UINT64_MAX);
  if (lost_ > 0) {
    STRETTO_LOG(kWarn, kProfile,
                "profiler: %" PRIu64 " spans of kernels were overwritten before they could be told", lost_);
  }
}

void StampFollower::expect(uint64_t launch, int stamps, void* parent, int peer, bool isSend) {
  {
    const std::lock_guard lock(mutex_);
    matcher_.expect(launch, stamps, parent, peer, isSend);
    soon_ = true;
  }
  changed_.notify_one();
}

void StampFollower::captured(uint64_t launch, void* call) {
  const std::lock_guard lock(mutex_);
  matcher_.captured(launch, call);
}

// Returns how many came.
size_t StampFollower::collect() {
  std::array<KernelStamp, 256> stamps;
  const size_t taken = take_(stamps, lost_);
  const uint64_t now = platform::monotonicNanoseconds();
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < taken; ++i) matcher_.arrived(stamps[i], now);
  }
  reportMatched(now > kHeldNanoseconds ? now - kHeldNanoseconds : 0);
  return taken;
}

// Also what has been held since before `nanoseconds`. Without the lock: these may be hundreds of calls of a
// plugin, and launches come to expect() meanwhile. An operation's event may have stopped before its stamps
// are told, as NCCL's does.
void StampFollower::reportMatched(uint64_t nanoseconds) {
  std::vector<StampMatcher::Matched> matched;
  {
    const std::lock_guard lock(mutex_);
    matcher_.giveUpBefore(nanoseconds);
    matched = matcher_.take();
  }
  for (const StampMatcher::Matched& one : matched) report_(one);
}

// Looks often while something is expected or comes: a block's ring holds 64 stamps, which small operations of
// a graph fill within some 130 microseconds, and what is told soon after it ended says best how the GPU's
// clock stands to the host's.
void StampFollower::follow() {
  using std::chrono::microseconds;
  constexpr microseconds kShortest{20}, kLongest{1000};
  microseconds rest = kLongest;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    const bool some = collect() > 0;
    lock.lock();
    rest = some || soon_ ? kShortest : std::min(rest + rest / 8 + microseconds{1}, kLongest);
    soon_ = false;
    changed_.wait_for(lock, rest, [&] { return ending_ || (soon_ && rest > kShortest); });
  }
}

}  // namespace stretto::communicator
