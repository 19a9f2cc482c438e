/* Where the ranks of these examples keep their data. Compiled with -DWITH_CUDA (and CUDA's headers and
 * runtime) each rank is a GPU; without it the ranks are whatever the library takes for devices, host memory
 * on a machine without a GPU. Memory comes from ncclMemAlloc, which knows. */
#ifndef STRETTO_EXAMPLES_DEVICE_H
#define STRETTO_EXAMPLES_DEVICE_H

#ifdef WITH_CUDA
#include <cuda_runtime.h>
#endif
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                 \
  do {                                                                                              \
    if ((call) != ncclSuccess) fprintf(stderr, "%s: %s\n", #call, ncclGetLastError(NULL)), exit(1); \
  } while (0)

enum { kRanks = 2, kCount = 1024 };

static inline void useDevice(int rank) {
#ifdef WITH_CUDA
  cudaSetDevice(rank);
#else
  (void)rank;
#endif
}

/* Room for `count` floats on the current device. */
static inline float* newBuffer(size_t count) {
  void* memory = NULL;
  CHECK(ncclMemAlloc(&memory, count * sizeof(float)));
#ifdef WITH_CUDA
  cudaMemset(memory, 0, count * sizeof(float));
#else
  for (size_t i = 0; i < count; i++) ((float*)memory)[i] = 0;
#endif
  return (float*)memory;
}

/* On a GPU the calls only enqueue. */
static inline void waitForDevice(void) {
#ifdef WITH_CUDA
  cudaDeviceSynchronize();
#endif
}

#endif
