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
    fillColl(r, d.coll, collTexts(w, d.coll));
    if constexpr (kAbi<Descriptor> == 2) r.trafficBytes = d.coll.trafficBytes;
  });
}

template <typename Descriptor>
bool appendP2p(ThreadWriter& w, const ThreadWriter::Head& head, const Descriptor& d) {
  learnContext(w, head, d.p2p, kAbi<Descriptor>);
  return w.start<format::P2p>(
      head, [&](format::P2p& r) { fillP2p(r, d.p2p, w.string(d.p2p.function), w.string(d.p2p.dataType)); });
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
  return startEvent<kAbi<Descriptor>>(context, handle, descriptor, 0, append<Descriptor>);
}
constexpr TableV2 kTableV2 = {kName, init<2>, start<DescriptorV2>, stopEvent, stateOfV1, finalize};
constexpr TableV3 kTableV3 = {kName, init<3>, start<DescriptorV3>, stopEvent, stateOfV1, finalize};

}  // namespace
}  // namespace stretto::profiler

STRETTO_PROFILER_EXPORT stretto::profiler::TableV2 ncclProfiler_v2 = stretto::profiler::kTableV2;
STRETTO_PROFILER_EXPORT stretto::profiler::TableV3 ncclProfiler_v3 = stretto::profiler::kTableV3;
