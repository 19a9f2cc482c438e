#include "communicator/device/watch.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "communicator/core/apart.hpp"
#include "platform/fork.hpp"

namespace stretto::communicator {
namespace {

using Look = std::function<bool()>;

// Never destroyed: threads may outlive what is static.
struct Watches {
  const uint32_t generation = platform::forkGeneration();  // a child has none of the threads
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, std::vector<Look>> newOnes;  // by device, for as long as it has a thread
  bool exits = false;
};
Watches& watches() {
  static auto* const here = new Watches;
  return *here;
}

// Looks read memory that CUDA frees when the process exits, so the threads end before that. CUDA was there
// before the first of them was, so that this runs before what it does at exit.
void endAtExit() {
  constexpr auto kExitTime = std::chrono::seconds(2);
  Watches& all = watches();
  if (all.generation != platform::forkGeneration()) return;
  std::unique_lock lock(all.mutex);
  all.exits = true;
  all.changed.notify_all();
  all.changed.wait_for(lock, kExitTime, [&] { return all.newOnes.empty(); });
}

// False, and the device has no thread any more, if there is nobody left or the process exits.
bool takeNew(int device, std::vector<Look>& looks) {
  Watches& all = watches();
  const std::lock_guard lock(all.mutex);
  std::vector<Look>& added = all.newOnes[device];
  std::move(added.begin(), added.end(), std::back_inserter(looks));
  added.clear();
  if (!looks.empty() && !all.exits) return true;
  all.newOnes.erase(device);
  all.changed.notify_all();
  return false;
}

void rest() {
  constexpr auto kPause = std::chrono::milliseconds(50);
  std::unique_lock lock(watches().mutex);
  watches().changed.wait_for(lock, kPause, [] { return watches().exits; });
}

void run(int device) {
  std::vector<Look> looks;
  while (takeNew(device, looks)) {
    std::erase_if(looks, [](const Look& look) { return !look(); });
    rest();
  }
}

}  // namespace

bool watchOver(int rank, int device, Look look) {
  const std::lock_guard lock(watches().mutex);
  static const int registered = std::atexit(endAtExit);
  static_cast<void>(registered);
  if (watches().exits) return false;
  const auto [at, isFirst] = watches().newOnes.try_emplace(device);
  at->second.push_back(std::move(look));
  if (!isFirst) return true;
  if (startApart(rank, device, "to look after its kernels", [device] { run(device); })) return true;
  watches().newOnes.erase(at);
  return false;
}

}  // namespace stretto::communicator
