// A fence with one expensive side. Two threads that each store a word and then load the other's need a full
// fence on both sides, or each may miss the other's store. Where one side is rare, it can pay for both: the
// kernel makes every running thread of the machine pass a full fence, and the other side only keeps its
// compiler from moving accesses.
#pragma once

#include <atomic>

namespace stretto::platform {

// Whether fenceAll() works here: not without Linux's membarrier(2), which a sandbox may refuse and a kernel
// with nohz_full CPUs does not offer. The same as long as the process lives.
bool canFenceAll();

// Every thread of every process on this machine passes a full fence between the call and its return, as the
// calling thread does. Takes 5 to 50 milliseconds. False, and only the caller's own fence, if it is refused.
bool fenceAll();

// The cheap side, for threads whose counterparts call fenceAll(): nothing but an order for the compiler.
inline void fenceForAll() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace stretto::platform
