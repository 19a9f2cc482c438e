// What the plugin must live with: nulls, strangers' handles, unknown types and states, wrong settings,
// nothing to record.
#include <sys/syscall.h>

#include <atomic>
#include <set>
#include <thread>

#include "fixture.hpp"
#include "profiler/settings.hpp"

namespace stretto::testing {
namespace {

using profiler::Type;

class ProfilerRobust : public ProfilerTest {
 protected:
  void open() {
    table_ = &table<5>(load());
    callInit<5>(*table_, &context_, &mask_, {"comm", 5, 1, 2, 0}, logger);
  }
  void* start(Type type, void* parent = nullptr) {
    auto d = describe<5>(type, parent, 0);
    void* handle = nullptr;
    EXPECT_EQ(table_->start(context_, &handle, &d), 0);
    return handle;
  }

  const TableOf<5>* table_ = nullptr;
  void* context_ = nullptr;
  int mask_ = -1;
};

TEST_F(ProfilerRobust, NullsAreTaken) {
  open();
  auto d = describe<5>(Type::kColl, nullptr, 0);
  void* handle = &d;
  EXPECT_EQ(table_->start(nullptr, &handle, &d), 0);
  EXPECT_NE(handle, nullptr);
  EXPECT_EQ(table_->start(context_, nullptr, &d), 0);
  EXPECT_EQ(table_->start(context_, &handle, nullptr), 0);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(table_->stop(nullptr), 0);
  EXPECT_EQ(table_->state(nullptr, 8, nullptr), 0);
  EXPECT_EQ(table_->finalize(nullptr), 0);
  EXPECT_EQ(table_->init(nullptr, 5, nullptr, nullptr, 1, 1, 0, nullptr), 0);
  const auto contents = read();
  EXPECT_EQ(contents.header.unmatched, 2u);
  const auto starts = contents.of(format::Kind::kStart);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].record().context, format::kNone32);
  EXPECT_EQ(contents.text(starts[0].as<format::Coll>().function), "");
}

// NCCL has one mask for all communicators: one that is made must not turn off, for a moment, the events of
// others.
TEST_F(ProfilerRobust, TheMaskIsNeverNobodysWhileOthersJoin) {
  open();
  ASSERT_NE(mask_, 0);
  std::atomic<bool> joined = false;
  std::atomic<uint64_t> seen = 0;
  bool gone = false;
  std::thread watcher([&] {
    while (!joined || seen == 0) {
      gone = gone || std::atomic_ref(mask_).load() == 0;
      ++seen;
    }
  });
  while (seen == 0) std::this_thread::yield();
  for (uint64_t i = 0; i < 2000; ++i) {
    void* another = nullptr;
    callInit<5>(*table_, &another, &mask_, {"another", i, 1, 2, 0}, logger);
    EXPECT_EQ(table_->finalize(another), 0);
  }
  joined = true;
  watcher.join();
  EXPECT_FALSE(gone);
}

TEST_F(ProfilerRobust, StrangersHandlesAreCounted) {
  open();
  void* mine = start(Type::kColl);
  const auto strange = reinterpret_cast<uint64_t>(mine) ^ uint64_t { 1 } << 45;
  for (const uint64_t handle : {strange, uint64_t{0x7f0012345678}, uint64_t{200} << 56, ~uint64_t{0}}) {
    EXPECT_EQ(table_->stop(reinterpret_cast<void*>(handle)), 0);
  }
  EXPECT_EQ(table_->state(reinterpret_cast<void*>(strange), 8, nullptr), 0);
  EXPECT_EQ(read().header.unmatched, 5u);
}

