// How fast the Host backend's reductions and copies are, by type, operator, number of sources, size and CPU
// level. Rates are bytes of one array per second, whatever the number of sources. Names read
// reduce/TYPE/OP/SOURCES/BYTES/LEVEL; `--benchmark_filter` picks.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "primitives/host/copy.hpp"
#include "primitives/host/reduce.hpp"

namespace stretto {
namespace {

constexpr int kManySources = 8;
constexpr size_t kTiny = 8;

struct Shape {
  ReduceSpec spec;
  int sources;
  size_t bytes;
  bool stream;
};

class Arrays {
 public:
  // Every byte 0x3c: an ordinary number in each type.
  Arrays(int number, size_t bytes) {
    for (int i = 0; i < number; ++i) {
      memory_.emplace_back(static_cast<std::byte*>(aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + 4096)));
      memset(memory_.back().get(), 0x3c, bytes);
      pointers_.push_back(memory_.back().get());
    }
  }
  const void* const* sources() const { return pointers_.data(); }
  void* operator[](int i) const { return memory_[static_cast<size_t>(i)].get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<const void*> pointers_;
};

bool useLevel(benchmark::State& state, const std::string& level) {
  setenv("STRETTO_CPU", level.c_str(), 1);
  if (selectCpuLevel().ok()) return true;
  state.SkipWithError("this CPU lacks the level");
  return false;
}

void runReduce(benchmark::State& state, const Shape& shape, const std::string& level) {
  if (!useLevel(state, level)) return;
  const Arrays arrays(shape.sources + 1, shape.bytes);
  const size_t count = shape.bytes / sizeOf(shape.spec.type);
  for (auto _ : state) {
    reduce(shape.spec, arrays[shape.sources], arrays.sources(), shape.sources, count, shape.stream);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(shape.bytes));
}

void runCopy(benchmark::State& state, size_t bytes, bool stream, const std::string& level) {
  if (!useLevel(state, level)) return;
  const Arrays arrays(2, bytes);
  for (auto _ : state) {
    stream ? copyStream(arrays[1], arrays[0], bytes) : copyBytes(arrays[1], arrays[0], bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void registerReduce(const Shape& shape, const std::string& level) {
  const std::string name = std::string("reduce") + (shape.stream ? "-stream/" : "/") +
                           nameOf(shape.spec.type) + "/" + nameOf(shape.spec.op) + "/" +
                           std::to_string(shape.sources) + "/" + std::to_string(shape.bytes) + "/" + level;
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { runReduce(state, shape, level); });
}

void registerAll(const std::string& level) {
  for (int t = 0; t < kDataTypes; ++t) {
    for (int o = 0; o < kOperators; ++o) {
      const ReduceSpec spec{static_cast<DataType>(t), static_cast<Operator>(o), 3};
      for (const int sources : {2, 3, 4, kManySources}) {
        for (const size_t bytes : {kTiny, size_t{16} << 10, size_t{1} << 20, size_t{16} << 20}) {
          registerReduce({spec, sources, bytes, false}, level);
          if (bytes >= size_t{1} << 20) registerReduce({spec, sources, bytes, true}, level);
        }
      }
    }
  }
  for (const bool stream : {false, true}) {
    for (const size_t bytes : {size_t{16} << 10, size_t{1} << 20, size_t{16} << 20}) {
      const std::string name =
          std::string(stream ? "copy-stream/" : "copy/") + std::to_string(bytes) + "/" + level;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { runCopy(state, bytes, stream, level); });
    }
  }
}

}  // namespace
}  // namespace stretto

int main(int argumentCount, char** arguments) {
#if defined(__x86_64__)
  for (const char* level : {"scalar", "avx2", "avx512"}) stretto::registerAll(level);
#else
  stretto::registerAll(stretto::cpuLevel());
#endif
  benchmark::Initialize(&argumentCount, arguments);
  if (benchmark::ReportUnrecognizedArguments(argumentCount, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
