// norm_driver: all-reduce with residual add and RMSNorm between GPUs, beside our own all-reduce and a norm
// kernel after it, as a serving engine without the fused call has them, and beside FlashInfer's fused kernel
// where its library is named. Chains of steps in CUDA graphs, in turns, each verified in the same run. Ranks
// are threads of this process.
//
//   norm_driver [--ranks 2] [--shared] [--self-loop] [--call plain] [--tokens 1,8,...] [--hidden 4096,...]
//   [--flashinfer LIBRARY] [--without NAMES] [--turns 7] [--seconds 60] [--json FILE]
//
// --shared: all ranks on the first GPU. --call: what is wanted beside residual and normalised tokens: plain
// (nothing), bias, reduced (the raw sums), per_token or per_tensor (an 8-bit copy as well), per_token_alone
// (that and no normalised tokens). A line for each number of tokens and hidden size: microseconds of one
// step, of the slowest rank, the median of the turns; and the time of the fused call divided by that of
// others.
// --json: one object for each way as well, in a file.
//
// --flashinfer: libflashinfer_peers.so of tools/gpu_peers, by default STRETTO_BENCH_FLASHINFER. "fi one-shot"
// ends before the next kernel begins, as vLLM asks for it; "fi early" lets that begin earlier, as SGLang
// does; "fi two-shot" is what both take for large sizes. "/ fi" is by the best of these. What gives wrong
// numbers is reported as wrong, and has no time.
//
// --self-loop: one GPU is both ends, and the floor is measured in the same run. With one rank (the default)
// the fused call is its norm kernel, since there is nothing to exchange; with two it is the kernel that sends
// and receives, twice at once, through the memory of the same GPU. "bytes" is a kernel that moves what a step
// moves and computes nothing, "empty" an empty one, and "floor" the one after the other in one graph.
//
// --seconds: for a way to be recorded, timed once or verified; a kernel that hangs ends the program then,
// which names it. --without: ways that are left out, by their names in the table, with commas.
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "deadline.hpp"
#include "engine_norm.cuh"
#include "norm_buffers.cuh"
#include "norm_checks.hpp"
#include "norm_floor.cuh"
#include "norm_peer.cuh"
#include "norm_report.hpp"
#include "norm_setup.hpp"

