// A library with nccl.h's ABI for the stand-in of CUDA's runtime: each operation becomes work in the
// stand-in's stream, and that work calls the real library named by SHIM_LIBRARY, on host memory. SHIM_FAULT
// makes it misbehave, so that the driver's judgement can be tested: `wrong` spoils an element of rank 0's
// result, `idle` does nothing, `hang` never ends.
#include <cuda_runtime.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "../../../benchmarks/cuda/library.hpp"

extern "C" void hostEnqueue(cudaStream_t stream, const Work& work);

namespace {

using stretto::bench::Library;

const Library& real() {
  static const Library library = stretto::bench::loadLibrary(getenv("SHIM_LIBRARY"));
  return library;
}

bool fault(const char* name) {
  const char* chosen = getenv("SHIM_FAULT");
  return chosen != nullptr && strcmp(chosen, name) == 0;
}

thread_local Graph* group = nullptr;

ncclResult_t enqueue(cudaStream_t stream, Work work) {
  if (group != nullptr) {
    group->push_back(std::move(work));
    return ncclSuccess;
  }
  if (fault("idle")) return ncclSuccess;
  if (fault("hang")) work = [] { std::this_thread::sleep_for(std::chrono::hours(1)); };
  hostEnqueue(stream, work);
  return ncclSuccess;
}

void spoil(void* result) {
  if (fault("wrong")) static_cast<unsigned char*>(result)[0] ^= 0x55;
}

thread_local cudaStream_t groupStream = nullptr;  // the driver puts a group into one stream

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
  return real().commInitRank(comm, ranks, id, rank);
}
SHIM ncclCommDestroy(ncclComm_t comm) {
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
  return enqueue(stream, [=] {
    real().allReduce(send, receive, count, type, op, comm, nullptr);
    spoil(receive);
  });
}
SHIM ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  return enqueue(stream, [=] { real().reduceScatter(send, receive, count, type, op, comm, nullptr); });
}
SHIM ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream) {
  return enqueue(stream, [=] { real().allGather(send, receive, count, type, comm, nullptr); });
}
SHIM ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                  cudaStream_t stream) {
  return enqueue(stream, [=] { real().allToAll(send, receive, count, type, comm, nullptr); });
}
SHIM ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream) {
  return enqueue(stream, [=] { real().broadcast(send, receive, count, type, root, comm, nullptr); });
}
SHIM ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                ncclComm_t comm, cudaStream_t stream) {
  return enqueue(stream, [=] { real().reduce(send, receive, count, type, op, root, comm, nullptr); });
}
SHIM ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                cudaStream_t stream) {
  return enqueue(stream, [=] { real().gather(send, receive, count, type, root, comm, nullptr); });
}
SHIM ncclScatter(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                 ncclComm_t comm, cudaStream_t stream) {
  return enqueue(stream, [=] { real().scatter(send, receive, count, type, root, comm, nullptr); });
}
SHIM ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream) {
  groupStream = stream;
  return enqueue(stream, [=] { real().send(send, count, type, peer, comm, nullptr); });
}
SHIM ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream) {
  groupStream = stream;
  return enqueue(stream, [=] { real().receive(receive, count, type, peer, comm, nullptr); });
}
SHIM ncclGroupStart() {
  group = new Graph;
  return ncclSuccess;
}
SHIM ncclGroupEnd() {
  const Graph calls = *std::exchange(group, nullptr);
  return enqueue(groupStream, [calls] {
    real().groupStart();
    for (const Work& call : calls) call();
    real().groupEnd();
  });
}
