// Stretto's ring that leaves its reductions out: what is left of its time is not the reductions'. Its results
// are wrong, so they are neither judged nor used, and whoever measures it has to say so to the library.
#pragma once

#include <stretto.h>

#include <string>

namespace stretto::bench {

inline bool isUnreduced(const std::string& algorithm) {
  return algorithm == "unreduced_ring";
}

}  // namespace stretto::bench
