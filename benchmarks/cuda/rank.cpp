#include "rank.hpp"

#include <sched.h>

#include <utility>

namespace stretto::bench {
namespace {

// Faster than any NVLink port, and than the memory of any GPU that ranks share: a time below bytes over this
// was not measured but made up.
constexpr double kFastestLink = 900e9;
constexpr double kFastestMemory = 8000e9;
// No word crosses to another GPU and no kernel starts in less.
constexpr double kLeastMicroseconds = 0.3;

// A library of hundreds of megabytes is read from disk, and a GPU that slept wakes up.
constexpr double kStartSeconds = 90;

double largerSide(const Request& r) {
  return static_cast<double>(std::max(sendCount(r), receiveCount(r)) * r.elementBytes());
}

// The part of the larger side that has to cross between ranks, over the busiest port, at the very least.
double crossing(const Request& r) {
  const double others = (r.ranks - 1.0) / r.ranks;
  switch (r.collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendReceive:
      return r.ranks > 1 ? largerSide(r) : 0;
    default:
      return others * largerSide(r);
  }
}

}  // namespace

GpuRank::GpuRank(const Setup& setup, const Library& library, Watchdog& watchdog, CrewMemory* memory, int rank)
    : library_(library),
      watchdog_(watchdog),
      crew_(memory, rank, setup.ranks, std::max(setup.timeout, kStartSeconds)),
      rank_(rank),
      sharedDevice_(setup.sharedDevice),
      timeout_(setup.timeout),
      group_(setup.sweep.group),
      seats_(setup.seats) {
  bindLoosely(seats_, rank_);
  watchdog_.expect(rank_, "making the communicator", std::max(timeout_, kStartSeconds));
  check(cudaSetDevice(sharedDevice_ ? 0 : rank), "cudaSetDevice (is there a GPU for every rank?)");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaEventCreate(&began_), "cudaEventCreate");
  check(cudaEventCreate(&ended_), "cudaEventCreate");
  judge_ = std::make_unique<Judge>(stream_);
  gate_ = std::make_unique<Gate>();
  crew_.meet();  // a rank without a GPU is known here; ncclCommInitRank would wait a minute for it
  makeCommunicator(setup);
  allocate(setup);
  crew_.meet();
  watchdog_.rest(rank_);
}

GpuRank::~GpuRank() {
  watchdog_.expect(rank_, "destroying the communicator", timeout_);
  recorded_ = {};
  for (ncclWindow_t window : windows_) library_.commWindowDeregister(comm_, window);
  if (comm_ != nullptr) {
    watchdog_.release(comm_);
    library_.commDestroy(comm_);
  }
  watchdog_.rest(rank_);
}

void GpuRank::checkNccl(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess) return;
  std::string text = std::string(what) + ": " + library_.getErrorString(result);
  const char* last = library_.getLastError == nullptr ? nullptr : library_.getLastError(comm_);
  if (last != nullptr && *last != 0) text += std::string(": ") + last;
  throw Failure(text);
}

// What the library says of the call itself, all ranks hear alike, and the communicator stays whole.
void GpuRank::mayRefuse(ncclResult_t result, const char* what) const {
  try {
    checkNccl(result, what);
  } catch (const Failure& failure) {
    if (result != ncclInvalidUsage && result != ncclInvalidArgument) throw;
    watchdog_.rest(rank_);
    throw Refusal(failure.what());
  }
}

void GpuRank::makeCommunicator(const Setup& setup) {
  if (rank_ == 0) {
    ncclUniqueId id;
    checkNccl(library_.getUniqueId(&id), "ncclGetUniqueId");
    crew_.giveId(id);
  }
  const ncclUniqueId id = crew_.takeId();
  checkNccl(library_.commInitRank(&comm_, setup.ranks, id, rank_), "ncclCommInitRank");
  watchdog_.adopt(comm_);
}

void GpuRank::allocate(const Setup& setup) {
  constexpr size_t kPage = NCCL_WIN_REQUIRED_ALIGNMENT;
  maxBytes_ = (setup.maxBytes + kPage - 1) / kPage * kPage;
  for (std::byte** buffer : {&send_, &receive_}) {
    void* at = nullptr;
    if (!setup.window) {
      check(cudaMalloc(&at, maxBytes_), "cudaMalloc of a buffer");
    } else {
      if (library_.memAlloc == nullptr || library_.commWindowRegister == nullptr) {
        throw Failure("--window: the library has no ncclMemAlloc or no ncclCommWindowRegister");
      }
      checkNccl(library_.memAlloc(&at, maxBytes_), "ncclMemAlloc");
      ncclWindow_t window = nullptr;
      checkNccl(library_.commWindowRegister(comm_, at, maxBytes_, &window, NCCL_WIN_COLL_SYMMETRIC),
                "ncclCommWindowRegister");
      windows_.push_back(window);
    }
    *buffer = static_cast<std::byte*>(at);
  }
}

