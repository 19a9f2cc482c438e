// Where recordings go and how much room they take: full disks, limits, flight mode, thousands of
// communicators and threads, many threads at once, unloading.
#include <errno.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <thread>

#include "fixture.hpp"
#include "harness/share.hpp"

namespace stretto::testing {
namespace {

using profiler::Type;

class ProfilerStorage : public ProfilerTest {
 protected:
  void open() {
    if (library_ == nullptr) library_ = load();
    table_ = &table<5>(library_);
    callInit<5>(*table_, &context_, &mask_, {"comm", 5, 1, 2, 0}, logger);
  }
  void* start(Type type = Type::kColl) {
    auto d = describe<5>(type, nullptr, 0);
    void* handle = nullptr;
    table_->start(context_, &handle, &d);
    return handle;
  }

  void* library_ = nullptr;
  const TableOf<5>* table_ = nullptr;
  void* context_ = nullptr;
  int mask_ = -1;
};

TEST_F(ProfilerStorage, ADirectoryThatCannotBeMadeIsSaidAndNothingElse) {
  for (const char* where : {"/proc/stretto", "/proc", "/nowhere/at/all", "/etc/hostname/sub"}) {
    set("STRETTO_TRACE_DIR", where);
    logged().clear();
    context_ = this;
    library_ = load();
    open();
    EXPECT_EQ(mask_, 0) << where;
    EXPECT_EQ(context_, nullptr);
    EXPECT_EQ(start(), nullptr);
    ASSERT_EQ(logged().size(), 1u);
    EXPECT_EQ(logged()[0].first, 2);
    EXPECT_NE(logged()[0].second.find(where), std::string::npos) << logged()[0].second;
  }
}

TEST_F(ProfilerStorage, AFileIsTheOwnersAlone) {
  open();
  const auto files = listRecordings(directory_);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(std::filesystem::status(files[0]).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(ProfilerStorage, TheHeaderSaysWhoseItIs) {
  open();
  const auto header = read().header;
  EXPECT_EQ(header.pid, static_cast<uint32_t>(getpid()));
  EXPECT_NE(std::string(header.program).find(program_invocation_short_name), std::string::npos);
  char host[65] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(std::string(header.host, strnlen(header.host, sizeof header.host)),
            std::string(host).substr(0, 64));
  EXPECT_GT(header.processStart, 0u);
  EXPECT_EQ(header.state, 0);
}

// The kernel would answer a write beyond the limit with a signal that ends the process.
TEST_F(ProfilerStorage, ALimitOnFileSizesEndsTheRecordingAndNotTheProcess) {
  library_ = load();  // a copy of the plugin, which may be larger than the limit
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  open();
  uint64_t given = 0;
  for (int i = 0; i < 20000; ++i) given += start() != nullptr;
  setrlimit(RLIMIT_FSIZE, &before);
  const auto contents = read();
  EXPECT_LE(contents.fileBytes, 1u << 20);
  EXPECT_NE(std::string(contents.header.error).find("limit"), std::string::npos);
  EXPECT_EQ(contents.of(format::Kind::kStart).size(), given);
  EXPECT_EQ(contents.header.dropped, 20000 - given);
  EXPECT_GT(given, 1000u);
}

TEST_F(ProfilerStorage, ALimitThatLeavesNoRoomAtAllIsSaid) {
  library_ = load();
  const int left = inChild([this] {
    const rlimit tiny{1024, 1024};
    setrlimit(RLIMIT_FSIZE, &tiny);
    open();
    return mask_ == 0 && context_ == nullptr && start() == nullptr && logged().size() == 1 ? 0 : 1;
  });
  EXPECT_EQ(left, 0) << "1025: the kernel's signal has ended it";
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

TEST_F(ProfilerStorage, TheLargestFileIsAsLargeAsWasSaid) {
  set("STRETTO_TRACE_LIMIT", "600K");
  set("STRETTO_TRACE_SEGMENT_BYTES", "64K");
  open();
  uint64_t given = 0;
  for (int i = 0; i < 20000; ++i) given += start() != nullptr;
  const auto contents = read();
  EXPECT_LE(contents.fileBytes, 600u << 10);
  EXPECT_EQ(std::string(contents.header.error), "STRETTO_TRACE_LIMIT is reached");
  EXPECT_EQ(contents.of(format::Kind::kStart).size(), given);
  EXPECT_EQ(contents.header.dropped, 20000 - given);
}

TEST_F(ProfilerStorage, FlightModeKeepsTheLast) {
  set("STRETTO_TRACE_MODE", "flight");
  set("STRETTO_TRACE_SEGMENT_BYTES", "16K");
  set("STRETTO_TRACE_SEGMENTS", "3");
  open();
  std::vector<uint64_t> given;
  for (int i = 0; i < 10000; ++i) given.push_back(reinterpret_cast<uint64_t>(start()));
  const auto contents = read();
  EXPECT_EQ(contents.header.mode, 2u);
  EXPECT_EQ(contents.header.dropped, 0u);
  EXPECT_EQ(contents.eventSegments, 3u);
  const auto starts = contents.of(format::Kind::kStart);
  ASSERT_GT(starts.size(), 2 * 16000u / 128);
  // Without a gap, up to the very last.
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSERT_EQ(starts[i].start().id, given[given.size() - starts.size() + i]);
  }
}

TEST_F(ProfilerStorage, TenThousandCommunicatorsComeAndGo) {
  open();
  table_->finalize(context_);
  const auto many = static_cast<size_t>(10000 / testShare());
  for (size_t i = 0; i < many; ++i) {
    void* context = nullptr;
    callInit<5>(*table_, &context, &mask_, {"comm", 5, 1, 2, 0}, nullptr);
    auto d = describe<5>(Type::kColl, nullptr, 0);
    void* handle = nullptr;
    table_->start(context, &handle, &d);
    table_->stop(handle);
    table_->finalize(context);
  }
  const auto contents = read();
  EXPECT_EQ(contents.contexts.size(), many + 1);
  EXPECT_EQ(contents.of(format::Kind::kFinalize).size(), many + 1);
  EXPECT_EQ(contents.of(format::Kind::kStart).size(), many);
  EXPECT_EQ(contents.header.state, 1);
  EXPECT_EQ(contents.header.dropped, 0u);
  EXPECT_LT(contents.fileBytes, 12u << 20);  // a few take 4 to 9 MB already
}

// A communicator's progress thread ends with it.
TEST_F(ProfilerStorage, ThousandsOfThreadsFillNoMoreThanTheirEvents) {
  open();
  constexpr int kThreads = 2000;
  for (int i = 0; i < kThreads; ++i) {
    std::thread([&] { table_->stop(start()); }).join();
  }
  const auto contents = read();
  EXPECT_EQ(contents.threads.size(), kThreads + 1u);
  EXPECT_LE(contents.eventSegments, 4u);
  std::set<uint32_t> recorded;
  for (const auto& event : contents.of(format::Kind::kStart)) recorded.insert(event.thread);
  EXPECT_EQ(recorded.size(), static_cast<size_t>(kThreads));
  for (const auto& event : contents.of(format::Kind::kStop)) EXPECT_TRUE(recorded.count(event.thread));
}

TEST_F(ProfilerStorage, FlightModeKeepsWhatEndedThreadsSaidLast) {
  set("STRETTO_TRACE_MODE", "flight");
  set("STRETTO_TRACE_SEGMENT_BYTES", "16K");
  open();
  for (int i = 0; i < 200; ++i) {
    std::thread([&] {
      for (int k = 0; k < 300; ++k) start();
    }).join();
  }
  const auto contents = read();
  EXPECT_LE(contents.eventSegments, 4u * 20);
  std::set<uint32_t> recorded;
  for (const auto& event : contents.of(format::Kind::kStart)) recorded.insert(event.thread);
  for (uint32_t thread = 200 - 15; thread <= 200; ++thread) EXPECT_TRUE(recorded.count(thread)) << thread;
}

TEST_F(ProfilerStorage, ManyThreadsAtOnce) {
  set("STRETTO_TRACE_SEGMENT_BYTES", "16K");
  open();
  constexpr int kThreads = 8;
  constexpr int kEvents = 5000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "Function" + std::to_string(i);
      void* context = nullptr;
      int mask = 0;
      callInit<5>(*table_, &context, &mask, {name.c_str(), 5, 1, kThreads, i}, nullptr);
      for (int k = 0; k < kEvents; ++k) {
        auto d = describe<5>(Type::kColl, nullptr, i);
        d.coll.function = name.c_str();
        d.coll.sequence = static_cast<uint64_t>(k);
        void* handle = nullptr;
        table_->start(context, &handle, &d);
        table_->state(handle, 1, nullptr);
        table_->stop(handle);
      }
      table_->finalize(context);
    });
  }
  for (auto& thread : threads) thread.join();
  table_->finalize(context_);
  const auto contents = read();
  EXPECT_EQ(contents.header.dropped, 0u);
  EXPECT_EQ(contents.header.unmatched, 0u);
  std::set<uint64_t> ids;
  std::map<uint32_t, uint64_t> next;  // by context
  for (const auto& event : contents.of(format::Kind::kStart)) {
    const auto coll = event.as<format::Coll>();
    ids.insert(coll.start.id);
    const auto& context = contents.contexts.at(coll.start.record.context);
    ASSERT_EQ(context.rank, coll.start.rank);
    ASSERT_EQ(contents.text(coll.function), "Function" + std::to_string(coll.start.rank));
    ASSERT_EQ(coll.sequence, next[context.number]++);
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kThreads * kEvents));
  EXPECT_EQ(contents.of(format::Kind::kStop).size(), ids.size());
  EXPECT_EQ(contents.of(format::Kind::kState).size(), ids.size());
  EXPECT_EQ(contents.header.state, 1);
}

