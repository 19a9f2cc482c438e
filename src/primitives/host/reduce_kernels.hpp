// The loops over memory, and the table of them that a level file exports. Included by exactly the level
// files (reduce_scalar.cpp, reduce_avx2.cpp, reduce_avx512.cpp), each compiled with its own target flags.
//
// One pass: a step decodes the same few vectors of every source in turn, combines them in registers, encodes
// once and stores. No temporary arrays, whatever the number of sources.
#pragma once

#include "primitives/host/norm_kernels.hpp"
#include "primitives/host/reduce_codec.hpp"
#include "primitives/host/reduce_level.hpp"

namespace stretto {
namespace {  // per level file, see reduce_level.hpp

constexpr size_t kLine = 64;
// Below this many bytes, bringing dst to a line boundary costs more than the split stores it saves.
constexpr size_t kAlignFrom = 2048;

// Bytes to peel so that dst + head is at a line boundary; 0 when elements straddle lines anyway.
STRETTO_VECTOR_INLINE size_t headBytes(const std::byte* dst, size_t bytes, size_t elementBytes) {
  if (bytes < kAlignFrom) return 0;
  const size_t head = -reinterpret_cast<uintptr_t>(dst) & (kLine - 1);
  return head % elementBytes == 0 ? head : 0;
}

STRETTO_VECTOR_INLINE bool atVector(const std::byte* at) {
  return (reinterpret_cast<uintptr_t>(at) & (kWidth - 1)) == 0;
}

struct NoDivider {
  explicit NoDivider(uint32_t) {}
  template <typename Value>
  STRETTO_VECTOR_INLINE Value operator()(Value value) const {
    return value;
  }
};

template <typename Codec, Operator op>
class Reducer {
 public:
  static void run(const ReduceJob& job) {
    const Reducer reducer(job);
    if (job.bytes < kStep) return reducer.edge(0, job.bytes);
    if (job.sourceCount == 2) return reducer.template pass<2>();
    reducer.template pass<kAny>();
  }

 private:
  using Arithmetic = typename Codec::Arithmetic;
  using Parts = typename Codec::Parts;
  using Finish = std::conditional_t<op == Operator::kAvg, typename Arithmetic::Divider, NoDivider>;
  static constexpr int kAny = 0;
  static constexpr int kParts = Codec::kParts;
  static constexpr int kVectors = 4 / kParts;  // of memory per step: four accumulators hide the latency
  static constexpr size_t kStep = size_t{kVectors} * kWidth;

  explicit Reducer(const ReduceJob& job) : job_(job), finish_(job.divisor) {}

  template <int kSources>
  void pass() const {
    size_t at = headBytes(job_.dst, job_.bytes, sizeof(typename Codec::Element));
    if (at != 0) edge(0, at);
    if (job_.stream && atVector(job_.dst + at)) {
      at = steps<kSources, true>(at);
      fenceStreams();
    } else {
      at = steps<kSources, false>(at);
    }
    if (at < job_.bytes) edge(at, job_.bytes);
  }

  template <int kSources, bool kStream>
  STRETTO_VECTOR_INLINE size_t steps(size_t at) const {
    const ReduceJob job = job_;  // stores through std::byte* must not force reloads
    const std::byte* const first = job.sources[0];
    const std::byte* const second = kSources == 2 ? job.sources[1] : nullptr;
    for (; at + kStep <= job.bytes; at += kStep) {
      Parts parts[kVectors];
      decodeStep(parts, first + at);
      if constexpr (kSources == 2) {
        addStep(parts, second + at);
      } else {
        int source = 1;
        for (; source + 1 < job.sourceCount; source += 2) {
          const std::byte* const next = job.sources[source + 1];
          addStep(parts, job.sources[source] + at);
          addStep(parts, next + at);
        }
        if (source < job.sourceCount) addStep(parts, job.sources[source] + at);
      }
      storeStep<kStream>(parts, job, at);
    }
    return at;
  }

  STRETTO_VECTOR_INLINE static void decodeStep(Parts (&parts)[kVectors], const std::byte* from) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) parts[v] = Codec::decode(load(from + v * kWidth));
  }