std::string GpuRank::version() const {
  if (library_.version != nullptr) return library_.version();
  int code = 0;
  library_.getVersion(&code);
  return "NCCL " + std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

std::string GpuRank::deviceName() const {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, sharedDevice_ ? 0 : rank_), "cudaGetDeviceProperties");
  return properties.name;
}

void GpuRank::prepare(const Request& request, const Forced& forced, bool inGraph) {
  watchdog_.expect(rank_, std::string("preparing ") + kCollectiveNames[static_cast<int>(request.collective)],
                   timeout_);
  recorded_ = {};
  request_ = request;
  inGraph_ = inGraph;
  apart_ = apart(static_cast<size_t>(largerSide(request)));
  if (largerSide(request) + static_cast<double>((group_ - 1) * apart_) > static_cast<double>(maxBytes_)) {
    throw Failure("larger than the buffers that this driver was started with");
  }
  const bool swaps =
      request.collective == Collective::kAllToAll || request.collective == Collective::kSendReceive;
  if (request.inPlace && swaps) throw Refusal("neither all_to_all nor send_recv works in place");
  force(forced);
  ends_ = request.inPlace ? endsInPlace(request, receive_) : Ends{send_, receive_};
  judge_->prepare(request);
  // What allocates or frees may wait for the whole GPU, so nobody starts before all are through with that.
  // The first call is an eager one: libraries connect in it, which a capture does not allow.
  crew_.meet();
  mayRefuse(start(), kCollectiveNames[static_cast<int>(request.collective)]);
  finish();
  crew_.meet();
  watchdog_.rest(rank_);
}

// What is prepared, that is.
void GpuRank::force(const Forced& forced) {
  const bool isForced = !forced.algorithm.empty();
  if (isForced && library_.commForce == nullptr) throw Refusal("algorithms of this library cannot be forced");
  if (library_.commForce == nullptr || request_.collective == Collective::kSendReceive) return;
  mayRefuse(library_.commForce(comm_, kCollectiveNames[static_cast<int>(request_.collective)],
                               isForced ? forced.algorithm.c_str() : nullptr,
                               forced.protocol.empty() ? nullptr : forced.protocol.c_str(), forced.chunkBytes,
                               forced.blocks),
            "strettoCommForce");
}

ncclResult_t GpuRank::sendReceive(void* send, void* receive) {
  const auto type = static_cast<ncclDataType_t>(request_.type);
  const int right = (rank_ + 1) % crew_.ranks();
  const int left = (rank_ + crew_.ranks() - 1) % crew_.ranks();
  checkNccl(library_.groupStart(), "ncclGroupStart");
  checkNccl(library_.send(send, request_.count, type, right, comm_, stream_), "ncclSend");
  checkNccl(library_.receive(receive, request_.count, type, left, comm_, stream_), "ncclRecv");
  return library_.groupEnd();
}

ncclResult_t GpuRank::start() {
  if (group_ == 1) return startOne(0);
  checkNccl(library_.groupStart(), "ncclGroupStart");
  for (size_t place = 0; place < group_; ++place) {
    checkNccl(startOne(place), kCollectiveNames[static_cast<int>(request_.collective)]);
  }
  return library_.groupEnd();
}

ncclResult_t GpuRank::startOne(size_t place) {
  const auto type = static_cast<ncclDataType_t>(request_.type);
  const auto op = static_cast<ncclRedOp_t>(request_.op);
  const Library& l = library_;
  void* const send = static_cast<std::byte*>(ends_.send) + place * apart_;
  void* const receive = static_cast<std::byte*>(ends_.receive) + place * apart_;
  const size_t count = request_.count;
  const int root = request_.root;
  switch (request_.collective) {
    case Collective::kAllReduce:
      return l.allReduce(send, receive, count, type, op, comm_, stream_);
    case Collective::kReduceScatter:
      return l.reduceScatter(send, receive, count, type, op, comm_, stream_);
    case Collective::kAllGather:
      return l.allGather(send, receive, count, type, comm_, stream_);
    case Collective::kAllToAll:
      return l.allToAll(send, receive, count, type, comm_, stream_);
    case Collective::kBroadcast:
      return l.broadcast(send, receive, count, type, root, comm_, stream_);
    case Collective::kReduce:
      return l.reduce(send, receive, count, type, op, root, comm_, stream_);
    case Collective::kGather:
      return l.gather(send, receive, count, type, root, comm_, stream_);
    case Collective::kScatter:
      return l.scatter(send, receive, count, type, root, comm_, stream_);
    case Collective::kSendReceive:
      return sendReceive(send, receive);
  }
  return ncclInvalidArgument;
}

