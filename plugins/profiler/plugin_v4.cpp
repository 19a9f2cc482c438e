// ncclProfiler_v4: NCCL 2.27.
#include "profiler/plugin_v4.hpp"

namespace stretto::profiler {
namespace {

bool appendColl(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV4& d) {
  return w.start<format::Coll>(head, [&](format::Coll& r) {
    r.sequence = d.coll.sequence;
    r.count = d.coll.count;
    r.sendBuffer = asNumber(d.coll.sendBuffer);
    r.receiveBuffer = asNumber(d.coll.receiveBuffer);
    r.parentGroup = format::kNone64;
    r.userTag = format::kNone64;
    r.trafficBytes = format::kNone64;
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

bool appendP2p(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV4& d) {
  return w.start<format::P2p>(head, [&](format::P2p& r) {
    r.count = d.p2p.count;
    r.buffer = asNumber(d.p2p.buffer);
    r.parentGroup = format::kNone64;
    r.userTag = format::kNone64;
    r.function = w.string(d.p2p.function);
    r.dataType = w.string(d.p2p.dataType);
    r.peer = d.p2p.peer;
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
  return startEvent<4>(context, handle, descriptor, append);
}
constexpr TableV4 kTable = {kName, ncclInit, start, stopEvent, stateOfV4, finalize};

}  // namespace
}  // namespace stretto::profiler

STRETTO_PROFILER_EXPORT stretto::profiler::TableV4 ncclProfiler_v4 = stretto::profiler::kTable;
