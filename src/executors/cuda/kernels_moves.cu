#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {

void addMoves(KernelTable& table) {
  addRows<false, AnyReducer>(table, KernelTable::Kind::kAny);
}

const KernelTable& KernelTable::all() {
  static const KernelTable table = [] {
    KernelTable made;
    addMoves(made);
    addFloat32(made);
    addFloat16(made);
    addBfloat16(made);
    addAny(made);
    return made;
  }();
  return table;
}

}  // namespace stretto::executors::cuda
