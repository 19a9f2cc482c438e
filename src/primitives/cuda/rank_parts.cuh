// What of a user's buffers the ranks send each other in turns (cuda_turns.cuh), as lines of 16 bytes. For
// primitives/cuda.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "primitives/cuda/copy.cuh"
#include "primitives/cuda/lines.cuh"

namespace stretto::cuda {

// All of their input; a block of it to each; or that, and the results of it to all.
enum class Walk { kShare, kDeal, kShards };

// A part of a user's buffer as lines that are whole and aligned, and as any: the common case knows nothing of
// the other.
template <typename Byte>
struct PlainLines {
  Byte* begin = nullptr;

  __device__ PlainLines() = default;
  __device__ PlainLines(Byte* part, size_t /*bytes*/) : begin(part) {}
  __device__ Pack load(uint32_t line) const { return loadPack(begin + size_t{line} * sizeof(Pack)); }
  __device__ void store(uint32_t line, Pack value) const {
    storePack(begin + size_t{line} * sizeof(Pack), value);
  }
};
template <typename Byte>
struct AnyLines {
  Byte* begin = nullptr;
  size_t bytes = 0;

  __device__ AnyLines() = default;
  __device__ AnyLines(Byte* part, size_t size) : begin(part), bytes(size) {}
  __device__ UnitView<Byte> units() const { return {begin, bytes}; }
  __device__ Pack load(uint32_t line) const {
    return units().loadPair(size_t{line} * LamportFormat::kLineUnits);
  }
  __device__ void store(uint32_t line, Pack value) const {
    units().storePair(size_t{line} * LamportFormat::kLineUnits, value);
  }
};

struct Plain {
  template <typename Byte>
  using Lines = PlainLines<Byte>;
};
struct Any {
  template <typename Byte>
  using Lines = AnyLines<Byte>;
};

// A user's buffer as the parts of the ranks, which are all of the same size but where it ends early.
template <typename Byte>
struct RankParts {
  Byte* begin;
  size_t stride;  // from one part to the next
  size_t each;    // bytes of a part
  size_t end;     // bytes of the buffer, from where on nothing is there

  __device__ bool suitLines() const {
    return isAligned(begin, sizeof(Pack)) && stride % sizeof(Pack) == 0 && each % sizeof(Pack) == 0;
  }
  template <typename Kind>
  __device__ typename Kind::template Lines<Byte> of(int rank) const {
    const size_t at = static_cast<size_t>(rank) * stride;
    return {begin + at, at < end ? std::min(each, end - at) : 0};
  }
};

// What goes to each peer, by step, what this rank keeps, where the sum goes, and where those of the peers go,
// by rank.
template <typename Kind, int kPeers>
struct UserLines {
  typename Kind::template Lines<const std::byte> sent[kPeers];
  typename Kind::template Lines<const std::byte> kept;
  typename Kind::template Lines<std::byte> target;
  typename Kind::template Lines<std::byte> gathered[kPeers];

  template <int kSent>
  __device__ void load(Pack (&packs)[kSent], uint32_t line) const {
#pragma unroll
    for (int i = 0; i < kSent; ++i) packs[i] = sent[i].load(line);
  }
  __device__ void gather(uint32_t line, const Pack (&packs)[kPeers]) const {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) gathered[i].store(line, packs[i]);
  }
};

// Where this rank's lines lie at each peer, by step, and the peers' here, by rank: that far from each other.
template <int kPeers>
struct PeerLines {
  std::byte* out[kPeers];
  std::byte* in;
  uint32_t region;

  // To each its own, or the same to all.
  template <typename Format, int kSent>
  __device__ void put(uint32_t at, const Pack (&sent)[kSent]) const {
    static_assert(kSent == 1 || kSent == kPeers);
#pragma unroll
    for (int i = 0; i < kPeers; ++i) storeRelaxed(out[i] + at, Format::sendable(sent[kSent == 1 ? 0 : i]));
  }
  __device__ void eraseAll(uint32_t at) const {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) storePack(in + at + i * region, {~uint64_t{0}, ~uint64_t{0}});
  }
};

// The source whose lines have that index in the window of `owner`, where owners have none for themselves.
__device__ inline int sourceAt(int index, int owner) {
  return index + (index >= owner ? 1 : 0);
}

}  // namespace stretto::cuda