TEST_F(ProfilerRobust, UnknownTypesAreRecordedAsSuch) {
  open();
  for (const uint64_t type : {uint64_t{0}, uint64_t{3}, uint64_t{1} << 16, uint64_t{1} << 63}) {
    auto d = describe<5>(Type::kColl, nullptr, 0);
    d.type = type;
    void* handle = nullptr;
    EXPECT_EQ(table_->start(context_, &handle, &d), 0);
    ASSERT_NE(handle, nullptr);
    EXPECT_EQ(table_->stop(handle), 0);
    const auto starts = read().of(format::Kind::kStart, 255);
    EXPECT_EQ(starts.back().as<format::Unknown>().type, type);
  }
  EXPECT_EQ(read().of(format::Kind::kStop, 255).size(), 4u);
}

TEST_F(ProfilerRobust, UnknownStatesDoNotTouchTheirArguments) {
  open();
  void* handle = start(Type::kKernelCh);
  auto* nowhere = reinterpret_cast<ArgumentsOf<5>*>(uint64_t{0});
  EXPECT_EQ(table_->state(handle, 1000, nowhere), 0);
  ArgumentsOf<5> arguments{};
  arguments.netPlugin.data = reinterpret_cast<void*>(1);  // would fault
  EXPECT_EQ(table_->state(handle, profiler::kNetPluginUpdate, &arguments), 0);
  const auto states = read().of(format::Kind::kState);
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].as<format::State>().state, 1000u);
  EXPECT_EQ(states[1].as<format::State>().argument, format::kNone64);
}

TEST_F(ProfilerRobust, NetworkPluginsOfUnknownKindsAreNotReadFrom) {
  open();
  constexpr int64_t kLaterInfiniBand = 1 << 16 | 2;
  for (const int64_t plugin : {int64_t{77} << 16, kLaterInfiniBand}) {
    auto d = describe<5>(Type::kNetPlugin, nullptr, 0);
    d.netPlugin = {plugin, reinterpret_cast<void*>(1)};  // would fault
    void* handle = nullptr;
    EXPECT_EQ(table_->start(context_, &handle, &d), 0);
  }
  const auto starts = read().of(format::Kind::kStart);
  ASSERT_EQ(starts.size(), 2u);
  for (const auto& start : starts) {
    for (const uint8_t byte : start.as<format::NetPlugin>().data) EXPECT_EQ(byte, 0xff);
  }
}

TEST_F(ProfilerRobust, StopsComeTwiceAndAfterFinalize) {
  open();
  void* handle = start(Type::kCollApi);
  table_->stop(handle);
  table_->stop(handle);
  table_->finalize(context_);
  table_->finalize(context_);
  table_->stop(handle);
  EXPECT_NE(start(Type::kProxyCtrl), nullptr);  // a proxy may outlive the communicator that made it
  const auto contents = read();
  EXPECT_EQ(contents.of(format::Kind::kStop).size(), 3u);
  EXPECT_EQ(contents.of(format::Kind::kFinalize).size(), 1u);
  EXPECT_EQ(contents.header.unmatched, 0u);
}

TEST_F(ProfilerRobust, PollsOfAPeerAreOneRecordWithACount) {
  open();
  void* a = start(Type::kProxyStep);
  void* b = start(Type::kProxyStep);
  ArgumentsOf<5> moved{};
  moved.proxyStep.bytes = 0;
  for (int i = 0; i < 100000; ++i) {
    table_->state(a, profiler::kStepSendPeerWait, &moved);
    table_->state(b, profiler::kStepSendPeerWait, &moved);
  }
  table_->state(a, 9, &moved);
  table_->state(a, profiler::kStepSendPeerWait, &moved);
  const auto states = read().of(format::Kind::kState);
  ASSERT_EQ(states.size(), 4u);
  EXPECT_EQ(states[0].as<format::State>().count, 100000u);
  EXPECT_EQ(states[1].as<format::State>().count, 100000u);
  EXPECT_EQ(states[2].as<format::State>().state, 9u);
  EXPECT_EQ(states[3].as<format::State>().count, 1u);
}

