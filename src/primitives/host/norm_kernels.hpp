// The passes of an all-reduce with RMSNorm over one token (norm.hpp), for the level files only.
//
// The sum of squares is the same to the last bit on every level: it is kept in as many running sums as a
// group of 128 bytes has elements, element i in sum i modulo that number, and these are added pairwise at the
// end. Sums of one level sit in more or fewer registers than those of another; what is added to what does not
// change.
#pragma once

#include "primitives/host/reduce_codec.hpp"
#include "primitives/host/reduce_level.hpp"

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

template <typename Codec>
class Norm {
 public:
  static float addSquares(const AddJob& job) {
    if (job.sourceCount == 1) return addAll<1>(job);
    if (job.sourceCount == 2) return addAll<2>(job);
    return addAll<kAny>(job);
  }

  static void normalise(const NormaliseJob& given) {
    const NormaliseJob job = given;  // stores through std::byte* must not force reloads
    size_t at = 0;
    for (; at + kWidth <= job.bytes; at += kWidth) {
      store(job.dst + at, Codec::encode(scaled(job, at, kWidth)));
    }
    if (at == job.bytes) return;
    storePartial(job.dst + at, Codec::encode(scaled(job, at, job.bytes - at)), job.bytes - at);
  }

  static float largest(const NormaliseJob& given) {
    const NormaliseJob job = given;
    Floats most{};
    for (size_t at = 0; at < job.bytes; at += kWidth) {
      const size_t rest = job.bytes - at;
      const Parts parts = Codec::roundTrip(scaled(job, at, rest < kWidth ? rest : kWidth));
      for (const Floats& part : parts.part) most = greater(as<Floats>(as<Words32>(part) & 0x7fffffffu), most);
    }
    float result = 0;
    for (int lane = 0; lane < kChannels; ++lane) result = most[lane] > result ? most[lane] : result;
    return result;
  }

  template <typename Format>
  static void quantise(const QuantiseJob& given) {
    const QuantiseJob job = given;
    for (size_t at = 0; at < job.normalised.bytes; at += kWidth) {
      const size_t rest = job.normalised.bytes - at;
      const size_t bytes = rest < kWidth ? rest : kWidth;
      Parts parts = Codec::roundTrip(scaled(job.normalised, at, bytes));
      for (Floats& part : parts.part) part *= job.inverse;
      alignas(kWidth) std::byte codes[kWidth / kElement];
      writeCodes<Format>(codes, parts);
      std::byte* const dst = job.dst + at / kElement;
      if (bytes == kWidth) {
        __builtin_memcpy(dst, codes, sizeof codes);
      } else {
        __builtin_memcpy(dst, codes, bytes / kElement);
      }
    }
  }

 private:
  using Parts = typename Codec::Parts;
  static constexpr int kParts = Codec::kParts;
  static constexpr int kAny = 0;
  static constexpr int kChannels = kWidth / 4;
  static constexpr size_t kElement = sizeof(typename Codec::Element);
  static constexpr size_t kGroup = 128;
  static constexpr int kVectors = kGroup / kWidth;
  static constexpr int kSums = kGroup / kElement;

  static constexpr struct Whole {
    STRETTO_VECTOR_INLINE Bytes get(const std::byte* from) const { return load(from); }
    STRETTO_VECTOR_INLINE void put(std::byte* to, Bytes bytes) const { store(to, bytes); }
  } kWhole{};
  struct Partial {
    size_t bytes;
    STRETTO_VECTOR_INLINE Bytes get(const std::byte* from) const { return loadPartial(from, bytes); }
    STRETTO_VECTOR_INLINE void put(std::byte* to, Bytes vector) const { storePartial(to, vector, bytes); }
  };

