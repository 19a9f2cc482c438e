// What tests of engines among emulated GPUs have in common: the engines, and buffers that are watched.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "communicator/device/layout.hpp"
#include "communicator/device/side.hpp"
#include "cuda_runtime_api.h"
#include "emulator/machine.hpp"
#include "executors/cuda/engine.hpp"

namespace stretto::emulator {

using executors::cuda::Engine;

// STRETTO_EMULATED_ROUNDS: longer runs, by hand.
inline int rounds() {
  const char* const given = std::getenv("STRETTO_EMULATED_ROUNDS");
  return given == nullptr ? 1 : std::atoi(given);
}

// Ranks that are connected as a communicator's are, each with one stream of its own.
class Ranks {
 public:
  Ranks(Machine& machine, int ranks, int channels, int resident = 132)
      : machine_(machine), shape_(communicator::deviceShape(ranks, channels)) {
    EXPECT_TRUE(communicator::describe(shape_, planner::Gpus{}, planned_).ok());
    executors::cuda::Setup setup;
    setup.ranks = ranks;
    setup.shape = shape_;
    setup.timeoutSeconds = 500;
    setup.residentBlocks = resident;
    std::vector<std::byte*> windows;
    for (int rank = 0; rank < ranks; ++rank) {
      windows.push_back(machine.allocate(shape_.windowBytes()));
      EXPECT_TRUE(executors::cuda::prepareWindow(0, windows.back(), shape_).ok());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      setup.rank = rank;
      auto engine = Engine::create(setup);
      EXPECT_TRUE(engine.ok() && engine.value()->useWindows(windows.data()).ok());
      EXPECT_TRUE(engine.value()->wantWindows().ok());
      engines_.push_back(std::move(engine.value()));
      streams_.push_back(machine.makeStream());
    }
  }

  Engine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  cudaStream_t stream(int rank) { return streams_[static_cast<size_t>(rank)]; }
  const planner::Machine& planned() const { return planned_; }
  const stretto::cuda::Shape& shape() const { return shape_; }
  int size() const { return static_cast<int>(engines_.size()); }

  // Until all kernels have ended; empty, or why they cannot, or what the machine has seen.
  std::string end() {
    try {
      machine_.run();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return machine_.complaint();
  }
  // The same, and what they reported.
  std::string run() {
    std::string wrong = end();
    for (int rank = 0; rank < size(); ++rank) {
      const auto report = engine(rank).report();
      if (report.status.ok()) continue;
      wrong += "; rank " + std::to_string(rank) + " gave up operation " + std::to_string(report.sequence) +
               ": " + nameOf(report.status.code) + ", peer " + std::to_string(report.status.peer);
    }
    return wrong;
  }

 private:
  Machine& machine_;
  const stretto::cuda::Shape shape_;
  planner::Machine planned_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<cudaStream_t> streams_;
};

// A buffer of a rank, with a guard on either side.
class Buffer {
 public:
  Buffer(Machine& machine, size_t bytes, size_t offset)
      : bytes_(bytes), memory_(machine.allocate(bytes + 2 * kGuard + 64)) {
    std::memset(memory_, kUntouched, bytes + 2 * kGuard + 64);
    data_ = memory_ + kGuard + offset;
  }
  std::byte* data() const { return data_; }
  bool isGuarded() const {
    const auto untouched = [](std::byte each) { return each == std::byte{kUntouched}; };
    return std::all_of(memory_, data_, untouched) &&
           std::all_of(data_ + bytes_, memory_ + bytes_ + 2 * kGuard + 64, untouched);
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr uint8_t kUntouched = 0x5a;
  size_t bytes_;
  std::byte* memory_;
  std::byte* data_;
};

}  // namespace stretto::emulator