TEST_F(ProfilerStorage, UnloadedWhileEventsAreOpen) {
  open();
  void* handle = start();
  std::atomic<bool> unloaded{false};
  std::thread progress([&] {
    void* step = start(Type::kProxyStep);
    while (!unloaded.load()) std::this_thread::yield();
    table_->stop(step);
  });
  dlclose(library_);
  unloaded.store(true);
  progress.join();  // its end runs the plugin's code too
  table_->stop(handle);
  // NCCL loads it again for the next communicator.
  library_ = dlopen((folder_ + "/plugin0.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library_, nullptr);
  void* again = nullptr;
  callInit<5>(table<5>(library_), &again, &mask_, {"comm", 6, 1, 2, 0}, nullptr);
  table_->finalize(again);
  table_->finalize(context_);
  dlclose(library_);
  const auto contents = read();
  EXPECT_EQ(contents.contexts.size(), 2u);
  EXPECT_EQ(contents.of(format::Kind::kStop).size(), contents.of(format::Kind::kStart).size());
  EXPECT_EQ(contents.header.state, 1);
}

TEST_F(ProfilerStorage, ClocksAreTiedTogetherWhileItRecords) {
  open();
  start();
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  start();
  table_->finalize(context_);
  const auto contents = read();
  ASSERT_GE(contents.anchors.size(), 3u);
  for (size_t i = 1; i < contents.anchors.size(); ++i) {
    const auto& a = contents.anchors[i - 1];
    const auto& b = contents.anchors[i];
    ASSERT_GT(b.record.ticks, a.record.ticks);
    ASSERT_GT(b.monotonic, a.monotonic);
    EXPECT_LT(b.uncertainty, 1000000u);
    if (contents.header.clock == 2) {
      EXPECT_EQ(b.record.ticks / 1000000, b.monotonic / 1000000);
    }
  }
  const auto starts = contents.of(format::Kind::kStart);
  const auto& first = contents.anchors.front();
  const auto& last = contents.anchors.back();
  const double rate = static_cast<double>(last.record.ticks - first.record.ticks) /
                      static_cast<double>(last.monotonic - first.monotonic);
  const double apart = static_cast<double>(starts[1].record().ticks - starts[0].record().ticks) / rate;
  EXPECT_NEAR(apart, 1.3e9, 0.5e9);
}

}  // namespace
}  // namespace stretto::testing
