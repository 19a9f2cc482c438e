// What host_memory_test.cpp and the driver that it makes up have in common.
#pragma once

#include <atomic>
#include <cstddef>

struct FakeDriver {
  struct Range {
    void* begin = nullptr;
    size_t bytes = 0;
  };
  bool initialised = true;
  Range device;   // memory of a GPU
  Range managed;  // the same, but the host may read it
  std::atomic<int> asked{0};
};
using FakeDriverFunction = FakeDriver*();
