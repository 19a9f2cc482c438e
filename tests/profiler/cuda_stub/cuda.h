/* What NVIDIA's profiler plugins use of CUDA's driver interface, so that they can be compiled and run where
 * there is no CUDA: declarations of our own, and cuda_stub.cpp behind them. For tools/profiler_conformance.
 */
#ifndef STRETTO_CUDA_STUB_H
#define STRETTO_CUDA_STUB_H
#ifdef __cplusplus
extern "C" {
#endif
typedef int CUresult;
typedef int CUdevice;
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;
enum { CUDA_SUCCESS = 0 };
CUresult cuGetErrorString(CUresult error, const char** text);
CUresult cuDeviceGet(CUdevice* device, int ordinal);
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device);
#ifdef __cplusplus
}
#endif
#endif
