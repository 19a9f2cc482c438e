// Stamps of GPU kernels on their way to a profiler plugin: kernels leave them in host memory when they end
// (executors/cuda/engine.hpp), a thread collects them while a plugin wants them, and each is told with the
// event of the operation that it belongs to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "executors/cuda/engine.hpp"
#include "platform/own_thread.hpp"

namespace stretto::communicator {

using executors::cuda::KernelStamp;

// Whose a stamp is. An operation's stamps may come before it is said whose they are, and those of a graph's
// replays come again and again after nobody expects them any more: both are held for a while, then go with no
// event. Replays of a call that is known go with that at once. It tells nobody: what is to be told is for its
// owner to take. Not thread-safe.
class StampMatcher {
 public:
  struct Matched {
    void* parent;  // the operation's event; null if nothing is known of it
    KernelStamp stamp;
    void* captured = nullptr;  // of a replay, the event of the call that was captured, if that is known
  };

  // `stamps` of launch `launch` are `parent`'s; of a transfer those of one peer and direction.
  void expect(uint64_t launch, int stamps, void* parent, int peer = -1, bool isSend = false);
  // `call` was captured as launch `launch`.
  void captured(uint64_t launch, void* call);
  void arrived(const KernelStamp& stamp, uint64_t nowNanoseconds);
  // Of what has been held too long; with UINT64_MAX, of all that is held.
  void giveUpBefore(uint64_t nanoseconds);
  // What is to be told since this was last called.
  std::vector<Matched> take() { return std::exchange(matched_, {}); }

 private:
  struct Expected {
    void* parent;
    int peer;
    bool isSend;
    int left;
  };
  struct Held {
    KernelStamp stamp;
    uint64_t since;
  };
  bool match(const KernelStamp& stamp);

  std::vector<Matched> matched_;
  std::unordered_map<uint64_t, std::vector<Expected>> expected_;
  std::deque<uint64_t> launches_;  // keys of expected_, oldest first
  std::unordered_map<uint64_t, void*> captured_;
  std::deque<Held> held_;
  uint64_t newestHeld_ = 0;  // the largest launch that was ever among them
};

// The thread that collects, and tells. Every function may be called by any thread, and none waits for what a
// plugin does in `tell`.
class StampFollower {
 public:
  // Fills the span with what has come, returns how many, adds to `lost`.
  using Take = std::function<size_t(std::span<KernelStamp>, uint64_t& lost)>;
  using Report = std::function<void(const StampMatcher::Matched&)>;
  StampFollower(Take take, Report tell);
  // Collects what is there, says how many were lost, ends the thread.
  ~StampFollower();
  StampFollower(const StampFollower&) = delete;
  StampFollower& operator=(const StampFollower&) = delete;

  void expect(uint64_t launch, int stamps, void* parent, int peer = -1, bool isSend = false);
  void captured(uint64_t launch, void* call);

 private:
  void follow();
  size_t collect();
  void reportMatched(uint64_t nanoseconds);

  // Of the thread, or of the destructor after it.
  Take take_;
  Report report_;
  uint64_t lost_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  StampMatcher matcher_;
  bool soon_ = false;  // stamps are expected
  bool ending_ = false;
  platform::OwnThread thread_;
};

}  // namespace stretto::communicator
