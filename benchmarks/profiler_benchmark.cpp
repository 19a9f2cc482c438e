// What a profiler callback costs, design by design: an empty plugin, ours (stream and flight), and two ways
// to write JSON lines. Each is called through a table of version 5 as NCCL would, three callbacks an
// operation: start, state, stop.
//
//   profiler_benchmark EMPTY_PLUGIN PLUGIN [google-benchmark's options]
//
// "paced" runs make one operation in 10 us, so that caches are as cold as in a program that does something
// else; "tight" ones make nothing but callbacks. The time is that of a callback, with the loop itself taken
// off in paced runs. After ours, the recording is read back and everything must be in it.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "harness/temporary_folder.hpp"
#include "plugins/canned_calls.hpp"
#include "plugins/recording.hpp"

namespace stretto {
namespace {

using Table = testing::TableOf<5>;
using Descriptor = profiler::DescriptorV7;
constexpr int kOperations = 200000;
constexpr int kPacedOperations = 20000;
constexpr uint64_t kPaceNs = 10000;
constexpr int kCallbacks = 3;

const char* gEmpty = nullptr;
const char* gPlugin = nullptr;

// A plugin as its own copy, so that each run has a recording of its own.
class Plugin {
 public:
  Plugin(const char* path, const char* mode) {
    setenv("STRETTO_TRACE_DIR", directory().c_str(), 1);
    setenv("STRETTO_TRACE_EVENTS", "all", 1);
    setenv("STRETTO_TRACE_MODE", mode, 1);
    const std::string copy = folder_ / "plugin.so";
    std::filesystem::copy_file(path, copy);
    void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    table_ = library == nullptr ? nullptr : testing::loadTable<5>(library);
    if (table_ == nullptr) throw std::runtime_error(std::string(path) + " is no profiler plugin");
    int mask = 0;
    testing::callInit<5>(*table_, &context_, &mask, {"bench", 1, 1, 1, 0});
  }
  ~Plugin() { table_->finalize(context_); }
  const Table& table() const { return *table_; }
  void* context() const { return context_; }
  std::string directory() const { return folder_ / "run"; }

 private:
  const testing::TemporaryFolder folder_{"profiler-benchmark"};
  const Table* table_ = nullptr;
  void* context_ = nullptr;
};

Descriptor collective(uint64_t sequence) {
  Descriptor d = testing::describe<5>(profiler::Type::kColl, nullptr, 3);
  d.coll.sequence = sequence;
  d.coll.function = "AllReduce";
  d.coll.count = 16;
  d.coll.dataType = "ncclFloat32";
  d.coll.channels = 2;
  d.coll.algorithm = "RING";
  d.coll.protocol = "LL";
  return d;
}

void waitUntil(uint64_t when) {
  while (platform::monotonicNanoseconds() < when) platform::relax();
}

double threadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Calls `operation(number)` and reports seconds per callback, in a way that a busy machine disturbs little:
// processor time of the thread in tight runs, the median operation in paced ones.
template <typename Operation>
void run(benchmark::State& state, bool paced, Operation&& operation) {
  uint64_t number = 0;
  uint64_t empty = ~uint64_t{0};
  for (int i = 0; i < 1000; ++i) {
    const uint64_t began = platform::ticks();
    empty = std::min(empty, platform::ticks() - began);
  }
  std::vector<uint64_t> spent(kPacedOperations);
  for (auto _ : state) {
    double seconds = 0;
    if (paced) {
      uint64_t next = platform::monotonicNanoseconds();
      for (uint64_t& one : spent) {
        waitUntil(next += kPaceNs);
        const uint64_t began = platform::ticks();
        operation(number++);
        one = platform::ticks() - began - empty;
      }
      std::nth_element(spent.begin(), spent.begin() + kPacedOperations / 2, spent.end());
      seconds = static_cast<double>(spent[kPacedOperations / 2]) / platform::tickRate();
    } else {
      const double began = threadSeconds();
      for (int i = 0; i < kOperations; ++i) operation(number++);
      seconds = (threadSeconds() - began) / kOperations;
    }
    state.SetIterationTime(seconds / kCallbacks);
  }
}

void throughTable(benchmark::State& state, const char* path, const char* mode, bool paced) {
  Plugin plugin(path, mode);
  const Table& table = plugin.table();
  uint64_t made = 0;
  run(state, paced, [&](uint64_t number) {
    Descriptor d = collective(number);
    void* handle = nullptr;
    table.start(plugin.context(), &handle, &d);
    table.state(handle, 1, nullptr);
    table.stop(handle);
    ++made;
  });
  if (path != gPlugin) return;
  const auto files = testing::listRecordings(plugin.directory());
  const auto contents = testing::readRecording(files.at(0));
  const uint64_t starts = contents.of(testing::format::Kind::kStart).size();
  const uint64_t stops = contents.of(testing::format::Kind::kStop).size();
  const bool all = starts == made && stops == made && contents.header.dropped == 0;
  const bool flight = contents.header.mode == 2 && contents.header.dropped == 0 && starts > 1000;
  if (!all && !flight) state.SkipWithError("the recording is not complete");
  state.counters["recorded"] = static_cast<double>(starts);
  if (contents.header.selfSamples != 0) {
    state.counters["self_ns"] = static_cast<double>(contents.header.selfTicks) /
                                static_cast<double>(contents.header.selfSamples) / platform::tickRate() * 1e9;
  }
}

// How others write: one line of text a callback, here into memory that the thread has.
class Lines {
 public:
  void start(uint64_t id, const Descriptor& d) {
    add("{\"ts\":%" PRIu64 ",\"call\":\"start\",\"type\":\"Coll\",\"id\":%" PRIu64 ",\"seq\":%" PRIu64
        ",\"func\":\"%s\",\"count\":%zu,\"datatype\":\"%s\",\"algo\":\"%s\",\"proto\":\"%s\",\"channels\":%d,"
        "\"rank\":%d}\n",
        platform::monotonicNanoseconds(), id, d.coll.sequence, d.coll.function, d.coll.count, d.coll.dataType,
        d.coll.algorithm, d.coll.protocol, d.coll.channels, d.rank);
  }
  void other(const char* call, uint64_t id) {
    add("{\"ts\":%" PRIu64 ",\"call\":\"%s\",\"id\":%" PRIu64 "}\n", platform::monotonicNanoseconds(), call,
        id);
  }

