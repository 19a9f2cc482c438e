// Any library with nccl.h's ABI, loaded from a path: the functions that the benchmark calls, as a table.
// Stretto's own extras (stretto.h) are null where the library is another's. Included by the files of this
// folder alone.
#pragma once

#include <dlfcn.h>
#include <nccl.h>
#include <stretto.h>

#include <string>

#include "failure.hpp"

namespace stretto::bench {

struct Library {
  decltype(&ncclGetVersion) getVersion = nullptr;
  decltype(&ncclGetErrorString) getErrorString = nullptr;
  decltype(&ncclGetLastError) getLastError = nullptr;
  decltype(&ncclGetUniqueId) getUniqueId = nullptr;
  decltype(&ncclCommInitRank) commInitRank = nullptr;
  decltype(&ncclCommDestroy) commDestroy = nullptr;
  decltype(&ncclCommCount) commCount = nullptr;
  decltype(&ncclCommAbort) commAbort = nullptr;
  decltype(&ncclCommGetAsyncError) commGetAsyncError = nullptr;
  decltype(&ncclMemAlloc) memAlloc = nullptr;
  decltype(&ncclCommWindowRegister) commWindowRegister = nullptr;
  decltype(&ncclCommWindowDeregister) commWindowDeregister = nullptr;
  decltype(&ncclGroupStart) groupStart = nullptr;
  decltype(&ncclGroupEnd) groupEnd = nullptr;
  decltype(&ncclAllReduce) allReduce = nullptr;
  decltype(&ncclReduceScatter) reduceScatter = nullptr;
  decltype(&ncclAllGather) allGather = nullptr;
  decltype(&ncclAlltoAll) allToAll = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclGather) gather = nullptr;
  decltype(&ncclScatter) scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&strettoVersion) version = nullptr;  // from here on null where the library is not Stretto
  decltype(&strettoCommForce) commForce = nullptr;
  decltype(&strettoExplain) explain = nullptr;
  decltype(&strettoParameters) parameters = nullptr;
  decltype(&strettoCommCounters) commCounters = nullptr;
};

// What an older NCCL lacks stays null too, and is refused when it is asked for.
inline Library loadLibrary(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Failure(std::string("cannot load the library: ") + dlerror());
  Library l;
  const auto find = [handle](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
  };
  find(l.getVersion, "ncclGetVersion");
  find(l.getErrorString, "ncclGetErrorString");
  find(l.getLastError, "ncclGetLastError");
  find(l.getUniqueId, "ncclGetUniqueId");
  find(l.commInitRank, "ncclCommInitRank");
  find(l.commDestroy, "ncclCommDestroy");
  find(l.commCount, "ncclCommCount");
  find(l.commAbort, "ncclCommAbort");
  find(l.commGetAsyncError, "ncclCommGetAsyncError");
  find(l.memAlloc, "ncclMemAlloc");
  find(l.commWindowRegister, "ncclCommWindowRegister");
  find(l.commWindowDeregister, "ncclCommWindowDeregister");
  find(l.groupStart, "ncclGroupStart");
  find(l.groupEnd, "ncclGroupEnd");
  find(l.allReduce, "ncclAllReduce");
  find(l.reduceScatter, "ncclReduceScatter");
  find(l.allGather, "ncclAllGather");
  find(l.allToAll, "ncclAlltoAll");
  find(l.broadcast, "ncclBroadcast");
  find(l.reduce, "ncclReduce");
  find(l.gather, "ncclGather");
  find(l.scatter, "ncclScatter");
  find(l.send, "ncclSend");
  find(l.receive, "ncclRecv");
  find(l.version, "strettoVersion");
  find(l.commForce, "strettoCommForce");
  find(l.explain, "strettoExplain");
  find(l.parameters, "strettoParameters");
  find(l.commCounters, "strettoCommCounters");
  if (l.commInitRank == nullptr || l.getUniqueId == nullptr || l.allReduce == nullptr ||
      l.commAbort == nullptr) {
    throw Failure(path + " has no nccl.h functions in it");
  }
  return l;
}

}  // namespace stretto::bench
