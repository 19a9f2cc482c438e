// A second plugin behind ours, NVTX ranges and CUPTI ids.
#include "fixture.hpp"
#include "second_plugin.hpp"

namespace stretto::testing {
namespace {

using profiler::Type;

class ProfilerChain : public ProfilerTest {
 protected:
  void SetUp() override {
    ProfilerTest::SetUp();
    path_ = folder_ + "/second.so";
    std::filesystem::copy_file(STRETTO_SECOND_PLUGIN, path_);
    second_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(second_, nullptr) << dlerror();
    log_ = reinterpret_cast<SecondPluginLog* (*)()>(dlsym(second_, "secondPluginLog"))();
    set("STRETTO_TRACE_CHAIN", path_);
  }
  template <int Abi>
  void open(int mask) {
    log_->mask = mask;
    library_ = load();
    callInit<Abi>(table<Abi>(library_), &context_, &mask_, {"comm", 5, 1, 2, 0}, logger);
  }
  template <int Abi>
  void* start(DescriptorOf<Abi> descriptor) {
    void* handle = nullptr;
    table<Abi>(library_).start(context_, &handle, &descriptor);
    return handle;
  }

  std::string path_;
  void* second_ = nullptr;
  SecondPluginLog* log_ = nullptr;
  void* library_ = nullptr;
  void* context_ = nullptr;
  int mask_ = 0;
};

TEST_F(ProfilerChain, GetsItsOwnHandlesAndContextsAsParents) {
  set("STRETTO_TRACE_EVENTS", "GroupApi");
  open<5>(2);
  EXPECT_EQ(mask_, 0x102);
  EXPECT_EQ(log_->abi, 5);
  auto api = describe<5>(Type::kCollApi, nullptr, 0);
  void* apiHandle = start<5>(api);
  void* group = start<5>(describe<5>(Type::kGroup, nullptr, 0));
  auto coll = describe<5>(Type::kColl, apiHandle, 0);
  coll.coll.parentGroup = group;
  void* handle = start<5>(coll);
  start<5>(describe<5>(Type::kProxyStep, handle, 0));  // not what it asked for
  EXPECT_EQ(coll.coll.parentGroup, group);             // the caller's descriptor is as it was
  ASSERT_EQ(log_->starts, 3);
  EXPECT_EQ(log_->started[2].type, 2u);
  EXPECT_EQ(log_->started[2].context, reinterpret_cast<void*>(0x70001));
  EXPECT_EQ(log_->started[2].parent, log_->started[0].handle);
  EXPECT_EQ(log_->started[2].parentGroup, log_->started[1].handle);
  const auto& t = table<5>(library_);
  t.state(handle, 22, nullptr);
  EXPECT_EQ(log_->lastState, log_->started[2].handle);
  t.stop(handle);
  EXPECT_EQ(log_->stopped[0], log_->started[2].handle);
  // A collective that has stopped is still a parent.
  start<5>(describe<5>(Type::kColl, handle, 0));
  EXPECT_EQ(log_->started[3].parent, log_->started[2].handle);
  t.finalize(context_);
  EXPECT_EQ(log_->finalized, reinterpret_cast<void*>(0x70001));
  EXPECT_EQ(read().of(format::Kind::kStart).size(), 5u);
}

// A graph's replay: what Stretto says of it is between the two, and other plugins would not take a call for
// the parent of a kernel.
TEST_F(ProfilerChain, HearsOfReplaysAsOfKernelsWithoutAParent) {
  open<7>(static_cast<int>(bit(Type::kKernelCh)));
  void* const call = start<7>(describe<7>(Type::kCollApi, nullptr, 0));
  void* const coll = start<7>(describe<7>(Type::kColl, call, 0));
  void* const replay = start<7>(describe<7>(Type::kKernelCh, call, 0));
  start<7>(describe<7>(Type::kKernelCh, coll, 0));
  ASSERT_EQ(log_->starts, 4);
  EXPECT_EQ(log_->started[2].parent, nullptr);
  EXPECT_EQ(log_->started[3].parent, log_->started[1].handle);
  ArgumentsOf<7> number{};
  number.replayed.number = 77;
  table<7>(library_).state(replay, profiler::kReplayed, &number);
  EXPECT_EQ(log_->states, 0);
  const auto contents = read();
  EXPECT_EQ(contents.of(format::Kind::kStart, static_cast<int>(Type::kKernelCh)).at(0).start().parent,
            reinterpret_cast<uint64_t>(call));
  EXPECT_EQ(contents.of(format::Kind::kState).at(0).as<format::State>().argument, 77u);
}

TEST_F(ProfilerChain, SpeaksTheLatestVersionThatTheCallerSpeaksToo) {
  open<7>(2);
  EXPECT_EQ(log_->abi, 5);
  auto coll = describe<7>(Type::kColl, nullptr, 0);
  EXPECT_NE(start<7>(coll), nullptr);
  EXPECT_EQ(log_->starts, 1);
  start<7>(describe<7>(Type::kKernelPhase, nullptr, 0));
  EXPECT_EQ(log_->starts, 1);
}

TEST_F(ProfilerChain, SpeaksVersionFour) {
  open<4>(2);
  EXPECT_EQ(log_->abi, 4);
  start<4>(describe<4>(Type::kColl, nullptr, 0));
  EXPECT_EQ(log_->starts, 1);
}

TEST_F(ProfilerChain, WithoutATableForTheCallerThereIsAWord) {
  open<3>(2);
  EXPECT_EQ(log_->inits, 0);
  EXPECT_NE(start<3>(describe<3>(Type::kGroup, nullptr, 0)), nullptr);  // ours goes on
  EXPECT_EQ(read().of(format::Kind::kStart).size(), 1u);
}

TEST_F(ProfilerChain, ThatRefusesTheCommunicatorIsLeftOut) {
  log_->refuse = true;
  open<5>(2);
  EXPECT_EQ(mask_, 0xfff);
  EXPECT_NE(start<5>(describe<5>(Type::kColl, nullptr, 0)), nullptr);
  EXPECT_EQ(log_->starts, 0);
  ASSERT_EQ(logged().size(), 2u);
  EXPECT_EQ(logged()[1].first, 2);
}

// The mask is all communicators': what it refuses must not end what it hears of those that it took.
TEST_F(ProfilerChain, HearsOfItsCommunicatorsThoughItRefusesALaterOne) {
  set("STRETTO_TRACE_DIR", "");
  open<5>(2);
  log_->refuse = true;
  void* second = nullptr;
  callInit<5>(table<5>(library_), &second, &mask_, {"other", 6, 1, 2, 0}, logger);
  EXPECT_EQ(mask_, 2);
  EXPECT_NE(start<5>(describe<5>(Type::kColl, nullptr, 0)), nullptr);
  EXPECT_EQ(log_->starts, 1);
  auto refused = describe<5>(Type::kColl, nullptr, 0);
  void* handle = nullptr;
  table<5>(library_).start(second, &handle, &refused);
  EXPECT_EQ(log_->starts, 1);
}

TEST_F(ProfilerChain, WorksWhereNothingIsRecorded) {
  set("STRETTO_TRACE_DIR", "");
  open<5>(2);
  EXPECT_EQ(mask_, 2);
  void* handle = start<5>(describe<5>(Type::kColl, nullptr, 0));
  ASSERT_NE(handle, nullptr);
  table<5>(library_).stop(handle);
  EXPECT_EQ(log_->starts, 1);
  EXPECT_EQ(log_->stops, 1);
  table<5>(library_).finalize(context_);
  EXPECT_NE(log_->finalized, nullptr);
}

TEST_F(ProfilerChain, OldHandlesAreForgottenAndNotMistaken) {
  open<5>(2);
  void* first = start<5>(describe<5>(Type::kColl, nullptr, 0));
  for (int i = 0; i < (1 << 16); ++i) start<5>(describe<5>(Type::kColl, nullptr, 0));
  const int before = log_->stops;
  table<5>(library_).stop(first);
  EXPECT_EQ(log_->stops, before);
  EXPECT_EQ(log_->starts, (1 << 16) + 1);
}

TEST_F(ProfilerChain, ItselfIsNoSecondPlugin) {
  library_ = load();
  set("STRETTO_TRACE_CHAIN", folder_ + "/plugin0.so");
  callInit<5>(table<5>(library_), &context_, &mask_, {"comm", 5, 1, 2, 0}, logger);
  EXPECT_EQ(mask_, 0xfff);
  EXPECT_NE(start<5>(describe<5>(Type::kColl, nullptr, 0)), nullptr);
  EXPECT_EQ(read().of(format::Kind::kStart).size(), 1u);
}

TEST_F(ProfilerChain, AMissingOneIsAWarning) {
  set("STRETTO_TRACE_CHAIN", "/nowhere/plugin.so");
  open<5>(2);
  EXPECT_EQ(mask_, 0xfff);
  ASSERT_FALSE(logged().empty());
  EXPECT_EQ(logged()[0].first, 2);
  EXPECT_NE(logged()[0].second.find("/nowhere/plugin.so"), std::string::npos);
}

// A stand-in for libcupti, found by the name that it was loaded by.
class ProfilerCupti : public ProfilerTest {};

TEST_F(ProfilerCupti, IdsArePushedAroundLaunches) {
  void* cupti = dlopen(STRETTO_FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(cupti, nullptr) << dlerror();
  auto* calls = static_cast<uint64_t*>(dlsym(cupti, "fakeCuptiCalls"));
  set("STRETTO_TRACE_CUPTI", "1");
  void* library = load();
  void* context = nullptr;
  int mask = 0;
  const auto& t = table<5>(library);
  callInit<5>(t, &context, &mask, {}, logger);
  auto d = describe<5>(Type::kKernelLaunch, nullptr, 0);
  void* handle = nullptr;
  t.start(context, &handle, &d);
  EXPECT_EQ(calls[0], 1u);
  EXPECT_EQ(calls[1], reinterpret_cast<uint64_t>(handle));
  EXPECT_EQ(calls[2], 0u);
  t.stop(handle);
  t.stop(handle);
  EXPECT_EQ(calls[2], 1u);
  auto other = describe<5>(Type::kColl, nullptr, 0);
  t.start(context, &handle, &other);
  EXPECT_EQ(calls[0], 1u);
  dlclose(cupti);
}

// Ids that stay pushed would be taken for those of all later kernels.
TEST_F(ProfilerCupti, IdsAreTakenOffAgainWhereTheRecordingIsFull) {
  void* cupti = dlopen(STRETTO_FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(cupti, nullptr) << dlerror();
  auto* calls = static_cast<uint64_t*>(dlsym(cupti, "fakeCuptiCalls"));
  const uint64_t before[] = {calls[0], calls[2]};
  set("STRETTO_TRACE_CUPTI", "1");
  set("STRETTO_TRACE_LIMIT", "64K");
  set("STRETTO_TRACE_SEGMENT_BYTES", "4K");
  void* context = nullptr;
  int mask = 0;
  const auto& t = table<5>(load());
  callInit<5>(t, &context, &mask, {}, logger);
  constexpr int kLaunches = 5000;
  for (int i = 0; i < kLaunches; ++i) {
    auto d = describe<5>(Type::kKernelLaunch, nullptr, 0);
    void* handle = nullptr;
    t.start(context, &handle, &d);
    if (handle != nullptr) t.stop(handle);  // as NCCL does
  }
  EXPECT_GT(read().header.dropped, 0u);
  EXPECT_EQ(calls[0] - before[0], uint64_t{kLaunches});
  EXPECT_EQ(calls[2] - before[1], uint64_t{kLaunches});
  dlclose(cupti);
}

#ifdef STRETTO_NVTX_LISTENER
TEST_F(ProfilerChain, NvtxRangesNestAsTheCallsDo) {
  set("STRETTO_TRACE_CHAIN", "");
  set("STRETTO_TRACE_NVTX", "1");
  set("NVTX_INJECTION64_PATH", STRETTO_NVTX_LISTENER);
  open<5>(0);
  void* listener = dlopen(STRETTO_NVTX_LISTENER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(listener, nullptr) << dlerror();
  const auto* said = static_cast<const std::string*>(dlsym(listener, "nvtxListenerSaid"));
  ASSERT_NE(said, nullptr);
  void* group = start<5>(describe<5>(Type::kGroupApi, nullptr, 0));
  auto api = describe<5>(Type::kCollApi, group, 0);
  api.collApi.function = "AllReduce";
  void* inner = start<5>(api);
  start<5>(describe<5>(Type::kProxyOp, inner, 0));  // lives on other threads: no range
  const auto& t = table<5>(library_);
  t.stop(inner);
  t.stop(inner);  // again: no second pop
  t.stop(group);
  EXPECT_EQ(*said, "domain Stretto;push GroupApi;push AllReduce;pop;pop;");
}
#endif

}  // namespace
}  // namespace stretto::testing
