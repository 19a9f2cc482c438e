// norm_driver: all-reduce with residual add and RMSNorm between GPUs, beside our own all-reduce and a norm
// kernel after it, as a serving engine without the fused call has them. Chains of steps in CUDA graphs, in
// turns, each verified in the same run. Ranks are threads of this process.
//
//   norm_driver [--ranks 2] [--shared] [--tokens 1,8,...] [--hidden 4096,...] [--turns 7] [--json]
//
// --shared: all ranks on the first GPU. A line for each number of tokens and hidden size: microseconds of one
// step, of the slowest rank, the median of the turns; with --json one object for each way.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <cuda_bf16.h>

#include "check.hpp"
#include "stretto.h"

namespace stretto::bench {
namespace {

constexpr int kSteps = 20;  // of a graph
constexpr int kInputs = 4;  // that steps take in turns
constexpr float kEpsilon = 1e-6f;

// ---- The norm after an all-reduce -------------------------------------------------------------------------

// As engines have it: a block for each token, vectors of 16 bytes, the sum and what is added to it read once.
// Begins while the all-reduce runs, and lets what follows begin.
struct alignas(16) Vector {
  __nv_bfloat162 of[4];
};
constexpr int kVectors = 4;  // of a thread, at most: 16384 elements by 512 threads
__global__ void __launch_bounds__(512) addRmsNorm(const Vector* sum, Vector* residual, const Vector* gamma,
                                                  Vector* normalised, int vectors, float epsilon) {
  __shared__ float parts[16];
  Vector added[kVectors];
  float squares = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const size_t token = size_t{blockIdx.x} * static_cast<size_t>(vectors);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int at = static_cast<int>(threadIdx.x) + v * static_cast<int>(blockDim.x);
    if (at >= vectors) break;
    const Vector a = sum[token + at], b = residual[token + at];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = __bfloat1622float2(a.of[i]), y = __bfloat1622float2(b.of[i]);
      added[v].of[i] = __floats2bfloat162_rn(x.x + y.x, x.y + y.y);
      const float2 z = __bfloat1622float2(added[v].of[i]);
      squares += z.x * z.x + z.y * z.y;
    }
    residual[token + at] = added[v];
  }
  for (int half = 16; half > 0; half /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, half);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
  __syncthreads();
  squares = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) squares += parts[warp];
  const float factor = rsqrtf(squares / static_cast<float>(8 * vectors) + epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int at = static_cast<int>(threadIdx.x) + v * static_cast<int>(blockDim.x);
    if (at >= vectors) break;
    const Vector weight = gamma[at];
    Vector result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 z = __bfloat1622float2(added[v].of[i]), w = __bfloat1622float2(weight.of[i]);
      result.of[i] = __floats2bfloat162_rn(z.x * factor * w.x, z.y * factor * w.y);
    }
    normalised[token + at] = result;
  }
}

void launchNorm(const void* sum, void* residual, const void* gamma, void* normalised, int tokens, int hidden,
                cudaStream_t stream) {
  const int vectors = hidden / 8;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(tokens));
  const int rounds = (vectors + 511) / 512;
  config.blockDim = dim3(static_cast<unsigned>(((vectors + rounds - 1) / rounds + 31) / 32 * 32));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, addRmsNorm, static_cast<const Vector*>(sum),
                           static_cast<Vector*>(residual), static_cast<const Vector*>(gamma),
                           static_cast<Vector*>(normalised), vectors, kEpsilon),
        "the norm");
}

// ---- What is asked for ------------------------------------------------------------------------------------

struct Setup {
  int ranks = 2;
  bool shared = false;
  bool json = false;
  int turns = 7;
  std::vector<int> tokens = {1, 8, 32, 128, 512, 2048};
  std::vector<int> hidden = {4096, 5120, 7168, 8192};
};

std::vector<int> numbersIn(const char* list) {
  std::vector<int> numbers;
  for (const char* at = list; at != nullptr && *at != 0;) {
    numbers.push_back(std::atoi(at));
    at = std::strchr(at, ',');
    if (at != nullptr) ++at;
  }
  return numbers;
}