  STRETTO_VECTOR_INLINE static Parts plus(const Parts& a, const Parts& b) {
    Parts result;
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) result.part[p] = a.part[p] + b.part[p];
    return result;
  }

  // Where the bytes of a job are, without the pointers to pointers that stores might change.
  template <int kSources>
  struct Places {
    explicit Places(const AddJob& given)
        : job(given), first(given.sources[0]), second(kSources == 1 ? nullptr : given.sources[1]) {}
    const AddJob job;
    const std::byte* const first;
    const std::byte* const second;
  };

  // What goes to dst at one place, which it writes as well.
  template <int kSources, typename Access>
  STRETTO_VECTOR_INLINE static Parts addAt(const Places<kSources>& places, size_t at, Access access) {
    const AddJob& job = places.job;
    Bytes result = access.get(places.first + at);
    Parts parts = Codec::decode(result);
    if constexpr (kSources != 1) {
      parts = plus(parts, Codec::decode(access.get(places.second + at)));
      if constexpr (kSources == kAny) {
        for (int source = 2; source < job.sourceCount; ++source)
          parts = plus(parts, Codec::decode(access.get(job.sources[source] + at)));
      }
      if (job.sum != nullptr) access.put(job.sum + at, Codec::encode(parts));
      parts = Codec::roundTrip(parts);
    } else if (job.sum != nullptr) {
      access.put(job.sum + at, result);
    }
    if (kSources == 1 && job.addends[0] == nullptr && job.addends[1] == nullptr) {
      access.put(job.dst + at, result);
      return parts;
    }
#pragma GCC unroll 2
    for (const std::byte* addend : job.addends) {
      if (addend != nullptr) parts = plus(parts, Codec::decode(access.get(addend + at)));
    }
    access.put(job.dst + at, Codec::encode(parts));
    return Codec::roundTrip(parts);
  }

  // One running sum for each place in a group.
  struct Sums {
    Floats of[kVectors][kParts];
  };

  STRETTO_VECTOR_INLINE static void addSquaresOf(Floats (&sums)[kParts], const Parts& parts) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) sums[p] += parts.part[p] * parts.part[p];
  }

  template <int kSources>
  static float addAll(const AddJob& given) {
    const Places<kSources> places(given);
    const size_t bytes = given.bytes;
    Sums sums{};
    size_t at = 0;
    for (; at + kGroup <= bytes; at += kGroup) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        addSquaresOf(sums.of[v], addAt<kSources>(places, at + static_cast<size_t>(v) * kWidth, kWhole));
    }
    if (at == bytes) return total(sums);
    // Not unrolled, which would be most of the code. Of a copy in memory, so that the sums stay in registers.
    Sums rest = sums;
#pragma GCC unroll 1
    for (int v = 0; at < bytes; ++v, at += kWidth) {
      const size_t left = bytes - at;
      addSquaresOf(rest.of[v], left >= kWidth ? addAt<kSources>(places, at, kWhole)
                                              : addAt<kSources>(places, at, Partial{left}));
    }
    return total(rest);
  }

  STRETTO_VECTOR_INLINE static float total(const Sums& sums) {
    float all[kSums];
    for (int v = 0; v < kVectors; ++v) {
      for (int p = 0; p < kParts; ++p) {
        for (int lane = 0; lane < kChannels; ++lane)
          all[v * (kSums / kVectors) + Codec::position(p, lane)] = sums.of[v][p][lane];
      }
    }
    for (int half = kSums / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) all[i] += all[i + half];
    }
    return all[0];
  }

  // The normalised values, before they are rounded.
  STRETTO_VECTOR_INLINE static Parts scaled(const NormaliseJob& job, size_t at, size_t bytes) {
    const bool whole = bytes == kWidth;
    const auto get = [&](const std::byte* from) {
      return Codec::decode(whole ? load(from + at) : loadPartial(from + at, bytes));
    };
    Parts parts = get(job.src);
    for (Floats& part : parts.part) part *= job.factor;
    if (job.gamma == nullptr) return parts;
    const Parts gamma = get(job.gamma);
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) parts.part[p] *= gamma.part[p];
    return parts;
  }

  // One byte for each element, in the order of elements.
  template <typename Format>
  STRETTO_VECTOR_INLINE static void writeCodes(std::byte* to, const Parts& parts) {
    typedef uint8_t Narrow __attribute__((vector_size(kChannels)));
    typedef uint16_t Pairs __attribute__((vector_size(2 * kChannels)));
    constexpr bool kInterleaved = kParts == 2 && Codec::position(1, 0) == 1;
    if constexpr (kInterleaved) {
      const Words32 both = encodeFloats<Format>(parts.part[0]) | encodeFloats<Format>(parts.part[1]) << 8;
      const Pairs pairs = __builtin_convertvector(both, Pairs);
      __builtin_memcpy(to, &pairs, sizeof pairs);
    } else {
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) {
        const Narrow narrow = __builtin_convertvector(encodeFloats<Format>(parts.part[p]), Narrow);
        __builtin_memcpy(to + p * kChannels, &narrow, sizeof narrow);
      }
    }
  }
};

template <typename Codec>
constexpr CpuLevel::Norm normOf() {
  return {Norm<Codec>::addSquares, Norm<Codec>::normalise, Norm<Codec>::largest,
          Norm<Codec>::template quantise<numeric::Float8e4m3>,
          Norm<Codec>::template quantise<numeric::Float8e5m2>};
}

}  // namespace
}  // namespace stretto
