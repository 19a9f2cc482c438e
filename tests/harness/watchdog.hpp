// A test that hangs says where instead of stalling the suite.
#pragma once

namespace stretto::testing {

// Aborts the process with `what` on stderr unless destroyed within `seconds`.
class Watchdog {
 public:
  Watchdog(const char* what, double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace stretto::testing
