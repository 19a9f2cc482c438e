// What all calls of one signature share, made at the first of them: the plan, and everything that follows
// from the plan and the signature and not from the buffers. So a call that was made before is looked up, told
// of, and run; it is not planned and put into words again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "communicator/core/operation.hpp"
#include "executors/host/launch.hpp"
#include "observe/flight.hpp"
#include "planner/plan.hpp"
#include "primitives/call_record.hpp"

namespace stretto::communicator {

// A call without its buffers.
struct Signature {
  // From the lowest byte: collective, type, operator, flags; in the upper half the root and one more. Never
  // 0.
  uint64_t kind = 0;
  uint64_t count = 0;
  uint64_t norm[2] = {};  // normOf() of an all-reduce with RMSNorm

  bool operator==(const Signature&) const = default;
};

struct Prepared {
  planner::Plan plan;
  uint64_t tag = 0;  // equal on two ranks exactly if they run the same operation the same way
  observe::FlightCall recorded;
  CallRecord recordedCall{};           // but for what CallInstance holds
  Arguments arguments;                 // but for the buffers
  executors::host::Run run = nullptr;  // in host memory
};

// Direct-mapped and small; its memory is had at the first call that is kept. Used by one thread at a time.
class PreparedCache {
 public:
  // Null if it is not there.
  Prepared* find(const Signature& signature) {
    if (entries_ == nullptr) [[unlikely]] {
      return nullptr;
    }
    Entry& entry = entryOf(signature);
    return entry.signature == signature ? &entry.prepared : nullptr;
  }
  Prepared* keep(const Signature& signature, const Prepared& prepared) {
    if (entries_ == nullptr) entries_ = std::make_unique<Entries>();
    Entry& entry = entryOf(signature);
    entry = {signature, prepared};
    return &entry.prepared;
  }
  void clear() { entries_.reset(); }

 private:
  struct Entry {
    Signature signature;
    Prepared prepared;
  };
  static constexpr int kIndexBits = 6;
  using Entries = std::array<Entry, size_t{1} << kIndexBits>;

  Entry& entryOf(const Signature& signature) {
    const uint64_t mixed = (signature.count * 0x9e3779b97f4a7c15u) ^ (signature.kind * 0xd6e8feb86659fd93u);
    return (*entries_)[mixed >> (64 - kIndexBits)];
  }
  std::unique_ptr<Entries> entries_;
};

}  // namespace stretto::communicator
