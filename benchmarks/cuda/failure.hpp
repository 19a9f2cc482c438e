// How a driver of this folder fails: it throws a Failure with one sentence, and whoever holds the rank's
// thread (session.hpp, one_shot.cpp, limits.cu) says it and ends the rank. A Refusal is no failure: the
// implementation has no such operation. The drivers are programs of their own, so nothing of this crosses
// into the library.
#pragma once

#include <stdexcept>
#include <string>

namespace stretto::bench {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace stretto::bench
