// A chain of dependent all-reduces, as a decode step has it: how long it is, how long each rank works between
// two of them, and which rank is late where. Included by driver.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "request.hpp"

namespace stretto::bench {

// Keeps the core busy for that long, as arithmetic does.
inline void keepBusy(size_t nanoseconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  while (nanoseconds > 0 && std::chrono::steady_clock::now() < until) {
  }
}

// Times in nanoseconds.
struct Chain {
  size_t length = 1;
  size_t work = 0;
  size_t jitter = 0;
  size_t warmup = 0;
  size_t batches = 1;
  size_t late = 0;  // 0: nobody is
  int lateRank = 0;
  size_t lateAt = 0;
  bool inside = false;

  bool isLate(int rank, size_t operation) const {
    return late > 0 && rank == lateRank && operation == lateAt;
  }

  // Another on each rank and after each operation, and the same in every run.
  size_t workOf(int rank, size_t operation) const {
    if (jitter == 0) return work;
    uint64_t mixed = (operation * 64 + static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93u;
    return work + static_cast<size_t>((mixed >> 32) % (jitter + 1));
  }
};

inline Chain parseChain(const Command& command) {
  Chain chain;
  chain.length = std::max<size_t>(1, command.number("length"));
  chain.work = command.number("work");
  chain.jitter = command.number("jitter");
  chain.warmup = command.number("warmup");
  chain.batches = command.number("batches");
  chain.late = command.number("late");
  chain.lateRank = static_cast<int>(command.number("late_rank"));
  chain.lateAt = command.number("late_at");
  chain.inside = command.number("inside") != 0;
  return chain;
}

}  // namespace stretto::bench
