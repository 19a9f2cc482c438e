// Runs the same loop on the CPU and, where there is a device, in a kernel, over memory that both see. For the
// tests of what must compute the same on either.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

namespace stretto::testing {

enum class Place { kCpu, kDevice };

inline std::string nameOf(Place place) {
  return place == Place::kCpu ? "cpu" : "device";
}

// Why nothing can run there; empty if it can.
inline std::string absent(Place place) {
  if (place == Place::kCpu) return {};
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return std::string("no device: ") + cudaGetErrorString(error);
  return devices == 0 ? "no device" : "";
}

// `count` zeroed elements that code at the place can read and write, and the CPU whenever nothing runs there.
template <typename T>
class Shared {
  static_assert(std::is_trivial_v<T>);

 public:
  Shared(Place place, size_t count) : place_(place), count_(count) {
    if (place == Place::kCpu) {
      data_ = new T[count]();
      return;
    }
    void* memory = nullptr;
    const cudaError_t error = cudaMallocManaged(&memory, std::max<size_t>(1, count * sizeof(T)));
    EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
    if (error != cudaSuccess) std::abort();  // every later access would fault without a word
    data_ = static_cast<T*>(memory);
    std::fill_n(data_, count, T{});
  }
  ~Shared() {
    if (place_ == Place::kCpu) {
      delete[] data_;
    } else {
      cudaFree(data_);
    }
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  Place place_;
  size_t count_;
  T* data_ = nullptr;
};

template <typename Body>
__global__ void loopKernel(Body body, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}

// body(i) for every i below count, in any order; returns when all have run. Body is a functor, copied.
template <typename Body>
void forAll(Place place, size_t count, const Body& body) {
  if (place == Place::kCpu) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  constexpr size_t kThreads = 256;
  const size_t blocks = std::clamp<size_t>((count + kThreads - 1) / kThreads, 1, 1024);
  loopKernel<<<static_cast<unsigned>(blocks), kThreads>>>(body, count);
  const cudaError_t launched = cudaGetLastError();
  ASSERT_EQ(launched, cudaSuccess) << cudaGetErrorString(launched);
  const cudaError_t finished = cudaDeviceSynchronize();
  ASSERT_EQ(finished, cudaSuccess) << cudaGetErrorString(finished);
}

}  // namespace stretto::testing
