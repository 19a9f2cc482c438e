// The kernel that scales the input of PreMulSum. Of engine.cu alone.
#pragma once

#include "executors/cuda/kernels.cuh"

namespace stretto::executors::cuda {
namespace {

// Scales a buffer for PreMulSum. `scalarAt`: where the kernel reads the scalar; null: it was known at the
// call.
struct Scale {
  DataType type;
  const std::byte* from;
  std::byte* to;
  size_t bytes;
  const uint8_t* scalarAt;
  uint8_t scalar[8];
};

__global__ void scaleKernel(const __grid_constant__ Scale scale) {
  const stretto::cuda::UnitSource source(scale.from, scale.bytes);
  const stretto::cuda::UnitTarget target(scale.to, scale.bytes);
  uint8_t scalar[8];
  for (size_t i = 0; i < sizeof scalar; ++i) {
    scalar[i] = scale.scalarAt == nullptr ? scale.scalar[i] : i < sizeOf(scale.type) ? scale.scalarAt[i] : 0;
  }
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t unit = size_t{blockIdx.x} * blockDim.x + threadIdx.x; unit < source.units(); unit += step) {
    target.store(unit, stretto::cuda::scaled(scale.type, source.load(unit), scalar));
  }
}

}  // namespace
}  // namespace stretto::executors::cuda
