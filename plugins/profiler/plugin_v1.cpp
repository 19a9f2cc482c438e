// ncclProfiler_v1: NCCL 2.23. Functions, types, algorithms and protocols come as numbers.
#include "profiler/abi_v1.hpp"
#include "profiler/callbacks.hpp"
#include "profiler/plugin_v3.hpp"

namespace stretto::profiler {
namespace {

constexpr const char* kFunctions[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                      "AllReduce", "SendRecv", "Send",      "Recv"};
constexpr const char* kDataTypes[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                      "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                      "ncclFloat64", "ncclBfloat16"};
constexpr const char* kAlgorithms[] = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                       "NVLS_TREE", "PAT"};
constexpr const char* kProtocols[] = {"LL", "LL128", "SIMPLE"};

template <size_t N>
const char* nameOf(const char* const (&names)[N], unsigned number) {
  return number < N ? names[number] : "unknown";
}

bool appendColl(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV1& d) {
  learnContext(w, head, d.coll, 1);
  return w.start<format::CollV1>(head, [&](format::CollV1& r) {
    fillColl(
        r.coll, d.coll,
        {w.string(nameOf(kFunctions, d.coll.function)), w.string(nameOf(kDataTypes, d.coll.dataType)),
         w.string(nameOf(kAlgorithms, d.coll.algorithm)), w.string(nameOf(kProtocols, d.coll.protocol))});
    r.coll.trafficBytes = d.coll.trafficBytes;
    r.coll.op = d.coll.op;
    r.isCollnet = static_cast<uint32_t>(d.coll.isCollnet);
    r.isNvls = static_cast<uint32_t>(d.coll.isNvls);
  });
}

bool appendP2p(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV1& d) {
  learnContext(w, head, d.p2p, 1);
  return w.start<format::P2p>(head, [&](format::P2p& r) {
    fillP2p(r, d.p2p, w.string(nameOf(kFunctions, d.p2p.function)),
            w.string(nameOf(kDataTypes, d.p2p.dataType)));
  });
}

bool append(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV1& d) {
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
      return appendUnknown(w, head, d.type);
  }
}

int init(void** context, int* mask) {
  initContext(context, mask, {.abi = 1}, nullptr, __builtin_return_address(0));
  return kSuccess;
}
int start(void* context, void** handle, DescriptorV1* descriptor) {
  return startEvent<1>(context, handle, descriptor, 0, append);
}
constexpr TableV1 kTable = {kName, init, start, stopEvent, stateOfV1, finalize};

}  // namespace
}  // namespace stretto::profiler

STRETTO_PROFILER_EXPORT stretto::profiler::TableV1 ncclProfiler_v1 = stretto::profiler::kTable;
