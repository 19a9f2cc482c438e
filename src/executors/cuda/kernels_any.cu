#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {

void addAny(KernelTable& table) {
  addRows<true, AnyReducer>(table, KernelTable::Kind::kAny);
}

}  // namespace stretto::executors::cuda
