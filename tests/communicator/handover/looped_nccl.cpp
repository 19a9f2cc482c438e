// An NCCL that is made up and calls its own exported functions by their global names, as NVIDIA's does: the
// dynamic linker decides whose functions those calls reach. Each call is checked for having come back here;
// one that another library answered counts as astray. For order_driver.cpp, which loads it in every order.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "nccl.h"

// Weak, as NCCL has them, so that no compiler puts a function's body in the place of a call.
#define LOOPED extern "C" [[gnu::weak, gnu::visibility("default")]]

struct ncclComm {
  uint64_t magic;
  int rank;
  int ranks;
};

namespace {

constexpr int kVersion = 22105;
constexpr uint64_t kMagic = 0x100bed;
constexpr char kNoError[] = "no error of the looped NCCL";
constexpr char kNothing[] = "the looped NCCL had no error";

std::atomic<int> gAstray{0};
std::atomic<int> gCrossed{0};  // calls of its own that came by way of another library
thread_local int gAllocations = 0;
thread_local int gDepth = 0;
thread_local bool gInner = false;

void expect(bool right, const char* what) {
  if (right) return;
  ++gAstray;
  fprintf(stderr, "astray: %s\n", what);
}

bool isHere(const void* code) {
  Dl_info asked{}, own{};
  return dladdr(code, &asked) != 0 && dladdr(&gAstray, &own) != 0 && asked.dli_fbase == own.dli_fbase;
}

// What belongs to no communicator.
void callOwnFunctions() {
  gInner = true;
  const int before = gDepth;
  expect(ncclGroupStart() == ncclSuccess && gDepth == before + 1, "ncclGroupStart");
  int version = 0;
  expect(ncclGetVersion(&version) == ncclSuccess && version == kVersion, "ncclGetVersion");
  expect(ncclGetErrorString(ncclSuccess) == kNoError, "ncclGetErrorString");
  expect(ncclGetLastError(nullptr) == kNothing, "ncclGetLastError of nothing");
  ncclUniqueId id{};
  expect(ncclGetUniqueId(&id) == ncclSuccess && std::strcmp(id.internal, "LOOPED") == 0, "ncclGetUniqueId");
  const int allocations = gAllocations;
  void* memory = nullptr;
  expect(ncclMemAlloc(&memory, 64) == ncclSuccess && gAllocations == allocations + 1, "ncclMemAlloc");
  expect(ncclMemFree(memory) == ncclSuccess && gAllocations == allocations, "ncclMemFree");
  expect(ncclGroupEnd() == ncclSuccess && gDepth == before, "ncclGroupEnd");
  gInner = false;
}

void callOwnFunctionsOf(ncclComm_t comm) {
  int count = 0, rank = -1, device = 0;
  ncclResult_t state = ncclInternalError;
  expect(ncclCommCount(comm, &count) == ncclSuccess && count == comm->ranks, "ncclCommCount");
  expect(ncclCommUserRank(comm, &rank) == ncclSuccess && rank == comm->rank, "ncclCommUserRank");
  expect(ncclCommCuDevice(comm, &device) == ncclSuccess && device == 42, "ncclCommCuDevice");
  expect(ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess, "ncclCommGetAsyncError");
  expect(ncclGetLastError(comm) == kNothing, "ncclGetLastError");
  void* handle = nullptr;
  expect(ncclCommRegister(comm, &count, 4, &handle) == ncclSuccess && handle == comm, "ncclCommRegister");
  expect(ncclCommDeregister(comm, handle) == ncclSuccess, "ncclCommDeregister");
}

ncclResult_t work(ncclComm_t comm) {
  if (comm == nullptr || comm->magic != kMagic) return ncclInvalidArgument;
  const int before = gAstray;
  callOwnFunctions();
  callOwnFunctionsOf(comm);
  std::thread([comm] {
    callOwnFunctions();
    callOwnFunctionsOf(comm);
  }).join();
  return gAstray == before ? ncclSuccess : ncclInternalError;
}

}  // namespace

LOOPED int loopedAstray() {
  return gAstray;
}
LOOPED int loopedCrossed() {
  return gCrossed;
}

LOOPED ncclResult_t ncclGetVersion(int* version) {
  *version = kVersion;
  return ncclSuccess;
}
LOOPED const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? kNoError : "an error of the looped NCCL";
}
LOOPED const char* ncclGetLastError(ncclComm_t) {
  return kNothing;
}
LOOPED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  snprintf(id->internal, sizeof id->internal, "LOOPED");
  return ncclSuccess;
}
LOOPED ncclResult_t ncclGroupStart() {
  if (gInner && !isHere(__builtin_return_address(0))) ++gCrossed;
  ++gDepth;
  return ncclSuccess;
}
LOOPED ncclResult_t ncclGroupEnd() {
  return gDepth-- > 0 ? ncclSuccess : ncclInvalidUsage;
}
LOOPED ncclResult_t ncclMemAlloc(void** pointer, size_t size) {
  *pointer = malloc(size);
  ++gAllocations;
  return ncclSuccess;
}
LOOPED ncclResult_t ncclMemFree(void* pointer) {
  free(pointer);
  --gAllocations;
  return ncclSuccess;
}

LOOPED ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t*) {
  if (std::strcmp(id.internal, "LOOPED") != 0) return ncclInvalidArgument;
  *comm = new ncclComm{kMagic, rank, ranks};
  return work(*comm);
}
LOOPED ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  const ncclResult_t result = ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
  return result == ncclSuccess ? work(*comm) : result;
}
LOOPED ncclResult_t ncclCommSplit(ncclComm_t comm, int, int, ncclComm_t* made, ncclConfig_t*) {
  ncclUniqueId id{};
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) return result;
  const ncclResult_t again = ncclCommInitRank(made, comm->ranks, id, comm->rank);
  return again == ncclSuccess ? work(*made) : again;
}
LOOPED ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return ncclSuccess;
}
LOOPED ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
LOOPED ncclResult_t ncclCommCuDevice(const ncclComm_t, int* device) {
  *device = 42;
  return ncclSuccess;
}
LOOPED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->magic == kMagic ? ncclSuccess : ncclInvalidArgument;
  return ncclSuccess;
}
LOOPED ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return work(comm);
}
LOOPED ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const ncclResult_t result = work(comm);
  delete comm;
  return result;
}
LOOPED ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return ncclCommFinalize(comm) == ncclSuccess ? ncclCommAbort(comm) : ncclInternalError;
}
LOOPED ncclResult_t ncclCommRegister(const ncclComm_t comm, void*, size_t, void** handle) {
  *handle = comm;
  return ncclSuccess;
}
LOOPED ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return handle == comm ? ncclSuccess : ncclInvalidArgument;
}
LOOPED ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t,
                                             ncclComm_t comm) {
  return work(comm);
}
LOOPED ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t comm) {
  return work(comm);
}
LOOPED ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                                  cudaStream_t) {
  return work(comm);
}
LOOPED ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t comm,
                               cudaStream_t) {
  return work(comm);
}
LOOPED ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                      ncclComm_t comm, cudaStream_t) {
  return work(comm);
}
LOOPED ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm, cudaStream_t) {
  return work(comm);
}
LOOPED ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm,
                                  cudaStream_t) {
  return work(comm);
}
// A jump: its caller's address is all that the callee sees.
LOOPED ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                              cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
LOOPED ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return work(comm);
}
LOOPED ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return work(comm);
}
