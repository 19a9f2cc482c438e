// norm_driver: all-reduce with residual add and RMSNorm between GPUs, beside our own all-reduce and a norm
// kernel after it, as a serving engine without the fused call has them. Chains of steps in CUDA graphs, in
// turns, each verified in the same run. Ranks are threads of this process.
//
//   norm_driver [--ranks 2] [--shared] [--call plain] [--tokens 1,8,...] [--hidden 4096,...] [--turns 7]
//   [--json]
//
// --shared: all ranks on the first GPU. --call: what is wanted beside residual and normalised tokens: plain
// (nothing), bias, reduced (the raw sums), per_token or per_tensor (an 8-bit copy as well), per_token_alone
// (that and no normalised tokens). A line for each number of tokens and hidden size: microseconds of one
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

#include "engine_norm.cuh"
#include "norm_checks.hpp"

namespace stretto::bench {
namespace {

constexpr int kSteps = 20;  // of a graph

// ---- What is asked for ------------------------------------------------------------------------------------

struct Setup {
  int ranks = 2;
  bool shared = false;
  bool json = false;
  int turns = 7;
  Call call = kCalls[0];
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
    } else if (word == "--call") {
      setup.call = callNamed(value);
    } else {
      throw Failure(
          "norm_driver [--ranks N] [--shared] [--call NAME] [--tokens LIST] [--hidden LIST] [--turns N] "
          "[--json]");
    }
  }
  const auto fits = [](int hidden) { return hidden > 0 && hidden % 8 == 0 && hidden <= 8 * 512 * kVectors; };
  if (!std::all_of(setup.hidden.begin(), setup.hidden.end(), fits))
    throw Failure("--hidden: multiples of 8 up to 16384, as the norm kernel after an all-reduce has them");
  if (!std::all_of(setup.tokens.begin(), setup.tokens.end(), [](int tokens) { return tokens > 0; }))
    throw Failure("--tokens: 1 or more");
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
    for (void** place : {&residual_, &start_, &sum_, &normalised_, &reduced_, &codes_})
      check(cudaMalloc(place, bytes), "memory");
    for (void** place : {&gamma_, &bias_}) check(cudaMalloc(place, 2 * most(setup.hidden)), "memory");
    check(cudaMalloc(reinterpret_cast<void**>(&scales_), sizeof(float) * most(setup.tokens)), "memory");
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
    const NormChecks checks = this->checks();
    for (int i = 0; i < kInputs; ++i) upload(inputs_[i], checks.input(rank_, i));
    upload(start_, checks.start());
    upload(gamma_, checks.gamma());
    upload(bias_, checks.bias());
    reset();
  }
  const Call& call() const { return shared_.setup.call; }
  NormChecks checks() const { return {call(), shared_.setup.ranks, tokens_, hidden_}; }
  // Results that nobody writes show as zeros, and scales that are given are the same in each run.
  void reset() {
    check(cudaMemcpyAsync(residual_, start_, 2 * count(), cudaMemcpyDeviceToDevice, stream_), "a copy");
    for (void* place : {sum_, normalised_, reduced_, codes_})
      check(cudaMemsetAsync(place, 0, 2 * count(), stream_), "zeros");
    const std::vector<float> scales(static_cast<size_t>(tokens_), kTensorScale);
    check(cudaMemcpyAsync(scales_, scales.data(), sizeof(float) * scales.size(), cudaMemcpyHostToDevice,
                          stream_),
          "a copy");
    check(cudaStreamSynchronize(stream_), "a stream");
  }

  void step(const Way& way, int number) {
    void* const input = inputs_[number % kInputs];
    if (way.what != What::kFused) {
      must(ncclAllReduce(input, sum_, count(), ncclBfloat16, ncclSum, comm_, stream_), "ncclAllReduce");
      if (way.what == What::kParts)
        launchEngineNorm(call(), {sum_, residual_, bias_, gamma_, normalised_, codes_, scales_}, tokens_,
                         hidden_, kEpsilon, stream_);
      if (way.what == What::kOwnParts) callNorm(sum_, nullptr, alone_);
      return;
    }
    callNorm(input, call().wantsReduced ? reduced_ : nullptr, comm_);
  }
  void callNorm(const void* input, void* reduced, ncclComm_t comm) {
    strettoAddRmsNorm_t norm = STRETTO_ADD_RMS_NORM_INITIALIZER;
    norm.tokens = static_cast<size_t>(tokens_);
    norm.hidden = static_cast<size_t>(hidden_);
    norm.type = ncclBfloat16;
    norm.epsilon = kEpsilon;
    norm.input = input;
    norm.residual = norm.residualOut = residual_;
    norm.bias = call().hasBias ? bias_ : nullptr;
    norm.gamma = gamma_;
    norm.normalised = call().wantsNormalised ? normalised_ : nullptr;
    norm.reduced = reduced;
    norm.scaling = call().scaling;
    norm.quantisedType = ncclFloat8e4m3;
    norm.quantised = codes_;
    norm.scales = scales_;
    must(strettoAllReduceAddRmsNorm(&norm, comm, stream_), "strettoAllReduceAddRmsNorm");
  }

  // Null where a form that was named does not serve this shape, on all ranks alike.
  cudaGraphExec_t graphOf(const Way& way) {
    meet();
    const char* const collective = "all_reduce_add_rms_norm";
    // The first call opens windows and loads kernels, which a capture must not do.
    bool serves = true;
    try {
      must(strettoCommForce(comm_, collective, way.algorithm, way.protocol, 0, 0), "strettoCommForce");
      step(way, 0);
    } catch (const Failure&) {
      if (way.algorithm == nullptr) throw;
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

  // The timed graphs themselves, from the same residual. All of ours have the same bits in all results, and
  // the parts have those of the residual and of the raw sums; what the last step made of the residual is held
  // against exact numbers. A step by itself is held against exact sums.
  void verify(const std::vector<Way>& ways, const std::vector<cudaGraphExec_t>& graphs) {
    const NormChecks checks = this->checks();
    Results parts, ours;
    for (size_t i = 0; i < ways.size(); ++i) {
      if (graphs[i] == nullptr) continue;
      reset();
      meet();
      check(cudaGraphLaunch(graphs[i], stream_), "a graph");
      check(cudaStreamSynchronize(stream_), "a stream");
      if (ways[i].what == What::kSum) {
        checks.sums(ways[i].name, download<uint16_t>(sum_, count()), (kSteps - 1) % kInputs, false);
        continue;
      }
      const Results results = resultsOf(ways[i]);
      const bool isOurs = ways[i].what != What::kParts;
      if (parts.residual.empty()) parts = results;
      if (isOurs && ours.residual.empty()) ours = results;
      checks.sameSums(ways[i].name, results, parts);
      if (isOurs) checks.same(ways[i].name, results, ours);
      checks.norm(ways[i].name, results);
      verifyStep(ways[i], checks);
    }
    meet();
  }
  void verifyStep(const Way& way, const NormChecks& checks) {
    reset();
    meet();
    must(strettoCommForce(comm_, "all_reduce_add_rms_norm", way.algorithm, way.protocol, 0, 0),
         "strettoCommForce");
    step(way, 0);
    check(cudaStreamSynchronize(stream_), "a stream");
    checks.sums(way.name, download<uint16_t>(residual_, count()), 0, true);
  }
  Results resultsOf(const Way& way) const {
    Results results;
    results.residual = download<uint16_t>(residual_, count());
    if (call().wantsNormalised) results.normalised = download<uint16_t>(normalised_, count());
    if (call().wantsReduced)
      results.reduced = download<uint16_t>(way.what == What::kFused ? reduced_ : sum_, count());
    if (call().scaling == strettoScaleNone) return results;
    results.codes = download<uint8_t>(codes_, count());
    results.scales = download<float>(scales_, static_cast<size_t>(tokens_));
    return results;
  }
  template <typename T>
  std::vector<T> download(const void* from, size_t many) const {
    std::vector<T> all(many);
    check(cudaMemcpy(all.data(), from, sizeof(T) * many, cudaMemcpyDeviceToHost), "a copy");
    return all;
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
            "{\"ranks\": %d, \"call\": \"%s\", \"tokens\": %d, \"hidden\": %d, \"type\": \"bfloat16\", "
            "\"way\": \"%s\", "
            "\"microseconds\": %.3f, \"least\": %.3f, \"most\": %.3f, \"turns\": %zu, "
            "\"verified\": true}\n",
            shared_.setup.ranks, call().name, tokens_, hidden_, name.c_str(), median, all.front(), all.back(),
            all.size());
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
  void *residual_ = nullptr, *start_ = nullptr, *sum_ = nullptr, *normalised_ = nullptr, *reduced_ = nullptr;
  void *gamma_ = nullptr, *bias_ = nullptr, *codes_ = nullptr;
  float* scales_ = nullptr;
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
    std::printf(
        "microseconds of a step; bfloat16, %d ranks%s, call %s; parts: all-reduce, then a norm kernel\n",
        setup.ranks, setup.shared ? " on one GPU" : "", setup.call.name);
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
