// Small all-reduces in bare lines between two GPUs of one process, in the way of the library's kernel and in
// that of SGLang's, with one thing changed at a time: when the next kernel may be launched, who exchanges a
// tag, where the blocks' lines lie, whether a rank's own data goes through its window. Prints microseconds
// for each number of blocks; every result is verified, and a wait gives up after about a second.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90,code=sm_90 -o probe probe.cu && ./probe
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                              \
  do {                                                                           \
    const cudaError_t error = (call);                                            \
    if (error != cudaSuccess) {                                                  \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (0)

struct alignas(16) Pack {
  uint64_t low, high;
};
__device__ void storeRelaxed(void* at, Pack v) {
  asm volatile("{ .reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.sys.global.b128 [%0], v; }" ::"l"(at),
               "l"(v.low), "l"(v.high)
               : "memory");
}
__device__ Pack loadRelaxed(const void* at) {
  Pack v;
  asm volatile("{ .reg .b128 v; ld.relaxed.sys.global.b128 v, [%2]; mov.b128 {%0, %1}, v; }"
               : "=l"(v.low), "=l"(v.high)
               : "l"(at)
               : "memory");
  return v;
}
__device__ uint64_t sumOf(uint64_t a, uint64_t b) {
  __nv_bfloat162 x[2], y[2];
  memcpy(x, &a, 8);
  memcpy(y, &b, 8);
  for (int i = 0; i < 2; ++i) x[i] = __hadd2(x[i], y[i]);
  memcpy(&a, x, 8);
  return a;
}
__device__ void letNextBegin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

enum Tags { kNoTags, kEveryBlock, kFirstBlock };
enum Launch { kAtTheEnd, kAtOnce, kAfterThePut, kAfterThePoll };

struct Params {
  const char* in;
  char *out, *mine, *peer, *myTags, *peerTags;
  uint32_t *counters, *failed;
  uint32_t blockLines, lines, laneStride, parityStride, selfAt;
};

// robin: warps are dealt to blocks in turn, and lines lie where the buffer has them; else each block has a
// run of the buffer and a lane of its own. self: a rank sends to itself, too.
template <bool self, Tags tags, Launch launch, bool robin>
__global__ void __launch_bounds__(1024, 1) oneShot(const __grid_constant__ Params p) {
  constexpr uint32_t kTagStride = 1024;
  if (launch == kAtOnce) letNextBegin();
  const uint32_t block = blockIdx.x, begin = robin ? 0 : block * p.blockLines;
  const uint32_t end = robin ? p.lines : begin >= p.lines ? 0 : min(p.blockLines, p.lines - begin);
  const uint32_t first =
      robin ? (block + gridDim.x * (threadIdx.x / 32)) * 32 + threadIdx.x % 32 : threadIdx.x;
  const uint32_t step = robin ? blockDim.x * gridDim.x : blockDim.x;
  const char* in = p.in + size_t{begin} * 16;
  char* out = p.out + size_t{begin} * 16;
  char* mine = p.mine + (robin ? 0 : size_t{block} * p.laneStride);
  char* peer = p.peer + (robin ? 0 : size_t{block} * p.laneStride);
  const uint32_t* counter = p.counters + block + threadIdx.y;
  asm volatile("" : "+l"(counter), "+l"(mine), "+l"(peer));
  asm volatile("griddepcontrol.wait;" ::: "memory");
  uint32_t epoch;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(epoch) : "l"(counter) : "memory");
  const auto load = [&](uint32_t i) { return reinterpret_cast<const Pack*>(in)[i]; };
  Pack ahead{};
  if (first < end) ahead = load(first);
  const size_t place = (epoch & 1) * p.parityStride;
  const bool tagged = tags == kEveryBlock || (tags == kFirstBlock && block == 0);
  char* const tagAt = p.myTags + size_t{block} * kTagStride + (epoch & 1) * 64;
  bool gaveUp = false;
  const auto put = [&](uint32_t i, Pack v) {
    storeRelaxed(peer + place + size_t{i} * 16, v);
    if (self) storeRelaxed(mine + place + p.selfAt + size_t{i} * 16, v);
  };
  const auto take = [&](uint32_t i, Pack own, bool withTag) {
    char* const at = mine + place + size_t{i} * 16;
    Pack got;
    for (uint32_t polls = 0;; ++polls) {
      got = loadRelaxed(at);
      bool come = static_cast<uint32_t>(got.low) != ~0u;
      if (self) {
        own = loadRelaxed(at + p.selfAt);
        come = come && static_cast<uint32_t>(own.low) != ~0u;
      }
      if (withTag) come = loadRelaxed(tagAt).low > epoch && come;
      if (come) break;
      if (polls < 1u << 20) continue;
      gaveUp = *p.failed = 1;
      break;
    }
    if (launch == kAfterThePoll) letNextBegin();
    *reinterpret_cast<Pack*>(at) = {~0ull, ~0ull};
    if (self) *reinterpret_cast<Pack*>(at + p.selfAt) = {~0ull, ~0ull};
    reinterpret_cast<Pack*>(out)[i] = {sumOf(got.low, own.low), sumOf(got.high, own.high)};
  };
  if (first < end) put(first, ahead);
  if (tagged && threadIdx.x == 0) {
    storeRelaxed(p.peerTags + size_t{block} * kTagStride + (epoch & 1) * 64, {epoch + 1, 7});
  }
  if (launch == kAfterThePut) letNextBegin();
  for (uint32_t i = first; i < end && !gaveUp; i += step) {
    const Pack own = ahead;
    if (i + step < end) put(i + step, ahead = load(i + step));
    take(i, own, tagged && threadIdx.x < 32 && i == first);
  }
  if (launch == kAtTheEnd) letNextBegin();
  __syncthreads();
  if (threadIdx.x == 0) p.counters[block] = epoch + 1;
}

struct Variant {
  const char* name;
  void (*kernel)(Params);
  uint32_t laneStride;  // bytes from one block's lines to the next one's; 0: close together
};
constexpr size_t kWindow = size_t{256} << 20, kTagsAt = kWindow - (1 << 20), kMost = size_t{4} << 20;
struct Side {
  char *in, *out, *window;
  uint32_t *counters, *failed;
  cudaStream_t stream;
  cudaGraphExec_t graph;
  cudaEvent_t from, to;
} sides[2];

void allocate() {
  for (int r = 0; r < 2; ++r) {
    Side& side = sides[r];
    CHECK(cudaSetDevice(r));
    CHECK(cudaDeviceEnablePeerAccess(1 - r, 0));
    CHECK(cudaMalloc(&side.in, kMost));
    CHECK(cudaMalloc(&side.out, kMost));
    CHECK(cudaMalloc(&side.window, kWindow));
    CHECK(cudaMalloc(&side.counters, 4096));
    CHECK(cudaMalloc(&side.failed, 4));
    CHECK(cudaMemset(side.failed, 0, 4));
    const std::vector<uint16_t> in(kMost / 2, r == 0 ? 0x3f80 : 0x4000);  // 1 and 2
    CHECK(cudaMemcpy(side.in, in.data(), kMost, cudaMemcpyHostToDevice));
    CHECK(cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&side.from));
    CHECK(cudaEventCreate(&side.to));
  }
}