 private:
  template <typename... Values>
  void add(const char* form, Values... values) {
    if (sizeof text_ - used_ < 512) used_ = 0;
    used_ += static_cast<size_t>(snprintf(text_ + used_, 512, form, values...));
  }
  char text_[1 << 20];
  size_t used_ = 0;
};

void jsonIntoMemory(benchmark::State& state, bool paced) {
  const auto lines = std::make_unique<Lines>();
  run(state, paced, [&](uint64_t number) {
    lines->start(number, collective(number));
    lines->other("state", number);
    lines->other("stop", number);
  });
}

// And the plainest way: an object from the heap for each event, a lock, fprintf.
void jsonIntoFile(benchmark::State& state, bool paced) {
  std::FILE* file = tmpfile();
  std::mutex mutex;
  struct Event {
    uint64_t id;
    Descriptor descriptor;
  };
  run(state, paced, [&](uint64_t number) {
    auto* event = static_cast<Event*>(malloc(sizeof(Event)));
    *event = {number, collective(number)};
    const Descriptor& d = event->descriptor;
    {
      std::lock_guard lock(mutex);
      fprintf(file,
              "{\"ts\":%" PRIu64 ",\"call\":\"start\",\"id\":%" PRIu64 ",\"seq\":%" PRIu64
              ",\"func\":\"%s\",\"count\":%zu,\"datatype\":\"%s\",\"algo\":\"%s\",\"proto\":\"%s\",\"rank\":%"
              "d}\n",
              platform::monotonicNanoseconds(), number, d.coll.sequence, d.coll.function, d.coll.count,
              d.coll.dataType, d.coll.algorithm, d.coll.protocol, d.rank);
    }
    for (const char* call : {"state", "stop"}) {
      std::lock_guard lock(mutex);
      fprintf(file, "{\"ts\":%" PRIu64 ",\"call\":\"%s\",\"id\":%" PRIu64 "}\n",
              platform::monotonicNanoseconds(), call, number);
    }
    free(event);
  });
  fclose(file);
}

template <typename Function, typename... Arguments>
void add(const char* name, Function function, Arguments... arguments) {
  for (const bool paced : {false, true}) {
    benchmark::RegisterBenchmark((std::string(name) + (paced ? "/paced" : "/tight")).c_str(),
                                 [=](benchmark::State& state) { function(state, arguments..., paced); })
        ->UseManualTime()
        ->Iterations(1)
        ->Repetitions(9)
        ->ReportAggregatesOnly()
        ->ComputeStatistics(
            "min", [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); })
        ->Unit(benchmark::kNanosecond);
  }
}

int benchmarkMain(int count, char** arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: profiler_benchmark EMPTY_PLUGIN PLUGIN [google-benchmark's options]\n");
    return 2;
  }
  gEmpty = arguments[1];
  gPlugin = arguments[2];
  int rest = count - 2;
  arguments[2] = arguments[0];
  benchmark::Initialize(&rest, arguments + 2);
  add("empty", throughTable, gEmpty, "stream");
  add("stretto_stream", throughTable, gPlugin, "stream");
  add("stretto_flight", throughTable, gPlugin, "flight");
  add("snprintf_jsonl_memory", jsonIntoMemory);
  add("malloc_mutex_fprintf_jsonl", jsonIntoFile);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace stretto

int main(int count, char** arguments) try {
  return stretto::benchmarkMain(count, arguments);
} catch (const std::exception& error) {
  fprintf(stderr, "profiler_benchmark: %s\n", error.what());
  return 1;
}
