// Where buffers come from, how they are filled and looked at: host memory, or a GPU's. The rest of the
// program does not know which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "nccl.h"

namespace hostile {

class Memory {
 public:
  virtual ~Memory() = default;
  // Null if there is none. `kind` is any number; what it means is the class's, but that kRegistrable is what
  // ncclMemAlloc gives.
  static constexpr int kRegistrable = 2;
  virtual void* allocate(size_t bytes, int kind) = 0;
  virtual void release(void* memory, size_t bytes, int kind) = 0;
  virtual void write(void* to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, const void* from, size_t bytes) = 0;
  virtual void fill(void* to, uint8_t value, size_t bytes) = 0;

  // Streams, and what tells that all that was enqueued on one has ended.
  virtual ncclResult_t makeStream(cudaStream_t* stream) = 0;
  virtual ncclResult_t synchronise(cudaStream_t stream) = 0;
  virtual void destroyStream(cudaStream_t stream) = 0;
  // To be called by each thread of a rank first. False with a sentence on stderr if there is no device.
  virtual bool open() = 0;
  // Whether the ranks share a GPU, on which nobody can free memory while a kernel waits for a peer.
  virtual bool sharesDevice() const { return false; }
};

// One for each thread.
std::unique_ptr<Memory> hostMemory();
std::unique_ptr<Memory> deviceMemory();  // null in a build without CUDA

// Buffers in one piece of memory, which the ranks have registered as a window: two at a time, one in each
// half.
class WindowMemory final : public Memory {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;
  explicit WindowMemory(Memory& memory) : memory_(memory), base_(memory.allocate(kBytes, kRegistrable)) {}
  ~WindowMemory() override { memory_.release(base_, kBytes, kRegistrable); }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  void* base() const { return base_; }
  void* allocate(size_t bytes, int kind) override;
  void release(void*, size_t, int) override {}
  void write(void* to, const void* from, size_t bytes) override { memory_.write(to, from, bytes); }
  void read(void* to, const void* from, size_t bytes) override { memory_.read(to, from, bytes); }
  void fill(void* to, uint8_t value, size_t bytes) override { memory_.fill(to, value, bytes); }
  ncclResult_t makeStream(cudaStream_t* stream) override { return memory_.makeStream(stream); }
  ncclResult_t synchronise(cudaStream_t stream) override { return memory_.synchronise(stream); }
  void destroyStream(cudaStream_t stream) override { memory_.destroyStream(stream); }
  bool open() override { return true; }

 private:
  Memory& memory_;
  void* base_;
  size_t half_ = 0;
};

// A buffer between guards. Knows what it should hold.
class Block {
 public:
  Block() = default;
  Block(Memory& memory, size_t bytes, size_t offset, int kind);
  ~Block() { release(); }
  Block(Block&& other) noexcept { *this = static_cast<Block&&>(other); }
  Block& operator=(Block&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void read(void* to, size_t at, size_t bytes) const { memory_->read(to, data_ + at, bytes); }
  void poison() const;
  void release();
  // Whether nothing was written beside the buffer.
  bool guarded() const;
  // The first byte of [at, at + bytes) that differs from `expected`, or -1.
  int64_t firstDifference(size_t at, const uint8_t* expected, size_t bytes) const;

 private:
  Memory* memory_ = nullptr;
  void* base_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0, whole_ = 0;
  int kind_ = 0;
};

}  // namespace hostile
