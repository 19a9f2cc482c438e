// Threads of the library's own must not take the program's signals. Any folder may include this.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace stretto::platform {

// While it lives the calling thread takes no signals; a thread that it starts meanwhile never does.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace stretto::platform
