// ncclProfiler_v4: NCCL 2.27.
#include "profiler/plugin_v4.hpp"

namespace stretto::profiler {
namespace {

bool appendColl(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV4& d) {
  return w.start<format::Coll>(head, [&](format::Coll& r) { fillColl(r, d.coll, collTexts(w, d.coll)); });
}

bool appendP2p(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV4& d) {
  return w.start<format::P2p>(head, [&](format::P2p& r) {
    fillP2p(r, d.p2p, w.string(d.p2p.function), w.string(d.p2p.dataType));
    r.channels = d.p2p.channels;
  });
}

bool append(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV4& d) {
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
    case Type::kKernelCh:
      return appendKernelCh(w, head, d.kernelCh.channel, d.kernelCh.gpuNs);
    case Type::kNetPlugin:
      return appendNetPlugin(w, head, d.netPlugin.id, d.netPlugin.data);
    default:
      return appendUnknown(w, head, d.type);
  }
}

int ncclInit(void** context, int* mask, const char* name, uint64_t communicator, int nodes, int ranks,
             int rank, Logger logger) {
  const ContextFacts facts{name, communicator, rank, ranks, nodes, 4};
  initContext(context, mask, facts, logger, __builtin_return_address(0));
  return kSuccess;
}
int start(void* context, void** handle, DescriptorV4* descriptor) {
  return startEvent<4>(context, handle, descriptor, 0, append);
}
constexpr TableV4 kTable = {kName, ncclInit, start, stopEvent, stateOfV4, finalize};

}  // namespace
}  // namespace stretto::profiler

STRETTO_PROFILER_EXPORT stretto::profiler::TableV4 ncclProfiler_v4 = stretto::profiler::kTable;
