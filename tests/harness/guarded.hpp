// Memory that notices writes outside of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace stretto::testing {

// A destination with a guard on either side, `offset` bytes behind a cache line's begin.
class Guarded {
 public:
  static constexpr size_t kGuard = 128;
  // What it takes for so many bytes.
  static constexpr size_t room(size_t bytes) { return bytes + 2 * kGuard + 64; }

  Guarded(size_t bytes, size_t offset) : bytes_(bytes), own_(room(bytes)), storage_(own_.data()) {
    begin(offset);
  }
  // In memory of the caller's, room(bytes) of it.
  Guarded(char* memory, size_t bytes, size_t offset) : bytes_(bytes), storage_(memory) { begin(offset); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return bytes_; }
  // Empty, or where it was written beside the data.
  std::string harm() const {
    const auto unharmed = [](char c) { return c == 0x5a; };
    const char* const end = storage_ + room(bytes_);
    const char* before =
        std::find_if_not(static_cast<const char*>(storage_), static_cast<const char*>(data_), unharmed);
    const char* after = std::find_if_not(static_cast<const char*>(data_) + bytes_, end, unharmed);
    if (before == data_ && after == end) return {};
    const ptrdiff_t at = (before != data_ ? before : after) - data_;
    return "wrote outside, at byte " + std::to_string(at) + " of " + std::to_string(bytes_);
  }
  void expectEqual(const char* expected, size_t elementBytes, const std::string& what) const {
    ASSERT_EQ(harm(), "") << what;
    if (memcmp(data_, expected, bytes_) == 0) return;
    size_t i = 0;
    while (memcmp(data_ + i * elementBytes, expected + i * elementBytes, elementBytes) == 0) ++i;
    uint64_t got = 0, wanted = 0;
    memcpy(&got, data_ + i * elementBytes, elementBytes);
    memcpy(&wanted, expected + i * elementBytes, elementBytes);
    FAIL() << what << ": element " << i << " is 0x" << std::hex << got << ", should be 0x" << wanted;
  }

 private:
  void begin(size_t offset) {
    std::fill_n(storage_, room(bytes_), char{0x5a});
    const auto base = reinterpret_cast<uintptr_t>(storage_) + kGuard;
    data_ = storage_ + kGuard + (-base & 63) + offset % 64;
    data_ = std::min(data_, storage_ + room(bytes_) - kGuard - bytes_);
  }

  size_t bytes_;
  std::vector<char> own_;
  char* storage_;
  char* data_ = nullptr;
};

}  // namespace stretto::testing
