// Copies by the threads of a coop, between buffers of any alignment and length. A user's buffer may begin at
// any byte; what lies in windows begins on 16 bytes. For primitives/cuda.
#pragma once

#include <algorithm>

#include "primitives/cuda/memory.cuh"
#include "primitives/cuda/unit.cuh"

namespace stretto::cuda {

__device__ inline bool isAligned(const void* pointer, size_t to) {
  return reinterpret_cast<uintptr_t>(pointer) % to == 0;
}

// The unit at `at`, of which `bytes` (1 to 8) are there; the rest of it is anything. Reads whole aligned
// words, and only such as hold a byte of the buffer.
__device__ inline Unit loadOddUnit(const std::byte* at, size_t bytes) {
  const unsigned shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(at) % kUnitBytes);
  const auto* word = reinterpret_cast<const Unit*>(at - shift);
  Unit unit = word[0] >> (8 * shift);
  if (shift + bytes > kUnitBytes) unit |= word[1] << (8 * (kUnitBytes - shift));
  return unit;
}
__device__ inline void storeOddUnit(std::byte* at, Unit unit, size_t bytes) {
  if (bytes == kUnitBytes && isAligned(at, 4)) {
    reinterpret_cast<uint32_t*>(at)[0] = static_cast<uint32_t>(unit);
    reinterpret_cast<uint32_t*>(at)[1] = static_cast<uint32_t>(unit >> 32);
  } else if (bytes % 2 == 0 && isAligned(at, 2)) {
    for (size_t i = 0; i < bytes; i += 2) {
      *reinterpret_cast<uint16_t*>(at + i) = static_cast<uint16_t>(unit >> (8 * i));
    }
  } else {
    for (size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(unit >> (8 * i));
  }
}

// A user's buffer as units.
struct UnitSource {
  const std::byte* from;
  size_t bytes;
  bool even;

  __device__ UnitSource(const void* pointer, size_t size)
      : from(static_cast<const std::byte*>(pointer)), bytes(size), even(isAligned(pointer, kUnitBytes)) {}
  __device__ size_t units() const { return (bytes + kUnitBytes - 1) / kUnitBytes; }
  // Anything beyond the end.
  __device__ Unit load(size_t unit) const {
    const size_t at = unit * kUnitBytes;
    if (at >= bytes) return 0;
    if (even && at + kUnitBytes <= bytes) return *reinterpret_cast<const Unit*>(from + at);
    return loadOddUnit(from + at, std::min(size_t{kUnitBytes}, bytes - at));
  }
};

struct UnitTarget {
  std::byte* to;
  size_t bytes;
  bool even;

  __device__ UnitTarget(void* pointer, size_t size)
      : to(static_cast<std::byte*>(pointer)), bytes(size), even(isAligned(pointer, kUnitBytes)) {}
  // Nothing beyond the end.
  __device__ void store(size_t unit, Unit value) const {
    const size_t at = unit * kUnitBytes;
    if (at >= bytes) return;
    if (even && at + kUnitBytes <= bytes) {
      *reinterpret_cast<Unit*>(to + at) = value;
    } else {
      storeOddUnit(to + at, value, std::min(size_t{kUnitBytes}, bytes - at));
    }
  }
};

// `thread` of `threads` takes part; no barrier.
__device__ inline void copyUnits(void* to, const void* from, size_t begin, size_t bytes, int thread,
                                 int threads) {
  const UnitSource source(from, bytes);
  const UnitTarget target(to, bytes);
  for (size_t unit = begin / kUnitBytes + static_cast<size_t>(thread); unit < source.units();
       unit += static_cast<size_t>(threads)) {
    target.store(unit, source.load(unit));
  }
}

__device__ inline void copyBytes(void* to, const void* from, size_t bytes, int thread, int threads) {
  constexpr int kUnroll = 8;
  if (!isAligned(to, sizeof(Pack)) || !isAligned(from, sizeof(Pack))) {
    copyUnits(to, from, 0, bytes, thread, threads);
    return;
  }
  auto* const target = static_cast<Pack*>(to);
  const auto* const source = static_cast<const Pack*>(from);
  const size_t packs = bytes / sizeof(Pack);
  const size_t step = static_cast<size_t>(threads);
  size_t at = static_cast<size_t>(thread);
  for (; at + (kUnroll - 1) * step < packs; at += kUnroll * step) {
    Pack pack[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) pack[i] = loadPack(source + at + static_cast<size_t>(i) * step);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) storePack(target + at + static_cast<size_t>(i) * step, pack[i]);
  }
  for (; at < packs; at += step) storePack(target + at, loadPack(source + at));
  if (packs * sizeof(Pack) != bytes) copyUnits(to, from, packs * sizeof(Pack), bytes, thread, threads);
}

}  // namespace stretto::cuda
