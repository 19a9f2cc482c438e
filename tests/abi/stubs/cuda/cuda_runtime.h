/* What nccl.h needs of the CUDA runtime: enough to compile NVIDIA's header on a machine without CUDA. */
#ifndef STRETTO_STUB_CUDA_RUNTIME_H
#define STRETTO_STUB_CUDA_RUNTIME_H
#include <stddef.h>
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUstream_st* cudaStream_t;
#define CUDART_VERSION 13000
#endif
