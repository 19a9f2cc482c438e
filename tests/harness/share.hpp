// How many of their cases tests run. STRETTO_TEST_SHARE=N asks for about one in N: for sanitizers, slow
// machines and GPUs that are emulated.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace stretto::testing {

// Whether it is set, whatever N is. Tests that have no list of cases to choose from run fewer rounds then.
inline bool isShortened() {
  return getenv("STRETTO_TEST_SHARE") != nullptr;
}

// N; 1 where it is not set.
inline int testShare() {
  return isShortened() ? std::max(1, atoi(getenv("STRETTO_TEST_SHARE"))) : 1;
}

}  // namespace stretto::testing
