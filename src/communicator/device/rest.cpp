// What is left of communicators on GPUs: freed when nobody uses it any more. A rank that has finalised says
// so in its host window (`left`), which its peers keep mapped for as long as they have something to free
// themselves.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "communicator/device/side.hpp"
#include "platform/clock.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {
namespace {

// A rank that died says nothing more; its kernels end with its process.
constexpr double kMournSeconds = 5;
// What an idle device may take to say that it is idle.
constexpr double kLookSeconds = 0.005;

struct Rest {
  std::unique_ptr<DeviceSide> device;  // first to go: the rest is what its kernels use
  Connections connections;
  std::vector<int> absent;  // the rank itself comes first
  uint64_t since = 0;
};

// Never destroyed: the process may end with something left.
struct Rests {
  std::mutex mutex;
  std::vector<Rest> all;
};
Rests& rests() {
  static auto* here = new Rests;
  return *here;
}

// Peers of this process hold a share in what they use; only those of others must be waited for.
bool othersHaveLeft(const Rest& rest) {
  return std::all_of(rest.connections.peers.begin(), rest.connections.peers.end(), [&](const Peer& peer) {
    const bool absent = std::find(rest.absent.begin(), rest.absent.end(), peer.rank) != rest.absent.end();
    return absent || peer.reach == PeerAccess::kAddress || hasGone(peer.header());
  });
}

bool canGo(const Rest& rest, double patience) {
  if (!rest.device->idle(patience)) return false;
  std::atomic_ref(rest.connections.header().left).store(WindowHeader::kGone, std::memory_order_release);
  while (!othersHaveLeft(rest)) {
    if (platform::secondsSince(rest.since) > kMournSeconds) return true;
    if (platform::secondsSince(rest.since) > patience) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace

void letGo(std::unique_ptr<DeviceSide> device, Connections connections, std::vector<int> absent,
           double patience) {
  Rest rest{std::move(device), std::move(connections), std::move(absent), platform::monotonicNanoseconds()};
  if (canGo(rest, patience)) return;
  if (!rest.device->idle(0)) {
    STRETTO_LOG(kWarn, kInit, "rank %d: kernels still run on GPU %d; the memory they use is kept",
                rest.absent.front(), rest.device->device());
  }
  std::lock_guard lock(rests().mutex);
  rests().all.push_back(std::move(rest));
}

void freeWhatCanBe() {
  std::vector<Rest> gone;  // freed without the lock
  std::lock_guard lock(rests().mutex);
  auto& all = rests().all;
  const auto kept =
      std::partition(all.begin(), all.end(), [](const Rest& rest) { return !canGo(rest, kLookSeconds); });
  std::move(kept, all.end(), std::back_inserter(gone));
  all.erase(kept, all.end());
}

}  // namespace stretto::communicator
