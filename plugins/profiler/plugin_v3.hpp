// What versions 1 to 3 have in common besides descriptors: states that carry bytes and steps, and
// communicators that are only known by their first operation. For plugin_v1.cpp and plugin_v3.cpp.
#pragma once

#include "profiler/abi_v3.hpp"
#include "profiler/callbacks.hpp"

namespace stretto::profiler {

inline StateArguments readStateOfV1(int state, Type type, const ArgumentsV1& arguments) {
  StateArguments said;
  if (type == Type::kProxyOp && state >= kProxyOpFirst && state <= kProxyOpLast) {
    said.first = arguments.proxyOp.bytes;
    said.second = static_cast<uint64_t>(arguments.proxyOp.steps);
  } else if (type == Type::kProxyCtrl && state >= kCtrlIdle && state <= kCtrlAppendEnd) {
    said.first = static_cast<uint64_t>(arguments.proxyCtrl.appended);
  }
  return said;
}
inline int stateOfV1(void* handle, int state, ArgumentsV1* arguments) {
  return recordState(handle, state, arguments, 0, readStateOfV1);
}

// `operation` is the coll or p2p member of a descriptor.
template <typename Operation>
void learnContext(ThreadWriter& writer, const ThreadWriter::Head& head, const Operation& operation, int abi) {
  writer.recorder().learn(
      writer.contextNumber(head.context),
      {.name = operation.name, .communicator = operation.communicator, .rank = head.rank, .abi = abi});
}

}  // namespace stretto::profiler
