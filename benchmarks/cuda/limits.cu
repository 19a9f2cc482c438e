// limits_driver: what two or more GPUs of this machine allow at the very most, so that a collective's time
// can be held against its floor. Plain allocations and peer access only: no multicast, no managed memory. GPU
// i writes to, or reads from, GPU i + 1, all of them at once; a time is that of the slowest, and a rate that
// of one GPU in one direction.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "judge.hpp"
#include "kernels.cuh"
#include "limits_report.hpp"

namespace stretto::bench {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr size_t kBufferBytes = 512 * kMegabyte;
constexpr int kThreads = 512;
constexpr int kRepeats = 5;
constexpr int kEmptyKernels = 200;
constexpr int kRounds = 2000;
constexpr int kBulkStages = 3;

__global__ void emptyKernel() {}

// Both ends of a ball that goes back and forth; `starts` serves. The time of all rounds goes to `took`, or 0
// when the other end did not answer in time.
__global__ void bounceLines(device::Line* mine, device::Line* theirs, bool starts, uint64_t* took) {
  const uint64_t began = device::nanoseconds();
  *took = 0;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (starts) device::storeLineRelaxed(theirs, {round * 3, round});
    for (;;) {
      const device::Line line = device::loadLineRelaxed(mine);
      if (line.epoch == round && line.data == round * 3) break;
      if (device::nanoseconds() - began > device::kDeadline) return;
    }
    if (!starts) device::storeLineRelaxed(theirs, {round * 3, round});
  }
  *took = device::nanoseconds() - began;
}

__global__ void bounceFlags(device::Line* mine, device::Line* theirs, bool starts, uint64_t* took) {
  const uint64_t began = device::nanoseconds();
  *took = 0;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (starts) device::storeRelease(&theirs->epoch, round);
    while (device::loadAcquire(&mine->epoch) != round) {
      if (device::nanoseconds() - began > device::kDeadline) return;
    }
    if (!starts) device::storeRelease(&theirs->epoch, round);
  }
  *took = device::nanoseconds() - began;
}

__global__ void storeKernel(uint4* to, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  const auto salt = static_cast<unsigned>(threadIdx.x);
#pragma unroll 4
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = make_uint4(salt, salt + 1, salt + 2, salt + 3);
  }
}

// The sum goes to memory only if it is what it never is, so that no load can be left out.
__global__ void loadKernel(const uint4* from, size_t count, unsigned* never) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  unsigned seen = 0;
#pragma unroll 8
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 value = from[i];
    seen |= value.x | value.y | value.z | value.w;
  }
  if (seen == 0xdeadbeefu) *never = seen;
}

// Each block sends its chunks from shared memory, a few of them under way at any time.
__global__ void bulkKernel(std::byte* to, size_t bytes, uint32_t chunk) {
  extern __shared__ __align__(128) std::byte shared[];
  for (uint32_t i = threadIdx.x; i < chunk * kBulkStages; i += blockDim.x)
    shared[i] = static_cast<std::byte>(i);
  device::publishToBulk();
  __syncthreads();
  if (threadIdx.x != 0) return;
  int stage = 0;
  for (size_t at = size_t{blockIdx.x} * chunk; at + chunk <= bytes; at += size_t{gridDim.x} * chunk) {
    device::waitBulkRead<kBulkStages - 1>();
    device::storeBulk(to + at, shared + stage * chunk, chunk);
    stage = (stage + 1) % kBulkStages;
  }
  device::waitBulkDone();
}

// One GPU with what its measurements need. Made and used with that GPU as the current one.
struct Gpu {
  explicit Gpu(int device_) : device(device_) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&began), "cudaEventCreate");
    check(cudaEventCreate(&ended), "cudaEventCreate");
    for (std::byte** buffer : {&source, &target}) {
      check(cudaMalloc(reinterpret_cast<void**>(buffer), kBufferBytes), "cudaMalloc");
      check(cudaMemset(*buffer, 0x11, kBufferBytes), "cudaMemset");
    }
    check(cudaMalloc(reinterpret_cast<void**>(&line), sizeof *line), "cudaMalloc");
    check(cudaHostAlloc(reinterpret_cast<void**>(&took), sizeof *took, cudaHostAllocMapped), "cudaHostAlloc");
    gate = std::make_unique<Gate>();
  }
  int device;
  cudaStream_t stream = nullptr;
  cudaEvent_t began = nullptr;
  cudaEvent_t ended = nullptr;
  std::byte* source = nullptr;
  std::byte* target = nullptr;
  device::Line* line = nullptr;
  uint64_t* took = nullptr;
  std::unique_ptr<Gate> gate;
};