Setup setupFrom(int count, char** words) {
  Setup setup;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const char* const value = i + 1 < count ? words[i + 1] : "";
    if (word == "--shared" || word == "--json") {
      (word == "--json" ? setup.json : setup.shared) = true;
      continue;
    }
    ++i;
    if (word == "--ranks") {
      setup.ranks = std::atoi(value);
    } else if (word == "--turns") {
      setup.turns = std::atoi(value);
    } else if (word == "--tokens") {
      setup.tokens = numbersIn(value);
    } else if (word == "--hidden") {
      setup.hidden = numbersIn(value);
    } else {
      throw Failure(
          "norm_driver [--ranks N] [--shared] [--tokens LIST] [--hidden LIST] [--turns N] [--json]");
    }
  }
  if (setup.ranks < 2 || setup.turns < 1) throw Failure("at least two ranks, and one turn");
  return setup;
}

// How a step runs: by the fused call, forced to a form or not; by parts, of which the norm is a usual kernel
// or that of our own for one rank; or the all-reduce alone.
enum class What { kFused, kParts, kOwnParts, kSum };
struct Way {
  const char* name;
  const char* algorithm;
  const char* protocol;
  What what = What::kFused;
};

std::vector<Way> waysFor(int ranks) {
  std::vector<Way> ways = {{"sum alone", nullptr, nullptr, What::kSum},
                           {"parts", nullptr, nullptr, What::kParts},
                           {"fused", nullptr, nullptr},
                           {"one_shot", "one_shot", "lamport"},
                           {"own parts", nullptr, nullptr, What::kOwnParts},
                           {"chunks+norm", ranks == 2 ? "one_shot" : "two_shot", "warp_chunks"}};
  if (ranks > 2) ways.push_back({"two_shot", "two_shot", "lamport"});
  return ways;
}

