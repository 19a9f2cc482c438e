// CUDA's driver, as far as it is asked what an address is (fake_driver.hpp).
#include "fake_driver.hpp"

#include <cstdint>

namespace {

FakeDriver gFake;

bool isIn(const FakeDriver::Range& range, unsigned long long address) {
  const auto begin = reinterpret_cast<uintptr_t>(range.begin);
  return address >= begin && address < begin + range.bytes;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) FakeDriver* fakeDriver() {
  return &gFake;
}

__attribute__((visibility("default"))) int cuPointerGetAttribute(void* out, int attribute,
                                                                 unsigned long long address) {
  constexpr int kInvalidValue = 1, kNotInitialized = 3, kMemoryType = 2, kIsManaged = 8;
  constexpr unsigned kDevice = 2;
  ++gFake.asked;
  if (!gFake.initialised) return kNotInitialized;
  const bool managed = isIn(gFake.managed, address);
  if (!managed && !isIn(gFake.device, address)) return kInvalidValue;
  if (attribute != kMemoryType && attribute != kIsManaged) return kInvalidValue;
  *static_cast<unsigned*>(out) = attribute == kMemoryType ? kDevice : managed ? 1u : 0u;
  return 0;
}
}
