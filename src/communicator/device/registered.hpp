// Buffers that the ranks of a communicator on GPUs have registered together (NCCL_WIN_COLL_SYMMETRIC): where
// copy engines of all ranks may write, and kernels of all ranks read. Their user promises that all ranks give
// a collective the same place in them, so that each computes its peers' addresses from its own. Owned by the
// device side; one thread at a time, but for address().
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "communicator/core/operation.hpp"
#include "communicator/device/connect.hpp"

namespace stretto::communicator {

// Part of a window, the same on all ranks.
struct WindowPlace {
  const ConnectedWindow* window = nullptr;
  uint64_t number = 0;
  uint64_t offset = 0;

  // What tells it from other places, for tags and call records; never 0.
  uint64_t word() const { return number << 48 | offset; }
};

// What kernels of all ranks may read of an all-reduce.
struct PullPlaces {
  WindowPlace inputs;
  WindowPlace results;  // the inputs' where these are overwritten

  bool inPlace() const { return inputs.word() == results.word(); }
  // While results are written; between the writing of shards.
  bool once() const { return inputs.window != nullptr && !inPlace(); }
  bool twice() const { return inputs.window != nullptr && results.window != nullptr; }
};

class Windows {
 public:
  static constexpr size_t kMost = 256;            // of one communicator, at once
  static constexpr uint64_t kMostNumber = 65535;  // in its life

  // After nextNumber(): kInvalidUsage when there are too many.
  Status mayAdd(int rank) const;
  // All ranks count alike, also what could not be used.
  uint64_t nextNumber() { return ++numbers_; }
  // `handle`: its user's name for it.
  void add(const void* handle, uint64_t number, ConnectedWindow window);
  // Unmaps what peers have there; the handle may be that of no window.
  void remove(const void* handle);
  // Whether to remove() it, CUDA would not wait for copies that are under way there.
  bool goesAtOnce(const void* handle) const;
  // Instead of remove(): no operation finds it any more, but it stays mapped until the communicator ends.
  void retire(const void* handle);

  // Byte `offset` of a peer's buffer, in this rank's addresses; at least `bytes` follow. Any thread.
  Status address(const void* handle, int peer, size_t offset, size_t bytes, void** out) const;

  bool any() const { return !entries_.empty(); }
  // Where the results of a collective go; no window if that is not in one, if the input is there too and must
  // not be, or if there is no form of it by copy engines.
  WindowPlace resultsOf(const Operation& operation, int ranks) const;
  // Nothing of other collectives, nor of one whose input is scaled first.
  PullPlaces pullsOf(const Operation& operation) const;

 private:
  struct Entry {
    const void* handle;
    uint64_t number;
    ConnectedWindow window;
  };
  WindowPlace find(const void* begin, size_t bytes) const;

  mutable std::mutex mutex_;    // held while entries_ changes, and by who may be another thread
  std::vector<Entry> entries_;  // by number, so that of windows that overlap all ranks take the same
  std::vector<ConnectedWindow> retired_;
  uint64_t numbers_ = 0;
};

}  // namespace stretto::communicator
