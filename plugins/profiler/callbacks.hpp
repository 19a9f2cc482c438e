// What the ABI families (plugin_v*.cpp) share: the callbacks that see no descriptor, and the frame around
// those that do. A callback always succeeds: NCCL ignores what it returns, or ends the job over it.
#pragma once

#include <cstring>
#include <type_traits>

#include "profiler/abi_v4.hpp"
#include "profiler/extras.hpp"
#include "profiler/process.hpp"

namespace stretto::profiler {

inline constexpr char kName[] = "Stretto";

inline uint64_t asNumber(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// The bit number of a type that NCCL names by its bit.
inline Type typeOfBit(uint64_t bit) {
  const bool known = bit != 0 && (bit & (bit - 1)) == 0 && bit < (uint64_t{1} << kTypes);
  return known ? static_cast<Type>(__builtin_ctzll(bit)) : Type::kUnknown;
}

// What a range around the event is called. From v2 on functions are text; what has none is called by its
// type.
template <typename Descriptor>
const char* labelOf(Type type, const Descriptor& descriptor) {
  const char* function = nullptr;
  if constexpr (requires { descriptor.collApi; }) {
    if (type == Type::kCollApi) function = descriptor.collApi.function;
    if (type == Type::kP2pApi) function = descriptor.p2pApi.function;
  }
  if constexpr (std::is_pointer_v<decltype(descriptor.coll.function)>) {
    if (type == Type::kColl) function = descriptor.coll.function;
    if (type == Type::kP2p) function = descriptor.p2p.function;
  }
  return function != nullptr ? function : nameOf(type);
}

template <typename Descriptor>
[[gnu::cold, gnu::noinline]] void startExtras(uint8_t which, int abi, const ThreadWriter::Head& head,
                                              const Descriptor& descriptor) {
  const size_t bytes = abi >= 5 ? bytesOfDescriptor(abi) : sizeof(Descriptor);
  extras::start(which,
                {abi, head.type, head.id, head.context, &descriptor, bytes, labelOf(head.type, descriptor)});
}

// `ticks` is when the caller says that it happened; 0: now. `append(writer, head, descriptor)` writes the
// record that belongs to the descriptor's type.
template <int Abi, typename Descriptor, typename Append>
int startEvent(void* context, void** handle, const Descriptor* descriptor, uint64_t ticks, Append&& append) {
  if (handle == nullptr) return kSuccess;
  *handle = nullptr;
  ThreadWriter* writer = ThreadWriter::ofThisThread();
  if (writer == nullptr || descriptor == nullptr) return kSuccess;
  const uint64_t now = writer->begin(ticks);
  const Type type = typeOfBit(descriptor->type);
  const ThreadWriter::Head head{type, writer->makeId(type), context, descriptor->parent, descriptor->rank,
                                now};
  const bool recorded = append(*writer, head, *descriptor);
  const uint8_t extra = writer->extras();
  // What an extra opens has to be closed, whether or not there was room to record it.
  if (recorded || extra != 0) *handle = reinterpret_cast<void*>(head.id);
  if (__builtin_expect(extra != 0, 0)) startExtras(extra, Abi, head, *descriptor);
  writer->finish();
  return kSuccess;
}

inline int stopEventAt(void* handle, uint64_t ticks) {
  ThreadWriter* writer = ThreadWriter::ofThisThread();
  if (writer == nullptr) return kSuccess;
  const uint64_t now = writer->begin(ticks);
  if (writer->stop(handle, now) && writer->extras() != 0) extras::stop(writer->extras(), asNumber(handle));
  writer->finish();
  return kSuccess;
}
inline int stopEvent(void* handle) {
  return stopEventAt(handle, 0);
}

struct StateArguments {
  uint64_t first = format::kNone64;
  uint64_t second = format::kNone64;
};
// `read(state, type, arguments)` takes from the arguments, which are not null, what belongs to that state.
template <typename Arguments, typename Read>
int recordState(void* handle, int state, Arguments* arguments, uint64_t ticks, Read&& read) {
  ThreadWriter* writer = ThreadWriter::ofThisThread();
  if (writer == nullptr) return kSuccess;
  const uint64_t now = writer->begin(ticks);
  StateArguments said;
  if (arguments != nullptr) said = read(state, ThreadWriter::typeOf(asNumber(handle)), *arguments);
  if (writer->state(handle, state, said.first, said.second, now) && writer->extras() != 0) {
    extras::state(writer->extras(), asNumber(handle), state, arguments);
  }
  writer->finish();
  return kSuccess;
}

inline int finalize(void* context) {
  finalizeContext(context);
  return kSuccess;
}

// What every version says of a collective and of a transfer; what only some say is as if it was not recorded.
struct CollTexts {
  uint32_t function;
  uint32_t dataType;
  uint32_t algorithm;
  uint32_t protocol;
};
template <typename Operation>
void fillColl(format::Coll& r, const Operation& operation, const CollTexts& texts) {
  r.sequence = operation.sequence;
  r.count = operation.count;
  r.sendBuffer = asNumber(operation.sendBuffer);
  r.receiveBuffer = asNumber(operation.receiveBuffer);
  r.parentGroup = format::kNone64;
  r.userTag = format::kNone64;
  r.trafficBytes = format::kNone64;
  r.function = texts.function;
  r.dataType = texts.dataType;
  r.algorithm = texts.algorithm;
  r.protocol = texts.protocol;
  r.kernelVariant = 0;
  r.root = operation.root;
  r.channels = operation.channels;
  r.warps = operation.warps;
  r.isSymmetric = 0xff;
  r.op = format::kNone32;
}
template <typename Operation>
CollTexts collTexts(ThreadWriter& w, const Operation& operation) {
  return {w.string(operation.function), w.string(operation.dataType), w.string(operation.algorithm),
          w.string(operation.protocol)};
}
template <typename Operation>
void fillP2p(format::P2p& r, const Operation& operation, uint32_t function, uint32_t dataType) {
  r.count = operation.count;
  r.buffer = asNumber(operation.buffer);
  r.parentGroup = format::kNone64;
  r.userTag = format::kNone64;
  r.function = function;
  r.dataType = dataType;
  r.peer = operation.peer;
  r.channels = format::kNone32;
}

// Records that are alike in all versions whose descriptor has them.
template <typename Op>
bool appendProxyOp(ThreadWriter& writer, const ThreadWriter::Head& head, const Op& op) {
  return writer.start<format::ProxyOp>(head, [&](format::ProxyOp& r) {
    r.pid = op.pid;
    r.channel = op.channel;
    r.peer = op.peer;
    r.steps = op.steps;
    r.chunkBytes = op.chunkBytes;
    r.isSend = static_cast<uint32_t>(op.isSend);
  });
}
inline bool appendProxyStep(ThreadWriter& writer, const ThreadWriter::Head& head, int step) {
  return writer.start<format::ProxyStep>(head, [&](format::ProxyStep& r) {
    r.step = step;
    r.zero = 0;
  });
}
inline bool appendKernelCh(ThreadWriter& writer, const ThreadWriter::Head& head, uint8_t channel,
                           uint64_t gpuNs) {
  return writer.start<format::KernelCh>(head, [&](format::KernelCh& r) {
    r.channel = channel;
    r.zero = 0;
    r.gpuNs = gpuNs;
  });
}
// How many bytes lie behind `data` follows from the plugin alone: its kind (1 InfiniBand, 2 socket), and the
// version of its events. Of others nothing is read.
inline bool appendNetPlugin(ThreadWriter& writer, const ThreadWriter::Head& head, int64_t plugin,
                            const void* data) {
  return writer.start<format::NetPlugin>(head, [&](format::NetPlugin& r) {
    r.plugin = plugin;
    const size_t bytes = plugin == 0x10001 ? 40 : plugin == 0x20001 ? 24 : 0;
    memset(r.data, 0xff, sizeof r.data);
    if (data != nullptr && bytes != 0) memcpy(r.data, data, bytes);
  });
}
inline bool appendBare(ThreadWriter& writer, const ThreadWriter::Head& head) {
  return writer.start<format::Start>(head, [](format::Start&) {});
}
inline bool appendUnknown(ThreadWriter& writer, const ThreadWriter::Head& head, uint64_t type) {
  return writer.start<format::Unknown>(head, [&](format::Unknown& r) { r.type = type; });
}

}  // namespace stretto::profiler