// strettoProfiler_v2: a host that has read the clock anyway says so; 0 is now.
TEST_F(ProfilerRobust, ACallersStampIsKept) {
  void* const library = load();
  const auto& seven = table<7>(library);
  const auto* const stamped =
      static_cast<const profiler::StampedTable*>(dlsym(library, profiler::kStampedTable));
  ASSERT_NE(stamped, nullptr);
  void* context = nullptr;
  int mask = 0;
  ASSERT_EQ(callInit<7>(seven, &context, &mask, {}), 0);
  const uint64_t first = platform::ticks();
  uint64_t last = first;
  for (int i = 0; i < 1500; ++i) {  // the recorder times one callback of 1024
    const uint64_t at = i == 0 ? first : platform::ticks();
    auto d = describe<7>(profiler::Type::kGroup, nullptr, 0);
    void* handle = nullptr;
    EXPECT_EQ(stamped->start(context, &handle, &d, at), 0);
    EXPECT_EQ(stamped->state(handle, profiler::kGroupStartApiStop, nullptr, at), 0);
    EXPECT_EQ(stamped->stop(handle, i % 2 == 0 ? at : 0), 0);
    last = at;
  }
  const uint64_t after = platform::ticks();
  const auto contents = read();
  ASSERT_EQ(contents.header.clock, static_cast<uint8_t>(format::Clock::kTimeStampCounter))
      << "the kernel does not trust the counter here, so that the caller's stamps are not taken";
  EXPECT_EQ(contents.of(format::Kind::kStart).at(0).record().ticks, first);
  EXPECT_EQ(contents.of(format::Kind::kState).at(1499).record().ticks, last);
  EXPECT_EQ(contents.of(format::Kind::kStop).at(0).record().ticks, first);
  EXPECT_GT(contents.of(format::Kind::kStop).at(1499).record().ticks, last);
  uint64_t before = 0;
  for (const auto& event : contents.events) {
    EXPECT_GE(event.record().ticks, before);
    before = event.record().ticks;
  }
  EXPECT_GE(contents.header.selfSamples, 4u);
  EXPECT_LT(contents.header.selfTicks, after - first);
}

// It stands in the recording, and where the library tells of all there is nothing about it but a warning.
TEST_F(ProfilerRobust, ASampleIsSaidToBeOne) {
  set("STRETTO_PROFILE_EVERY", "16");
  void* const library = load();
  const auto& seven = table<7>(library);
  const auto* const stamped =
      static_cast<const profiler::StampedTable*>(dlsym(library, profiler::kStampedTable));
  ASSERT_NE(stamped, nullptr);
  void* contexts[2] = {};
  int mask = 0;
  for (void*& context : contexts) ASSERT_EQ(callInit<7>(seven, &context, &mask, {}, logger), 0);
  EXPECT_EQ(stamped->sample(contexts[1], 16), 0);
  EXPECT_EQ(stamped->sample(nullptr, 16), 0);
  const auto samples = read().samples;
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].number, 1u);
  EXPECT_EQ(samples[0].every, 16u);
  size_t warnings = 0;
  for (const auto& [level, text] : logged()) {
    warnings += level == 2 && text.find("STRETTO_PROFILE_EVERY=16 leaves nothing out") != std::string::npos;
  }
  EXPECT_EQ(warnings, 1u) << "this program is no Stretto";
}

TEST_F(ProfilerRobust, IdsNameTypeProcessAndEvent) {
  open();
  std::set<uint64_t> ids;
  for (int i = 0; i < 10000; ++i) ids.insert(reinterpret_cast<uint64_t>(start(Type::kProxyStep)));
  EXPECT_EQ(ids.size(), 10000u);
  const uint16_t tag = read().header.tag;
  for (const uint64_t id : ids) {
    ASSERT_EQ(id >> 56, 5u);
    ASSERT_EQ((id >> 40) & 0xffff, tag);
  }
}

