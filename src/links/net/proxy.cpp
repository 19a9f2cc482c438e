#include "links/net/proxy.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "platform/clock.hpp"

namespace stretto::links::net {

Result<std::unique_ptr<Proxy>> Proxy::create(const Config& config) {
  std::unique_ptr<Proxy> proxy(new Proxy(config));
  auto memory = platform::cuda::allocateHostMapped(config.device, proxy->bytes());
  if (!memory.ok()) return memory.status();
  proxy->memory_ = memory.value();
  const int count = static_cast<int>(config.links.size());
  for (int index = 0; index < count; ++index) {
    auto mover = Mover::of(config.device, index);
    if (!mover.ok()) return mover.status();
    auto shuttle = std::make_unique<Shuttle>(Shuttle::Config{config.links[static_cast<size_t>(index)],
                                                             config.rank, config.ranks, config.shape,
                                                             proxy->memory_.host, index, count});
    mover.value()->add(*shuttle);
    proxy->parts_.push_back({std::move(shuttle), std::move(mover.value())});
  }
  return proxy;
}

Proxy::~Proxy() {
  for (const Part& part : parts_) part.mover->remove(*part.shuttle);
  parts_.clear();
  platform::cuda::releaseHostMapped(device_, memory_);
}

std::array<std::byte*, kMaxRanks> Proxy::windows() const {
  std::array<std::byte*, kMaxRanks> windows{};
  for (int rank = 0; rank < ranks_; ++rank) {
    windows[static_cast<size_t>(rank)] = memory_.device + static_cast<size_t>(rank) * shape_.windowBytes();
  }
  return windows;
}

void Proxy::wake() const {
  for (const Part& part : parts_) part.mover->wake();
}

bool Proxy::leave(double seconds, const std::function<bool()>& ends) const {
  const uint64_t began = platform::ticks();
  return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    const uint64_t number = part.shuttle->leave();
    while (!part.shuttle->hasLeft(number)) {
      if (ends() || platform::tickSeconds(platform::ticks() - began) > seconds) return false;
      part.mover->wake();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  });
}

int Proxy::brokenFor(double seconds, std::string& words) const {
  for (const Part& part : parts_) {
    const int peer = part.shuttle->brokenFor(seconds, words);
    if (peer >= 0) return peer;
  }
  return -1;
}

}  // namespace stretto::links::net
