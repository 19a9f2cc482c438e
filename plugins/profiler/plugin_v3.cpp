// ncclProfiler_v2 and _v3: NCCL 2.24 to 2.26. They differ in the layout of Coll and in two types that v3
// brought.
#include "profiler/plugin_v3.hpp"

namespace stretto::profiler {
namespace {

template <typename Descriptor>
constexpr int kAbi = std::is_same_v<Descriptor, DescriptorV2> ? 2 : 3;

template <typename Descriptor>
bool appendColl(ThreadWriter& w, const ThreadWriter::Head& head, const Descriptor& d) {
  learnContext(w, head, d.coll, kAbi<Descriptor>);
  return w.start<format::Coll>(head, [&](format::Coll& r) {
    r.sequence = d.coll.sequence;
    r.count = d.coll.count;
    r.sendBuffer = asNumber(d.coll.sendBuffer);
    r.receiveBuffer = asNumber(d.coll.receiveBuffer);
    r.parentGroup = format::kNone64;
    r.userTag = format::kNone64;
    r.trafficBytes = format::kNone64;
    if constexpr (kAbi<Descriptor> == 2) r.trafficBytes = d.coll.trafficBytes;
    r.function = w.string(d.coll.function);
    r.dataType = w.string(d.coll.dataType);
    r.algorithm = w.string(d.coll.algorithm);
    r.protocol = w.string(d.coll.protocol);
    r.kernelVariant = 0;
    r.root = d.coll.root;
    r.channels = d.coll.channels;
    r.warps = d.coll.warps;
    r.isSymmetric = 0xff;
    r.op = format::kNone32;
  });
}

template <typename Descriptor>
bool appendP2p(ThreadWriter& w, const ThreadWriter::Head& head, const Descriptor& d) {
  learnContext(w, head, d.p2p, kAbi<Descriptor>);
  return w.start<format::P2p>(head, [&](format::P2p& r) {
    r.count = d.p2p.count;
    r.buffer = asNumber(d.p2p.buffer);
    r.parentGroup = format::kNone64;
    r.userTag = format::kNone64;
    r.function = w.string(d.p2p.function);
    r.dataType = w.string(d.p2p.dataType);
    r.peer = d.p2p.peer;
    r.channels = format::kNone32;
  });
}

template <typename Descriptor>
bool append(ThreadWriter& w, const ThreadWriter::Head& head, const Descriptor& d) {
  switch (head.type) {
    case Type::kGroup:
    case Type::kProxyCtrl:
      return appendBare(w, head);
    case Type::kColl:
      return appendColl(w, head, d);
    case Type::kP2p:
      return appendP2p(w, head, d);
    case Type::kProxyOp:
      return appendProxyOp(w, head, d.proxyOp);
    case Type::kProxyStep:
      return appendProxyStep(w, head, d.proxyStep.step);
    default:
      break;
  }
  if constexpr (kAbi<Descriptor> == 3) {
    if (head.type == Type::kKernelCh) return appendKernelCh(w, head, d.kernelCh.channel, format::kNone64);
    if (head.type == Type::kNetPlugin) return appendNetPlugin(w, head, d.netPlugin.id, d.netPlugin.data);
  }
  return appendUnknown(w, head, d.type);
}

template <int Abi>
int init(void** context, int* mask) {
  initContext(context, mask, {.abi = Abi}, nullptr, __builtin_return_address(0));
  return kSuccess;
}
template <typename Descriptor>
int start(void* context, void** handle, Descriptor* descriptor) {
  return startEvent<kAbi<Descriptor>>(context, handle, descriptor, append<Descriptor>);
}
constexpr TableV2 kTableV2 = {kName, init<2>, start<DescriptorV2>, stopEvent, stateOfV1, finalize};
constexpr TableV3 kTableV3 = {kName, init<3>, start<DescriptorV3>, stopEvent, stateOfV1, finalize};

}  // namespace
}  // namespace stretto::profiler

STRETTO_PROFILER_EXPORT stretto::profiler::TableV2 ncclProfiler_v2 = stretto::profiler::kTableV2;
STRETTO_PROFILER_EXPORT stretto::profiler::TableV3 ncclProfiler_v3 = stretto::profiler::kTableV3;
