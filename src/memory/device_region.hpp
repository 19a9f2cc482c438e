// A device region: memory of one rank on its GPU that its peers use, by its address (ranks of this process)
// or through an import (other processes). Shared between the communicator that made it and those of this
// process that use it, so that it goes with the last of them; what was borrowed is its user's to free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "platform/cuda/device.hpp"
#include "platform/cuda/mapped.hpp"

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

// Memory of a peer, as kernels of one device find it: of another process, by its name or in pieces, or of
// this one, if it is mapped for other devices only. Keeps the memory, also when its owner frees it. Movable.
class DeviceImport {
 public:
  DeviceImport() = default;
  DeviceImport(DeviceImport&& other) noexcept;
  DeviceImport& operator=(DeviceImport&& other) noexcept;
  ~DeviceImport();
  static Result<DeviceImport> open(int device, const platform::cuda::IpcName& name);
  // [`offset`, +`bytes`) of the pieces.
  static Result<DeviceImport> map(int device, const platform::cuda::Pieces& pieces, uint64_t offset,
                                  uint64_t bytes);

  // The address that was asked for, not its allocation's begin.
  std::byte* data() const { return base_ + offset_; }
  bool isMapped() const { return mapping_.data() != nullptr; }

 private:
  int device_ = -1;
  std::byte* base_ = nullptr;
  uint64_t offset_ = 0;
  platform::cuda::Mapping mapping_;  // what `base_` is the begin of, unless it was opened by name
};

}  // namespace stretto::memory
