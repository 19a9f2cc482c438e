// ncclProfiler_v5, _v6 and _v7: NCCL 2.28 and later. One decoder; what a version lacks is not read. And
// strettoProfiler_v2: v7 with the caller's stamps, of all operations or of a sample of them.
#include "profiler/abi_v4.hpp"
#include "profiler/plugin_v4.hpp"

namespace stretto::profiler {
namespace {

template <int Abi>
uint64_t tagOf(const uint64_t& userTag) {
  return Abi >= 7 ? userTag : format::kNone64;
}

template <int Abi>
bool appendColl(ThreadWriter& w, const ThreadWriter::Head& head, const CollV5& d) {
  return w.start<format::Coll>(head, [&](format::Coll& r) {
    fillColl(r, d, collTexts(w, d));
    r.parentGroup = asNumber(d.parentGroup);
    r.userTag = tagOf<Abi>(d.userTag);
    if constexpr (Abi >= 7) {
      r.kernelVariant = w.string(d.kernelVariant);
      r.isSymmetric = d.isSymmetric;
    }
  });
}

template <int Abi>
bool appendP2p(ThreadWriter& w, const ThreadWriter::Head& head, const P2pV5& d) {
  return w.start<format::P2p>(head, [&](format::P2p& r) {
    fillP2p(r, d, w.string(d.function), w.string(d.dataType));
    r.parentGroup = asNumber(d.parentGroup);
    r.userTag = tagOf<Abi>(d.userTag);
    r.channels = d.channels;
  });
}

template <int Abi>
bool appendCollApi(ThreadWriter& w, const ThreadWriter::Head& head, const CollApiV5& d) {
  return w.start<format::CollApi>(head, [&](format::CollApi& r) {
    r.count = d.count;
    r.stream = asNumber(d.stream);
    r.userTag = tagOf<Abi>(d.userTag);
    r.function = w.string(d.function);
    r.dataType = w.string(d.dataType);
    r.root = d.root;
    r.graphCaptured = d.graphCaptured;
  });
}

template <int Abi>
bool appendP2pApi(ThreadWriter& w, const ThreadWriter::Head& head, const P2pApiV5& d) {
  return w.start<format::P2pApi>(head, [&](format::P2pApi& r) {
    r.count = d.count;
    r.stream = asNumber(d.stream);
    r.userTag = tagOf<Abi>(d.userTag);
    r.function = w.string(d.function);
    r.dataType = w.string(d.dataType);
    r.graphCaptured = d.graphCaptured;
    r.zero = 0;
  });
}

// The events of copy-engine collectives (v6) and of a kernel's phases (v7).
template <int Abi>
bool appendCeColl(ThreadWriter& w, const ThreadWriter::Head& head, const CeCollV6& d) {
  return w.start<format::CeColl>(head, [&](format::CeColl& r) {
    r.sequence = d.sequence;
    r.count = d.count;
    r.sendBuffer = asNumber(d.sendBuffer);
    r.receiveBuffer = asNumber(d.receiveBuffer);
    r.stream = asNumber(d.stream);
    r.userTag = tagOf<Abi>(d.userTag);
    r.ceSequence = d.ceSequence;
    r.function = w.string(d.function);
    r.dataType = w.string(d.dataType);
    r.root = d.root;
    r.syncStrategy = w.string(d.syncStrategy);
    r.intraBatchSync = d.intraBatchSync;
    r.batchSize = d.batchSize;
    r.batches = d.batches;
    r.zero = 0;
  });
}

template <int Abi>
bool appendLater(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV7& d) {
  if (Abi >= 6 && head.type == Type::kCeColl) return appendCeColl<Abi>(w, head, d.ceColl);
  if (Abi >= 6 && head.type == Type::kCeSync) {
    return w.start<format::CeSync>(head, [&](format::CeSync& r) {
      r.isComplete = d.ceSync.isComplete;
      r.ranks = d.ceSync.ranks;
    });
  }
  if (Abi >= 6 && head.type == Type::kCeBatch) {
    return w.start<format::CeBatch>(head, [&](format::CeBatch& r) {
      r.operations = static_cast<uint64_t>(d.ceBatch.operations);
      r.bytes = d.ceBatch.bytes;
      r.useIntraSync = d.ceBatch.useIntraSync;
    });
  }
  if (Abi >= 7 && head.type == Type::kKernelPhase) {
    return w.start<format::KernelPhase>(head, [&](format::KernelPhase& r) {
      r.channel = d.kernelPhase.channel;
      r.phase = d.kernelPhase.phase;
      r.phaseName = w.string(d.kernelPhase.phaseName);
      r.zero = 0;
      r.gpuNs = d.kernelPhase.gpuNs;
    });
  }
  return appendUnknown(w, head, d.type);
}

template <int Abi>
bool append(ThreadWriter& w, const ThreadWriter::Head& head, const DescriptorV7& d) {
  switch (head.type) {
    case Type::kGroup:
    case Type::kProxyCtrl:
      return appendBare(w, head);
    case Type::kColl:
      return appendColl<Abi>(w, head, d.coll);
    case Type::kP2p:
      return appendP2p<Abi>(w, head, d.p2p);
    case Type::kProxyOp:
      return appendProxyOp(w, head, d.proxyOp);
    case Type::kProxyStep:
      return appendProxyStep(w, head, d.proxyStep.step);
    case Type::kKernelCh:
      return appendKernelCh(w, head, d.kernelCh.channel, d.kernelCh.gpuNs);
    case Type::kNetPlugin:
      return appendNetPlugin(w, head, d.netPlugin.id, d.netPlugin.data);
    case Type::kGroupApi:
      return w.start<format::GroupApi>(head, [&](format::GroupApi& r) {
        r.depth = d.groupApi.depth;
        r.graphCaptured = d.groupApi.graphCaptured;
      });
    case Type::kCollApi:
      return appendCollApi<Abi>(w, head, d.collApi);
    case Type::kP2pApi:
      return appendP2pApi<Abi>(w, head, d.p2pApi);
    case Type::kKernelLaunch:
      return w.start<format::KernelLaunch>(
          head, [&](format::KernelLaunch& r) { r.stream = asNumber(d.kernelLaunch.stream); });
    default:
      return appendLater<Abi>(w, head, d);
  }
}

template <int Abi>
int ncclInit(void** context, uint64_t communicator, int* mask, const char* name, int nodes, int ranks,
             int rank, Logger logger) {
  const ContextFacts facts{name, communicator, rank, ranks, nodes, Abi};
  initContext(context, mask, facts, logger, __builtin_return_address(0));
  return kSuccess;
}
template <int Abi>
int startAt(void* context, void** handle, DescriptorV7* descriptor, uint64_t ticks) {
  return startEvent<Abi>(context, handle, descriptor, ticks, append<Abi>);
}
template <int Abi>
int start(void* context, void** handle, DescriptorV7* descriptor) {
  return startAt<Abi>(context, handle, descriptor, 0);
}
int sample(void* context, uint64_t every) {
  sampleContext(context, every);
  return kSuccess;
}
template <int Abi>
constexpr TableV5 kTable = {kName, ncclInit<Abi>, start<Abi>, stopEvent, stateOfV4, finalize};

}  // namespace
}  // namespace stretto::profiler

STRETTO_PROFILER_EXPORT stretto::profiler::TableV5 ncclProfiler_v5 = stretto::profiler::kTable<5>;
STRETTO_PROFILER_EXPORT stretto::profiler::TableV5 ncclProfiler_v6 = stretto::profiler::kTable<6>;
STRETTO_PROFILER_EXPORT stretto::profiler::TableV5 ncclProfiler_v7 = stretto::profiler::kTable<7>;
STRETTO_PROFILER_EXPORT stretto::profiler::StampedTable strettoProfiler_v2 = {
    stretto::profiler::startAt<7>, stretto::profiler::stopEventAt, stretto::profiler::stateOfV4At,
    stretto::profiler::sample};
