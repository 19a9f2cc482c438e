// Threads of the library's own must not take the program's signals. Any folder may include this.
#pragma once

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif

namespace stretto::platform {

// While it lives, signals are blocked on the calling thread; threads that it starts inherit the mask and keep
// it. Signals of a thread's own faults (SIGSEGV and the like) stay unblocked: the kernel ends the process at
// a blocked fault, and the program's handler would not run. Windows has no signals.
class SignalsBlocked {
 public:
#if defined(_WIN32)
  SignalsBlocked() {}
  ~SignalsBlocked() {}
#else
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
#endif
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

#if !defined(_WIN32)
 private:
  sigset_t before_;
#endif
};

}  // namespace stretto::platform
