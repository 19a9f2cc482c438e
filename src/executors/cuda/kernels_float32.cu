#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {

void addFloat32(KernelTable& table) {
  addRows<true, stretto::cuda::FixedReducer<DataType::kFloat32, Operator::kSum>>(table,
                                                                                 KernelTable::Kind::kFloat32);
}

}  // namespace stretto::executors::cuda
