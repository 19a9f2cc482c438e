// libnccl-profiler-empty.so: a plugin that does nothing, for measuring what a library pays for having one. It
// asks for the events of STRETTO_TRACE_EVENTS (4095 by default); STRETTO_TRACE_EMPTY=null makes it answer
// with null handles, after which the library makes no further calls about an event.
#include <atomic>

#include "profiler/abi_v4.hpp"
#include "profiler/settings.hpp"

namespace stretto::profiler {
namespace {

std::atomic<void*> gHandle{nullptr};

void open(void** context, int* mask, int abi) {
  const bool ids = variables::kEmpty.text() != "null";
  gHandle.store(ids ? reinterpret_cast<void*>(uint64_t{1} << 56) : nullptr, std::memory_order_relaxed);
  if (mask != nullptr) *mask = static_cast<int>(readEvents(4095, nullptr) & typesOf(abi));
  if (context != nullptr) *context = reinterpret_cast<void*>(uint64_t{2} << 56);
}

template <int Abi>
int initV1(void** context, int* mask) {
  open(context, mask, Abi);
  return kSuccess;
}
int initV4(void** context, int* mask, const char*, uint64_t, int, int, int, Logger) {
  open(context, mask, 4);
  return kSuccess;
}
template <int Abi>
int initV5(void** context, uint64_t, int* mask, const char*, int, int, int, Logger) {
  open(context, mask, Abi);
  return kSuccess;
}
template <typename Descriptor>
int start(void*, void** handle, Descriptor*) {
  if (handle != nullptr) *handle = gHandle.load(std::memory_order_relaxed);
  return kSuccess;
}
int stop(void*) {
  return kSuccess;
}
template <typename Arguments>
int state(void*, int, Arguments*) {
  return kSuccess;
}
int finalize(void*) {
  return kSuccess;
}

template <typename Anything, typename Init, typename Descriptor, typename Arguments>
constexpr Anything table(Init init, Table<Init, Descriptor, Arguments>*) {
  return {"StrettoEmpty", init, start<Descriptor>, stop, state<Arguments>, finalize};
}
template <typename T, typename Init>
constexpr T table(Init init) {
  return table<T>(init, static_cast<T*>(nullptr));
}

}  // namespace
}  // namespace stretto::profiler

using namespace stretto::profiler;
STRETTO_PROFILER_EXPORT TableV1 ncclProfiler_v1 = table<TableV1>(initV1<1>);
STRETTO_PROFILER_EXPORT TableV2 ncclProfiler_v2 = table<TableV2>(initV1<2>);
STRETTO_PROFILER_EXPORT TableV3 ncclProfiler_v3 = table<TableV3>(initV1<3>);
STRETTO_PROFILER_EXPORT TableV4 ncclProfiler_v4 = table<TableV4>(initV4);
STRETTO_PROFILER_EXPORT TableV5 ncclProfiler_v5 = table<TableV5>(initV5<5>);
STRETTO_PROFILER_EXPORT TableV5 ncclProfiler_v6 = table<TableV5>(initV5<6>);
STRETTO_PROFILER_EXPORT TableV5 ncclProfiler_v7 = table<TableV5>(initV5<7>);
