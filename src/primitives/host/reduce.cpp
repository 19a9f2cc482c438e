#include "primitives/host/reduce.hpp"

#include <atomic>
#include <string>

#include "base/parameters.hpp"
#include "primitives/host/copy.hpp"
#include "primitives/host/reduce_level.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stretto {
namespace {

struct Candidate {
  const CpuLevel* level;
  bool available;
};

#if defined(__x86_64__)
bool cpuHasHalfConversion() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool cpuHasAvx2() {  // __builtin_cpu_supports also asks whether the operating system saves the registers
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && cpuHasHalfConversion();
}
bool cpuHasAvx512() {
  return cpuHasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

// Worst first; the first one is always available.
struct Candidates {
#if defined(__x86_64__)
  Candidate all[3] = {{&kLevelBaseline, true}, {&kLevelAvx2, cpuHasAvx2()}, {&kLevelAvx512, cpuHasAvx512()}};
#else
  Candidate all[1] = {{&kLevelBaseline, true}};
#endif
};

const Candidates& candidates() {
  static const Candidates found;
  return found;
}

const CpuLevel* bestLevel() {
  const CpuLevel* best = nullptr;
  for (const Candidate& candidate : candidates().all) {
    if (candidate.available) best = candidate.level;
  }
  return best;
}

// Null until first asked for. Levels are constants, so the pointer alone needs to be atomic.
std::atomic<const CpuLevel*> gLevel{nullptr};

Status unknownLevel(const std::string& name) {
  std::string possible;
  for (const Candidate& candidate : candidates().all) {
    if (!candidate.available) continue;
    possible += possible.empty() ? "" : ", ";
    possible += candidate.level->name;
  }
  return fail(Code::kInvalidUsage, "%s=%s: not a vector level of this CPU; possible: %s (or leave it unset)",
              parameters::kCpuLevel.name(), name.c_str(), possible.c_str());
}

size_t rowOf(const ReduceSpec& spec) {
  return static_cast<size_t>(spec.op == Operator::kAvg && spec.divisor == 1 ? Operator::kSum : spec.op);
}

void copyUnlessSame(void* dst, const void* src, size_t bytes, bool stream) {
  if (dst == src) return;
  stream ? copyStream(dst, src, bytes) : copyBytes(dst, src, bytes);
}

}  // namespace

const CpuLevel& currentCpuLevel() {
  const CpuLevel* level = gLevel.load(std::memory_order_relaxed);
  if (level != nullptr) [[likely]]
    return *level;
  const CpuLevel* best = bestLevel();
  // A choice made meanwhile by selectCpuLevel wins.
  return gLevel.compare_exchange_strong(level, best, std::memory_order_relaxed) ? *best : *level;
}

const char* cpuLevel() {
  return currentCpuLevel().name;
}

Status selectCpuLevel() {
  const CpuLevel* chosen = nullptr;
  if (const std::string name = parameters::kCpuLevel.text(); name.empty()) {
    chosen = bestLevel();
  } else {
    for (const Candidate& candidate : candidates().all) {
      if (candidate.available && name == candidate.level->name) chosen = candidate.level;
    }
    if (chosen == nullptr) return unknownLevel(name);
  }
  gLevel.store(chosen, std::memory_order_relaxed);
  return kOkStatus;
}

void reduceTwo(const ReduceSpec& spec, void* dst, void* second, const void* const* sources, int sourceCount,
               size_t count, bool stream) {
  if (count == 0) return;
  const size_t row = rowOf(spec);
  const size_t bytes = count * sizeOf(spec.type);
  if (sourceCount == 1 && row != static_cast<size_t>(Operator::kAvg)) {
    if (second != nullptr) copyUnlessSame(second, sources[0], bytes, false);
    copyUnlessSame(dst, sources[0], bytes, stream);
    return;
  }
  const ReduceJob job{static_cast<std::byte*>(dst),
                      static_cast<std::byte*>(second),
                      reinterpret_cast<const std::byte* const*>(sources),
                      sourceCount,
                      spec.divisor,
                      bytes,
                      stream};
  currentCpuLevel().reduce[static_cast<int>(spec.type)][row](job);
}

void reduce(const ReduceSpec& spec, void* dst, const void* const* sources, int sourceCount, size_t count,
            bool stream) {
  reduceTwo(spec, dst, nullptr, sources, sourceCount, count, stream);
}

void scale(DataType type, void* dst, const void* src, const void* scalar, size_t count) {
  const ScaleJob job{static_cast<std::byte*>(dst), static_cast<const std::byte*>(src),
                     static_cast<const std::byte*>(scalar), count * sizeOf(type)};
  currentCpuLevel().scale[static_cast<int>(type)](job);
}

}  // namespace stretto
