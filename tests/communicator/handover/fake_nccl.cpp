// An NCCL that is made up, for tests of the hand-over: it moves nothing between ranks, writes down every
// call, and fails or hangs where the environment says so. Built as several libraries: FAKE_VERSION is what
// ncclGetVersion says, FAKE_OLD leaves out what releases before 2.28 do not have.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "nccl.h"

#define FAKE extern "C" [[gnu::visibility("default")]]

struct ncclComm {
  int rank;
  int ranks;
  int device;
};

namespace {

std::mutex gMutex;
std::string gCalls;  // "AllReduce(4,7,0) ..."
std::atomic<bool> gAborted{false};
thread_local std::string gLastError;
std::string gReturned;

bool asked(const char* behaviour) {
  const char* const wanted = getenv("FAKE_NCCL");
  return wanted != nullptr && std::string(wanted).find(behaviour) != std::string::npos;
}

template <typename... Numbers>
ncclResult_t note(const char* name, Numbers... numbers) {
  std::lock_guard lock(gMutex);
  gCalls += name;
  std::string list;
  ((list += (list.empty() ? "" : ",") + std::to_string(numbers)), ...);
  gCalls += "(" + list + ") ";
  if (!asked((std::string("fail:") + name).c_str())) return ncclSuccess;
  gLastError = std::string("made up: ") + name;
  return ncclRemoteError;
}

int currentDevice() {
  // The program that made up the devices says.
  using Ask = int (*)();
  static const auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "fakeCurrentDevice"));
  return ask == nullptr ? -1 : ask();
}

// As if every rank had given what this one gave.
void sum(const void* from, void* to, size_t count, int ranks) {
  for (size_t i = 0; i < count; ++i) {
    static_cast<float*>(to)[i] = static_cast<const float*>(from)[i] * static_cast<float>(ranks);
  }
}

}  // namespace

// What was called since the last time that it was asked.
FAKE const char* fakeCalls() {
  std::lock_guard lock(gMutex);
  gReturned = std::exchange(gCalls, {});
  return gReturned.c_str();
}

FAKE ncclResult_t ncclGetVersion(int* version) {
  *version = asked("version") ? 22807 : FAKE_VERSION;
  return ncclSuccess;
}
FAKE const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "a made-up error";
}
FAKE const char* ncclGetLastError(ncclComm_t) {
  return gLastError.c_str();
}
FAKE ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  snprintf(id->internal, sizeof id->internal, "FAKE of %d", static_cast<int>(getpid()));
  return note("GetUniqueId");
}
FAKE ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                         ncclConfig_t* config) {
  {
    std::lock_guard lock(gMutex);
    gCalls += std::string("id:") + id.internal + " net:" + (config->netName ? config->netName : "-") +
              " name:" + (config->commName ? config->commName : "-") + " ";
  }
  if (asked("hang")) {
    for (int slice = 0; slice < 100; ++slice) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const ncclResult_t result =
      note("CommInitRankConfig", ranks, rank, currentDevice(), config->blocking, config->maxCTAs);
  if (result == ncclSuccess) *comm = new ncclComm{rank, ranks, currentDevice()};
  return result;
}
FAKE ncclResult_t ncclCommFinalize(ncclComm_t) {
  return note("CommFinalize");
}
FAKE ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return note("CommDestroy");
}
FAKE ncclResult_t ncclCommAbort(ncclComm_t comm) {
  gAborted.store(true);
  if (!asked("stuck")) delete comm;
  return note("CommAbort");
}
FAKE ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = asked("async") ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t size, void** handle) {
  *handle = &gCalls;
  return note("CommRegister", size);
}
FAKE ncclResult_t ncclCommDeregister(const ncclComm_t, void* handle) {
  return handle == &gCalls ? note("CommDeregister") : ncclInvalidArgument;
}
FAKE ncclResult_t ncclMemAlloc(void** pointer, size_t size) {
  *pointer = malloc(size);
  return note("MemAlloc", size);
}
FAKE ncclResult_t ncclMemFree(void* pointer) {
  free(pointer);
  return note("MemFree");
}
FAKE ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void*, ncclDataType_t, ncclScalarResidence_t,
                                           ncclComm_t) {
  *op = static_cast<ncclRedOp_t>(4711);
  return note("RedOpCreatePreMulSum");
}
FAKE ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t) {
  return note("RedOpDestroy", static_cast<int>(op));
}
FAKE ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t) {
  sum(send, receive, count, comm->ranks);
  // A call that waits for a peer, until somebody aborts.
  while (asked("stuck") && !gAborted.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return note("AllReduce", count, static_cast<int>(op));
}
FAKE ncclResult_t ncclReduce(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t op, int root,
                             ncclComm_t, cudaStream_t) {
  return note("Reduce", count, static_cast<int>(op), root);
}
FAKE ncclResult_t ncclReduceScatter(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t op,
                                    ncclComm_t, cudaStream_t) {
  return note("ReduceScatter", count, static_cast<int>(op));
}
FAKE ncclResult_t ncclAllGather(const void*, void*, size_t count, ncclDataType_t type, ncclComm_t,
                                cudaStream_t) {
  return note("AllGather", count, static_cast<int>(type));
}
FAKE ncclResult_t ncclBroadcast(const void*, void*, size_t count, ncclDataType_t, int root, ncclComm_t,
                                cudaStream_t) {
  return note("Broadcast", count, root);
}
FAKE ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
  return note("Send", count, peer);
}
FAKE ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
  return note("Recv", count, peer);
}
FAKE ncclResult_t ncclGroupStart() {
  return note("GroupStart");
}
FAKE ncclResult_t ncclGroupEnd() {
  return note("GroupEnd");
}
#if !defined(FAKE_OLD)
FAKE ncclResult_t ncclAlltoAll(const void*, void*, size_t count, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return note("AlltoAll", count);
}
FAKE ncclResult_t ncclGather(const void*, void*, size_t count, ncclDataType_t, int root, ncclComm_t,
                             cudaStream_t) {
  return note("Gather", count, root);
}
FAKE ncclResult_t ncclScatter(const void*, void*, size_t count, ncclDataType_t, int root, ncclComm_t,
                              cudaStream_t) {
  return note("Scatter", count, root);
}
FAKE ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  info->estimatedTime = 42;
  return note("GroupSimulateEnd");
}
FAKE ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void*, size_t size, ncclWindow_t* window,
                                         int flags) {
  *window = reinterpret_cast<ncclWindow_t>(comm);
  return note("CommWindowRegister", size, flags);
}
FAKE ncclResult_t ncclCommMemStats(ncclComm_t, ncclCommMemStat_t stat, uint64_t* value) {
  *value = 4096;
  return note("CommMemStats", static_cast<int>(stat));
}
FAKE ncclResult_t ncclCommSuspend(ncclComm_t, int flags) {
  return note("CommSuspend", flags);
}
FAKE ncclResult_t ncclCommResume(ncclComm_t) {
  return note("CommResume");
}
FAKE ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return window == reinterpret_cast<ncclWindow_t>(comm) ? note("CommWindowDeregister") : ncclInvalidArgument;
}
#endif
