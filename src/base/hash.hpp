// One hash for identities, tags and agreements: FNV-1a of 64 bits, with a last mix so that every bit of the
// result depends on every byte. The same on all machines. It says nothing against who chooses what is hashed:
// base/siphash.hpp does. Any folder may include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stretto {

class Hash {
 public:
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) addByte(static_cast<const unsigned char*>(data)[i]);
  }
  // Lowest byte first, whatever the machine's order.
  void add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) addByte(static_cast<unsigned char>(value >> shift));
  }
  uint64_t value() const {
    const uint64_t mixed = (state_ ^ state_ >> 32) * 0xd6e8feb86659fd93;
    return mixed ^ mixed >> 32;
  }

 private:
  void addByte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3; }
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace stretto
