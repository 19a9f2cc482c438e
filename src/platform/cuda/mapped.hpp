// Memory of a GPU that is mapped, not allocated: pieces of physical memory behind a range of addresses
// (CUDA's virtual memory management: cuMemCreate, cuMemMap). PyTorch's expandable segments are of it, and
// what ncclMemAlloc gives. CUDA IPC has no name for it; each piece has a descriptor instead. Like device.hpp
// without CUDA's headers, and with absent.cpp behind it in a build without CUDA. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "platform/socket.hpp"

namespace stretto::platform::cuda {

// Why `device` has no mapped memory that processes can share, for people; empty if it has.
std::string whyNotMapped(int device);
// True if `address`, memory of `device`, is mapped.
bool isMapped(int device, const void* address);
// Whether kernels of `device` may use mapped memory at `address`, which is a peer's: who mapped it says so
// for each device, and cudaDeviceEnablePeerAccess does not count. True for memory that is not mapped.
bool mayUse(int device, const void* address);

// Physical memory, piece by piece. Holding a piece keeps its memory, also when its owner unmaps it. Movable.
class Pieces {
 public:
  Pieces() = default;
  Pieces(Pieces&& other) noexcept;
  Pieces& operator=(Pieces&& other) noexcept;
  ~Pieces();

  // A new one of at least `bytes`, of `device`.
  static Result<Pieces> create(int device, size_t bytes);
  // What lies behind [`begin`, +`bytes`), all of it of `device`; `begin` is offset() bytes into the first.
  static Result<Pieces> behind(int device, const void* begin, size_t bytes);
  // Appends one of another process, behind `descriptor`, of which `bytes` are mapped.
  Status append(int device, const FileDescriptor& descriptor, size_t bytes);

  size_t count() const { return pieces_.size(); }
  size_t offset() const { return offset_; }
  size_t bytesOf(size_t index) const { return pieces_[index].bytes; }
  size_t bytes() const;
  // A descriptor of one, for append() in another process.
  Result<FileDescriptor> share(size_t index) const;

 private:
  friend class Mapping;
  struct Piece {
    unsigned long long handle;
    size_t bytes;
  };
  std::vector<Piece> pieces_;
  size_t offset_ = 0;
};

// A range of addresses of this process at which kernels find pieces. Movable. Nothing may use it any more
// when it goes: CUDA does not wait for what does.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // For kernels and copy engines of all `devices`. The pieces need not be held any longer.
  static Result<Mapping> make(std::span<const int> devices, const Pieces& pieces);

  int device() const { return device_; }  // the first of those it is for; -1 if it maps nothing
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  int device_ = -1;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::vector<size_t> mapped_;  // bytes of each piece, as far as they are mapped
};

// Zeroed mapped memory of `device`, which every device that can reach it may use.
Result<Mapping> allocateMapped(int device, size_t bytes);

}  // namespace stretto::platform::cuda
