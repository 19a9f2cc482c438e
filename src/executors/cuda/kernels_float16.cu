#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {

void addFloat16(KernelTable& table) {
  addRows<true, stretto::cuda::FixedReducer<DataType::kFloat16, Operator::kSum>>(table,
                                                                                 KernelTable::Kind::kFloat16);
}

}  // namespace stretto::executors::cuda
