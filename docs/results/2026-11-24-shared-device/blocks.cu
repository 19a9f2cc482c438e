// Which CUDA calls wait for a kernel that another thread's stream runs, and whether they keep a third thread
// from launching meanwhile. nvcc -std=c++17 -arch=sm_90 blocks.cu -lcuda
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

constexpr long long kSpinNanoseconds = 1500000000;

__global__ void spin(volatile int* stop, long long nanoseconds) {
  long long began, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*stop == 0 && now - began < nanoseconds);
}
__global__ void nothing(int* out) {
  if (out != nullptr) *out = 1;
}
__global__ void neverLaunchedBefore(int* out) {
  *out = 2;
}

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static int* stop;
static cudaStream_t spinning, own, made;
static cudaEvent_t event;
static void *block, *pinned;
static int* word;
static CUdeviceptr mapped;
static CUmemGenericAllocationHandle piece;
constexpr size_t kGrain = 2 << 20;

static void mapMemory() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  cuMemCreate(&piece, kGrain, &properties, 0);
  cuMemAddressReserve(&mapped, kGrain, 0, 0, 0);
  cuMemMap(mapped, kGrain, 0, piece, 0);
  cuMemSetAccess(mapped, kGrain, &access, 1);
}
static void unmapMemory() {
  cuMemUnmap(mapped, kGrain);
  cuMemRelease(piece);
  cuMemAddressFree(mapped, kGrain);
}

struct Case {
  const char* name;
  std::function<void()> before, body;
};

static std::vector<Case> ofMemory() {
  const auto none = [] {};
  const auto allocate = [] { cudaMalloc(&block, 4 << 20); };
  return {{"cudaMalloc 4M", none, allocate},
          {"cudaFree 4M", allocate, [] { cudaFree(block); }},
          {"cudaFree 4K", [] { cudaMalloc(&block, 4096); }, [] { cudaFree(block); }},
          {"cudaHostAlloc", none, [] { cudaHostAlloc(&pinned, 1 << 16, cudaHostAllocMapped); }},
          {"cudaFreeHost", none, [] { cudaFreeHost(pinned); }},
          {"cudaMallocAsync+FreeAsync", none,
           [] {
             cudaMallocAsync(&block, 1 << 20, own);
             cudaFreeAsync(block, own);
             cudaStreamSynchronize(own);
           }},
          {"cuMemCreate+Map+Access", none, mapMemory},
          {"cuMemUnmap+Release", none, unmapMemory}};
}

static std::vector<Case> ofStreams() {
  const auto none = [] {};
  return {{"cudaStreamCreate", none, [] { cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking); }},
          {"cudaStreamDestroy", none, [] { cudaStreamDestroy(made); }},
          {"first launch of a kernel", none,
           [] {
             neverLaunchedBefore<<<1, 1, 0, own>>>(word);
             cudaStreamSynchronize(own);
           }},
          {"launch+sync other stream", none,
           [] {
             nothing<<<1, 1, 0, own>>>(word);
             cudaStreamSynchronize(own);
           }},
          {"cudaMemcpy (sync) D2H", none, [] {
             int there;
             cudaMemcpy(&there, word, sizeof there, cudaMemcpyDeviceToHost);
           }}};
}

static double launchElsewhere() {
  cudaSetDevice(0);
  usleep(20000);
  const double began = now();
  nothing<<<1, 1, 0, own>>>(nullptr);
  cudaEventRecord(event, own);
  while (cudaEventQuery(event) == cudaErrorNotReady && now() - began < 1.4) usleep(100);
  return now() - began;
}

static void measure(const Case& one) {
  one.before();
  *stop = 0;
  spin<<<1, 1, 0, spinning>>>(stop, kSpinNanoseconds);
  usleep(2000);
  double third = 0;
  std::thread other([&] { third = launchElsewhere(); });
  const double began = now();
  one.body();
  const double took = now() - began;
  other.join();
  *stop = 1;
  cudaStreamSynchronize(spinning);
  printf("%-28s %9.2f ms   another thread's launch %9.2f ms  %s\n", one.name, took * 1e3, third * 1e3,
         cudaGetErrorString(cudaGetLastError()));
}

int main() {
  cudaSetDevice(0);
  cudaHostAlloc(&stop, sizeof *stop, cudaHostAllocMapped);
  cudaMalloc(&word, sizeof *word);
  cudaStreamCreateWithFlags(&spinning, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  nothing<<<1, 1, 0, own>>>(nullptr);
  spin<<<1, 1, 0, spinning>>>(stop, 1);
  cudaDeviceSynchronize();
  for (const Case& one : ofMemory()) measure(one);
  for (const Case& one : ofStreams()) measure(one);
}
