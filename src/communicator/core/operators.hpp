// The operators that users make of one communicator (ncclRedOpCreatePreMulSum), by their index. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "base/types.hpp"

namespace stretto::communicator {

// A user's scalar for PreMulSum.
struct PreMultiplier {
  DataType type = DataType::kFloat32;
  alignas(8) uint8_t scalar[8] = {};
  const void* place = nullptr;  // where to read it when an operation runs; null: it was copied
  bool alive = false;
};

class Operators {
 public:
  // The index of the new operator. `immediate`: the scalar is copied now, else read at each submission.
  int add(DataType type, const void* scalar, bool immediate);
  Status remove(int index);
  std::optional<PreMultiplier> find(int index) const;

 private:
  mutable std::mutex mutex_;  // held while all_ is used
  std::vector<PreMultiplier> all_;
};

}  // namespace stretto::communicator
