// A second profiler plugin for chain_test.cpp: gives handles of its own and keeps what it was called with.
// Speaks versions 4 and 5 of the interface.
#include "second_plugin.hpp"

#include "profiler/abi_v4.hpp"

namespace stretto::testing {
namespace {

SecondPluginLog gLog;

void* asHandle(uint64_t number) {
  return reinterpret_cast<void*>(number);
}

int open(void** context, int* mask, int abi) {
  if (gLog.refuse) return 3;
  gLog.abi = abi;
  *mask = gLog.mask;
  *context = asHandle(0x70000 + static_cast<uint64_t>(++gLog.inits));
  return 0;
}
int initV4(void** context, int* mask, const char*, uint64_t, int, int, int, profiler::Logger) {
  return open(context, mask, 4);
}
int initV5(void** context, uint64_t, int* mask, const char*, int, int, int, profiler::Logger) {
  return open(context, mask, 5);
}
template <typename Descriptor>
int start(void* context, void** handle, Descriptor* descriptor) {
  *handle = asHandle(0x1000 + static_cast<uint64_t>(gLog.starts));
  auto& call = gLog.started[gLog.starts++ % SecondPluginLog::kMost];
  call = {descriptor->type, context, *handle, descriptor->parent, nullptr};
  if constexpr (sizeof(Descriptor) == sizeof(profiler::DescriptorV7)) {
    if (descriptor->type == 2) call.parentGroup = descriptor->coll.parentGroup;
  }
  return 0;
}
int stop(void* handle) {
  gLog.stopped[gLog.stops++ % SecondPluginLog::kMost] = handle;
  return 0;
}
template <typename Arguments>
int state(void* handle, int, Arguments*) {
  gLog.lastState = handle;
  ++gLog.states;
  return 0;
}
int finalize(void* context) {
  gLog.finalized = context;
  return 0;
}

constexpr profiler::TableV4 kTableV4 = {
    "Second", initV4, start<profiler::DescriptorV4>, stop, state<profiler::ArgumentsV4>, finalize};
constexpr profiler::TableV5 kTableV5 = {
    "Second", initV5, start<profiler::DescriptorV7>, stop, state<profiler::ArgumentsV4>, finalize};

}  // namespace
}  // namespace stretto::testing

STRETTO_PROFILER_EXPORT stretto::profiler::TableV4 ncclProfiler_v4 = stretto::testing::kTableV4;
STRETTO_PROFILER_EXPORT stretto::profiler::TableV5 ncclProfiler_v5 = stretto::testing::kTableV5;
extern "C" __attribute__((visibility("default"))) stretto::testing::SecondPluginLog* secondPluginLog() {
  return &stretto::testing::gLog;
}
