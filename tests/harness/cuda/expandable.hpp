// Mapped memory as PyTorch's expandable segments have it: a range of addresses in which piece follows piece,
// each a handle of its own. Made by the driver alone, so that tests do not lean on what they test. Throws
// std::runtime_error with what the driver refused.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "platform/cuda/driver.hpp"

namespace stretto::testing {

class Expandable {
 public:
  // One piece of so many units for each of `pieces`, for kernels of `device` alone.
  Expandable(int device, const std::vector<size_t>& pieces, bool shareable = true) {
    if (cudaSetDevice(device) != cudaSuccess) throw std::runtime_error("cudaSetDevice");
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    call<decltype(&::cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity", &unit_, &properties,
                                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    for (const size_t units : pieces) bytes_ += units * unit_;
    call<decltype(&::cuMemAddressReserve)>("cuMemAddressReserve", &begin_, bytes_, size_t{0}, CUdeviceptr{0},
                                           0ULL);
    CUdeviceptr at = begin_;
    for (const size_t units : pieces) {
      CUmemGenericAllocationHandle handle = 0;
      call<decltype(&::cuMemCreate)>("cuMemCreate", &handle, units * unit_, &properties, 0ULL);
      call<decltype(&::cuMemMap)>("cuMemMap", at, units * unit_, size_t{0}, handle, 0ULL);
      call<decltype(&::cuMemRelease)>("cuMemRelease", handle);
      mapped_.push_back({at, units * unit_});
      at += units * unit_;
    }
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    call<decltype(&::cuMemSetAccess)>("cuMemSetAccess", begin_, bytes_, &access, size_t{1});
  }
  ~Expandable() {
    unmap();
    call<decltype(&::cuMemAddressFree)>("cuMemAddressFree", begin_, bytes_);
  }
  Expandable(const Expandable&) = delete;
  Expandable& operator=(const Expandable&) = delete;

  char* data() const { return reinterpret_cast<char*>(static_cast<uintptr_t>(begin_)); }
  size_t bytes() const { return bytes_; }
  size_t unit() const { return unit_; }
  // As empty_cache() does: the addresses stay.
  void unmap() {
    for (const auto& [at, bytes] : std::exchange(mapped_, {})) {
      call<decltype(&::cuMemUnmap)>("cuMemUnmap", at, bytes);
    }
  }

 private:
  template <typename Function, typename... Given>
  static void call(const char* name, Given... given) {
    const auto function = reinterpret_cast<Function>(platform::cuda::driverFunction(name));
    if (function == nullptr || function(given...) != CUDA_SUCCESS) throw std::runtime_error(name);
  }

  CUdeviceptr begin_ = 0;
  size_t bytes_ = 0;
  size_t unit_ = 0;
  std::vector<std::pair<CUdeviceptr, size_t>> mapped_;
};

}  // namespace stretto::testing
