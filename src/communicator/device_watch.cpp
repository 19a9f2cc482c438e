#include "communicator/device_watch.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "communicator/apart.hpp"

namespace stretto::communicator {
namespace {

using Look = std::function<bool()>;

// Never destroyed: threads may outlive what is static.
struct Watches {
  std::mutex mutex;
  std::map<int, std::vector<Look>> newOnes;  // by device, for as long as it has a thread
};
Watches& watches() {
  static auto* const here = new Watches;
  return *here;
}

// False, and the device has no thread any more, if there is nobody left.
bool takeNew(int device, std::vector<Look>& looks) {
  const std::lock_guard lock(watches().mutex);
  std::vector<Look>& added = watches().newOnes[device];
  std::move(added.begin(), added.end(), std::back_inserter(looks));
  added.clear();
  if (looks.empty()) watches().newOnes.erase(device);
  return !looks.empty();
}

void run(int device) {
  std::vector<Look> looks;
  while (takeNew(device, looks)) {
    std::erase_if(looks, [](const Look& look) { return !look(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

bool watchOver(int rank, int device, Look look) {
  const std::lock_guard lock(watches().mutex);
  const auto [at, isFirst] = watches().newOnes.try_emplace(device);
  at->second.push_back(std::move(look));
  if (!isFirst) return true;
  if (startApart(rank, device, "to look after its kernels", [device] { run(device); })) return true;
  watches().newOnes.erase(at);
  return false;
}

}  // namespace stretto::communicator
