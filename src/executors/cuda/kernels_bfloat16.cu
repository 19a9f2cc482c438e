#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {

void addBfloat16(KernelTable& table) {
  addRows<true, stretto::cuda::FixedReducer<DataType::kBfloat16, Operator::kSum>>(
      table, KernelTable::Kind::kBfloat16);
}

}  // namespace stretto::executors::cuda