void reset(int r) {
  CHECK(cudaSetDevice(r));
  CHECK(cudaMemset(sides[r].window, 0xff, kTagsAt));
  CHECK(cudaMemset(sides[r].window + kTagsAt, 0, kWindow - kTagsAt));
  CHECK(cudaMemset(sides[r].counters, 0, 4096));
  CHECK(cudaMemset(sides[r].out, 0, kMost));
  CHECK(cudaDeviceSynchronize());
}

void capture(int r, const Variant& variant, uint32_t lines, int blocks, int threads, int kernels) {
  CHECK(cudaSetDevice(r));
  const uint32_t each = (lines + blocks - 1) / blocks;
  Params p{sides[r].in,
           sides[r].out,
           sides[r].window,
           sides[1 - r].window,
           sides[r].window + kTagsAt,
           sides[1 - r].window + kTagsAt,
           sides[r].counters,
           sides[r].failed,
           each,
           lines,
           variant.laneStride != 0 ? variant.laneStride : each * 16,
           variant.laneStride != 0 ? variant.laneStride / 4 : lines * 16 + 4096,
           128u << 20};
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how{};
  how.gridDim = blocks;
  how.blockDim = threads;
  how.stream = sides[r].stream;
  how.attrs = &early;
  how.numAttrs = 1;
  CHECK(cudaStreamBeginCapture(sides[r].stream, cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < kernels; ++k) CHECK(cudaLaunchKernelEx(&how, variant.kernel, p));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(sides[r].stream, &graph));
  CHECK(cudaGraphInstantiate(&sides[r].graph, graph, 0));
  CHECK(cudaGraphDestroy(graph));
}