// All GPUs of the measurement, in a ring.
class Bench {
 public:
  explicit Bench(int count) {
    for (int device = 0; device < count; ++device) {
      check(cudaSetDevice(device), "cudaSetDevice");
      enablePeers(device, count);
      gpus_.push_back(std::make_unique<Gpu>(device));
    }
  }

  size_t count() const { return gpus_.size(); }
  Gpu& gpu(size_t i) { return *gpus_[i]; }
  Gpu& next(const Gpu& gpu) { return *gpus_[(static_cast<size_t>(gpu.device) + 1) % count()]; }

  // Microseconds of what `work` puts into each stream, of the slowest of the first `users` GPUs: the median
  // of several.
  double time(size_t users, const std::function<void(Gpu&)>& work) {
    std::vector<double> times;
    for (int repeat = -1; repeat < kRepeats; ++repeat) {
      const double took = timeOnce(users, work);
      if (repeat >= 0) times.push_back(took);  // the first warms up
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // One way between the first two GPUs, in microseconds.
  double bounce(void (*kernel)(device::Line*, device::Line*, bool, uint64_t*)) {
    for (size_t i : {size_t{0}, size_t{1}}) {
      check(cudaSetDevice(gpu(i).device), "cudaSetDevice");
      check(cudaMemsetAsync(gpu(i).line, 0, sizeof(device::Line), gpu(i).stream), "cudaMemsetAsync");
      check(cudaStreamSynchronize(gpu(i).stream), "clearing a flag");
    }
    timeOnce(2, [&](Gpu& own) {
      kernel<<<1, 1, 0, own.stream>>>(own.line, gpu(1 - static_cast<size_t>(own.device)).line,
                                      own.device == 0, own.took);
    });
    const uint64_t took = *gpu(0).took;
    if (took == 0) throw Failure("the flag of one GPU never reached the other: two seconds passed");
    return static_cast<double>(took) / 1000 / (2.0 * kRounds);
  }

 private:
  static void enablePeers(int device, int count) {
    for (int peer = 0; peer < count; ++peer) {
      if (peer == device) continue;
      int reaches = 0;
      check(cudaDeviceCanAccessPeer(&reaches, device, peer), "cudaDeviceCanAccessPeer");
      if (reaches == 0) {
        throw Failure("GPU " + std::to_string(device) + " cannot address the memory of GPU " +
                      std::to_string(peer));
      }
      check(cudaDeviceEnablePeerAccess(peer, 0), "cudaDeviceEnablePeerAccess");
    }
  }

  double timeOnce(size_t users, const std::function<void(Gpu&)>& work) {
    for (size_t i = 0; i < users; ++i) {
      Gpu& own = gpu(i);
      check(cudaSetDevice(own.device), "cudaSetDevice");
      own.gate->close(own.stream);
      check(cudaEventRecord(own.began, own.stream), "cudaEventRecord");
      work(own);
      check(cudaGetLastError(), "launching");
      check(cudaEventRecord(own.ended, own.stream), "cudaEventRecord");
    }
    for (size_t i = 0; i < users; ++i) gpu(i).gate->open();
    double slowest = 0;
    for (size_t i = 0; i < users; ++i) {
      check(cudaStreamSynchronize(gpu(i).stream), "running a measurement");
      if (!gpu(i).gate->wasOpened()) throw Failure("a measurement took two seconds to be launched");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, gpu(i).began, gpu(i).ended), "cudaEventElapsedTime");
      slowest = std::max(slowest, 1000.0 * static_cast<double>(milliseconds));
    }
    return slowest;
  }

  std::vector<std::unique_ptr<Gpu>> gpus_;
};

double measureEmpty(Bench& bench) {
  std::vector<cudaGraphExec_t> graphs(bench.count());
  for (size_t i = 0; i < bench.count(); ++i) {
    check(cudaSetDevice(bench.gpu(i).device), "cudaSetDevice");
    cudaGraph_t graph = nullptr;
    const cudaStream_t stream = bench.gpu(i).stream;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int k = 0; k < kEmptyKernels; ++k) emptyKernel<<<1, 32, 0, stream>>>();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&graphs[i], graph, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(graphs[i], stream), "cudaGraphUpload");
    check(cudaStreamSynchronize(stream), "uploading a graph");
  }
  const double took = bench.time(bench.count(), [&](Gpu& own) {
    check(cudaGraphLaunch(graphs[static_cast<size_t>(own.device)], own.stream), "cudaGraphLaunch");
  });
  return took / kEmptyKernels;
}