void GpuRank::call() {
  const char* name = kCollectiveNames[static_cast<int>(request_.collective)];
  checkNccl(start(), name);
}

Recorded::Graph GpuRank::capture(size_t batch) {
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t graph = nullptr;
  // Thread-local: the ranks may be threads of one process, and one's capture is none of the others' business.
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (size_t i = 0; i < batch; ++i) call();
  check(cudaStreamEndCapture(stream_, &recorded), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&graph, recorded, 0), "cudaGraphInstantiate");
  Recorded::Graph kept(graph);
  check(cudaGraphDestroy(recorded), "cudaGraphDestroy");
  check(cudaGraphUpload(graph, stream_), "cudaGraphUpload");
  finish();
  return kept;
}

void GpuRank::makeGraph(size_t batch) {
  if (!inGraph_) return;
  if (batch == 1) {
    if (recorded_.one == nullptr) recorded_.one = capture(1);
    return;
  }
  if (batch == recorded_.manyHolds) return;
  recorded_.many = capture(batch);
  recorded_.manyHolds = batch;
}

void GpuRank::run(size_t batch) {
  if (inGraph_) {
    check(cudaGraphLaunch((batch == 1 ? recorded_.one : recorded_.many).get(), stream_), "cudaGraphLaunch");
  } else {
    for (size_t i = 0; i < batch; ++i) call();
  }
}

// The watchdog ends a wait that lasts too long; an error that the library itself noticed ends it sooner.
void GpuRank::finish() {
  for (size_t look = 1;; ++look) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, "running the operation");
    if (look % 1024 == 0 && library_.commGetAsyncError != nullptr) {
      ncclResult_t noticed = ncclSuccess;
      library_.commGetAsyncError(comm_, &noticed);
      if (noticed != ncclSuccess && noticed != ncclInProgress) checkNccl(noticed, "noticed while running");
    }
    if (look > 4096) sched_yield();
  }
}

void GpuRank::spoil() {
  const size_t bytes = receiveCount(request_) * request_.elementBytes() + (group_ - 1) * apart_;
  check(cudaMemsetAsync(ends_.receive, 0xa5, bytes, stream_), "cudaMemsetAsync");
}

void GpuRank::fillInputs() {
  for (size_t place = 0; place < group_; ++place) {
    judge_->fillInput(static_cast<std::byte*>(ends_.send) + place * apart_, sendCount(request_), place);
  }
}

void GpuRank::judgeResults() {
  judge_->begin();
  for (size_t place = 0; place < group_; ++place) {
    judge_->judge(static_cast<const std::byte*>(ends_.receive) + place * apart_, place);
  }
}

uint64_t GpuRank::checkOnce() {
  watchdog_.expect(rank_, "a checked run", timeout_);
  makeGraph(1);
  judge_->turn();
  crew_.meet();  // peers may still read what they read before, if nothing at the end waits for that
  spoil();
  fillInputs();
  finish();
  crew_.meet();  // no rank may write where another still fills
  run(1);
  if (request_.check) judgeResults();
  finish();
  watchdog_.rest(rank_);
  return request_.check ? judge_->wrong() : 0;
}