// Of the rank that begins last; median of nine replays.
double replay(int kernels) {
  std::vector<double> times;
  for (int turn = 0; turn < 11; ++turn) {
    for (int r = 0; r < 2; ++r) {
      CHECK(cudaSetDevice(r));
      CHECK(cudaEventRecord(sides[r].from, sides[r].stream));
      CHECK(cudaGraphLaunch(sides[r].graph, sides[r].stream));
      CHECK(cudaEventRecord(sides[r].to, sides[r].stream));
    }
    float ms = 0;
    for (int r = 0; r < 2; ++r) {
      CHECK(cudaSetDevice(r));
      CHECK(cudaStreamSynchronize(sides[r].stream));
      CHECK(cudaEventElapsedTime(&ms, sides[r].from, sides[r].to));
    }
    if (turn >= 2) times.push_back(ms * 1e3 / kernels);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

bool isRight(int r, size_t bytes) {
  std::vector<uint16_t> out(bytes / 2);
  uint32_t failed;
  CHECK(cudaSetDevice(r));
  CHECK(cudaGraphExecDestroy(sides[r].graph));
  CHECK(cudaMemcpy(out.data(), sides[r].out, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&failed, sides[r].failed, 4, cudaMemcpyDeviceToHost));
  if (failed != 0) std::exit(std::printf("a wait gave up\n"));
  return std::all_of(out.begin(), out.end(), [](uint16_t x) { return x == 0x4040; });  // 3
}

int main() {
  allocate();
  const uint32_t apart = 368 << 10;  // as far as the lanes of the library's windows
  const Variant variants[] = {
      {"tags, at once (the library before)", oneShot<false, kEveryBlock, kAtOnce, false>, apart},
      {"tags, at once, lines close together", oneShot<false, kEveryBlock, kAtOnce, false>, 0},
      {"tags, after the put", oneShot<false, kEveryBlock, kAfterThePut, false>, apart},
      {"tags, at the end", oneShot<false, kEveryBlock, kAtTheEnd, false>, apart},
      {"tag of the first, at once", oneShot<false, kFirstBlock, kAtOnce, false>, apart},
      {"tag of the first, after the put", oneShot<false, kFirstBlock, kAfterThePut, false>, apart},
      {"tag of the first, after the poll", oneShot<false, kFirstBlock, kAfterThePoll, false>, apart},
      {"tag of the first, at the end", oneShot<false, kFirstBlock, kAtTheEnd, false>, apart},
      {"robin, self, at the end (SGLang's)", oneShot<true, kNoTags, kAtTheEnd, true>, 0},
  };
  for (const Variant& variant : variants) {
    std::printf("%s\n", variant.name);
    for (uint32_t bytes = 1024; bytes <= kMost; bytes *= bytes == 1024 ? 4 : 2) {
      std::printf("%10u", bytes);
      for (const int blocks : {1, 2, 4, 8, 16, 32, 64, 128}) {
        const uint32_t lines = bytes / 16, each = (lines + blocks - 1) / blocks;
        const bool fits = each <= 4096 && (variant.laneStride == 0 || each * 16 <= variant.laneStride / 4);
        if (!fits || (each < 32 && blocks > 1)) {
          std::printf("     -");
          continue;
        }
        const int threads = static_cast<int>(std::min(1024u, (each + 31) / 32 * 32));
        const int kernels = bytes > 1 << 19 ? 50 : 200;
        for (int r = 0; r < 2; ++r) reset(r);
        for (int r = 0; r < 2; ++r) capture(r, variant, lines, blocks, threads, kernels);
        const double us = replay(kernels);
        const bool right = isRight(0, bytes) && isRight(1, bytes);
        std::printf(" %5.2f%s", us, right ? "" : "!");
      }
      std::printf("\n");
    }
  }
}
