// Which CUDA calls wait for a kernel that another thread's stream runs, and whether they keep a third thread
// out.
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
__global__ void spin(volatile int* stop, long long ns) {
  long long t0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t0));
  for (;;) {
    long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    if (*stop || t - t0 > ns) return;
  }
}
__global__ void nothing(int* p) {
  if (p) *p = 1;
}
__global__ void lazy1(int* p) {
  if (p) *p = 2;
}
static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
int main() {
  cudaSetDevice(0);
  cudaFree(0);
  int* stop;
  cudaHostAlloc(&stop, 4, cudaHostAllocMapped);
  cudaStream_t s, s2, s3;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking);
  nothing<<<1, 1, 0, s2>>>(nullptr);
  spin<<<1, 1, 0, s>>>(stop, 1);
  cudaDeviceSynchronize();
  void *a, *h, *h2;
  int* d;
  cudaMalloc(&d, 4);
  struct Case {
    const char* name;
    std::function<void()> before, body;
  };
  CUmemGenericAllocationHandle handle{};
  CUdeviceptr va = 0;
  size_t gran = 2 << 20;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc acc{};
  acc.location = prop.location;
  acc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  cudaEvent_t ev;
  int buf[256];
  Case cases[] = {
      {"cudaMalloc 4M", [] {}, [&] { cudaMalloc(&a, 4 << 20); }},
      {"cudaMalloc 1G", [] {},
       [&] {
         void* b;
         cudaMalloc(&b, 1u << 30);
       }},
      {"cudaFree 4M", [&] { cudaMalloc(&a, 4 << 20); }, [&] { cudaFree(a); }},
      {"cudaFree 4K", [&] { cudaMalloc(&a, 4096); }, [&] { cudaFree(a); }},
      {"cudaHostAlloc", [] {},
       [&] { cudaHostAlloc(&h, 1 << 16, cudaHostAllocMapped | cudaHostAllocPortable); }},
      {"cudaFreeHost", [&] { cudaHostAlloc(&h2, 1 << 16, cudaHostAllocMapped); }, [&] { cudaFreeHost(h2); }},
      {"cudaStreamCreate", [] {}, [&] { cudaStreamCreateWithFlags(&s3, cudaStreamNonBlocking); }},
      {"cudaStreamDestroy", [&] { cudaStreamCreateWithFlags(&s3, cudaStreamNonBlocking); },
       [&] { cudaStreamDestroy(s3); }},
      {"cudaEventCreate+Destroy", [] {},
       [&] {
         cudaEventCreateWithFlags(&ev, cudaEventDisableTiming);
         cudaEventDestroy(ev);
       }},
      {"cudaMallocAsync+FreeAsync", [] {},
       [&] {
         void* b;
         cudaMallocAsync(&b, 1 << 20, s2);
         cudaFreeAsync(b, s2);
         cudaStreamSynchronize(s2);
       }},
      {"lazy kernel load", [] {},
       [&] {
         lazy1<<<1, 1, 0, s2>>>(d);
         cudaStreamSynchronize(s2);
       }},
      {"launch+sync other stream", [] {},
       [&] {
         nothing<<<1, 1, 0, s2>>>(d);
         cudaStreamSynchronize(s2);
       }},
      {"cudaMemcpy (sync) D2H", [] {}, [&] { cudaMemcpy(buf, d, 4, cudaMemcpyDeviceToHost); }},
      {"cuMemCreate+Map+Access", [] {},
       [&] {
         cuMemCreate(&handle, gran, &prop, 0);
         cuMemAddressReserve(&va, gran, 0, 0, 0);
         cuMemMap(va, gran, 0, handle, 0);
         cuMemSetAccess(va, gran, &acc, 1);
       }},
      {"cuMemUnmap+Release", [] {},
       [&] {
         cuMemUnmap(va, gran);
         cuMemRelease(handle);
         cuMemAddressFree(va, gran);
       }},
      {"cudaIpcGetMemHandle", [&] { cudaMalloc(&a, 4 << 20); },
       [&] {
         cudaIpcMemHandle_t m;
         cudaIpcGetMemHandle(&m, a);
       }},
      {"cudaFree async-thread", [&] { cudaMalloc(&a, 4 << 20); }, [&] { cudaFree(a); }},
  };
  for (auto& c : cases) {
    c.before();
    *stop = 0;
    spin<<<1, 1, 0, s>>>(stop, 1500000000ll);
    usleep(2000);
    std::atomic<double> third{0};
    std::atomic<bool> done{false};
    std::thread other([&] {
      cudaSetDevice(0);
      usleep(20000);
      double t = now();
      nothing<<<1, 1, 0, s2>>>(nullptr);
      cudaStreamQuery(s2);
      cudaEvent_t e;
      cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
      cudaEventRecord(e, s2);
      while (cudaEventQuery(e) == cudaErrorNotReady && now() - t < 1.4) usleep(100);
      third = now() - t;
    });
    double t = now();
    c.body();
    double took = now() - t;
    other.join();
    *stop = 1;
    cudaStreamSynchronize(s);
    printf("%-28s %9.2f ms   another thread's launch %9.2f ms  %s\n", c.name, took * 1e3, third.load() * 1e3,
           cudaGetErrorString(cudaGetLastError()));
    fflush(stdout);
  }
}
