// The calls that NCCL makes to a profiler plugin, in its order, without NCCL: one rank is one Rank, whose
// application thread and progress thread the caller provides. Serves every version of the interface. For the
// tests of plugins/ and trace_driver.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

#include "platform/clock.hpp"
#include "profiler/abi_v4.hpp"

namespace stretto::testing {

template <int Abi>
using DescriptorOf = std::conditional_t<
    Abi == 1, profiler::DescriptorV1,
    std::conditional_t<
        Abi == 2, profiler::DescriptorV2,
        std::conditional_t<Abi == 3, profiler::DescriptorV3,
                           std::conditional_t<Abi == 4, profiler::DescriptorV4, profiler::DescriptorV7>>>>;
template <int Abi>
using ArgumentsOf = std::conditional_t<Abi <= 3, profiler::ArgumentsV1, profiler::ArgumentsV4>;
template <int Abi>
using InitOf = std::conditional_t<Abi <= 3, profiler::InitV1,
                                  std::conditional_t<Abi == 4, profiler::InitV4, profiler::InitV5>>;
template <int Abi>
using TableOf = profiler::Table<InitOf<Abi>, DescriptorOf<Abi>, ArgumentsOf<Abi>>;

// The plugin's table of that version; null when the library or the table is not there.
template <int Abi>
const TableOf<Abi>* loadTable(void* library) {
  const std::string symbol = "ncclProfiler_v" + std::to_string(Abi);
  return static_cast<const TableOf<Abi>*>(dlsym(library, symbol.c_str()));
}

struct Membership {
  const char* name = "canned";
  uint64_t communicator = 0;
  int nodes = 1;
  int ranks = 1;
  int rank = 0;
};

template <int Abi>
int callInit(const TableOf<Abi>& table, void** context, int* mask, const Membership& member,
             profiler::Logger logger = nullptr) {
  if constexpr (Abi <= 3) {
    return table.init(context, mask);
  } else if constexpr (Abi == 4) {
    return table.init(context, mask, member.name, member.communicator, member.nodes, member.ranks,
                      member.rank, logger);
  } else {
    return table.init(context, member.communicator, mask, member.name, member.nodes, member.ranks,
                      member.rank, logger);
  }
}

template <int Abi>
DescriptorOf<Abi> describe(profiler::Type type, void* parent, int rank) {
  DescriptorOf<Abi> descriptor{};
  descriptor.type = static_cast<decltype(descriptor.type)>(uint64_t{1} << static_cast<int>(type));
  descriptor.parent = parent;
  descriptor.rank = rank;
  return descriptor;
}

template <int Abi>
class Rank {
 public:
  Rank(const TableOf<Abi>& table, const Membership& member) : table_(table), member_(member) {
    callInit<Abi>(table_, &context_, &mask_, member_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() { table_.finalize(context_); }

  int mask() const { return mask_; }
  // Callbacks made so far, all kinds, by this rank's threads together once they are joined.
  uint64_t starts() const { return appStarts_ + proxyStarts_; }

  // The application thread's part of all-reduce number `sequence`; returns the collective's handle, which the
  // progress thread needs. `work` runs where the kernel would be launched.
  template <typename Work>
  void* submit(uint64_t sequence, uint64_t count, Work&& work) {
    void* group = nullptr;
    void* api = nullptr;
    if constexpr (Abi >= 5) {
      auto d = describe<Abi>(profiler::Type::kGroupApi, nullptr, 0);
      d.groupApi = {false, 1};
      group = start(d, appStarts_);
      state(group, profiler::kGroupStartApiStop);
      auto c = describe<Abi>(profiler::Type::kCollApi, group, 0);
      c.collApi = {"AllReduce", count, "ncclFloat32", 0, stream(), false, 0};
      api = start(c, appStarts_);
      stop(api);
      state(group, profiler::kGroupEndApiStart);
      auto k = describe<Abi>(profiler::Type::kKernelLaunch, group, 0);
      k.kernelLaunch.stream = stream();
      void* launch = start(k, appStarts_);
      work();
      stop(launch);
    } else {
      work();
    }
    auto g = describe<Abi>(profiler::Type::kGroup, nullptr, 0);
    void* legacy = start(g, appStarts_);
    auto d = describe<Abi>(profiler::Type::kColl, Abi >= 5 ? api : legacy, member_.rank);
    fillColl(d.coll, sequence, count);
    if constexpr (Abi >= 5) d.coll.parentGroup = legacy;
    void* coll = start(d, appStarts_);
    stop(coll);
    stop(legacy);
    stop(group);
    return coll;
  }

  // The progress thread's part: a proxy operation with its steps and a kernel channel on each of `channels`.
  template <typename Work>
  void progress(void* coll, int channels, int steps, Work&& work) {
    auto c = describe<Abi>(profiler::Type::kProxyCtrl, nullptr, 0);
    void* control = start(c, proxyStarts_);
    ArgumentsOf<Abi> appended{};
    appended.proxyCtrl.appended = channels;
    state(control, profiler::kCtrlAppendEnd, &appended);
    stop(control);
    for (int channel = 0; channel < channels; ++channel) {
      void* kernel = startKernel(coll, channel);
      proxyOp(coll, channel, steps, work);
      stopKernel(kernel);
    }
  }

 private:
  void* stream() const {
    return reinterpret_cast<void*>(uint64_t{0x5000} + static_cast<uint64_t>(member_.rank));
  }

  template <typename Coll>
  void fillColl(Coll& coll, uint64_t sequence, uint64_t count) {
    if constexpr (Abi <= 3) {
      coll.name = member_.name;
      coll.communicator = member_.communicator;
    }
    coll.sequence = sequence;
    coll.count = count;
    coll.sendBuffer = reinterpret_cast<void*>(0x1000);
    coll.receiveBuffer = reinterpret_cast<void*>(0x2000);
    if constexpr (Abi == 1) {
      coll.function = 4;
      coll.dataType = 7;
      coll.algorithm = 1;
      coll.protocol = 0;
    } else {
      coll.function = "AllReduce";
      coll.dataType = "ncclFloat32";
      coll.algorithm = "RING";
      coll.protocol = "LL";
    }
    coll.channels = 2;
    coll.warps = 16;
  }

  template <typename Work>
  void proxyOp(void* coll, int channel, int steps, Work&& work) {
    auto d = describe<Abi>(profiler::Type::kProxyOp, coll, member_.rank);
    const int peer = (member_.rank + 1) % member_.ranks;
    d.proxyOp = {1, static_cast<uint8_t>(channel), peer, steps, 4096, 1};
    void* op = start(d, proxyStarts_);
    if constexpr (Abi >= 4) state(op, 19);
    for (int step = 0; step < steps; ++step) {
      auto s = describe<Abi>(profiler::Type::kProxyStep, op, member_.rank);
      s.proxyStep.step = step;
      void* one = start(s, proxyStarts_);
      ArgumentsOf<Abi> moved{};
      if constexpr (Abi >= 4) moved.proxyStep.bytes = 4096;
      state(one, profiler::kStepSendGpuWait, Abi >= 4 ? &moved : nullptr);
      if constexpr (Abi >= 4) {
        for (int poll = 0; poll < 3; ++poll) state(one, profiler::kStepSendPeerWait, &moved);
      }
      state(one, 9, Abi >= 4 ? &moved : nullptr);
      work();
      stop(one);
    }
    stop(op);
  }

  void* startKernel(void* coll, int channel) {
    if constexpr (Abi >= 3) {
      auto d = describe<Abi>(profiler::Type::kKernelCh, coll, 0);
      d.kernelCh.channel = static_cast<uint8_t>(channel);
      if constexpr (Abi >= 4) d.kernelCh.gpuNs = platform::realtimeNanoseconds();
      return start(d, proxyStarts_);
    }
    return nullptr;
  }
  void stopKernel(void* kernel) {
    if constexpr (Abi >= 3) {
      ArgumentsOf<Abi> arguments{};
      if constexpr (Abi >= 4) {
        arguments.kernelCh.gpuNs = platform::realtimeNanoseconds();
        state(kernel, profiler::kKernelChStop, &arguments);
      }
      stop(kernel);
    }
  }

  void* start(DescriptorOf<Abi>& descriptor, uint64_t& counter) {
    void* handle = nullptr;
    if ((static_cast<uint64_t>(mask_) & descriptor.type) == 0) return handle;
    ++counter;
    table_.start(context_, &handle, &descriptor);
    return handle;
  }
  void stop(void* handle) {
    if (handle != nullptr) table_.stop(handle);
  }
  void state(void* handle, int number, ArgumentsOf<Abi>* arguments = nullptr) {
    if (handle != nullptr) table_.state(handle, number, arguments);
  }

  const TableOf<Abi>& table_;
  Membership member_;
  void* context_ = nullptr;
  int mask_ = 0;
  uint64_t appStarts_ = 0;
  uint64_t proxyStarts_ = 0;
};

}  // namespace stretto::testing
