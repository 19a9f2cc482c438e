#include "net/tcp/flow.hpp"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "platform/clock.hpp"
#include "platform/socket_state.hpp"

namespace stretto::net::tcp {
namespace {

constexpr uint64_t kAskKernelEvery = 100'000'000;  // nanoseconds
constexpr double kMostSecondsOfLingering = 60;
constexpr uint32_t kUnansweredOfSilence = 3;
constexpr double kSayLostAfter = 0.2;  // seconds: by then a peer that died has closed all flows

struct Lingering {
  FileDescriptor socket;
  uint64_t since = 0;
};
struct LingeringSockets {
  std::mutex mutex;
  std::vector<Lingering> all;
};
// Never destroyed: connections may outlive static objects.
LingeringSockets& lingering() {
  static auto* instance = new LingeringSockets;
  return *instance;
}

// Whether the peer's kernel has all, or the connection is gone. Takes what the peer still sends; one that
// never ends is asked again later.
bool isThrough(const FileDescriptor& socket) {
  constexpr int kMostReads = 64;
  uint8_t ignored[4096];
  for (int reads = 0; reads < kMostReads; ++reads) {
    const Transfer got = receiveSome(socket, std::span<uint8_t>(ignored));
    if (got.outcome == IoOutcome::kWouldBlock) return bytesQueued(socket) == 0;
    if (got.outcome != IoOutcome::kSome) return true;
  }
  return false;
}

}  // namespace

Flow::Flow(Joined&& joined, double silence) : stream(std::move(joined.stream)) {
  counters.route = std::move(joined.route);
  breakWhenSilent(stream.socket(), silence);
}

FlowCounters Flow::count() const {
  FlowCounters now = counters;
  if (!open) return now;
  const SocketState state = stateOf(stream.socket());
  now.sentAgain = state.sentAgain;
  now.roundTripSeconds = state.roundTripSeconds;
  return now;
}

bool Flow::isSilent(double silence, uint64_t now) {
  if (!open || now - asked_ < kAskKernelEvery) return false;
  asked_ = now;
  const SocketState state = stateOf(stream.socket());
  counters.sentAgain = state.sentAgain;
  counters.roundTripSeconds = state.roundTripSeconds;
  return state.unanswered >= kUnansweredOfSilence && state.silentSeconds >= silence;
}

void Flow::close() {
  loan.recall();
  open = false;
  stream.reset();
}

Status ConnectionFailure::again() const {
  if (!ok()) setLastError(text_);
  return status_;
}

void ConnectionFailure::set(Code code, std::string text, bool isNews) {
  status_ = isNews ? fail(code, "%s", text.c_str()) : Status{code};
  text_ = std::move(text);
  setLastError(text_);
}

void LossNotice::note(std::string what) {
  what_ = std::move(what);
  at_ = platform::monotonicNanoseconds();
}

void LossNotice::sayIfDue(bool isAnyLeft) {
  if (what_.empty() || (isAnyLeft && platform::secondsSince(at_) < kSayLostAfter)) return;
  if (isAnyLeft) {
    STRETTO_LOG(kWarn, kNet, "net/tcp: a flow is lost, the others go on with what it carried: %s",
                what_.c_str());
  }
  forget();
}

std::string whyEnded(const Transfer& transfer) {
  if (transfer.outcome != IoOutcome::kFailed) return "its connection closed";
  return "its connection broke (" + wordsOf(transfer.error) + ")";
}

void closeIdle() {
  LingeringSockets& here = lingering();
  std::lock_guard lock(here.mutex);
  std::erase_if(here.all, [](const Lingering& one) {
    return isThrough(one.socket) || platform::secondsSince(one.since) > kMostSecondsOfLingering;
  });
}

void closeGently(FileDescriptor socket, int milliseconds) {
  endSending(socket);
  const uint64_t begin = platform::monotonicNanoseconds();
  bool through = isThrough(socket);
  while (!through && platform::secondsSince(begin) * 1e3 < milliseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    through = isThrough(socket);
  }
  if (!through) {
    LingeringSockets& here = lingering();
    std::lock_guard lock(here.mutex);
    here.all.push_back({std::move(socket), begin});
  }
  closeIdle();
}

}  // namespace stretto::net::tcp
