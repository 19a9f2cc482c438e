// For a test program whose ranks are all on GPUs, as STRETTO_TEST_DEVICE=cuda says it of others: included by
// any file of it that relies on that.
#pragma once

#include <cstdlib>

// Before the harness reads it, which happens while static objects are made.
[[gnu::constructor(101)]] static void testOnDevice() {
  setenv("STRETTO_TEST_DEVICE", "cuda", 1);
}
