// Buffers on the one GPU that all ranks of a round share. Nothing is given back to CUDA while a process
// lives: to free memory waits for the kernels of the device, and those of other ranks may wait for this one.
// What is released is handed out again, so that reuse is tested all the same.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "../memory.hpp"

namespace hostile {
namespace {

bool worked(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fprintf(stderr, "hostile: %s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

// Of one process; by size and by who allocated.
class Pool {
 public:
  void* take(size_t bytes, bool registrable) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& ready = ready_[{sizeClass(bytes), registrable}];
    if (!ready.empty()) {
      void* const memory = ready.back();
      ready.pop_back();
      return memory;
    }
    void* memory = nullptr;
    const bool made = registrable ? ncclMemAlloc(&memory, sizeClass(bytes)) == ncclSuccess
                                  : worked(cudaMalloc(&memory, sizeClass(bytes)), "cudaMalloc");
    return made ? memory : nullptr;
  }

  void give(void* memory, size_t bytes, bool registrable) {
    const std::lock_guard lock(mutex_);
    ready_[{sizeClass(bytes), registrable}].push_back(memory);
  }

 private:
  static size_t sizeClass(size_t bytes) {
    size_t size = 1 << 16;
    while (size < bytes) size *= 2;
    return size;
  }

  std::mutex mutex_;
  std::map<std::pair<size_t, bool>, std::vector<void*>> ready_;
};

Pool& pool() {
  static Pool* const one = new Pool;  // outlives what exit() destroys
  return *one;
}

class DeviceMemory final : public Memory {
 public:
  ~DeviceMemory() override {
    if (copies_ != nullptr) (void)cudaStreamDestroy(copies_);
  }

  bool sharesDevice() const override { return true; }
  bool open() override {
    return worked(cudaSetDevice(0), "cudaSetDevice") &&
           worked(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "a stream");
  }

  void* allocate(size_t bytes, int kind) override { return pool().take(bytes, kind % 3 == kRegistrable); }
  void release(void* memory, size_t bytes, int kind) override {
    pool().give(memory, bytes, kind % 3 == kRegistrable);
  }

  void write(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void read(void* to, const void* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void fill(void* to, uint8_t value, size_t bytes) override {
    worked(cudaMemsetAsync(to, value, bytes, copies_), "cudaMemsetAsync");
    worked(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
  }

  ncclResult_t makeStream(cudaStream_t* stream) override {
    const bool made = worked(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "a stream");
    return made ? ncclSuccess : ncclUnhandledCudaError;
  }
  ncclResult_t synchronise(cudaStream_t stream) override {
    return worked(cudaStreamSynchronize(stream), "cudaStreamSynchronize") ? ncclSuccess
                                                                          : ncclUnhandledCudaError;
  }
  void destroyStream(cudaStream_t stream) override { worked(cudaStreamDestroy(stream), "cudaStreamDestroy"); }

 private:
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    worked(cudaMemcpyAsync(to, from, bytes, kind, copies_), "cudaMemcpyAsync");
    worked(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
  }

  cudaStream_t copies_ = nullptr;
};

}  // namespace

std::unique_ptr<Memory> deviceMemory() {
  return std::make_unique<DeviceMemory>();
}

}  // namespace hostile
