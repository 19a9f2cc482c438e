// Names and numbers are those of the CUDA driver API's reference manual ("Unified Addressing").
#include "platform/cuda_driver.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "platform/dynamic_library.hpp"

namespace stretto::platform {
namespace {

using GetAttribute = int(void* out, int attribute, unsigned long long address);
enum Answer { kSuccess = 0, kInvalidValue = 1 };
enum Attribute { kMemoryType = 2, kIsManaged = 8 };
constexpr unsigned kTypeDevice = 2;

#if defined(_WIN32)
constexpr const char* kName = "nvcuda.dll";
#else
constexpr const char* kName = "libcuda.so.1";
#endif
constexpr size_t kKnownPages = 256;
constexpr int kPageBits = 12;

std::atomic<GetAttribute*> gGetAttribute{nullptr};
std::array<std::atomic<uintptr_t>, kKnownPages> gHostPages{};  // by their numbers' last bits

}  // namespace

bool hasCudaDriver() {
  if (gGetAttribute.load(std::memory_order_acquire) != nullptr) return true;
  auto driver = DynamicLibrary::openLoaded(kName);
  if (!driver.isOpen()) return false;
  auto* const found = reinterpret_cast<GetAttribute*>(driver.symbol("cuPointerGetAttribute"));
  if (found == nullptr) return false;
  // Held open for good, as the pointer must stay so.
  static_cast<void>(new DynamicLibrary(std::move(driver)));
  gGetAttribute.store(found, std::memory_order_release);
  return true;
}

bool isDeviceMemory(const void* address) {
  GetAttribute* const get = gGetAttribute.load(std::memory_order_acquire);
  if (get == nullptr) return false;
  const auto page = reinterpret_cast<uintptr_t>(address) >> kPageBits;
  std::atomic<uintptr_t>& known = gHostPages[page % kKnownPages];
  if (known.load(std::memory_order_relaxed) == page) return false;
  unsigned type = 0;
  const int answer = get(&type, kMemoryType, reinterpret_cast<uintptr_t>(address));
  if (answer == kSuccess && type == kTypeDevice) {
    unsigned managed = 0;
    const bool readable =
        get(&managed, kIsManaged, reinterpret_cast<uintptr_t>(address)) == kSuccess && managed != 0;
    return !readable;
  }
  // Another answer says nothing of the address: that the driver is not initialised yet, say.
  if (answer == kSuccess || answer == kInvalidValue) known.store(page, std::memory_order_relaxed);
  return false;
}

}  // namespace stretto::platform