Times GpuRank::measure(size_t warmup, size_t batch, size_t batches, uint64_t* wrong) {
  batch = std::clamp<size_t>(batch, 1, inGraph_ ? kMostCallsInGraph : kMostEagerCalls);
  watchdog_.expect(rank_, "a timed run", timeout_);
  crew_.meet();  // as in a checked run
  // In place, results become inputs: zeros stay zeros, where sums of sums would run out of the type's range.
  if (request_.inPlace) {
    const size_t bytes = static_cast<size_t>(largerSide(request_)) + (group_ - 1) * apart_;
    check(cudaMemsetAsync(receive_, 0, bytes, stream_), "cudaMemsetAsync");
  } else {
    spoil();
  }
  makeGraph(batch);
  finish();
  const Seat seat(seats_, rank_);
  crew_.meet();
  for (size_t done = 0; done < std::max<size_t>(warmup, 1); done += batch) run(batch);
  finish();
  Times times;
  for (size_t i = 0; i < batches; ++i) {
    if (inGraph_) {
      times.device.push_back(timeGraph(batch));
    } else {
      timeCalls(batch, &times);
    }
    watchdog_.expect(rank_, "a timed run", timeout_);
  }
  // A rank that starts late may find that all is there; the slowest one waited for it.
  for (const double slowest : crew_.slowest(times.device)) refuseImpossible(slowest);
  if (request_.check && !request_.inPlace) {
    judgeResults();
    finish();
    *wrong += judge_->wrong();
  }
  watchdog_.rest(rank_);
  return times;
}

// Everything is in the stream before any rank may start: what the host needs to launch is in no time.
double GpuRank::timeGraph(size_t batch) {
  gate_->close(stream_);
  check(cudaEventRecord(began_, stream_), "cudaEventRecord");
  run(batch);
  check(cudaEventRecord(ended_, stream_), "cudaEventRecord");
  crew_.meet();
  gate_->open();
  finish();
  if (!gate_->wasOpened()) throw Failure("the other ranks were not ready within two seconds of this one");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, began_, ended_), "cudaEventElapsedTime");
  return 1000.0 * static_cast<double>(milliseconds) / static_cast<double>(batch);
}

void GpuRank::timeCalls(size_t batch, Times* times) {
  using Clock = std::chrono::steady_clock;
  crew_.meet();
  check(cudaEventRecord(began_, stream_), "cudaEventRecord");
  const auto before = Clock::now();
  run(batch);
  const auto after = Clock::now();
  check(cudaEventRecord(ended_, stream_), "cudaEventRecord");
  finish();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, began_, ended_), "cudaEventElapsedTime");
  const auto calls = static_cast<double>(batch);
  times->device.push_back(1000.0 * static_cast<double>(milliseconds) / calls);
  times->host.push_back(std::chrono::duration<double, std::micro>(after - before).count() / calls);
}

void GpuRank::refuseImpossible(double microseconds) const {
  if (crew_.ranks() == 1) return;
  // A root may be done before those that wait for it: only where all wait for all is every rank's time a
  // whole one.
  const bool isRooted =
      request_.collective == Collective::kBroadcast || request_.collective == Collective::kReduce ||
      request_.collective == Collective::kGather || request_.collective == Collective::kScatter;
  if (isRooted) return;
  const double bytes = static_cast<double>(group_) * crossing(request_);
  const double least = bytes / (sharedDevice_ ? kFastestMemory : kFastestLink) * 1e6;
  if (microseconds >= std::max(least, kLeastMicroseconds)) return;
  throw Failure("impossible: " + std::to_string(microseconds) + " µs for " + std::to_string(bytes) +
                " bytes between ranks; no link is that fast, so the operation did not run");
}

std::string GpuRank::how() const {
  const char* const collective = kCollectiveNames[static_cast<int>(request_.collective)];
  if (request_.collective == Collective::kSendReceive || library_.explain == nullptr) {
    const char* algorithm = getenv("NCCL_ALGO");
    const char* protocol = getenv("NCCL_PROTO");
    return std::string(R"({"algorithm":")") + (algorithm == nullptr ? "default" : algorithm) +
           R"(","protocol":")" + (protocol == nullptr ? "default" : protocol) + R"("})";
  }
  const bool isOverwritten = request_.inPlace && request_.collective == Collective::kAllReduce;
  const int windows = windows_.empty() ? 0 : isOverwritten ? 2 : 1;
  const strettoQuestion_t question{collective,
                                   static_cast<size_t>(largerSide(request_)),
                                   static_cast<ncclDataType_t>(request_.type),
                                   static_cast<ncclRedOp_t>(request_.op),
                                   0,
                                   windows,
                                   0};
  std::string text(65536, ' ');
  size_t needed = 0;
  const ncclResult_t result = library_.explain(comm_, &question, text.data(), text.size(), &needed);
  if (result != ncclSuccess || needed == 0 || needed > text.size()) return "null";
  text.resize(needed - 1);
  std::erase(text, '\n');  // a reply is one line
  return text;
}

}  // namespace stretto::bench