void must(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw Failure(std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

// ---- A rank -----------------------------------------------------------------------------------------------

uint16_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
double valueOf(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return static_cast<double>(value);
}

// Numbers between -2 and 2, the same wherever they are made.
std::vector<uint16_t> numbers(size_t count, uint64_t seed) {
  std::vector<uint16_t> all(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint16_t& each : all) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    each = bitsOf(static_cast<float>(static_cast<int>(state >> 33) % 4001) / 1000 - 2);
  }
  return all;
}

struct Shared {
  explicit Shared(const Setup& given)
      : setup(given), meeting(given.ranks), times(static_cast<size_t>(given.ranks)) {}
  const Setup& setup;
  ncclUniqueId id;
  std::barrier<> meeting;
  std::vector<double> times;  // of each rank
};

class Rank {
 public:
  Rank(Shared& shared, int rank) : shared_(shared), rank_(rank) {
    const Setup& setup = shared.setup;
    check(cudaSetDevice(setup.shared ? 0 : rank), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    check(cudaEventCreate(&began_), "an event");
    check(cudaEventCreate(&ended_), "an event");
    const auto most = [](const std::vector<int>& of) {
      return static_cast<size_t>(*std::max_element(of.begin(), of.end()));
    };
    const size_t bytes = 2 * most(setup.tokens) * most(setup.hidden);
    for (void*& input : inputs_) check(cudaMalloc(&input, bytes), "memory");
    for (void** place : {&residual_, &start_, &sum_, &normalised_}) check(cudaMalloc(place, bytes), "memory");
    check(cudaMalloc(&gamma_, 2 * most(setup.hidden)), "memory");
    must(ncclCommInitRank(&comm_, setup.ranks, shared.id, rank), "ncclCommInitRank");
    ncclUniqueId own;
    must(ncclGetUniqueId(&own), "ncclGetUniqueId");
    must(ncclCommInitRank(&alone_, 1, own, 0), "ncclCommInitRank");
  }

  void measure(int tokens, int hidden) {
    tokens_ = tokens;
    hidden_ = hidden;
    fill();
    const std::vector<Way> ways = waysFor(shared_.setup.ranks);
    std::vector<cudaGraphExec_t> graphs;
    for (const Way& way : ways) graphs.push_back(graphOf(way));
    std::map<std::string, std::vector<double>> times;
    for (int turn = -1; turn < shared_.setup.turns; ++turn) {
      for (size_t i = 0; i < ways.size(); ++i) {
        const double time = timeOf(graphs[i]);
        if (turn >= 0 && time > 0) times[ways[i].name].push_back(time);
      }
    }
    verify(ways, graphs);
    for (cudaGraphExec_t graph : graphs) {
      if (graph != nullptr) check(cudaGraphExecDestroy(graph), "a graph's end");
    }
    if (rank_ == 0) print(ways, times);
  }

 private:
  size_t count() const { return static_cast<size_t>(tokens_) * static_cast<size_t>(hidden_); }
  void meet() { shared_.meeting.arrive_and_wait(); }

  void fill() {
    const auto upload = [](void* to, const std::vector<uint16_t>& from) {
      check(cudaMemcpy(to, from.data(), 2 * from.size(), cudaMemcpyHostToDevice), "a copy");
    };
    for (int i = 0; i < kInputs; ++i) upload(inputs_[i], inputOf(rank_, i));
    upload(start_, numbers(count(), 1));
    gammaThere_ = numbers(static_cast<size_t>(hidden_), 2);
    upload(gamma_, gammaThere_);
    reset();
  }
  std::vector<uint16_t> inputOf(int rank, int which) const {
    return numbers(count(), static_cast<uint64_t>(100 + rank * kInputs + which));
  }
  void reset() {
    check(cudaMemcpyAsync(residual_, start_, 2 * count(), cudaMemcpyDeviceToDevice, stream_), "a copy");
    check(cudaStreamSynchronize(stream_), "a stream");
  }

  void step(const Way& way, int number) {
    void* const input = inputs_[number % kInputs];
    if (way.what != What::kFused) {
      must(ncclAllReduce(input, sum_, count(), ncclBfloat16, ncclSum, comm_, stream_), "ncclAllReduce");
      if (way.what == What::kParts)
        launchNorm(sum_, residual_, gamma_, normalised_, tokens_, hidden_, stream_);
      if (way.what == What::kOwnParts) callNorm(sum_, alone_);
      return;
    }
    callNorm(input, comm_);
  }
  void callNorm(const void* input, ncclComm_t comm) {
    strettoAddRmsNorm_t norm = STRETTO_ADD_RMS_NORM_INITIALIZER;
    norm.tokens = static_cast<size_t>(tokens_);
    norm.hidden = static_cast<size_t>(hidden_);
    norm.type = ncclBfloat16;
    norm.epsilon = kEpsilon;
    norm.input = input;
    norm.residual = norm.residualOut = residual_;
    norm.gamma = gamma_;
    norm.normalised = normalised_;
    must(strettoAllReduceAddRmsNorm(&norm, comm, stream_), "strettoAllReduceAddRmsNorm");
  }

  // Null where the way does not serve this shape, on all ranks alike.
  cudaGraphExec_t graphOf(const Way& way) {
    meet();
    const char* const collective = "all_reduce_add_rms_norm";
    // The first call opens windows and loads kernels, which a capture must not do.
    bool serves = true;
    try {
      must(strettoCommForce(comm_, collective, way.algorithm, way.protocol, 0, 0), "strettoCommForce");
      step(way, 0);
    } catch (const Failure&) {
      serves = false;
    }
    check(cudaStreamSynchronize(stream_), "a stream");
    if (!serves) return nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "a capture");
    for (int i = 0; i < kSteps; ++i) step(way, i);
    check(cudaStreamEndCapture(stream_, &graph), "a capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
    check(cudaGraphDestroy(graph), "a graph");
    check(cudaGraphUpload(executable, stream_), "a graph");
    check(cudaStreamSynchronize(stream_), "a stream");
    meet();
    return executable;
  }

  // Microseconds of a step, of the slowest rank; a few milliseconds' worth.
  double timeOf(cudaGraphExec_t graph) {
    if (graph == nullptr) return 0;
    const int replays = static_cast<int>(std::clamp<size_t>(40'000'000 / (2 * count()), 5, 100));
    check(cudaGraphLaunch(graph, stream_), "a graph");
    check(cudaStreamSynchronize(stream_), "a stream");
    meet();
    check(cudaGraphLaunch(graph, stream_), "a graph");  // all ranks are under way when the clock starts
    check(cudaEventRecord(began_, stream_), "an event");
    for (int i = 0; i < replays; ++i) check(cudaGraphLaunch(graph, stream_), "a graph");
    check(cudaEventRecord(ended_, stream_), "an event");
    check(cudaStreamSynchronize(stream_), "a stream");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, began_, ended_), "an event");
    shared_.times[static_cast<size_t>(rank_)] = 1000.0 * static_cast<double>(milliseconds) / replays / kSteps;
    meet();
    const double slowest = *std::max_element(shared_.times.begin(), shared_.times.end());
    meet();
    return slowest;
  }

  // The timed graphs themselves, from the same residual: their residuals have the same bits, and the last
  // step's normalised tokens are those of the residual. A step by itself is held against exact sums.
  void verify(const std::vector<Way>& ways, const std::vector<cudaGraphExec_t>& graphs) {
    std::vector<uint16_t> first;
    for (size_t i = 0; i < ways.size(); ++i) {
      if (graphs[i] == nullptr) continue;
      reset();
      meet();
      check(cudaGraphLaunch(graphs[i], stream_), "a graph");
      check(cudaStreamSynchronize(stream_), "a stream");
      if (ways[i].what == What::kSum) {
        checkSums(ways[i], download(sum_), (kSteps - 1) % kInputs, {});
        continue;
      }
      const std::vector<uint16_t> residual = download(residual_);
      if (first.empty()) first = residual;
      if (residual != first) throw Failure(std::string(ways[i].name) + ": another residual than by parts");
      checkNorm(ways[i], residual, download(normalised_));
      reset();
      meet();
      must(strettoCommForce(comm_, "all_reduce_add_rms_norm", ways[i].algorithm, ways[i].protocol, 0, 0),
           "strettoCommForce");
      step(ways[i], 0);
      check(cudaStreamSynchronize(stream_), "a stream");
      checkSums(ways[i], download(residual_), 0, numbers(count(), 1));
    }
    meet();
  }
  std::vector<uint16_t> download(const void* from) const {
    std::vector<uint16_t> all(count());
    check(cudaMemcpy(all.data(), from, 2 * all.size(), cudaMemcpyDeviceToHost), "a copy");
    return all;
  }
  // `start`: what the sums of that input have been added to, if to anything.
  void checkSums(const Way& way, const std::vector<uint16_t>& got, int input,
                 const std::vector<uint16_t>& start) const {
    std::vector<std::vector<uint16_t>> inputs;
    for (int rank = 0; rank < shared_.setup.ranks; ++rank) inputs.push_back(inputOf(rank, input));
    constexpr double kUnit = 1.0 / 256;
    for (size_t i = 0; i < count(); ++i) {
      double sum = 0;
      for (const auto& each : inputs) sum += valueOf(each[i]);
      const double exact = start.empty() ? sum : sum + valueOf(start[i]);
      const double bound = 1.01 * kUnit * (std::fabs(sum) + std::fabs(exact)) + 1e-5;
      expectNear(way, start.empty() ? "sum" : "residual", i, valueOf(got[i]), exact, bound);
    }
  }
  void checkNorm(const Way& way, const std::vector<uint16_t>& residual,
                 const std::vector<uint16_t>& normalised) const {
    const auto hidden = static_cast<size_t>(hidden_);
    for (size_t token = 0; token < static_cast<size_t>(tokens_); ++token) {
      double squares = 0;
      for (size_t i = 0; i < hidden; ++i) squares += std::pow(valueOf(residual[token * hidden + i]), 2);
      const double factor = 1 / std::sqrt(squares / hidden_ + static_cast<double>(kEpsilon));
      for (size_t i = 0; i < hidden; ++i) {
        const size_t at = token * hidden + i;
        const double exact = valueOf(residual[at]) * factor * valueOf(gammaThere_[i]);
        expectNear(way, "normalised", at, valueOf(normalised[at]), exact, std::fabs(exact) / 250 + 1e-30);
      }
    }
  }
  void expectNear(const Way& way, const char* what, size_t at, double got, double exact, double bound) const {
    if (std::fabs(got - exact) <= bound) return;
    throw Failure(std::string(way.name) + ", " + std::to_string(tokens_) + " x " + std::to_string(hidden_) +
                  ": " + what + "[" + std::to_string(at) + "] is " + std::to_string(got) + " and not " +
                  std::to_string(exact));
  }

  void print(const std::vector<Way>& ways, std::map<std::string, std::vector<double>>& times) const {
    std::map<std::string, double> medians;
    for (auto& [name, all] : times) {
      std::sort(all.begin(), all.end());
      medians[name] = all[all.size() / 2];
    }
    if (!shared_.setup.json) {
      std::printf("%6d %6d", tokens_, hidden_);
      for (const Way& way : ways) {
        medians.count(way.name) != 0 ? std::printf(" %12.2f", medians[way.name]) : std::printf(" %12s", "-");
      }
      std::printf(" %8.3f\n", medians["fused"] / medians["parts"]);
    } else {
      for (const auto& [name, median] : medians) {
        const auto& all = times[name];
        std::printf(
            "{\"ranks\": %d, \"tokens\": %d, \"hidden\": %d, \"type\": \"bfloat16\", \"way\": \"%s\", "
            "\"microseconds\": %.3f, \"least\": %.3f, \"most\": %.3f, \"turns\": %zu, "
            "\"verified\": true}\n",
            shared_.setup.ranks, tokens_, hidden_, name.c_str(), median, all.front(), all.back(), all.size());
      }
    }
    std::fflush(stdout);
  }

  Shared& shared_;
  const int rank_;
  int tokens_ = 0, hidden_ = 0;
  ncclComm_t comm_ = nullptr, alone_ = nullptr;  // of all ranks, and of this one
  cudaStream_t stream_ = nullptr;
  cudaEvent_t began_ = nullptr, ended_ = nullptr;
  void* inputs_[kInputs] = {};
  void *residual_ = nullptr, *start_ = nullptr, *sum_ = nullptr, *normalised_ = nullptr, *gamma_ = nullptr;
  std::vector<uint16_t> gammaThere_;
};

