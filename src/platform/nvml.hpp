// What NVIDIA's management library (NVML) says of the GPUs of this host: all of them, also those that
// CUDA_VISIBLE_DEVICES hides from this process. It takes tens of milliseconds to wake up: ask once, and only
// where it matters. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stretto::platform::nvml {

// Active NVLinks of one GPU to one other end.
struct NvlinksTo {
  std::string to;  // the other end's bus id, or kSwitch; empty: the driver does not say
  int count = 0;
  int megabytesPerSecond = 0;  // of each link, one way; 0: the driver does not say

  bool operator==(const NvlinksTo&) const = default;
};
inline constexpr const char* kSwitch = "nvswitch";

struct Device {
  std::string name;
  std::string uuid;   // "GPU-5c7f5cfc-..."
  std::string busId;  // "0000:1b:00.0", as the kernel and CUDA write it
  uint64_t memoryBytes = 0;
  std::vector<NvlinksTo> links;

  bool operator==(const Device&) const = default;
};

// In NVML's order. None where there is no such library, no driver, or it refuses: `why` says which.
std::vector<Device> devices(std::string* why = nullptr, const char* library = "libnvidia-ml.so.1");

}  // namespace stretto::platform::nvml
