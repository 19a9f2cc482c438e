// Each version's table is called with descriptors of that version, in every type it knows and with every
// field set to a value of its own; the recording must say the same.
#include <array>

#include "fixture.hpp"

namespace stretto::testing {
namespace {

using profiler::Type;

void* address(uint64_t number) {
  return reinterpret_cast<void*>(number);
}

template <typename Number>
class ProfilerAbi : public ProfilerTest {
 protected:
  static constexpr int kVersion = Number::value;

  void open() {
    table_ = &this->template table<kVersion>(this->load());
    const Membership member{"comm", 0x1234567890abcdef, 2, 8, 3};
    ASSERT_EQ(callInit<kVersion>(*table_, &context_, &mask_, member, this->logger), 0);
    ASSERT_NE(context_, nullptr);
    EXPECT_EQ(static_cast<uint32_t>(mask_), profiler::typesOf(kVersion));
  }
  // One event, stopped at once. Returns its handle.
  void* one(DescriptorOf<kVersion>& descriptor) {
    void* handle = nullptr;
    EXPECT_EQ(table_->start(context_, &handle, &descriptor), 0);
    EXPECT_NE(handle, nullptr);
    EXPECT_EQ(table_->stop(handle), 0);
    return handle;
  }
  DescriptorOf<kVersion> make(Type type) { return describe<kVersion>(type, address(kParent), 3); }
  // The recording's only start of that type; checks what all starts have.
  template <typename T>
  T started(Type type, void* handle) {
    const auto found = contents_.of(format::Kind::kStart, static_cast<int>(type));
    EXPECT_EQ(found.size(), 1u) << profiler::nameOf(type);
    if (found.size() != 1) return T{};
    const auto start = found[0].start();
    EXPECT_EQ(start.id, reinterpret_cast<uint64_t>(handle));
    EXPECT_EQ(start.parent, kParent);
    EXPECT_EQ(start.rank, 3);
    EXPECT_EQ(start.record.context, 0u);
    EXPECT_GT(start.record.ticks, 0u);
    EXPECT_EQ(found[0].bytes.size(),
              kVersion == 1 && type == Type::kColl ? sizeof(format::CollV1) : sizeof(T));
    const auto stops = contents_.of(format::Kind::kStop, static_cast<int>(type));
    EXPECT_EQ(stops.size(), 1u);
    if (stops.size() == 1) {
      EXPECT_EQ(stops[0].template as<format::Stop>().id, start.id);
      EXPECT_GE(stops[0].record().ticks, start.record.ticks);
    }
    return found[0].template as<T>();
  }

