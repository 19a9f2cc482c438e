// The kernels, as the engine finds them. Plain C++; each kernels_*.cu adds its part, so that they compile
// apart.
#pragma once

#include <array>

#include "algorithms/registry.hpp"
#include "primitives/cuda/reducer_kind.hpp"

namespace stretto::executors::cuda {

struct Kernel {
  const void* function = nullptr;  // for cudaLaunchKernelExC: takes a Context and Arguments, or Messages
  int mostThreads = 0;
};

class KernelTable {
 public:
  using Kind = stretto::cuda::ReducerKind;

  // Every kernel of the library.
  static const KernelTable& all();
  // Collectives that reduce nothing are kept under kAny. A null function: there is no such kernel.
  const Kernel& find(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol,
                     Kind kind, int ranks, size_t bytesPerBlock) const {
    const size_t index = indexOf(collective, algorithm, protocol, kind);
    const bool much = ranks == 2 && bytesPerBlock > kMuch;
    if (much && largePairs_[index].function != nullptr) return largePairs_[index];
    return ranks == 2 && pairs_[index].function != nullptr ? pairs_[index] : rows_[index];
  }
  void add(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol, Kind kind,
           Kernel kernel) {
    rows_[indexOf(collective, algorithm, protocol, kind)] = kernel;
  }
  // The same for more bytes in each block than others take in one pass.
  static constexpr size_t kMuch = 15360;
  void addLargePair(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol,
                    Kind kind, Kernel kernel) {
    largePairs_[indexOf(collective, algorithm, protocol, kind)] = kernel;
  }
  // One for two ranks only, which then goes first.
  void addPair(Collective collective, algorithms::Algorithm algorithm, algorithms::Protocol protocol,
               Kind kind, Kernel kernel) {
    pairs_[indexOf(collective, algorithm, protocol, kind)] = kernel;
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
  Rows rows_{};
  Rows pairs_{};
  Rows largePairs_{};
};

void addMoves(KernelTable& table);
void addFloat32(KernelTable& table);
void addFloat16(KernelTable& table);
void addBfloat16(KernelTable& table);
void addAny(KernelTable& table);

}  // namespace stretto::executors::cuda
