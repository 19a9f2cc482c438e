// Ctrl-C while Python's main thread waits inside the library. Python's own handler only takes a note there,
// which nobody reads before the call returns, and the call may wait for a peer that never comes. So a thread
// of ours revokes the communicator of a call that goes on for a quarter of a second after the signal; the
// call then fails, and Python raises KeyboardInterrupt. Only python/native uses it.
#pragma once

#include "nccl.h"

namespace stretto::python {

// Begins to listen; from Python's main thread, with the GIL. Does nothing in other threads, or where SIGINT
// is ignored or not Python's. Again: does nothing, unless somebody has taken the signal away meanwhile.
void watchInterrupts();

// Around a call on `comm`, without the GIL: says that the main thread is in it. Nothing in other threads.
class Interruptible {
 public:
  explicit Interruptible(ncclComm_t comm);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  bool here_;
};

}  // namespace stretto::python