TEST_F(ProfilerRobust, ATextThatChangedAtItsAddressIsAnotherText) {
  open();
  char text[32] = "AllReduce";
  auto d = describe<5>(Type::kColl, nullptr, 0);
  d.coll.function = text;
  void* handle = nullptr;
  table_->start(context_, &handle, &d);
  table_->start(context_, &handle, &d);
  snprintf(text, sizeof text, "Broadcast");
  table_->start(context_, &handle, &d);
  const std::string longText(5000, 'x');
  d.coll.function = longText.c_str();
  table_->start(context_, &handle, &d);
  const auto contents = read();
  const auto starts = contents.of(format::Kind::kStart);
  ASSERT_EQ(starts.size(), 4u);
  EXPECT_EQ(contents.text(starts[0].as<format::Coll>().function), "AllReduce");
  EXPECT_EQ(starts[0].as<format::Coll>().function, starts[1].as<format::Coll>().function);
  EXPECT_EQ(contents.text(starts[2].as<format::Coll>().function), "Broadcast");
  EXPECT_EQ(contents.text(starts[3].as<format::Coll>().function), std::string(512, 'x'));
}

TEST_F(ProfilerRobust, AContextOfAnotherProcessGetsANumber) {
  open();
  const uint64_t foreign = uint64_t{254} << 56 | uint64_t{(read().header.tag ^ 5u) & 0xffff} << 40 | 9;
  for (int i = 0; i < 2; ++i) {
    auto d = describe<5>(Type::kProxyOp, nullptr, 1);
    void* handle = nullptr;
    table_->start(reinterpret_cast<void*>(foreign), &handle, &d);
  }
  const auto contents = read();
  ASSERT_EQ(contents.foreign.size(), 1u);
  EXPECT_EQ(contents.foreign[0].tag, (contents.header.tag ^ 5u) & 0xffff);
  EXPECT_EQ(contents.foreign[0].foreignNumber, 9u);
  for (const auto& start : contents.of(format::Kind::kStart)) {
    EXPECT_EQ(start.record().context, contents.foreign[0].number);
  }
}

TEST_F(ProfilerRobust, WithoutADirectoryNothingIsAskedFor) {
  set("STRETTO_TRACE_DIR", "");
  open();
  EXPECT_EQ(mask_, 0);
  EXPECT_EQ(context_, nullptr);
  ASSERT_EQ(logged().size(), 1u);
  EXPECT_EQ(logged()[0].first, 3);
  EXPECT_NE(logged()[0].second.find("STRETTO_TRACE_DIR"), std::string::npos);
  // The mask is one for the process: events may come all the same.
  EXPECT_EQ(start(Type::kColl), nullptr);
  EXPECT_EQ(table_->stop(nullptr), 0);
  EXPECT_EQ(table_->finalize(context_), 0);
  callInit<5>(*table_, &context_, &mask_, {}, logger);
  EXPECT_EQ(logged().size(), 1u);  // said once
}

TEST_F(ProfilerRobust, WrongSettingsAreSaidAndDefaultsHold) {
  set("STRETTO_TRACE_EVENTS", "api,nonsense");
  set("STRETTO_TRACE_MODE", "sideways");
  set("STRETTO_TRACE_SEGMENT_BYTES", "5000");
  set("STRETTO_TRACE_SEGMENTS", "many");
  set("STRETTO_TRACE_LIMIT", "-1");
  set("STRETTO_TRACE_NVTX", "yes");
  open();
  EXPECT_EQ(mask_, 0xfbf);  // the default of v5: everything but KernelCh
  const auto header = read().header;
  EXPECT_EQ(header.mode, 1u);
  EXPECT_EQ(header.segmentBytes, 256u << 10);
  int warnings = 0;
  for (const auto& [level, text] : logged()) warnings += level == 2;
  EXPECT_EQ(warnings, 6);
}

