// The kernels, as the engine finds them. Plain C++; each kernels_*.cu adds its part, so that they compile
// apart.
#pragma once

#include <array>
#include <vector>

#include "algorithms/registry.hpp"
#include "primitives/cuda/reducer_kind.hpp"
#include "primitives/cuda/state.hpp"
#include "primitives/cuda/whole_tokens.hpp"
#include "primitives/operation.hpp"

namespace stretto::executors::cuda {

// Several operations in one launch. The parameters of a kernel are 4 KB at most, where every driver takes
// them.
struct Fused {
  static constexpr int kMost = 32;
  static constexpr int kMostThreads = 512;  // of a block
  struct Item {
    Arguments arguments;
    stretto::cuda::Called called;
    uint16_t first;   // the channels, and the launch's blocks, that it takes: from here
    uint16_t blocks;  // so many
  };
  Item items[kMost];
  uint32_t count;
};
static_assert(sizeof(stretto::cuda::Context) + sizeof(Fused) <= 4096);

// __global__ functions.
struct Kernel {
  void (*function)(stretto::cuda::Context, Arguments) = nullptr;
  int mostThreads = 0;
  int linkWarps = 1;                                       // of a block, which share what it has
  void (*fused)(stretto::cuda::Context, Fused) = nullptr;  // the same for several operations, if there is one
  // Instead of `function`, of an all-reduce with RMSNorm. By one rank it needs nothing of the context.
  void (*normed)(stretto::cuda::Context, Arguments, NormArguments) = nullptr;
  // And the same for such tokens, of plain calls and of any: ranks do not need to know of each other which
  // one runs.
  using Whole = void (*)(stretto::cuda::Context, stretto::cuda::WholeTokens);
  Whole plainWhole = nullptr;
  Whole anyWhole = nullptr;

  Whole wholeFor(const stretto::cuda::WholeTokens& tokens) const {
    return tokens.isPlain() ? plainWhole : anyWhole;
  }

  bool isThere() const { return function != nullptr || normed != nullptr; }
};

class KernelTable {
 public:
  using Kind = stretto::cuda::ReducerKind;

  // What a kernel was made for: any number of ranks, two, four, or eight.
  enum class Fit : uint8_t { kAny, kPair, kFour, kEight };

  // Every kernel of the library.
  static const KernelTable& all();
  // The one that fits best. What combines nothing is kept under kAny, which also serves every type that has
  // no kernel of its own. One that is not there: there is no such kernel.
  const Kernel& find(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol,
                     Kind kind, int ranks) const {
    size_t index = indexOf(collective, algorithm, protocol, kind);
    const auto of = [&](Fit fit) -> const Kernel& { return kernels_[static_cast<size_t>(fit)][index]; };
    if (!of(Fit::kAny).isThere()) index = indexOf(collective, algorithm, protocol, Kind::kAny);
    if (ranks == 2 && of(Fit::kPair).isThere()) return of(Fit::kPair);
    if (ranks == 4 && of(Fit::kFour).isThere()) return of(Fit::kFour);
    if (ranks == 8 && of(Fit::kEight).isThere()) return of(Fit::kEight);
    return of(Fit::kAny);
  }
  void add(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol, Kind kind,
           Fit fit, Kernel kernel) {
    kernels_[static_cast<size_t>(fit)][indexOf(collective, algorithm, protocol, kind)] = kernel;
  }
  // Every __global__ function in it, some more than once.
  std::vector<const void*> functions() const {
    std::vector<const void*> all;
    for (const Rows& rows : kernels_) {
      for (const Kernel& kernel : rows) {
        if (kernel.function != nullptr) all.push_back(reinterpret_cast<const void*>(kernel.function));
        if (kernel.fused != nullptr) all.push_back(reinterpret_cast<const void*>(kernel.fused));
        if (kernel.normed != nullptr) all.push_back(reinterpret_cast<const void*>(kernel.normed));
        for (const Kernel::Whole whole : {kernel.plainWhole, kernel.anyWhole}) {
          if (whole != nullptr) all.push_back(reinterpret_cast<const void*>(whole));
        }
      }
    }
    return all;
  }

 private:
  static constexpr size_t kKinds = 4;
  static size_t indexOf(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol,
                        Kind kind) {
    const size_t row =
        (static_cast<size_t>(collective) * algorithms::kAlgorithms + static_cast<size_t>(algorithm)) *
            algorithms::kProtocols +
        static_cast<size_t>(protocol);
    return row * kKinds + static_cast<size_t>(kind);
  }
  using Rows =
      std::array<Kernel, size_t{kCollectives} * algorithms::kAlgorithms * algorithms::kProtocols * kKinds>;
  std::array<Rows, 4> kernels_{};
};

void addMoves(KernelTable& table);
void addFloat32(KernelTable& table);
void addFloat16(KernelTable& table);
void addBfloat16(KernelTable& table);
void addAny(KernelTable& table);

}  // namespace stretto::executors::cuda
