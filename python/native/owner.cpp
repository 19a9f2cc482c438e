#include "owner.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "errors.hpp"

namespace stretto::python {
namespace {

// Forks between the first process and this one. Counted, because asking for the number of the process before
// every operation would cost a system call.
std::atomic<uint32_t> gForks{0};

uint32_t generation() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { gForks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return gForks.load(std::memory_order_relaxed);
}

}  // namespace

Owner::Owner() : generation_(generation()), process_(getpid()) {}

bool Owner::isHere() const {
  return generation_ == gForks.load(std::memory_order_relaxed);
}

void Owner::expectHere(const char* what) const {
  if (isHere()) return;
  refuse(ncclInvalidUsage,
         "this %s was made by process %d, of which this process is a forked child: its copy of it cannot be "
         "used "
         "or closed. Make a communicator here, after the fork, or start the process anew (spawn)",
         what, process_);
}

}  // namespace stretto::python
