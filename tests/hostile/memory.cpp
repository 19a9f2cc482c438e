#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "stretto.h"

namespace hostile {
namespace {

constexpr size_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xa7, kPoison = 0xdb;

class HostMemory final : public Memory {
 public:
  void* allocate(size_t bytes, int kind) override {
    void* memory = nullptr;
    switch (kind % 3) {
      case 0:
        return malloc(bytes);
      case 1:
        memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? nullptr : memory;
      default:
        return ncclMemAlloc(&memory, bytes) == ncclSuccess ? memory : nullptr;
    }
  }

  void release(void* memory, size_t bytes, int kind) override {
    if (kind % 3 == 0) {
      free(memory);
    } else if (kind % 3 == 1) {
      munmap(memory, bytes);
    } else {
      (void)ncclMemFree(memory);
    }
  }

  void write(void* to, const void* from, size_t bytes) override { memcpy(to, from, bytes); }
  void read(void* to, const void* from, size_t bytes) override { memcpy(to, from, bytes); }
  void fill(void* to, uint8_t value, size_t bytes) override { memset(to, value, bytes); }
  ncclResult_t makeStream(cudaStream_t* stream) override { return strettoStreamCreate(stream); }
  ncclResult_t synchronise(cudaStream_t stream) override { return strettoStreamSynchronize(stream); }
  void destroyStream(cudaStream_t stream) override { (void)strettoStreamDestroy(stream); }
  bool open() override { return true; }
};

}  // namespace

std::unique_ptr<Memory> hostMemory() {
  return std::make_unique<HostMemory>();
}

void* WindowMemory::allocate(size_t bytes, int) {
  if (bytes > kBytes / 2) return nullptr;
  return static_cast<uint8_t*>(base_) + (half_++ % 2) * (kBytes / 2);
}

Block::Block(Memory& memory, size_t bytes, size_t offset, int kind)
    : memory_(&memory), bytes_(bytes), whole_(bytes + offset + 2 * kGuard), kind_(kind) {
  base_ = memory.allocate(whole_, kind);
  if (base_ == nullptr) abort();
  data_ = static_cast<uint8_t*>(base_) + kGuard + offset;
  memory.fill(base_, kGuardByte, static_cast<size_t>(data_ - static_cast<uint8_t*>(base_)));
  memory.fill(data_ + bytes, kGuardByte, kGuard);
}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(whole_, other.whole_);
  std::swap(kind_, other.kind_);
  return *this;
}

void Block::poison() const {
  if (base_ != nullptr && bytes_ > 0) memory_->fill(data_, kPoison, bytes_);
}

void Block::release() {
  if (base_ != nullptr) memory_->release(base_, whole_, kind_);
  base_ = nullptr;
}

bool Block::guarded() const {
  if (base_ == nullptr) return true;
  uint8_t bytes[2 * kGuard];
  memory_->read(bytes, data_ - kGuard, kGuard);
  memory_->read(bytes + kGuard, data_ + bytes_, kGuard);
  return std::all_of(bytes, bytes + sizeof bytes, [](uint8_t byte) { return byte == kGuardByte; });
}

int64_t Block::firstDifference(size_t at, const uint8_t* expected, size_t bytes) const {
  constexpr size_t kPart = 1 << 16;
  std::vector<uint8_t> found(std::min(bytes, kPart));
  for (size_t done = 0; done < bytes; done += kPart) {
    const size_t part = std::min(bytes - done, kPart);
    memory_->read(found.data(), data_ + at + done, part);
    if (memcmp(found.data(), expected + done, part) == 0) continue;
    const auto place =
        std::mismatch(found.begin(), found.begin() + static_cast<int64_t>(part), expected + done);
    return static_cast<int64_t>(done) + (place.first - found.begin());
  }
  return -1;
}

}  // namespace hostile