  static constexpr uint64_t kParent = uint64_t{9} << 56 | 77;
  const TableOf<kVersion>* table_ = nullptr;
  void* context_ = nullptr;
  int mask_ = 0;
  RecordingFileContents contents_;
};

using AllVersions = ::testing::Types<std::integral_constant<int, 1>, std::integral_constant<int, 2>,
                                     std::integral_constant<int, 3>, std::integral_constant<int, 4>,
                                     std::integral_constant<int, 5>, std::integral_constant<int, 6>,
                                     std::integral_constant<int, 7>>;
TYPED_TEST_SUITE(ProfilerAbi, AllVersions);

template <int Abi, typename Coll>
void fillColl(Coll& coll) {
  if constexpr (Abi <= 3) {
    coll.name = "comm";
    coll.communicator = 0x1234567890abcdef;
  }
  coll.sequence = 41;
  coll.sendBuffer = address(0xa1);
  coll.receiveBuffer = address(0xa2);
  coll.count = 1ull << 33;
  coll.root = 5;
  coll.channels = 6;
  coll.warps = 7;
  if constexpr (Abi == 1) {
    coll.function = 3;
    coll.dataType = 9;
    coll.op = 2;
    coll.algorithm = 6;
    coll.protocol = 1;
    coll.isCollnet = 1;
    coll.isNvls = 2;
  } else {
    coll.function = "ReduceScatter";
    coll.dataType = "ncclBfloat16";
    coll.algorithm = "PAT";
    coll.protocol = "LL128";
  }
  if constexpr (Abi <= 2) coll.trafficBytes = 1ull << 34;
  if constexpr (Abi >= 5) coll.parentGroup = address(0xa3);
  if constexpr (Abi >= 7) {
    coll.kernelVariant = "AllGather_ST";
    coll.isSymmetric = 1;
    coll.userTag = 0xa4;
  }
}

TYPED_TEST(ProfilerAbi, CollHasEveryField) {
  constexpr int kAbi = TypeParam::value;
  this->open();
  auto d = this->make(Type::kColl);
  fillColl<kAbi>(d.coll);
  void* handle = this->one(d);
  this->contents_ = this->read();
  const auto r = this->template started<format::Coll>(Type::kColl, handle);
  EXPECT_EQ(r.sequence, 41u);
  EXPECT_EQ(r.count, 1ull << 33);
  EXPECT_EQ(r.sendBuffer, 0xa1u);
  EXPECT_EQ(r.receiveBuffer, 0xa2u);
  EXPECT_EQ(r.parentGroup, kAbi >= 5 ? 0xa3u : format::kNone64);
  EXPECT_EQ(r.userTag, kAbi >= 7 ? 0xa4u : format::kNone64);
  EXPECT_EQ(r.trafficBytes, kAbi <= 2 ? 1ull << 34 : format::kNone64);
  EXPECT_EQ(this->contents_.text(r.function), "ReduceScatter");
  EXPECT_EQ(this->contents_.text(r.dataType), "ncclBfloat16");
  EXPECT_EQ(this->contents_.text(r.algorithm), "PAT");
  EXPECT_EQ(this->contents_.text(r.protocol), "LL128");
  EXPECT_EQ(this->contents_.text(r.kernelVariant), kAbi >= 7 ? "AllGather_ST" : "");
  EXPECT_EQ(r.root, 5);
  EXPECT_EQ(r.channels, 6);
  EXPECT_EQ(r.warps, 7);
  EXPECT_EQ(r.isSymmetric, kAbi >= 7 ? 1 : 0xff);
  EXPECT_EQ(r.op, kAbi == 1 ? 2 : format::kNone32);
  if constexpr (kAbi == 1) {
    const auto v1 = this->contents_.of(format::Kind::kStart, 1)[0].template as<format::CollV1>();
    EXPECT_EQ(v1.isCollnet, 1u);
    EXPECT_EQ(v1.isNvls, 2u);
  }
}

TYPED_TEST(ProfilerAbi, P2pHasEveryField) {
  constexpr int kAbi = TypeParam::value;
  this->open();
  auto d = this->make(Type::kP2p);
  if constexpr (kAbi <= 3) d.p2p.name = "comm";
  if constexpr (kAbi == 1) {
    d.p2p.function = 7;
    d.p2p.dataType = 6;
  } else {
    d.p2p.function = "Recv";
    d.p2p.dataType = "ncclFloat16";
  }
  d.p2p.buffer = address(0xb1);
  d.p2p.count = 99;
  d.p2p.peer = 6;
  if constexpr (kAbi >= 4) d.p2p.channels = 4;
  if constexpr (kAbi >= 5) d.p2p.parentGroup = address(0xb2);
  if constexpr (kAbi >= 7) d.p2p.userTag = 0xb3;
  void* handle = this->one(d);
  this->contents_ = this->read();
  const auto r = this->template started<format::P2p>(Type::kP2p, handle);
  EXPECT_EQ(r.count, 99u);
  EXPECT_EQ(r.buffer, 0xb1u);
  EXPECT_EQ(r.parentGroup, kAbi >= 5 ? 0xb2u : format::kNone64);
  EXPECT_EQ(r.userTag, kAbi >= 7 ? 0xb3u : format::kNone64);
  EXPECT_EQ(this->contents_.text(r.function), "Recv");
  EXPECT_EQ(this->contents_.text(r.dataType), "ncclFloat16");
  EXPECT_EQ(r.peer, 6);
  EXPECT_EQ(r.channels, kAbi >= 4 ? 4 : format::kNone32);
}

TYPED_TEST(ProfilerAbi, ProxyEventsAndTheirStates) {
  constexpr int kAbi = TypeParam::value;
  this->open();
  auto group = this->make(Type::kGroup);
  void* groupHandle = this->one(group);
  auto op = this->make(Type::kProxyOp);
  op.proxyOp = {12, 3, 4, 5, 6, 1};
  void* opHandle = this->one(op);
  auto step = this->make(Type::kProxyStep);
  step.proxyStep.step = 17;
  void* stepHandle = this->one(step);
  auto control = this->make(Type::kProxyCtrl);
  void* controlHandle = this->one(control);

  ArgumentsOf<kAbi> arguments{};
  if constexpr (kAbi <= 3) {
    arguments.proxyOp = {4096, 8};
    this->table_->state(opHandle, 2, &arguments);
  } else {
    arguments.proxyStep.bytes = 4096;
    this->table_->state(stepHandle, profiler::kStepSendGpuWait, &arguments);
  }
  this->table_->state(opHandle, 19, nullptr);
  arguments = {};
  arguments.proxyCtrl.appended = 11;
  this->table_->state(controlHandle, profiler::kCtrlAppendEnd, &arguments);

  this->contents_ = this->read();
  this->template started<format::Start>(Type::kGroup, groupHandle);
  this->template started<format::Start>(Type::kProxyCtrl, controlHandle);
  EXPECT_EQ(this->template started<format::ProxyStep>(Type::kProxyStep, stepHandle).step, 17);
  const auto r = this->template started<format::ProxyOp>(Type::kProxyOp, opHandle);
  EXPECT_EQ(r.pid, 12);
  EXPECT_EQ(r.channel, 3u);
  EXPECT_EQ(r.peer, 4);
  EXPECT_EQ(r.steps, 5);
  EXPECT_EQ(r.chunkBytes, 6);
  EXPECT_EQ(r.isSend, 1u);

  const auto states = this->contents_.of(format::Kind::kState);
  ASSERT_EQ(states.size(), 3u);
  const auto moved = states[0].template as<format::State>();
  EXPECT_EQ(moved.id, reinterpret_cast<uint64_t>(kAbi <= 3 ? opHandle : stepHandle));
  EXPECT_EQ(moved.state, kAbi <= 3 ? 2u : 8u);
  EXPECT_EQ(moved.count, 1u);
  EXPECT_EQ(moved.argument, 4096u);
  EXPECT_EQ(moved.argument2, kAbi <= 3 ? 8u : format::kNone64);
  const auto bare = states[1].template as<format::State>();
  EXPECT_EQ(bare.state, 19u);
  EXPECT_EQ(bare.argument, format::kNone64);
  EXPECT_EQ(states[2].template as<format::State>().argument, 11u);
  EXPECT_EQ(this->contents_.header.unmatched, 0u);
}

TYPED_TEST(ProfilerAbi, KernelChannelsAndNetworkPlugins) {
  constexpr int kAbi = TypeParam::value;
  if constexpr (kAbi >= 3) {
    this->open();
    auto kernel = this->make(Type::kKernelCh);
    kernel.kernelCh.channel = 31;
    if constexpr (kAbi >= 4) kernel.kernelCh.gpuNs = 1ull << 60;
    void* kernelHandle = this->one(kernel);
    uint64_t data[5] = {1, 2, 3, 4, 5};
    auto net = this->make(Type::kNetPlugin);
    net.netPlugin = {1 << 16 | 1, data};
    void* netHandle = this->one(net);
    ArgumentsOf<kAbi> arguments{};
    if constexpr (kAbi >= 4) {
      arguments.kernelCh.gpuNs = 77;
      this->table_->state(kernelHandle, profiler::kKernelChStop, &arguments);
      arguments.netPlugin.data = reinterpret_cast<void*>(1);  // would fault
      this->table_->state(netHandle, profiler::kNetPluginUpdate, &arguments);
    }
    this->contents_ = this->read();
    const auto r = this->template started<format::KernelCh>(Type::kKernelCh, kernelHandle);
    EXPECT_EQ(r.channel, 31u);
    EXPECT_EQ(r.gpuNs, kAbi >= 4 ? 1ull << 60 : format::kNone64);
    const auto n = this->template started<format::NetPlugin>(Type::kNetPlugin, netHandle);
    EXPECT_EQ(n.plugin, 1 << 16 | 1);
    EXPECT_EQ(memcmp(n.data, data, sizeof n.data), 0);
    if constexpr (kAbi >= 4) {
      const auto states = this->contents_.of(format::Kind::kState);
      ASSERT_EQ(states.size(), 2u);
      EXPECT_EQ(states[0].template as<format::State>().argument, 77u);
      EXPECT_EQ(states[1].template as<format::State>().state, uint32_t{profiler::kNetPluginUpdate});
      EXPECT_EQ(states[1].template as<format::State>().argument, format::kNone64);
    }
  }
}

TYPED_TEST(ProfilerAbi, ApiCallsAndLaunches) {
  constexpr int kAbi = TypeParam::value;
  if constexpr (kAbi >= 5) {
    this->open();
    auto g = this->make(Type::kGroupApi);
    g.groupApi = {true, 3};
    void* group = this->one(g);
    auto c = this->make(Type::kCollApi);
    c.collApi = {"Broadcast", 123, "ncclInt64", 2, address(0xc1), true, 0xc2};
    void* coll = this->one(c);
    auto p = this->make(Type::kP2pApi);
    p.p2pApi = {"Send", 124, "ncclUint8", address(0xc3), false, 0xc4};
    void* p2p = this->one(p);
    auto k = this->make(Type::kKernelLaunch);
    k.kernelLaunch.stream = address(0xc5);
    void* launch = this->one(k);
    // Newer versions of NCCL hand over a structure that nobody filled.
    ArgumentsOf<kAbi> garbage;
    memset(&garbage, 0xcd, sizeof garbage);
    this->table_->state(group, profiler::kGroupStartApiStop, &garbage);
    this->contents_ = this->read();
    const auto rg = this->template started<format::GroupApi>(Type::kGroupApi, group);
    EXPECT_EQ(rg.depth, 3);
    EXPECT_EQ(rg.graphCaptured, 1u);
    const auto rc = this->template started<format::CollApi>(Type::kCollApi, coll);
    EXPECT_EQ(rc.count, 123u);
    EXPECT_EQ(rc.stream, 0xc1u);
    EXPECT_EQ(rc.userTag, kAbi >= 7 ? 0xc2u : format::kNone64);
    EXPECT_EQ(this->contents_.text(rc.function), "Broadcast");
    EXPECT_EQ(this->contents_.text(rc.dataType), "ncclInt64");
    EXPECT_EQ(rc.root, 2);
    EXPECT_EQ(rc.graphCaptured, 1u);
    const auto rp = this->template started<format::P2pApi>(Type::kP2pApi, p2p);
    EXPECT_EQ(rp.count, 124u);
    EXPECT_EQ(rp.stream, 0xc3u);
    EXPECT_EQ(rp.userTag, kAbi >= 7 ? 0xc4u : format::kNone64);
    EXPECT_EQ(this->contents_.text(rp.function), "Send");
    EXPECT_EQ(this->contents_.text(rp.dataType), "ncclUint8");
    EXPECT_EQ(rp.graphCaptured, 0u);
    EXPECT_EQ(this->template started<format::KernelLaunch>(Type::kKernelLaunch, launch).stream, 0xc5u);
    const auto states = this->contents_.of(format::Kind::kState);
    ASSERT_EQ(states.size(), 1u);
    EXPECT_EQ(states[0].template as<format::State>().state, 23u);
    EXPECT_EQ(states[0].template as<format::State>().argument, format::kNone64);
  }
}

TYPED_TEST(ProfilerAbi, CopyEnginesAndPhases) {
  constexpr int kAbi = TypeParam::value;
  if constexpr (kAbi >= 6) {
    this->open();
    auto c = this->make(Type::kCeColl);
    c.ceColl = {1,    "AllGather", address(2), address(3), 4, 5,          "ncclInt8",
                "MC", true,        6,          7,          8, address(9), 10};
    void* coll = this->one(c);
    auto s = this->make(Type::kCeSync);
    s.ceSync = {true, 8};
    void* sync = this->one(s);
    auto b = this->make(Type::kCeBatch);
    b.ceBatch = {3, 1ull << 32, true};
    void* batch = this->one(b);
    auto p = this->make(Type::kKernelPhase);
    p.kernelPhase = {4, 2, "compute", 1ull << 50};
    void* phase = this->one(p);
    ArgumentsOf<kAbi> arguments{};
    arguments.kernelCh.gpuNs = 78;
    this->table_->state(phase, profiler::kKernelPhaseStop, &arguments);
    this->contents_ = this->read();
    const auto rc = this->template started<format::CeColl>(Type::kCeColl, coll);
    EXPECT_EQ(rc.sequence, 1u);
    EXPECT_EQ(this->contents_.text(rc.function), "AllGather");
    EXPECT_EQ(rc.sendBuffer, 2u);
    EXPECT_EQ(rc.receiveBuffer, 3u);
    EXPECT_EQ(rc.count, 4u);
    EXPECT_EQ(rc.root, 5);
    EXPECT_EQ(this->contents_.text(rc.dataType), "ncclInt8");
    EXPECT_EQ(this->contents_.text(rc.syncStrategy), "MC");
    EXPECT_EQ(rc.intraBatchSync, 1u);
    EXPECT_EQ(rc.batchSize, 6u);
    EXPECT_EQ(rc.batches, 7u);
    EXPECT_EQ(rc.ceSequence, 8u);
    EXPECT_EQ(rc.stream, 9u);
    EXPECT_EQ(rc.userTag, kAbi >= 7 ? 10u : format::kNone64);
    const auto rs = this->template started<format::CeSync>(Type::kCeSync, sync);
    EXPECT_EQ(rs.isComplete, 1u);
    EXPECT_EQ(rs.ranks, 8);
    const auto rb = this->template started<format::CeBatch>(Type::kCeBatch, batch);
    EXPECT_EQ(rb.operations, 3u);
    EXPECT_EQ(rb.bytes, 1ull << 32);
    EXPECT_EQ(rb.useIntraSync, 1u);
    const auto type = Type::kKernelPhase;
    if constexpr (kAbi >= 7) {
      const auto rp = this->template started<format::KernelPhase>(type, phase);
      EXPECT_EQ(rp.channel, 4u);
      EXPECT_EQ(rp.phase, 2u);
      EXPECT_EQ(this->contents_.text(rp.phaseName), "compute");
      EXPECT_EQ(rp.gpuNs, 1ull << 50);
    } else {
      // v6 has no such type: what its descriptor holds is not to be read.
      EXPECT_EQ(this->template started<format::Unknown>(type, phase).type, 1u << 15);
    }
  }
}

TYPED_TEST(ProfilerAbi, ContextSaysWhatInitOrTheFirstOperationSaid) {
  constexpr int kAbi = TypeParam::value;
  this->open();
  auto d = this->make(Type::kColl);
  fillColl<kAbi>(d.coll);
  this->one(d);
  EXPECT_EQ(this->table_->finalize(this->context_), 0);
  const auto contents = this->read();
  ASSERT_EQ(contents.contexts.size(), 1u);
  const auto& context = contents.contexts.at(0);
  EXPECT_EQ(context.rank, 3);
  EXPECT_EQ(context.ranks, kAbi >= 4 ? 8 : -1);
  EXPECT_EQ(context.nodes, kAbi >= 4 ? 2 : -1);
  EXPECT_EQ(context.communicator, 0x1234567890abcdefu);
  EXPECT_EQ(contents.text(context.name), "comm");
  EXPECT_EQ(context.abi, static_cast<uint32_t>(kAbi));
  EXPECT_EQ(contents.header.abi, static_cast<uint32_t>(kAbi));
  EXPECT_EQ(contents.header.mask, 0xffffu);
  EXPECT_EQ(contents.header.state, 1);
  EXPECT_EQ(contents.header.dropped, 0u);
  ASSERT_EQ(contents.of(format::Kind::kInit).size(), 1u);
  EXPECT_EQ(contents.of(format::Kind::kInit)[0].record().context, 0u);
  ASSERT_EQ(contents.of(format::Kind::kFinalize).size(), 1u);
  EXPECT_EQ(contents.of(format::Kind::kFinalize)[0].record().context, 0u);
  EXPECT_GE(contents.anchors.size(), 1u);
}

// The whole order of calls of an all-reduce, on two threads.
TYPED_TEST(ProfilerAbi, EveryCallOfAnAllReduceIsThere) {
  constexpr int kAbi = TypeParam::value;
  const auto& table = this->template table<kAbi>(this->load());
  uint64_t starts = 0;
  {
    Rank<kAbi> rank(table, {"canned", 1, 1, 4, 2});
    for (uint64_t i = 0; i < 10; ++i) {
      void* coll = rank.submit(i, 16, [] {});
      rank.progress(coll, 2, 3, [] {});
    }
    starts = rank.starts();
  }
  const auto contents = this->read();
  EXPECT_EQ(contents.of(format::Kind::kStart).size(), starts);
  EXPECT_EQ(contents.of(format::Kind::kStop).size(), starts);
  EXPECT_EQ(contents.of(format::Kind::kStart, 1).size(), 10u);
  EXPECT_EQ(contents.of(format::Kind::kStart, 3).size(), 20u);
  EXPECT_EQ(contents.of(format::Kind::kStart, 4).size(), 60u);
  EXPECT_EQ(contents.header.unmatched, 0u);
  EXPECT_EQ(contents.header.dropped, 0u);
  for (const auto& step : contents.of(format::Kind::kStart, 4)) {
    EXPECT_EQ(step.start().parent >> 56, 4u);  // a proxy operation
  }
}

// The host and the plugin share their declarations of versions 5 to 7, so that neither checks the other. Here
// a caller knows nothing but NCCL's offsets in bytes.
class Bytes {
 public:
  explicit Bytes(uint64_t type) {
    put(0, type);
    put<uint64_t>(8, 0x900000000000004d);
    put<int32_t>(16, 3);
  }
  template <typename T>
  Bytes& put(size_t offset, T value) {
    memcpy(bytes_ + offset, &value, sizeof value);
    return *this;
  }
  // Starts the event through the third word of a table, and stops it through the fourth.
  void tell(const void* const* table, void* context) const {
    void* handle = nullptr;
    const auto start = reinterpret_cast<int (*)(void*, void**, const void*)>(const_cast<void*>(table[2]));
    EXPECT_EQ(start(context, &handle, bytes_), 0);
    EXPECT_EQ(reinterpret_cast<int (*)(void*)>(const_cast<void*>(table[3]))(handle), 0);
  }