TEST_F(ProfilerRobust, MasksAreNumbersNamesAndPresets) {
  const std::pair<const char*, uint32_t> good[] = {
      {"0", 0},           {"4095", 4095},      {"0xFFFF", 0xffff}, {"none", 0},
      {"api", 0xf00},     {"KernelCh", 0x40},  {"coll,p2p", 6},    {"api,KERNELCH", 0xf40},
      {"timing", 0xff47}, {"default", 0x7fbf}, {"net", 0x70bf},    {"all", 0xffff},
  };
  for (const auto& [text, mask] : good) {
    uint32_t parsed = 0;
    EXPECT_TRUE(profiler::parseEvents(text, parsed)) << text;
    EXPECT_EQ(parsed, mask) << text;
  }
  for (const char* text : {"", ",", "api,", "0x10000", "-1", "12x", "coll p2p", "Kernel"}) {
    uint32_t parsed = 0;
    EXPECT_FALSE(profiler::parseEvents(text, parsed)) << text;
  }
}

TEST_F(ProfilerRobust, EveryVariableIsDeclaredWithHelp) {
  std::set<std::string> names;
  for (const Parameter* variable : profiler::variables::all()) {
    EXPECT_EQ(std::string(variable->name()).rfind("STRETTO_TRACE_", 0), 0u);
    EXPECT_GT(std::string(variable->help()).size(), 10u);
    names.insert(variable->name());
  }
  EXPECT_EQ(names.size(), 13u);
}

TEST_F(ProfilerRobust, OutsideOfItsWindowNothingIsAskedFor) {
  set("STRETTO_TRACE_AFTER", "never");
  const auto& t = table<5>(load());
  void* context = nullptr;
  int mask = -1;
  EXPECT_EQ(callInit<5>(t, &context, &mask, {}, logger), 0);
  EXPECT_EQ(mask, 0);
  EXPECT_EQ(t.finalize(context), 0);
  set("STRETTO_TRACE_AFTER", "0");
  set("STRETTO_TRACE_FOR", "3600");
  const auto& inside = table<5>(load());
  EXPECT_EQ(callInit<5>(inside, &context, &mask, {}, logger), 0);
  EXPECT_EQ(mask, 4095);
  EXPECT_EQ(inside.finalize(context), 0);
}

// Of each hour one nanosecond, which is over; of each hour all but that; and what cannot be, all the time.
TEST_F(ProfilerRobust, WindowsComeAgain) {
  const struct {
    const char* seconds;
    const char* each;
    int mask;
  } cases[] = {{"0.000000001", "3600", 0}, {"5", "5", 4095}, {"5", "sometimes", 4095}, {"0", "5", 4095}};
  for (const auto& one : cases) {
    set("STRETTO_TRACE_FOR", one.seconds);
    set("STRETTO_TRACE_EACH", one.each);
    const auto& t = table<5>(load());
    void* context = nullptr;
    int mask = -1;
    EXPECT_EQ(callInit<5>(t, &context, &mask, {}, logger), 0);
    EXPECT_EQ(mask, one.mask) << one.seconds << " of each " << one.each;
    EXPECT_EQ(t.finalize(context), 0);
  }
}

TEST_F(ProfilerRobust, TheEmptyPluginAsksAndRecordsNothing) {
  unsetenv("STRETTO_TRACE_EVENTS");
  void* library = load(STRETTO_PROFILER_EMPTY);
  const auto& t = table<5>(library);
  void* context = nullptr;
  int mask = 0;
  EXPECT_EQ(callInit<5>(t, &context, &mask, {}, logger), 0);
  EXPECT_EQ(mask, 4095);
  EXPECT_NE(context, nullptr);
  auto d = describe<5>(Type::kColl, nullptr, 0);
  void* handle = nullptr;
  t.start(context, &handle, &d);
  EXPECT_NE(handle, nullptr);
  EXPECT_EQ(t.stop(handle), 0);
  EXPECT_EQ(t.state(handle, 1, nullptr), 0);
  set("STRETTO_TRACE_EMPTY", "null");
  set("STRETTO_TRACE_EVENTS", "0x42");
  callInit<5>(t, &context, &mask, {}, logger);
  EXPECT_EQ(mask, 0x42);
  t.start(context, &handle, &d);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(t.finalize(context), 0);
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

}  // namespace
}  // namespace stretto::testing
