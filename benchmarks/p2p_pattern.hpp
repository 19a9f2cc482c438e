// What the drivers of `stretto p2p` send, and how they see that something else has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stretto::bench {

// The bytes of one message. They have no period that chunks could be moved by, and are others in each message
// under way, each turn and each direction.
class MessagePattern {
 public:
  MessagePattern(uint64_t message, uint64_t turn, uint64_t direction)
      : seed_((message << 1 | direction) * 0xc2b2ae3d27d4eb4f + turn * 0xd6e8feb86659fd93) {}

  void fill(void* bytes, size_t size) const {
    forEachWord(size, [&](size_t at, size_t length) {
      const uint64_t wanted = word(at >> 3);
      memcpy(static_cast<unsigned char*>(bytes) + at, &wanted, length);
    });
  }

  // How many bytes are not as fill() leaves them.
  uint64_t countWrong(const void* bytes, size_t size) const {
    uint64_t wrong = 0;
    forEachWord(size, [&](size_t at, size_t length) {
      uint64_t found = word(at >> 3);
      const uint64_t wanted = found;
      memcpy(&found, static_cast<const unsigned char*>(bytes) + at, length);
      for (uint64_t differ = found ^ wanted; differ != 0; differ >>= 8) wrong += (differ & 0xff) != 0 ? 1 : 0;
    });
    return wrong;
  }

 private:
  template <typename Step>
  static void forEachWord(size_t size, Step step) {
    size_t at = 0;
    for (; at + 8 <= size; at += 8) step(at, size_t{8});
    if (at < size) step(at, size - at);
  }
  uint64_t word(uint64_t index) const {
    uint64_t mixed = (index + seed_) * 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9;
    return mixed ^ mixed >> 29;
  }

  const uint64_t seed_;
};

}  // namespace stretto::bench
