// Memory of GPUs that several ranks share, kept for the next use instead of given back.
//
// To give memory back (cudaFree, cudaFreeHost) waits for every kernel of the process on that GPU, and holds
// up every other thread's launches meanwhile (measured: docs/results/2026-11-24-shared-device). On a GPU of
// its own a rank has ended its kernels by then. On a shared one the kernel of another rank may run, and wait
// for what this thread, or one that it holds up, would launch next. So while somebody shares a GPU its memory
// is kept, handed out again by size, and given back when the last one has ended.
//
// Plain C++: it calls nothing of CUDA. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace stretto::platform {

struct KeptBlock {
  enum class Kind : uint8_t { kDevice, kPinned };
  int device = 0;
  Kind kind = Kind::kDevice;
  std::byte* address = nullptr;  // of the host where it is pinned
  size_t bytes = 0;
};

class KeptMemory {
 public:
  // The process's; never destroyed, as what it knows of may be freed while the process ends.
  static KeptMemory& ofProcess();

  // Called for all memory that is had from CUDA.
  void allocated(const KeptBlock& block);
  // A block that is kept, as it was left by its last user; null if there is none of exactly that size.
  std::byte* take(int device, KeptBlock::Kind kind, size_t bytes);
  // True: it is kept. False: nobody shares the GPU, and the caller gives it back.
  bool keep(std::byte* address);

  // Around the time in which somebody shares a GPU. unshare() returns what the caller gives back.
  void share(int device);
  std::vector<KeptBlock> unshare(int device);

 private:
  std::mutex mutex_;
  std::map<int, int> sharers_;                 // by device
  std::map<std::byte*, KeptBlock> handedOut_;  // by address
  std::vector<KeptBlock> kept_;
};

}  // namespace stretto::platform
