// Included by one file of a test program whose ranks are on GPUs, as STRETTO_TEST_DEVICE=cuda says it of
// others.
#pragma once

#include <cstdlib>

// Before the harness reads it, which happens while static objects are made.
[[gnu::constructor(101)]] static void testOnDevice() {
  setenv("STRETTO_TEST_DEVICE", "cuda", 1);
}
