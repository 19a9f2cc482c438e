/* The same of CUDA's runtime. Nothing is ever recorded: an event is done at once. */
#ifndef STRETTO_CUDA_RUNTIME_STUB_H
#define STRETTO_CUDA_RUNTIME_STUB_H
#ifdef __cplusplus
extern "C" {
#endif
typedef int cudaError_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
enum { cudaSuccess = 0, cudaEventDisableTiming = 2 };
cudaError_t cudaGetDevice(int* device);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop);
cudaError_t cudaEventDestroy(cudaEvent_t event);
#ifdef __cplusplus
}
static inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags = 0) {
  return cudaEventCreateWithFlags(event, flags);
}
#endif
#endif