namespace stretto::bench {
namespace {

constexpr int kSteps = 20;  // of a graph

void must(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw Failure(std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

// ---- A rank -----------------------------------------------------------------------------------------------

struct Shared {
  explicit Shared(const Setup& given)
      : setup(given),
        whyNoPeer(given.flashinfer.empty() ? "its library was not named" : whyPeerDoesNotServe(given)),
        peer(whyNoPeer.empty() ? std::make_unique<PeerLibrary>(given.flashinfer) : nullptr),
        ways(waysFor(given, peer != nullptr)),
        report(given, ways),
        meeting(given.ranks),
        times(static_cast<size_t>(given.ranks)),
        places(static_cast<size_t>(given.ranks)),
        lines(static_cast<size_t>(given.ranks)) {}
  const Setup& setup;
  const std::string whyNoPeer;
  const std::unique_ptr<PeerLibrary> peer;
  const std::vector<Way> ways;
  NormReport report;  // used by the first rank
  ncclUniqueId id;
  std::barrier<> meeting;
  Deadline& deadline = *new Deadline("norm_driver");
  // Of each rank: its time, what peers know of its workspace, and its lines of a floor.
  std::vector<double> times;
  std::vector<PeerRank::Places> places;
  std::vector<void*> lines;

  // What was wrong with a way, as the first rank says that finds out.
  void blame(const char* way, const std::string& why) {
    const std::lock_guard lock(mutex);
    outcome.wrong.emplace(way, why);
  }
  std::mutex mutex;
  Outcome outcome;  // but for `wrong` written by the first rank
};

class Rank {
 public:
  Rank(Shared& shared, int rank) : shared_(shared), rank_(rank) {
    const Setup& setup = shared.setup;
    check(cudaSetDevice(setup.shared ? 0 : rank), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    check(cudaEventCreate(&began_), "an event");
    check(cudaEventCreate(&ended_), "an event");
    buffers_.allocate(setup);
    if (setup.selfLoop && setup.ranks > 1)
      check(cudaMalloc(&shared.lines[static_cast<size_t>(rank)], 2 * setup.mostElements()), "memory");
    must(ncclCommInitRank(&comm_, setup.ranks, shared.id, rank), "ncclCommInitRank");
    ncclUniqueId own;
    must(ncclGetUniqueId(&own), "ncclGetUniqueId");
    must(ncclCommInitRank(&alone_, 1, own, 0), "ncclCommInitRank");
    if (shared.peer != nullptr)
      peer_ = std::make_unique<PeerRank>(*shared.peer, setup, rank, shared.places, shared.meeting);
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, setup.shared ? 0 : rank), "the device's properties");
    if (rank == 0) shared.outcome.device = properties.name;
    processors_ = static_cast<unsigned>(properties.multiProcessorCount);
  }

  void measure(int tokens, int hidden) {
    tokens_ = tokens;
    hidden_ = hidden;
    checks_ = std::make_unique<NormChecks>(call(), shared_.setup.ranks, tokens, hidden);
    buffers_.fill(*checks_, rank_);
    reset();
    std::vector<cudaGraphExec_t> graphs;
    for (const Way& way : shared_.ways) {
      expect(way, "to be recorded");
      graphs.push_back(graphOf(way));
    }
    std::map<std::string, std::vector<double>> times;
    for (int turn = -1; turn < shared_.setup.turns; ++turn) {
      for (size_t i = 0; i < graphs.size(); ++i) {
        expect(shared_.ways[i], "to be timed");
        const double time = timeOf(graphs[i]);
        if (turn >= 0 && time > 0) times[shared_.ways[i].name].push_back(time);
      }
    }
    verify(graphs);
    for (cudaGraphExec_t graph : graphs) {
      if (graph != nullptr) check(cudaGraphExecDestroy(graph), "a graph's end");
    }
    if (rank_ == 0) report(std::move(times));
    meet();
  }

 private:
  size_t count() const { return static_cast<size_t>(tokens_) * static_cast<size_t>(hidden_); }
  void meet() { shared_.meeting.arrive_and_wait(); }
  // Its own kernels wait without an end, so each part has one here.
  void expect(const Way& way, const char* what) {
    if (rank_ != 0) return;
    shared_.deadline.expect(
        std::string(way.name) + " " + what + ", " + std::to_string(tokens_) + " x " + std::to_string(hidden_),
        shared_.setup.seconds);
  }

  const Call& call() const { return shared_.setup.call; }
  void reset() const { buffers_.reset(static_cast<size_t>(tokens_), count(), stream_); }

  void step(const Way& way, int number) {
    void* const input = buffers_.inputs[number % kInputs];
    switch (way.what) {
      case What::kFused:
        return callNorm(input, call().wantsReduced ? buffers_.reduced : nullptr, comm_);
      case What::kPeer:
        return callPeer(way, input);
      case What::kEmpty:
        return launchEmpty(stream_);
      case What::kMove:
        return move(input);
      case What::kFloor:
        move(input);
        return launchEmpty(stream_);
      default:
        break;
    }
    must(ncclAllReduce(input, buffers_.sum, count(), ncclBfloat16, ncclSum, comm_, stream_), "ncclAllReduce");
    if (way.what == What::kParts)
      launchEngineNorm(call(),
                       {buffers_.sum, buffers_.residual, buffers_.bias, buffers_.gamma, buffers_.normalised,
                        buffers_.codes, buffers_.scales},
                       tokens_, hidden_, kEpsilon, stream_);
    if (way.what == What::kOwnParts) callNorm(buffers_.sum, nullptr, alone_);
  }
  void callPeer(const Way& way, void* input) {
    TrtllmFusedCall peer;
    peer.input = input;
    peer.residual = buffers_.residual;
    peer.gamma = buffers_.gamma;
    peer.normalised = call().wantsNormalised ? buffers_.normalised : nullptr;
    peer.codes = buffers_.codes;
    peer.scales = buffers_.scales;
    peer.stream = stream_;
    peer.epsilon = kEpsilon;
    peer.tokens = tokens_;
    peer.hidden = hidden_;
    if (call().scaling == strettoScalePerTensor) peer.scale = kTrtllmScaleOfTensor;
    if (call().scaling == strettoScalePerToken) peer.scale = kTrtllmScaleOfToken;
    peer_->run(way, peer);
  }
  void move(const void* input) const {
    const unsigned blocks = 4 * processors_ / static_cast<unsigned>(shared_.setup.ranks);
    launchMoves(buffers_.movesOf(call(), input, rank_, shared_.lines), count() / 8, blocks, stream_);
  }
  void callNorm(const void* input, void* reduced, ncclComm_t comm) {
    strettoAddRmsNorm_t norm = STRETTO_ADD_RMS_NORM_INITIALIZER;
    norm.tokens = static_cast<size_t>(tokens_);
    norm.hidden = static_cast<size_t>(hidden_);
    norm.type = ncclBfloat16;
    norm.epsilon = kEpsilon;
    norm.input = input;
    norm.residual = norm.residualOut = buffers_.residual;
    norm.bias = call().hasBias ? buffers_.bias : nullptr;
    norm.gamma = buffers_.gamma;
    norm.normalised = call().wantsNormalised ? buffers_.normalised : nullptr;
    norm.reduced = reduced;
    norm.scaling = call().scaling;
    norm.quantisedType = ncclFloat8e4m3;
    norm.quantised = buffers_.codes;
    norm.scales = buffers_.scales;
    must(strettoAllReduceAddRmsNorm(&norm, comm, stream_), "strettoAllReduceAddRmsNorm");
  }

  void force(const Way& way) {
    must(strettoCommForce(comm_, "all_reduce_add_rms_norm", way.algorithm, way.protocol, 0, 0),
         "strettoCommForce");
  }
  // Null where a form that was named, or a peer, does not serve this shape, on all ranks alike.
  cudaGraphExec_t graphOf(const Way& way) {
    meet();
    // The first call opens windows and loads kernels, which a capture must not do.
    std::string why = way.what == What::kPeer ? peer_->whyNot(way, tokens_) : "";
    try {
      force(way);
      if (why.empty()) step(way, 0);
    } catch (const Failure& failure) {
      if (way.algorithm == nullptr && way.what != What::kPeer) throw;
      why = failure.what();
    }
    check(cudaStreamSynchronize(stream_), "a stream");
    if (!why.empty()) {
      if (rank_ == 0) shared_.outcome.unserved[way.name] = why;
      return nullptr;
    }
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
  // the parts and the peers, who round where we do, have those of the residual and of the raw sums; what the
  // last step made of the residual is held against exact numbers. A step by itself is held against exact
  // sums. A mistake of ours ends the program, one of a peer is a result.
  void verify(const std::vector<cudaGraphExec_t>& graphs) {
    Results parts, ours;
    for (size_t i = 0; i < graphs.size(); ++i) {
      const Way& way = shared_.ways[i];
      if (graphs[i] == nullptr || way.isBound()) continue;
      expect(way, "to be verified");
      reset();
      meet();
      check(cudaGraphLaunch(graphs[i], stream_), "a graph");
      check(cudaStreamSynchronize(stream_), "a stream");
      if (way.what == What::kSum) {
        checks_->sums(way.name, download<uint16_t>(buffers_.sum, count()), (kSteps - 1) % kInputs, false);
        continue;
      }
      const Results results = resultsOf(way);
      if (parts.residual.empty()) parts = results;
      if (way.isOurs() && ours.residual.empty()) ours = results;
      runAgain(way);
      try {
        checks_->sameSums(way.name, results, parts);
        if (way.isOurs()) checks_->same(way.name, results, ours);
        checks_->norm(way.name, results);
        checks_->sums(way.name, download<uint16_t>(buffers_.residual, count()), 0, true);
      } catch (const Failure& failure) {
        if (way.what != What::kPeer) throw;
        shared_.blame(way.name, failure.what());
      }
    }
    meet();
  }
  // One step by itself.
  void runAgain(const Way& way) {
    reset();
    meet();
    force(way);
    step(way, 0);
    check(cudaStreamSynchronize(stream_), "a stream");
  }
  Results resultsOf(const Way& way) const {
    Results results;
    results.residual = download<uint16_t>(buffers_.residual, count());
    if (call().wantsNormalised) results.normalised = download<uint16_t>(buffers_.normalised, count());
    if (call().wantsReduced)
      results.reduced =
          download<uint16_t>(way.what == What::kFused ? buffers_.reduced : buffers_.sum, count());
    if (call().scaling == strettoScaleNone) return results;
    results.codes = download<uint8_t>(buffers_.codes, count());
    results.scales = download<float>(buffers_.scales, static_cast<size_t>(tokens_));
    return results;
  }
  void report(std::map<std::string, std::vector<double>> times) {
    Outcome& outcome = shared_.outcome;
    outcome.tokens = tokens_;
    outcome.hidden = hidden_;
    outcome.times = std::move(times);
    const Moves moves = buffers_.movesOf(call(), buffers_.inputs[0], rank_, shared_.lines);
    outcome.bytesOfStep = bytesOf(moves, count() / 8);
    shared_.report.add(outcome);
    outcome.wrong.clear();
    outcome.unserved.clear();
  }

  Shared& shared_;
  const int rank_;
  int tokens_ = 0, hidden_ = 0;
  unsigned processors_ = 0;
  std::unique_ptr<NormChecks> checks_;
  std::unique_ptr<PeerRank> peer_;
  ncclComm_t comm_ = nullptr, alone_ = nullptr;  // of all ranks, and of this one
  cudaStream_t stream_ = nullptr;
  cudaEvent_t began_ = nullptr, ended_ = nullptr;
  Buffers buffers_;
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
    setenv("STRETTO_SHARED_DEVICE", "2", 1);  // a kernel of each rank at a time
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  }
  setenv("STRETTO_DEVICE", "cuda", 1);
  setenv("STRETTO_DETERMINISTIC", "1", 1);  // what is compared bit by bit reduces in rank order
  Shared shared(setup);
  shared.deadline.expect("the start", setup.seconds);
  must(ncclGetUniqueId(&shared.id), "ncclGetUniqueId");
  shared.report.begin(shared.whyNoPeer);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < setup.ranks; ++rank) ranks.emplace_back([&, rank] { runRank(shared, rank); });
  for (std::thread& rank : ranks) rank.join();
  shared.report.end();
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
