// A library with nccl.h's ABI for the stand-in of CUDA's runtime: each operation becomes work in the
// stand-in's stream, and that work calls the real library named by SHIM_LIBRARY, on host memory. SHIM_FAULT
// makes it misbehave, so that the driver's judgement can be tested: `wrong` spoils an element of rank 0's
// result, `idle` does nothing, `hang` never ends; `slow-init` takes a tenth of a second to make a
// communicator, `greedy` 128 MB of the GPU for each, `leaks` does not give these back, `slow-call` takes two
// milliseconds to submit.
#include <cuda_runtime.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "../../../benchmarks/cuda/library.hpp"

extern "C" void hostEnqueue(cudaStream_t stream, const Work& work);
extern "C" void hostTake(ptrdiff_t bytes);

using stretto::bench::Library;

const Library& real() {
  static const Library library = stretto::bench::loadLibrary(getenv("SHIM_LIBRARY"));
  return library;
}

// Set by shim_stretto.cpp: what is forced on a communicator now, to be forced again when a graph is replayed.
std::function<Work(ncclComm_t)> forcedNow = [](ncclComm_t) { return [] {}; };

namespace {

using Call = std::function<ncclResult_t()>;

bool fault(const char* name) {
  const char* chosen = getenv("SHIM_FAULT");
  return chosen != nullptr && strcmp(chosen, name) == 0;
}

thread_local std::vector<Call>* group = nullptr;
thread_local int depth = 0;  // of groups
// The driver puts a group into one stream, of one communicator.
thread_local cudaStream_t groupStream = nullptr;
thread_local ncclComm_t groupComm = nullptr;
thread_local ncclResult_t outcome = ncclSuccess;  // of what ran last

// What is not captured runs at once, and then its outcome is the call's.
ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, Call call) {
  if (group != nullptr) {
    group->push_back(std::move(call));
    groupStream = stream;
    groupComm = comm;
    return ncclSuccess;
  }
  if (fault("idle")) return ncclSuccess;
  if (fault("hang")) {
    call = [] {
      std::this_thread::sleep_for(std::chrono::hours(1));
      return ncclSuccess;
    };
  }
  outcome = ncclSuccess;
  hostEnqueue(stream, [force = forcedNow(comm), call = std::move(call)] {
    // Host memory can be faster than any GPU, and then the driver does not believe what it sees.
    const auto least = std::chrono::steady_clock::now() + std::chrono::microseconds(1);
    force();
    outcome = call();
    while (std::chrono::steady_clock::now() < least) {
    }
  });
  return outcome;
}

constexpr ptrdiff_t kTaken = ptrdiff_t{128} << 20;

void spoil(void* result) {
  if (fault("wrong")) static_cast<unsigned char*>(result)[0] ^= 0x55;
}

}  // namespace

#define SHIM extern "C" __attribute__((visibility("default"))) ncclResult_t

SHIM ncclGetVersion(int* version) {
  return real().getVersion(version);
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(ncclResult_t result) {
  return real().getErrorString(result);
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(ncclComm_t comm) {
  return real().getLastError(comm);
}
SHIM ncclGetUniqueId(ncclUniqueId* id) {
  return real().getUniqueId(id);
}
SHIM ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (fault("slow-init")) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (fault("greedy") || fault("leaks")) hostTake(kTaken);
  return real().commInitRank(comm, ranks, id, rank);
}
SHIM ncclCommCount(ncclComm_t comm, int* count) {
  return real().commCount(comm, count);
}
SHIM ncclCommDestroy(ncclComm_t comm) {
  if (fault("greedy")) hostTake(-kTaken);
  return real().commDestroy(comm);
}
SHIM ncclCommAbort(ncclComm_t comm) {
  return real().commAbort(comm);
}
SHIM ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return real().commGetAsyncError(comm, error);
}
SHIM ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                   ncclComm_t comm, cudaStream_t stream) {
  if (fault("slow-call")) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return enqueue(comm, stream, [=] {
    const ncclResult_t result = real().allReduce(send, receive, count, type, op, comm, nullptr);
    spoil(receive);
    return result;
  });
}
SHIM ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream,
                 [=] { return real().reduceScatter(send, receive, count, type, op, comm, nullptr); });
}
SHIM ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream) {
  return enqueue(comm, stream, [=] { return real().allGather(send, receive, count, type, comm, nullptr); });
}
SHIM ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                  cudaStream_t stream) {
  return enqueue(comm, stream, [=] { return real().allToAll(send, receive, count, type, comm, nullptr); });
}
SHIM ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream,
                 [=] { return real().broadcast(send, receive, count, type, root, comm, nullptr); });
}
SHIM ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream,
                 [=] { return real().reduce(send, receive, count, type, op, root, comm, nullptr); });
}
SHIM ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                cudaStream_t stream) {
  return enqueue(comm, stream,
                 [=] { return real().gather(send, receive, count, type, root, comm, nullptr); });
}
SHIM ncclScatter(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                 ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream,
                 [=] { return real().scatter(send, receive, count, type, root, comm, nullptr); });
}
SHIM ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream) {
  return enqueue(comm, stream, [=] { return real().send(send, count, type, peer, comm, nullptr); });
}
SHIM ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream) {
  return enqueue(comm, stream, [=] { return real().receive(receive, count, type, peer, comm, nullptr); });
}
SHIM ncclGroupStart() {
  if (depth++ == 0) group = new std::vector<Call>;
  return ncclSuccess;
}
SHIM ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  const std::unique_ptr<std::vector<Call>> calls(std::exchange(group, nullptr));
  return enqueue(groupComm, groupStream, [calls = *calls] {
    real().groupStart();
    for (const Call& call : calls) call();
    return real().groupEnd();
  });
}
