// A thread of a device that moves for all ranks there what is the matter of that thread. It spins while
// something moves, sleeps the longer the longer nothing did, and ends with the last of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "platform/own_thread.hpp"

namespace stretto::links::net {

class Shuttle;

class Mover {
 public:
  // `index`: of a device's movers.
  static Result<std::shared_ptr<Mover>> of(int device, int index);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Any thread but its own. Nobody moves for what has been removed.
  void add(Shuttle& shuttle);
  void remove(Shuttle& shuttle);
  void wake();

 private:
  Mover() = default;
  void run();
  bool moveAll();

  std::mutex mutex_;  // held while shuttles_ is used
  std::vector<Shuttle*> shuttles_;
  std::atomic<int> callers_{0};  // that wait for the lock, and come first
  std::atomic<bool> ending_{false};
  std::atomic<bool> sleeps_{false};
  alignas(64) uint32_t bell_ = 0;
  platform::OwnThread thread_;
};

}  // namespace stretto::links::net