  STRETTO_VECTOR_INLINE static void addStep(Parts (&parts)[kVectors], const std::byte* from) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) parts[v] = combined(parts[v], Codec::decode(load(from + v * kWidth)));
  }

  template <bool kStream>
  STRETTO_VECTOR_INLINE void storeStep(const Parts (&parts)[kVectors], const ReduceJob& job,
                                       size_t at) const {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Bytes result = finished(parts[v]);
      kStream ? storeStream(job.dst + at + v * kWidth, result) : store(job.dst + at + v * kWidth, result);
      if (job.second != nullptr) store(job.second + at + v * kWidth, result);
    }
  }

  STRETTO_VECTOR_INLINE static Parts combined(const Parts& a, const Parts& b) {
    Parts result;
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) result.part[p] = combine<Arithmetic, op>(a.part[p], b.part[p]);
    return result;
  }

  STRETTO_VECTOR_INLINE Bytes finished(const Parts& parts) const {
    Parts result;
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) result.part[p] = finish_(parts.part[p]);
    return Codec::encode(result);
  }

  // What is left before the first and after the last step, a vector or less at a time.
  [[gnu::noinline]] void edge(size_t at, size_t end) const {
    for (; at + kWidth <= end; at += kWidth) {
      const Bytes result = oneVector([at](const std::byte* from) { return load(from + at); });
      store(job_.dst + at, result);
      if (job_.second != nullptr) store(job_.second + at, result);
    }
    if (at == end) return;
    const size_t rest = end - at;
    const Bytes result = oneVector([=](const std::byte* from) { return loadPartial(from + at, rest); });
    storePartial(job_.dst + at, result, rest);
    if (job_.second != nullptr) storePartial(job_.second + at, result, rest);
  }

  template <typename Load>
  STRETTO_VECTOR_INLINE Bytes oneVector(Load loadFrom) const {
    Parts parts = Codec::decode(loadFrom(job_.sources[0]));
    for (int source = 1; source < job_.sourceCount; ++source) {
      parts = combined(parts, Codec::decode(loadFrom(job_.sources[source])));
    }
    return finished(parts);
  }

  const ReduceJob& job_;
  const Finish finish_;
};

template <typename Codec>
class Scaler {
 public:
  static void run(const ScaleJob& job) {
    using Element = typename Codec::Element;
    alignas(kWidth) std::byte repeated[kWidth];
    for (size_t i = 0; i < kWidth; i += sizeof(Element)) {
      __builtin_memcpy(repeated + i, job.scalar, sizeof(Element));
    }
    const typename Codec::Parts factor = Codec::decode(load(repeated));
    size_t at = 0;
    for (; at + kWidth <= job.bytes; at += kWidth) store(job.dst + at, scaled(load(job.src + at), factor));
    const size_t rest = job.bytes - at;
    if (rest != 0) storePartial(job.dst + at, scaled(loadPartial(job.src + at, rest), factor), rest);
  }

 private:
  STRETTO_VECTOR_INLINE static Bytes scaled(Bytes memory, const typename Codec::Parts& factor) {
    typename Codec::Parts parts = Codec::decode(memory);
#pragma GCC unroll 4
    for (int p = 0; p < Codec::kParts; ++p) {
      parts.part[p] = Codec::Arithmetic::multiply(parts.part[p], factor.part[p]);
    }
    return Codec::encode(parts);
  }
};

inline void streamCopy(std::byte* dst, const std::byte* src, size_t bytes) {
  constexpr size_t kStep = 4 * kWidth;
  const size_t head = headBytes(dst, bytes, 1);
  __builtin_memcpy(dst, src, head);
  size_t at = head;
  if (atVector(dst + at)) {
    for (; at + kStep <= bytes; at += kStep) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) storeStream(dst + at + v * kWidth, load(src + at + v * kWidth));
    }
    fenceStreams();
  }
  __builtin_memcpy(dst + at, src + at, bytes - at);
}

template <typename Codec>
constexpr void fill(CpuLevel& level, DataType type) {
  auto& row = level.reduce[static_cast<int>(type)];
  row[static_cast<int>(Operator::kSum)] = Reducer<Codec, Operator::kSum>::run;
  row[static_cast<int>(Operator::kProd)] = Reducer<Codec, Operator::kProd>::run;
  row[static_cast<int>(Operator::kMax)] = Reducer<Codec, Operator::kMax>::run;
  row[static_cast<int>(Operator::kMin)] = Reducer<Codec, Operator::kMin>::run;
  row[static_cast<int>(Operator::kAvg)] = Reducer<Codec, Operator::kAvg>::run;
  level.scale[static_cast<int>(type)] = Scaler<Codec>::run;
}

constexpr CpuLevel makeLevel(const char* name) {
  CpuLevel level{};
  level.name = name;
  fill<PlainCodec<int8_t>>(level, DataType::kInt8);
  fill<PlainCodec<uint8_t>>(level, DataType::kUint8);
  fill<PlainCodec<int32_t>>(level, DataType::kInt32);
  fill<PlainCodec<uint32_t>>(level, DataType::kUint32);
  fill<PlainCodec<int64_t>>(level, DataType::kInt64);
  fill<PlainCodec<uint64_t>>(level, DataType::kUint64);
  fill<Float16Codec>(level, DataType::kFloat16);
  fill<PlainCodec<float>>(level, DataType::kFloat32);
  fill<PlainCodec<double>>(level, DataType::kFloat64);
  fill<Bfloat16Codec>(level, DataType::kBfloat16);
  fill<Float8Codec<numeric::Float8e4m3>>(level, DataType::kFloat8e4m3);
  fill<Float8Codec<numeric::Float8e5m2>>(level, DataType::kFloat8e5m2);
  level.norm[static_cast<int>(DataType::kFloat16)] = normOf<Float16Codec>();
  level.norm[static_cast<int>(DataType::kFloat32)] = normOf<PlainCodec<float>>();
  level.norm[static_cast<int>(DataType::kBfloat16)] = normOf<Bfloat16Codec>();
  level.copyStream = streamCopy;
  return level;
}

}  // namespace
}  // namespace stretto
