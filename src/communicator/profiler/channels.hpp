// The KernelCh event: an executor's span, by a clock of its own. Used by Profile and its parts.
#pragma once

#include <cstdint>

#include "observe/profiler_host.hpp"

namespace stretto::communicator {

inline void* startChannel(const observe::profiler::Session& session, void* parent,
                          observe::profiler::KernelChV4 channel, uint64_t at) {
  observe::profiler::DescriptorV7 descriptor = session.describe(observe::profiler::Type::kKernelCh, parent);
  descriptor.kernelCh = channel;
  return session.start(descriptor, at);
}

inline void stopChannel(const observe::profiler::Session& session, void* event, uint64_t timer, uint64_t at) {
  observe::profiler::ArgumentsV4 arguments;
  arguments.kernelCh.gpuNs = timer;
  session.record(event, observe::profiler::kKernelChStop, &arguments, at);
  session.stop(event, at);
}

}  // namespace stretto::communicator
