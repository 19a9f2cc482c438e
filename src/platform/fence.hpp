// Asymmetric fences (C++ proposal P1202). Two threads that each store a word and then load the other's need
// a full fence between store and load on both sides, or each may miss the other's store. Where one side runs
// rarely, it can pay for both: its heavy fence makes every running thread of the machine pass a full fence,
// and the frequent side passes a light one, which is no instruction at all.
#pragma once

#include <atomic>
#include <memory>

namespace stretto::platform {

// Whether heavyFence() works in this process; the answer never changes. It needs Linux's membarrier(2), which
// a sandbox may refuse and a kernel with nohz_full CPUs does not offer. Any thread.
bool hasHeavyFence();

// Between this call and its return every thread of every process on this machine passes a full fence, the
// caller included. Takes 5 to 50 milliseconds, in which the kernel waits for each CPU once, and seconds where
// many threads want a core. If the kernel refuses, only the caller has passed one, and the result is false.
// Any thread.
bool heavyFence();

// The same for who cannot wait for so long: a thread of its own calls it. Its maker has passed a full fence
// when the constructor returns.
class HeavyFence {
 public:
  HeavyFence();
  // Every thread of the machine has passed one since then; never, if the kernel refuses.
  bool isPassed() const { return passed_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> passed_;
};

// The same among the threads of this process only, which takes a microsecond. The kernel must know beforehand
// that the process wants it. That takes as long as a heavy fence, so the first question lets a thread of its
// own tell the kernel. Where the fence is not promised, not told yet, or refused in spite of that, the result
// is false, and the others pass no fence.
bool hasProcessFence();
bool processFence();

// For threads whose counterparts call a fence above: keeps the compiler from moving accesses across it.
inline void lightFence() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// An asymmetric pair of fences between threads of this process. Where there is no process fence, the frequent
// side passes a full one instead. Any thread.
class FencePair {
 public:
  void frequent() const {
    if (light_) [[likely]] {
      lightFence();
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  // The caller sees what every frequent side stored before its fence, or that side sees what the caller
  // stored before this call.
  void rare() const;

 private:
  const bool light_ = hasProcessFence();
};

}  // namespace stretto::platform
