// How the host reads the stamps that kernels leave. Plain C++, the engine's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "executors/cuda/engine.hpp"
#include "primitives/cuda/state.hpp"

namespace stretto::executors::cuda {

// Of the rings of all blocks, from behind what was `seen` of each before. Others are counted as lost.
// A stamp counts when all of its facts are of the same number; one beyond the number that is due says that
// the block has gone round its ring meanwhile.
inline size_t takeFrom(stretto::cuda::Stamps& rings, std::array<uint64_t, Engine::kMostStamps>& seen,
                       std::span<KernelStamp> stamps, uint64_t& lost) {
  using stretto::cuda::Stamp;
  using stretto::cuda::Stamps;
  size_t taken = 0;
  for (int block = 0; block < Stamps::kBlocks; ++block) {
    uint64_t& before = seen[static_cast<size_t>(block)];
    while (taken < stamps.size()) {
      Stamp& stamp = rings.of[block][(before + 1) % Stamps::kEntries];
      const uint64_t number = std::atomic_ref(stamp.queue.number).load(std::memory_order_acquire);
      if (number <= before) break;
      bool whole = true;
      const auto read = [&](Stamp::Fact& fact) {
        const bool fits = std::atomic_ref(fact.number).load(std::memory_order_acquire) == number;
        const uint64_t value = std::atomic_ref(fact.value).load(std::memory_order_acquire);
        whole = whole && fits && std::atomic_ref(fact.number).load(std::memory_order_relaxed) == number;
        return value;
      };
      KernelStamp& found = stamps[taken];
      found = {block, read(stamp.launch), read(stamp.start), read(stamp.stop)};
      const uint64_t queue = read(stamp.queue);
      if ((queue & Stamp::kCollective) != 0) {
        found.operation = queue & ~Stamp::kCollective;
      } else {
        found.peer = static_cast<int>(queue / 2) - 1;
        found.isSend = queue % 2 == 1;
      }
      const bool waitsForRest = !whole && number == before + 1;
      if (waitsForRest) break;  // it is on its way
      lost += number - before - (whole ? 1 : 0);
      before = number;
      taken += whole ? 1 : 0;
    }
  }
  return taken;
}

}  // namespace stretto::executors::cuda
