// A stand-in for CUDA's runtime that keeps nccl_driver's promises on a machine without a GPU: memory is the
// host's, a stream does at once what it is given, a captured graph is the list of what it was given
// meanwhile. With it the whole driver but its kernels is compiled, run and tested anywhere; shim_nccl.cpp is
// the library that it then drives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0;
inline constexpr cudaError_t cudaErrorInvalidDevice = 101;
inline constexpr cudaError_t cudaErrorNotReady = 600;
inline constexpr int cudaStreamNonBlocking = 1;
inline constexpr int cudaStreamCaptureModeThreadLocal = 1;

using Work = std::function<void()>;
using Graph = std::vector<Work>;
struct CUstream_st {
  Graph* capture = nullptr;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};
struct cudaDeviceProp {
  char name[256];
};
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = Graph*;
using cudaGraphExec_t = Graph*;

// Exported to the shim, which is loaded by the driver.
extern "C" inline __attribute__((used, visibility("default"))) void hostEnqueue(cudaStream_t stream,
                                                                                const Work& work) {
  if (stream->capture != nullptr) {
    stream->capture->push_back(work);
  } else {
    work();
  }
}

// Memory of the one GPU that this process sees. The shim takes of it, and gives back what it took; not inline
// there, so that it is the driver's count which changes.
inline constexpr size_t kMemoryOfDevice = size_t{64} << 30;
inline std::atomic<size_t>& memoryTaken() {
  static std::atomic<size_t> bytes{0};
  return bytes;
}
extern "C" inline __attribute__((used, noinline, visibility("default"))) void hostTake(ptrdiff_t bytes) {
  memoryTaken() += static_cast<size_t>(bytes);
}
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = kMemoryOfDevice;
  *free = kMemoryOfDevice - memoryTaken();
  return cudaSuccess;
}

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "an error of the stand-in";
}
inline cudaError_t cudaSetDevice(int device) {
  const char* devices = getenv("FAKE_DEVICES");
  return device < (devices == nullptr ? 8 : atoi(devices)) ? cudaSuccess : cudaErrorInvalidDevice;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  strcpy(properties->name, "no GPU at all");
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** at, size_t bytes) {
  *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, int) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) {
  memset(at, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int) {
  stream->capture = new Graph;
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capture;
  stream->capture = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, int) {
  *executable = new Graph(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return cudaGraphDestroy(graph);
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  for (const Work& work : *graph) work();
  return cudaSuccess;
}