// A rank that fails ends the program: others wait for it.
void runRank(Shared& shared, int number) {
  try {
    Rank rank(shared, number);
    for (const int hidden : shared.setup.hidden) {
      for (const int tokens : shared.setup.tokens) rank.measure(tokens, hidden);
    }
    shared.meeting.arrive_and_wait();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "norm_driver: rank %d: %s\n", number, failure.what());
    std::fflush(nullptr);
    std::_Exit(1);
  }
}

int run(const Setup& setup) {
  if (setup.shared) {
    setenv("STRETTO_SHARED_DEVICE", "1", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  }
  setenv("STRETTO_DEVICE", "cuda", 1);
  setenv("STRETTO_DETERMINISTIC", "1", 1);  // what is compared bit by bit reduces in rank order
  Shared shared(setup);
  must(ncclGetUniqueId(&shared.id), "ncclGetUniqueId");
  if (!setup.json) {
    std::printf("microseconds of a step; bfloat16, %d ranks%s; parts: all-reduce, then a norm kernel\n",
                setup.ranks, setup.shared ? " on one GPU" : "");
    std::printf("tokens hidden");
    for (const Way& way : waysFor(setup.ranks)) std::printf(" %12s", way.name);
    std::printf(" %8s\n", "ratio");
  }
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < setup.ranks; ++rank) ranks.emplace_back([&, rank] { runRank(shared, rank); });
  for (std::thread& rank : ranks) rank.join();
  return 0;
}

}  // namespace
}  // namespace stretto::bench

int main(int count, char** words) {
  try {
    return stretto::bench::run(stretto::bench::setupFrom(count, words));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 2;
  }
}
