// For a test program whose ranks are all on GPUs, as STRETTO_TEST_DEVICE=cuda says it of others: included by
// any file of it that relies on that.
#pragma once

#include <cstdlib>

#include "harness/ranks.hpp"

// Before the harness reads it, which happens while static objects are made.
[[gnu::constructor(101)]] static void testOnDevice() {
  setenv("STRETTO_TEST_DEVICE", "cuda", 1);
}

namespace stretto::testing {

// Whether the program's devices are emulated ones (tests/emulator), whose threads take turns on the cores of
// the machine: what a GPU does in a moment may take them seconds.
#ifdef STRETTO_TEST_EMULATED
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

// In how many seconds an abort has ended what a GPU runs. Kernels that ignore it go on until STRETTO_TIMEOUT,
// which is a minute, so that they are late on emulated devices too, which get a few seconds.
inline double abortLimit(const Canary& canary, double seconds) {
  return canary.limit(kEmulated ? 5 : seconds);
}

}  // namespace stretto::testing
