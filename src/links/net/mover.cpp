#include "links/net/mover.hpp"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "links/net/shuttle.hpp"
#include "platform/clock.hpp"
#include "platform/futex.hpp"

namespace stretto::links::net {
namespace {

// Never destroyed: threads may outlive static objects.
struct Movers {
  std::mutex mutex;
  std::map<std::pair<int, int>, std::weak_ptr<Mover>> all;  // by device and index
};
Movers& movers() {
  static auto* here = new Movers;
  return *here;
}

}  // namespace

Result<std::shared_ptr<Mover>> Mover::of(int device, int index) {
  const std::lock_guard lock(movers().mutex);
  std::weak_ptr<Mover>& known = movers().all[{device, index}];
  if (std::shared_ptr<Mover> mover = known.lock()) return mover;
  std::shared_ptr<Mover> mover(new Mover);
  if (!mover->thread_.start([self = mover.get()] { self->run(); })) {
    return fail(Code::kSystem,
                "there is no thread here that could move bytes between GPU %d and other hosts: %s", device,
                platform::kNoThread);
  }
  known = mover;
  return mover;
}

Mover::~Mover() {
  ending_.store(true);
  wake();
  thread_.join();
}

void Mover::add(Shuttle& shuttle) {
  ++callers_;
  const std::lock_guard lock(mutex_);
  --callers_;
  shuttles_.push_back(&shuttle);
}

void Mover::remove(Shuttle& shuttle) {
  ++callers_;
  const std::lock_guard lock(mutex_);
  --callers_;
  std::erase(shuttles_, &shuttle);
}

void Mover::wake() {
  std::atomic_ref(bell_).fetch_add(1, std::memory_order_seq_cst);
  if (sleeps_.load(std::memory_order_seq_cst)) platform::futexWake(&bell_);
}

bool Mover::moveAll() {
  const std::lock_guard lock(mutex_);
  bool moved = false;
  for (Shuttle* shuttle : shuttles_) moved = shuttle->move() || moved;
  return moved;
}

// Who has just enqueued a kernel rings; nobody rings for what comes over a net, or for a replay of a graph.
void Mover::run() {
  uint32_t heard = 0;
  uint64_t movedAt = platform::ticks();
  while (!ending_.load(std::memory_order_relaxed)) {
    while (callers_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    const uint32_t bell = std::atomic_ref(bell_).load(std::memory_order_acquire);
    const bool moved = moveAll();
    const uint64_t now = platform::ticks();
    if (moved || bell != heard) movedAt = now;
    heard = bell;
    const double idleSeconds = platform::tickSeconds(now - movedAt);
    constexpr double kSpinSeconds = 200e-6;
    if (idleSeconds < kSpinSeconds) {
      std::this_thread::yield();
      continue;
    }
    constexpr double kPart = 1.0 / 64, kLeast = 10e-6, kMost = 2e-3;
    const double seconds = std::clamp(idleSeconds * kPart, kLeast, kMost);
    sleeps_.store(true, std::memory_order_seq_cst);
    platform::futexWait(&bell_, bell, static_cast<uint64_t>(seconds * 1e6));
    sleeps_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace stretto::links::net
