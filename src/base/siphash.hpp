// SipHash-2-4 with 128 bits of output (J.-P. Aumasson, D. J. Bernstein: "SipHash: a fast short-input PRF",
// INDOCRYPT 2012; the wide output as in the authors' reference): a keyed function whose values nobody can
// tell from random without the key. Handshakes prove knowledge of a secret with it, and ids are derived by
// it. Any folder may include this. Pure; any thread.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace stretto {

using Key128 = std::array<uint8_t, 16>;
using Hash128 = std::array<uint8_t, 16>;

static_assert(std::endian::native == std::endian::little, "words are read in the byte order of the paper");

namespace siphash_detail {

inline uint64_t loadWord(const uint8_t* from, size_t bytes = 8) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

struct State {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void absorb(uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
  uint64_t squeeze() {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace siphash_detail

inline Hash128 sipHash128(const Key128& key, std::span<const uint8_t> message) {
  using siphash_detail::loadWord;
  const uint64_t k0 = loadWord(key.data());
  const uint64_t k1 = loadWord(key.data() + 8);
  // The paper's constants; the 0xee, 0xee, 0xdd below set the 128-bit variant apart from the 64-bit one.
  siphash_detail::State state{k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee,
                              k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
  const size_t whole = message.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    state.absorb(loadWord(message.data() + at));
  }
  uint64_t last = static_cast<uint64_t>(message.size()) << 56;
  if (message.size() > whole) {
    last |= loadWord(message.data() + whole, message.size() - whole);
  }
  state.absorb(last);
  state.v2 ^= 0xee;
  const uint64_t low = state.squeeze();
  state.v1 ^= 0xdd;
  const uint64_t high = state.squeeze();
  Hash128 hash;
  std::memcpy(hash.data(), &low, 8);
  std::memcpy(hash.data() + 8, &high, 8);
  return hash;
}

// Takes as long for a near miss as for a wild guess.
inline bool equalInConstantTime(const Hash128& a, const Hash128& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace stretto
