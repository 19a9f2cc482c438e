// Windows has no fence that reaches threads of other processes. Among those of one process there is
// FlushProcessWriteBuffers, which Wine 8 only pretends to do: it is not promised either, and both sides pass
// fences of their own.
#include "platform/fence.hpp"

namespace stretto::platform {

bool hasHeavyFence() {
  return false;
}
bool heavyFence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return false;
}

HeavyFence::HeavyFence() : passed_(std::make_shared<std::atomic<bool>>(false)) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool hasProcessFence() {
  return false;
}
bool processFence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return false;
}

void FencePair::rare() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace stretto::platform
