// Copies by the threads of a coop, between buffers of any alignment and length. A user's buffer may begin at
// any byte; what lies in windows begins on 16 bytes. For primitives/cuda.
#pragma once

#include <algorithm>

#include "primitives/cuda/memory.cuh"
#include "primitives/cuda/unit.cuh"

namespace stretto::cuda {

STRETTO_BOTH bool isAligned(const void* pointer, size_t to) {
  return reinterpret_cast<uintptr_t>(pointer) % to == 0;
}

// The unit at `at`, of which `bytes` (1 to 8) are there; the rest of it is anything. Reads whole aligned
// words, and only such as hold a byte of the buffer.
__device__ inline Unit oddUnit(const std::byte* at, unsigned bytes) {
  const unsigned shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(at) % kUnitBytes);
  const auto* word = reinterpret_cast<const Unit*>(at - shift);
  Unit unit = word[0] >> (8 * shift);
  if (shift + bytes > kUnitBytes) unit |= word[1] << (8 * (kUnitBytes - shift));
  return unit;
}
__device__ inline void setOddUnit(std::byte* at, Unit unit, unsigned bytes) {
  if (bytes == kUnitBytes && isAligned(at, 4)) {
    reinterpret_cast<uint32_t*>(at)[0] = static_cast<uint32_t>(unit);
    reinterpret_cast<uint32_t*>(at)[1] = static_cast<uint32_t>(unit >> 32);
  } else if (bytes % 2 == 0 && isAligned(at, 2)) {
    for (unsigned i = 0; i < bytes; i += 2) {
      *reinterpret_cast<uint16_t*>(at + i) = static_cast<uint16_t>(unit >> (8 * i));
    }
  } else {
    for (unsigned i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(unit >> (8 * i));
  }
}

// The same, and two units from `at` on, of which there may be fewer: kept out of line, as the common case
// needs none of them.
__device__ __noinline__ inline Unit loadOddUnit(const std::byte* at, unsigned bytes) {
  return oddUnit(at, bytes);
}
__device__ __noinline__ inline void storeOddUnit(std::byte* at, Unit unit, unsigned bytes) {
  setOddUnit(at, unit, bytes);
}
__device__ __noinline__ inline Pack loadOddPair(const std::byte* at, size_t bytes) {
  const auto part = [&](size_t skipped) -> Unit {
    if (bytes <= skipped) return 0;
    return oddUnit(at + skipped, static_cast<unsigned>(std::min(size_t{kUnitBytes}, bytes - skipped)));
  };
  return {part(0), part(kUnitBytes)};
}
__device__ __noinline__ inline void storeOddPair(std::byte* at, Pack pair, size_t bytes) {
  const auto part = [&](size_t skipped, Unit unit) {
    if (bytes <= skipped) return;
    setOddUnit(at + skipped, unit, static_cast<unsigned>(std::min(size_t{kUnitBytes}, bytes - skipped)));
  };
  part(0, pair.low);
  part(kUnitBytes, pair.high);
}

// A user's buffer as units, those that are whole and aligned first.
template <typename Byte>
struct UnitView {
  Byte* begin;
  size_t bytes;
  size_t plain;   // units that can be accessed as such
  size_t paired;  // of them those that can be accessed by two

  __device__ UnitView(Byte* pointer, size_t size)
      : begin(pointer),
        bytes(size),
        plain(isAligned(pointer, kUnitBytes) ? size / kUnitBytes : 0),
        paired(isAligned(pointer, sizeof(Pack)) ? size / sizeof(Pack) * 2 : 0) {}
  __device__ size_t units() const { return (bytes + kUnitBytes - 1) / kUnitBytes; }
  // Anything beyond the end.
  __device__ Unit load(size_t unit) const {
    if (unit < plain) return loadUnit(begin, unit);
    const size_t at = unit * kUnitBytes;
    return at < bytes ? loadOddUnit(begin + at, rest(at)) : 0;
  }
  // Nothing beyond the end.
  __device__ void store(size_t unit, Unit value) const {
    if (unit < plain) {
      storeUnit(begin, unit, value);
    } else if (const size_t at = unit * kUnitBytes; at < bytes) {
      storeOddUnit(begin + at, value, rest(at));
    }
  }
  // Two units from an even one on.
  __device__ Pack loadPair(size_t unit) const {
    if (unit < paired) return loadPack(begin + unit * kUnitBytes);
    return unit * kUnitBytes < bytes ? loadOddPair(begin + unit * kUnitBytes, bytes - unit * kUnitBytes)
                                     : Pack{};
  }
  __device__ void storePair(size_t unit, Pack value) const {
    if (unit < paired) {
      storePack(begin + unit * kUnitBytes, value);
    } else if (unit * kUnitBytes < bytes) {
      storeOddPair(begin + unit * kUnitBytes, value, bytes - unit * kUnitBytes);
    }
  }

 private:
  __device__ unsigned rest(size_t at) const {
    return static_cast<unsigned>(std::min(size_t{kUnitBytes}, bytes - at));
  }
};
using UnitSource = UnitView<const std::byte>;
using UnitTarget = UnitView<std::byte>;

// `thread` of `threads` takes part; no barrier. From byte `begin`, a multiple of a unit, on.
__device__ inline void copyUnits(std::byte* to, const std::byte* from, size_t begin, size_t bytes, int thread,
                                 int threads) {
  const UnitSource source(from, bytes);
  const UnitTarget target(to, bytes);
  for (size_t unit = begin / kUnitBytes + static_cast<size_t>(thread); unit < source.units();
       unit += static_cast<size_t>(threads)) {
    target.store(unit, source.load(unit));
  }
}

// Each thread has as many loads under way as the last round leaves it.
__device__ inline void copyBytes(std::byte* to, const std::byte* from, size_t bytes, int thread,
                                 int threads) {
  constexpr int kAtOnce = 8;
  if (!isAligned(to, sizeof(Pack)) || !isAligned(from, sizeof(Pack))) {
    copyUnits(to, from, 0, bytes, thread, threads);
    return;
  }
  const size_t packs = bytes / sizeof(Pack);
  const size_t step = static_cast<size_t>(threads);
  for (size_t at = static_cast<size_t>(thread); at < packs; at += kAtOnce * step) {
    Pack pack[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const size_t index = at + static_cast<size_t>(i) * step;
      if (index < packs) pack[i] = loadPack(from + index * sizeof(Pack));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const size_t index = at + static_cast<size_t>(i) * step;
      if (index < packs) storePack(to + index * sizeof(Pack), pack[i]);
    }
  }
  if (packs * sizeof(Pack) != bytes) copyUnits(to, from, packs * sizeof(Pack), bytes, thread, threads);
}

// Several copies whose loads are under way together. Those that are not set copy nothing.
template <int kCopies>
class SideBySide {
 public:
  __device__ void set(int copy, std::byte* to, const std::byte* from, size_t bytes) {
    to_[copy] = to;
    from_[copy] = from;
    bytes_[copy] = bytes;
  }
  __device__ void run(int thread, int threads) const {
    constexpr int kAtOnce = 4;
    size_t packs[kCopies];
    size_t most = 0;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const bool aligned = isAligned(to_[i], sizeof(Pack)) && isAligned(from_[i], sizeof(Pack));
      packs[i] = aligned ? bytes_[i] / sizeof(Pack) : 0;
      most = std::max(most, packs[i]);
    }
    const size_t step = static_cast<size_t>(threads);
    for (size_t at = static_cast<size_t>(thread); at < most; at += kAtOnce * step) {
      Pack pack[kCopies][kAtOnce];
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const size_t index = at + static_cast<size_t>(j) * step;
          if (index < packs[i]) pack[i][j] = loadPack(from_[i] + index * sizeof(Pack));
        }
      }
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const size_t index = at + static_cast<size_t>(j) * step;
          if (index < packs[i]) storePack(to_[i] + index * sizeof(Pack), pack[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (packs[i] * sizeof(Pack) == bytes_[i]) continue;
      copyUnits(to_[i], from_[i], packs[i] * sizeof(Pack), bytes_[i], thread, threads);
    }
  }

 private:
  std::byte* to_[kCopies] = {};
  const std::byte* from_[kCopies] = {};
  size_t bytes_[kCopies] = {};
};

}  // namespace stretto::cuda