void measureStores(Bench& bench, LimitsReport& report) {
  for (const int blocks : {1, 2, 4, 8, 16, 32, 64, 132}) {
    const size_t bytes = std::min<size_t>(static_cast<size_t>(blocks) * 16 * kMegabyte, 256 * kMegabyte);
    const double us = bench.time(bench.count(), [&](Gpu& own) {
      storeKernel<<<blocks, kThreads, 0, own.stream>>>(reinterpret_cast<uint4*>(bench.next(own).target),
                                                       bytes / sizeof(uint4));
    });
    report.add({.limit = "store", .blocks = blocks, .bytes = bytes, .us = us});
  }
}

void measureLoads(Bench& bench, LimitsReport& report) {
  for (const int blocks : {1, 2, 4, 8, 16, 32, 64, 132}) {
    const size_t bytes = std::min<size_t>(static_cast<size_t>(blocks) * 8 * kMegabyte, 256 * kMegabyte);
    const double us = bench.time(bench.count(), [&](Gpu& own) {
      loadKernel<<<blocks, kThreads, 0, own.stream>>>(reinterpret_cast<const uint4*>(bench.next(own).source),
                                                      bytes / sizeof(uint4),
                                                      reinterpret_cast<unsigned*>(own.target));
    });
    report.add({.limit = "load", .blocks = blocks, .bytes = bytes, .us = us});
  }
}

void measureBulkStores(Bench& bench, LimitsReport& report) {
  for (size_t i = 0; i < bench.count(); ++i) {
    check(cudaSetDevice(bench.gpu(i).device), "cudaSetDevice");
    check(cudaFuncSetAttribute(bulkKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kBulkStages * 64 * 1024),
          "cudaFuncSetAttribute");
  }
  for (const uint32_t chunk : {4u << 10, 16u << 10, 32u << 10, 64u << 10}) {
    for (const int blocks : {4, 8, 16}) {
      const size_t bytes = 128 * kMegabyte;
      const double us = bench.time(bench.count(), [&](Gpu& own) {
        bulkKernel<<<blocks, 128, kBulkStages * chunk, own.stream>>>(bench.next(own).target, bytes, chunk);
      });
      report.add({.limit = "bulk store", .blocks = blocks, .chunk = chunk, .bytes = bytes, .us = us});
    }
  }
}

// Push: the copy runs in a stream of the GPU that owns the source; pull: in one of the GPU that wants the
// bytes.
void measureCopies(Bench& bench, LimitsReport& report) {
  for (const bool pushes : {true, false}) {
    for (const size_t users : {size_t{1}, bench.count()}) {
      for (size_t bytes = 64 << 10; bytes <= kBufferBytes; bytes *= bytes == 256 * kMegabyte ? 2 : 4) {
        const size_t copies = std::clamp<size_t>(256 * kMegabyte / bytes, 2, 32);
        const double us = bench.time(users, [&](Gpu& own) {
          Gpu& other = bench.next(own);
          std::byte* to = pushes ? other.target : own.target;
          const std::byte* from = pushes ? own.source : other.source;
          for (size_t i = 0; i < copies; ++i) {
            check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, own.stream), "cudaMemcpyAsync");
          }
        });
        const char* name = users > 1 ? (pushes ? "copy push both ways" : "copy pull both ways")
                                     : (pushes ? "copy push one way" : "copy pull one way");
        report.add({.limit = name, .bytes = bytes, .us = us / static_cast<double>(copies)});
      }
    }
  }
}

void measureAll(int count, LimitsReport& report) {
  Bench bench(count);
  report.add({.limit = "empty kernel in a graph", .us = measureEmpty(bench)});
  report.add({.limit = "one-way line, relaxed", .us = bench.bounce(bounceLines)});
  report.add({.limit = "one-way flag, release/acquire", .us = bench.bounce(bounceFlags)});
  measureStores(bench, report);
  measureLoads(bench, report);
  measureBulkStores(bench, report);
  measureCopies(bench, report);
}

std::string describe(int count) {
  std::string text;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    text += (device == 0 ? "" : ", ") + std::string(properties.name);
  }
  return text;
}

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  int count = 2;
  std::string path;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--gpus") count = atoi(argv[i + 1]);
    if (std::string(argv[i]) == "--json") path = argv[i + 1];
  }
  if (argc % 2 == 0 || count < 2) {
    fprintf(stderr, "limits_driver: usage: limits_driver [--gpus N] [--json FILE], N of at least 2\n");
    return 2;
  }
  try {
    LimitsReport report(describe(count), count);
    try {
      measureAll(count, report);
    } catch (const std::exception& failure) {
      report.fail(failure.what());  // what was measured before is still worth its place
    }
    report.print();
    if (!path.empty()) report.save(path);
    return report.failure().empty() ? 0 : 1;
  } catch (const std::exception& failure) {
    fprintf(stderr, "limits_driver: %s\n", failure.what());
    return 2;
  }
}
