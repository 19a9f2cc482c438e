// The states of versions 4 to 7, for plugin_v4.cpp and plugin_v7.cpp.
#pragma once

#include "profiler/abi_v4.hpp"
#include "profiler/callbacks.hpp"

namespace stretto::profiler {

// Only the member that belongs to the state is looked at: for states of a group's API some versions of NCCL
// pass a structure that nobody filled. What a network plugin's update points at is the plugin's own affair,
// and neither its size nor whose it is comes with it: it is not read.
inline StateArguments readStateOfV4(int state, Type type, const ArgumentsV4& arguments) {
  StateArguments said;
  switch (type) {
    case Type::kProxyStep:
      if ((state >= kStepSendGpuWait && state <= kStepRecvGpuWait) || state == kStepSendPeerWait) {
        said.first = arguments.proxyStep.bytes;
      }
      break;
    case Type::kProxyCtrl:
      if (state >= kCtrlIdle && state <= kCtrlAppendEnd)
        said.first = static_cast<uint64_t>(arguments.proxyCtrl.appended);
      break;
    case Type::kKernelCh:
      if (state == kKernelChStop) said.first = arguments.kernelCh.gpuNs;
      if (state == kReplayed) said.first = arguments.replayed.number;
      break;
    case Type::kKernelPhase:
      if (state == kKernelPhaseStop) said.first = arguments.kernelCh.gpuNs;
      break;
    default:
      break;
  }
  return said;
}
inline int stateOfV4At(void* handle, int state, ArgumentsV4* arguments, uint64_t ticks) {
  return recordState(handle, state, arguments, ticks, readStateOfV4);
}
inline int stateOfV4(void* handle, int state, ArgumentsV4* arguments) {
  return stateOfV4At(handle, state, arguments, 0);
}

}  // namespace stretto::profiler
