#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>
#include "executors/cuda/kernels.cuh"
#include "primitives/cuda/block.cuh"
#include "primitives/cuda/norm.cuh"
using namespace stretto;
using namespace stretto::executors::cuda;
#define CK(x)                                        \
  do {                                               \
    cudaError_t e = (x);                             \
    if (e != cudaSuccess) {                          \
      printf("%s: %s\n", #x, cudaGetErrorString(e)); \
      return 1;                                      \
    }                                                \
  } while (0)
using R = stretto::cuda::FixedReducer<DataType::kBfloat16, Operator::kSum>;
__global__ void empty() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 0;
  const bool quick = argc > 2;
  char* m;
  CK(cudaMalloc(&m, 64 << 20));
  CK(cudaMemset(m, 0, 64 << 20));
  cudaStream_t s;
  CK(cudaStreamCreate(&s));
  auto launch = [&](auto kernel, int blocks, int t, auto... p) {
    cudaLaunchAttribute a{};
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c{};
    c.gridDim = dim3(blocks);
    c.blockDim = dim3(t);
    c.stream = s;
    c.attrs = &a;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, p...);
  };
  auto timed = [&](const char* name, int hidden, auto once) {
    cudaGraph_t g;
    cudaGraphExec_t x;
    cudaEvent_t b, e;
    cudaEventCreate(&b);
    cudaEventCreate(&e);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < 20; ++i) once();
    cudaStreamEndCapture(s, &g);
    cudaGraphInstantiate(&x, g, 0);
    std::vector<float> t;
    for (int i = 0; i < 30; ++i) {
      cudaEventRecord(b, s);
      cudaGraphLaunch(x, s);
      cudaEventRecord(e, s);
      cudaStreamSynchronize(s);
      float ms;
      cudaEventElapsedTime(&ms, b, e);
      t.push_back(ms * 50);
    }
    std::sort(t.begin(), t.end());
    printf("%-10s hidden %5d: %.2f us a step (%s)\n", name, hidden, t[15],
           cudaGetErrorString(cudaGetLastError()));
  };
  if (!quick) timed("empty", 0, [&] { launch(empty, 1, 32); });
  for (int hidden : {512, 1024, 2048, 4096, 8192}) {
    Arguments a{};
    a.send = reinterpret_cast<std::byte*>(m);
    a.count = hidden;
    a.elementBytes = 2;
    a.reduce = {DataType::kBfloat16, Operator::kSum, 1};
    NormArguments n{};
    n.hidden = hidden;
    n.epsilon = 1e-6f;
    n.residual = n.residualOut = reinterpret_cast<std::byte*>(m + (1 << 20));
    n.gamma = reinterpret_cast<std::byte*>(m + (2 << 20));
    n.normalised = reinterpret_cast<std::byte*>(m + (3 << 20));
    a.norm = &n;
    int packs = hidden / 8;
    int t = threads ? threads : std::max(64, std::min(512, packs));
    a.norm = nullptr;
    if (quick) {
      launch(normAlone<R>, 1, t, Context{}, a, n);
      launch(normAlone<R>, 1, t, Context{}, a, n);
      CK(cudaDeviceSynchronize());
      continue;
    }
    timed("normAlone", hidden, [&] { launch(normAlone<R>, 1, t, Context{}, a, n); });
  }
  return 0;
}
