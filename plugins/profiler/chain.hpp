// A second profiler plugin behind ours, since NCCL loads only one: gets every call about the types that it
// asked for (and their ancestors, as NCCL would send them), with its own contexts and handles in place of
// ours. It must speak the version of the interface that our caller speaks, or, from v5 on, an earlier one of
// which that is an extension. Used by extras.cpp and process.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "profiler/extras.hpp"

namespace stretto::profiler {

// Its handles by our ids. Bounded: of one type the last 65,536 are known; what is older is forgotten, and
// then it hears no more of that event. An id is written once, so a reader that finds it before and after has
// its handle.
class HandleTable {
 public:
  void put(uint64_t id, void* theirs);
  // Null when not known.
  void* get(uint64_t id) const;
  bool make();

 private:
  static constexpr size_t kSlots = 1 << 16;
  static constexpr size_t kKinds = kTypes + 2;  // and unknown types, and contexts
  struct Slot {
    std::atomic<uint64_t> id;
    std::atomic<void*> theirs;
  };
  Slot& slot(uint64_t id) const;
  Slot* slots_ = nullptr;  // zero pages until used; kept to the end of the process
};

class Chain {
 public:
  // False, and a word to the logger, when there is no such plugin.
  bool load(const char* path, Logger logger);
  // A communicator of ours: opens theirs, and returns the mask that it asks for; if it refuses this one, the
  // mask that it has for those that it took, since one mask serves all.
  uint32_t open(void* context, const ContextFacts& facts, Logger logger);
  void close(void* context);
  void start(const extras::Started& event);
  void stop(uint64_t id);
  void state(uint64_t id, int state, void* arguments);

 private:
  // The words of a table that are alike in all versions.
  using AnyTable = Table<void*, void, void>;
  const AnyTable* find(int abi, Logger logger);

  std::mutex mutex_;
  void* library_ = nullptr;
  int foundFor_ = 0;  // the version that find() was last asked for
  std::atomic<const AnyTable*> table_{nullptr};
  std::atomic<uint32_t> wanted_{0};  // types that it gets
  uint32_t asked_ = 0;               // what open() last returned of a communicator that it took
  int mask_ = 0;                     // it may keep the address and write there later; nobody reads that
  HandleTable handles_;
};

// The process's one. Never destroyed.
Chain& chain();

}  // namespace stretto::profiler
