// One rank on one GPU: its communicator, its two buffers, the operation that was asked for as eager calls or
// as a CUDA graph, its verdicts and its times. session.hpp and one_shot.cpp say what to do with it. Every
// function that waits for other ranks must be called by all of them; all throw Failure.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "check.hpp"
#include "crew.hpp"
#include "judge.hpp"
#include "library.hpp"
#include "setup.hpp"
#include "watchdog.hpp"

namespace stretto::bench {

constexpr size_t kMostCallsInGraph = 1000;
constexpr size_t kMostEagerCalls = 20000;  // in one batch

// From one operation's buffer to the next one's of its group.
constexpr size_t apart(size_t bytes) {
  constexpr size_t kLine = 256;
  return (bytes + kLine - 1) / kLine * kLine;
}

// Microseconds of one call, of an operation or of a group of them, on this rank, one for each replay or
// batch.
struct Times {
  std::vector<double> device;
  std::vector<double> host;  // what a call costs the caller; empty for graphs
};

// Graphs of one operation: of a single call, which may stand beside the one that is timed, and of many.
struct Recorded {
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;
  Graph one;
  Graph many;
  size_t manyHolds = 0;
};

class GpuRank {
 public:
  GpuRank(const Setup& setup, const Library& library, Watchdog& watchdog, CrewMemory* memory, int rank);
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  Crew& crew() { return crew_; }
  std::string version() const;
  std::string deviceName() const;

  // Which operation follows, and whether graphs of it are to be run. Throws Refusal where the implementation
  // cannot, on every rank alike.
  void prepare(const Request& request, const Forced& forced, bool inGraph);
  // Whether results of what was prepared are judged.
  bool judges() const { return request_.check; }
  // Fresh inputs, one operation, and how many elements of this rank's result are wrong.
  uint64_t checkOnce();
  // `batch` operations, timed `batches` times, all ranks at the same moment; wrong elements of the last
  // results too, where they can be known.
  Times measure(size_t warmup, size_t batch, size_t batches, uint64_t* wrong);
  // A JSON value: how the library runs it.
  std::string how() const;
  // The graphs of what was prepared, for another time: taken up again they run as they were recorded,
  // whatever was forced meanwhile. For the same request only.
  Recorded putAside() { return std::exchange(recorded_, {}); }
  void takeUp(Recorded recorded) { recorded_ = std::move(recorded); }

 private:
  void makeCommunicator(const Setup& setup);
  void allocate(const Setup& setup);
  void force(const Forced& forced);
  void call();           // one operation, or one group, into the stream
  ncclResult_t start();  // the same, unchecked
  ncclResult_t startOne(size_t place);
  ncclResult_t sendReceive(void* send, void* receive);
  Recorded::Graph capture(size_t batch);
  void makeGraph(size_t batch);
  void run(size_t batch);  // as graph, which has been made, or as calls
  void finish();           // waits for the stream
  void spoil();
  void fillInputs();
  void judgeResults();
  void checkNccl(ncclResult_t result, const char* what) const;
  void mayRefuse(ncclResult_t result, const char* what) const;
  double timeGraph(size_t batch);
  void timeCalls(size_t batch, Times* times);
  void refuseImpossible(double microseconds) const;

  const Library& library_;
  Watchdog& watchdog_;
  Crew crew_;
  const int rank_;
  const bool sharedDevice_;
  const double timeout_;
  const size_t group_;
  const Seats seats_;
  size_t maxBytes_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t began_ = nullptr;
  cudaEvent_t ended_ = nullptr;
  ncclComm_t comm_ = nullptr;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  std::vector<ncclWindow_t> windows_;
  std::unique_ptr<Judge> judge_;
  std::unique_ptr<Gate> gate_;
  Request request_;
  Ends ends_;         // of the first operation of a group
  size_t apart_ = 0;  // bytes to the next one's
  bool inGraph_ = false;
  Recorded recorded_;
};

}  // namespace stretto::bench
