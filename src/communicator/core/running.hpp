// The operation that runs, as a value: whoever runs it passes it on. Made by Journal when the operation
// begins, and given back to it when it has ended.
#pragma once

#include <cstdint>

#include "communicator/core/operation.hpp"

namespace stretto::communicator {

struct Running {
  const Operation* operation = nullptr;  // the caller's, or the group's
  uint64_t sequence = 0;                 // of a collective; 0: of what has no number
  uint64_t tag = 0;                      // of a collective: what all ranks must have in common
  uint64_t recorded = 0;                 // its place in the flight recorder
  bool watched = false;                  // a plugin was told that it began
};

}  // namespace stretto::communicator
