// A device region: memory of one rank on its GPU that its peers use, by its address (ranks of this process)
// or through an import (other processes). Shared between the communicator that made it and those of this
// process that use it, so that it goes with the last of them; what was borrowed is its user's to free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "platform/cuda/device.hpp"

namespace stretto::memory {

class DeviceRegion {
 public:
  ~DeviceRegion();
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;
  // Zeroed. `token` is a random number by which find() knows it.
  static Result<std::shared_ptr<DeviceRegion>> create(int device, size_t bytes, uint64_t token);
  // Memory of a user's on that device.
  static std::shared_ptr<DeviceRegion> borrow(int device, std::byte* data, size_t bytes, uint64_t token);
  // The region of this process that carries `token`; null if there is none (any more). Any thread.
  static std::shared_ptr<DeviceRegion> find(uint64_t token);

  int device() const { return device_; }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  uint64_t token() const { return token_; }

 private:
  DeviceRegion(int device, std::byte* data, size_t bytes, uint64_t token, bool owned)
      : device_(device), data_(data), bytes_(bytes), token_(token), owned_(owned) {}
  static std::shared_ptr<DeviceRegion> enter(DeviceRegion* made);

  const int device_;
  std::byte* const data_;
  const size_t bytes_;
  const uint64_t token_;
  const bool owned_;
};

// Device memory of another process, opened for kernels of one device. Movable.
class DeviceImport {
 public:
  DeviceImport() = default;
  DeviceImport(DeviceImport&& other) noexcept;
  DeviceImport& operator=(DeviceImport&& other) noexcept;
  ~DeviceImport();
  static Result<DeviceImport> open(int device, const platform::cuda::IpcName& name);

  // The address that was named, not its allocation's begin.
  std::byte* data() const { return base_ + offset_; }

 private:
  int device_ = -1;
  std::byte* base_ = nullptr;
  uint64_t offset_ = 0;
};

}  // namespace stretto::memory