 private:
  alignas(8) char bytes_[136] = {};
};

// One event of each type that Stretto's host starts, each field with a number of its own.
void tellEachType(const void* const* table, void* context) {
  const char* const name = "Function";
  const char* const type = "ncclType";
  Bytes(1 << 8).put<bool>(24, true).put<int32_t>(28, 2).tell(table, context);
  Bytes(1 << 9)
      .put(24, name)
      .put<uint64_t>(32, 11)
      .put(40, type)
      .put<int32_t>(48, 1)
      .put<uint64_t>(56, 12)
      .put<bool>(64, true)
      .put<uint64_t>(72, 13)
      .tell(table, context);
  Bytes(1 << 10)
      .put(24, name)
      .put<uint64_t>(32, 21)
      .put(40, type)
      .put<uint64_t>(48, 22)
      .put<bool>(56, true)
      .put<uint64_t>(64, 23)
      .tell(table, context);
  Bytes(1 << 11).put<uint64_t>(24, 31).tell(table, context);
  Bytes(1 << 1)
      .put<uint64_t>(24, 41)
      .put(32, name)
      .put<uint64_t>(40, 42)
      .put<uint64_t>(48, 43)
      .put<uint64_t>(56, 44)
      .put<int32_t>(64, 45)
      .put(72, type)
      .put<uint8_t>(80, 46)
      .put<uint8_t>(81, 47)
      .put(88, "ALGO")
      .put(96, "PROTO")
      .put<uint64_t>(104, 48)
      .put(112, "VARIANT")
      .put<uint8_t>(120, 1)
      .put<uint64_t>(128, 49)
      .tell(table, context);
  Bytes(1 << 2)
      .put(24, name)
      .put<uint64_t>(32, 51)
      .put(40, type)
      .put<uint64_t>(48, 52)
      .put<int32_t>(56, 53)
      .put<uint8_t>(60, 54)
      .put<uint64_t>(64, 55)
      .put<uint64_t>(72, 56)
      .tell(table, context);
  Bytes(1 << 6).put<uint8_t>(24, 61).put<uint64_t>(32, 62).tell(table, context);
}

TEST_F(ProfilerTest, OffsetsAreNccls) {
  const auto* const table = static_cast<const void* const*>(dlsym(load(), "ncclProfiler_v7"));
  ASSERT_NE(table, nullptr);
  void* context = nullptr;
  int mask = 0;
  const auto open = reinterpret_cast<int (*)(void**, uint64_t, int*, const char*, int, int, int, void*)>(
      const_cast<void*>(table[1]));
  ASSERT_EQ(open(&context, 5, &mask, "bytes", 1, 4, 3, nullptr), 0);
  tellEachType(table, context);
  const auto all = read();
  const auto only = [&](Type of) { return all.of(format::Kind::kStart, static_cast<int>(of)).at(0); };
  EXPECT_EQ(only(Type::kGroupApi).start().parent, 0x900000000000004du);
  EXPECT_EQ(only(Type::kGroupApi).start().rank, 3);
  EXPECT_EQ(only(Type::kGroupApi).as<format::GroupApi>().graphCaptured, 1u);
  EXPECT_EQ(only(Type::kGroupApi).as<format::GroupApi>().depth, 2);
  const auto collApi = only(Type::kCollApi).as<format::CollApi>();
  EXPECT_EQ(all.text(collApi.function) + all.text(collApi.dataType), "FunctionncclType");
  EXPECT_EQ((std::array{collApi.count, collApi.stream, collApi.userTag}),
            (std::array<uint64_t, 3>{11, 12, 13}));
  EXPECT_EQ(collApi.root, 1);
  EXPECT_EQ(collApi.graphCaptured, 1u);
  const auto p2pApi = only(Type::kP2pApi).as<format::P2pApi>();
  EXPECT_EQ((std::array{p2pApi.count, p2pApi.stream, p2pApi.userTag}), (std::array<uint64_t, 3>{21, 22, 23}));
  EXPECT_EQ(p2pApi.graphCaptured, 1u);
  EXPECT_EQ(only(Type::kKernelLaunch).as<format::KernelLaunch>().stream, 31u);
  const auto coll = only(Type::kColl).as<format::Coll>();
  EXPECT_EQ((std::array{coll.sequence, coll.sendBuffer, coll.receiveBuffer, coll.count, coll.parentGroup,
                        coll.userTag}),
            (std::array<uint64_t, 6>{41, 42, 43, 44, 48, 49}));
  EXPECT_EQ(coll.root, 45);
  EXPECT_EQ(coll.channels, 46);
  EXPECT_EQ(coll.warps, 47);
  EXPECT_EQ(coll.isSymmetric, 1);
  EXPECT_EQ(all.text(coll.algorithm) + all.text(coll.protocol) + all.text(coll.kernelVariant),
            "ALGOPROTOVARIANT");
  const auto p2p = only(Type::kP2p).as<format::P2p>();
  EXPECT_EQ((std::array{p2p.buffer, p2p.count, p2p.parentGroup, p2p.userTag}),
            (std::array<uint64_t, 4>{51, 52, 55, 56}));
  EXPECT_EQ(p2p.peer, 53);
  EXPECT_EQ(p2p.channels, 54u);
  EXPECT_EQ(only(Type::kKernelCh).as<format::KernelCh>().channel, 61u);
  EXPECT_EQ(only(Type::kKernelCh).as<format::KernelCh>().gpuNs, 62u);
}

}  // namespace
}  // namespace stretto::testing
