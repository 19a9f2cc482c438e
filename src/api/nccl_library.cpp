// nccl.h: version, errors, memory, registrations, operators.
#include <cstring>

#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"
#include "api/serve.hpp"
#include "api/windows.hpp"
#include "base/log.hpp"
#include "communicator/core/host_memory.hpp"
#include "memory/user_memory.hpp"

using stretto::Code;
using stretto::Status;
using namespace stretto::api;

STRETTO_API(ncclGetVersion)
ncclResult_t ncclGetVersion(int* version) try {
  STRETTO_PASS_ON_CALLER(ncclGetVersion, (version));
  if (version == nullptr)
    return finish(stretto::fail(Code::kInvalidArgument, "ncclGetVersion: version is null"));
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclGetVersion");
}

STRETTO_API(ncclGetErrorString)
const char* ncclGetErrorString(ncclResult_t result) {
  STRETTO_PASS_ON_CALLER(ncclGetErrorString, (result));
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed (ncclGetLastError says which)";
    case ncclSystemError:
      return "the operating system refused, or the communicator was aborted";
    case ncclInternalError:
      return "internal error of the library";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage (ranks disagree, or the call does not fit here)";
    case ncclRemoteError:
      return "a remote rank failed, left or did not answer in time";
    case ncclInProgress:
      return "in progress";
    default:
      return "unknown result code";
  }
}

STRETTO_API(ncclGetLastError)
const char* ncclGetLastError(ncclComm_t comm) try {
  STRETTO_PASS_ON(ncclGetLastError, comm, (comm));
  const InUse communicator(comm, nullptr);
  if (communicator == nullptr) return stretto::lastError().c_str();
  std::string text;
  (void)communicator->error(&text);
  if (text.empty()) return stretto::lastError().c_str();
  std::lock_guard lock(comm->kept->lastErrorMutex);
  std::string& kept = comm->kept->lastError;
  if (kept != text) kept = std::move(text);
  return kept.c_str();
} catch (...) {
  return "out of memory";
}

STRETTO_API(ncclResetDebugInit)
void ncclResetDebugInit(void) {
  // Without the macro, which would name the deprecated function.
  void* const theirs = elsewhere("ncclResetDebugInit", __builtin_return_address(0));
  if (theirs != nullptr) return reinterpret_cast<void (*)()>(theirs)();
  stretto::log::reset();
}

STRETTO_API(ncclMemAlloc)
ncclResult_t ncclMemAlloc(void** ptr, size_t size) try {
  STRETTO_PASS_ON_CALLER(ncclMemAlloc, (ptr, size));
  if (ptr == nullptr) return finish(stretto::fail(Code::kInvalidArgument, "ncclMemAlloc: ptr is null"));
  *ptr = nullptr;
  const auto device = stretto::communicator::deviceOfThisThread();
  if (!device.ok()) return finish(device.status());
  const auto memory = device.value() == stretto::communicator::kHostDevice
                          ? stretto::memory::allocate(size)
                          : stretto::communicator::allocateForBoth(device.value(), size);
  *ptr = memory.ok() ? memory.value() : nullptr;
  return finish(memory.status());
} catch (...) {
  return stretto::api::caught("ncclMemAlloc");
}

STRETTO_API(ncclMemFree)
ncclResult_t ncclMemFree(void* ptr) try {
  STRETTO_PASS_ON_CALLER(ncclMemFree, (ptr));
  return finish(stretto::communicator::releaseForBoth(ptr));
} catch (...) {
  return stretto::api::caught("ncclMemFree");
}

namespace {

// A registration changes nothing on the host; it is remembered so that undoing it can be checked.
Status registerRange(const char* function, ncclComm_t comm, const void* buffer, size_t bytes, void** handle) {
  if (handle == nullptr || buffer == nullptr || bytes == 0) {
    return stretto::fail(Code::kInvalidArgument, "%s: %zu bytes at %p, handle to %p", function, bytes, buffer,
                         static_cast<void*>(handle));
  }
  *handle = stretto::memory::addRegistration(comm, buffer, bytes);
  return stretto::kOkStatus;
}

Status checkWindowFlags(int flags) {
  constexpr int kHere = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING;
  constexpr int kElsewhere = NCCL_WIN_GIN_ONLY | NCCL_WIN_CFT_COUNTED;
  if ((flags & ~(kHere | kElsewhere)) != 0) {
    return stretto::fail(Code::kInvalidArgument, "ncclCommWindowRegister: unknown flags %#x", flags);
  }
  if ((flags & kElsewhere) == 0) return stretto::kOkStatus;
  return stretto::fail(
      Code::kInvalidUsage,
      "ncclCommWindowRegister: windows for a network's GIN or for counted multicast (flags %#x) "
      "cannot be had: this library has neither",
      flags);
}

// All ranks do it together, so that one that cannot tells the others.
Status registerWindow(stretto::communicator::Communicator& communicator, ncclComm_t comm, void* buffer,
                      size_t bytes, ncclWindow_t* window, bool symmetric) {
  void** const handle = reinterpret_cast<void**>(window);
  if (symmetric) STRETTO_TRY(communicator.mayCall());
  const Status mine = registerRange("ncclCommWindowRegister", comm, buffer, bytes, handle);
  if (!symmetric || !communicator.windows().are()) return mine;
  const Status all = communicator.windows().add(mine.ok() ? *handle : nullptr, buffer, bytes, mine);
  if (all.ok() || !mine.ok()) return all;
  (void)stretto::memory::removeRegistration(comm, *handle);
  *handle = nullptr;
  return all;
}

Status notRegistered(const char* function, const void* handle) {
  return stretto::fail(Code::kInvalidArgument, "%s: %p is not a registration of this communicator", function,
                       handle);
}

Status deregisterRange(const char* function, ncclComm_t comm, void* handle) {
  if (handle == nullptr || stretto::memory::removeRegistration(comm, handle)) return stretto::kOkStatus;
  return notRegistered(function, handle);
}

}  // namespace

STRETTO_API(ncclCommRegister)
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) try {
  STRETTO_PASS_ON(ncclCommRegister, comm, (comm, buff, size, handle));
  constexpr auto kName = "ncclCommRegister";
  const auto ours = [=](auto&) { return registerRange(kName, comm, buff, size, handle); };
  return finish(serve(comm, kName, ours, &ForeignLibrary::ncclCommRegister, kTheirs, buff, size, handle));
} catch (...) {
  return stretto::api::caught("ncclCommRegister");
}

STRETTO_API(ncclCommDeregister)
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) try {
  STRETTO_PASS_ON(ncclCommDeregister, comm, (comm, handle));
  constexpr auto kName = "ncclCommDeregister";
  const auto ours = [=](auto&) { return deregisterRange(kName, comm, handle); };
  return finish(serve(comm, kName, ours, &ForeignLibrary::ncclCommDeregister, kTheirs, handle));
} catch (...) {
  return stretto::api::caught("ncclCommDeregister");
}

STRETTO_API(ncclCommWindowRegister)
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags) try {
  STRETTO_PASS_ON(ncclCommWindowRegister, comm, (comm, buff, size, win, winFlags));
  constexpr auto kName = "ncclCommWindowRegister";
  if (const Status status = checkWindowFlags(winFlags); !status.ok()) return finish(status);
  const auto ours = [=](auto& communicator) {
    return registerWindow(communicator, comm, buff, size, win, (winFlags & NCCL_WIN_COLL_SYMMETRIC) != 0);
  };
  return finish(serveTogether(comm, kName, ours, &ForeignLibrary::ncclCommWindowRegister, kTheirs, buff, size,
                              win, winFlags));
} catch (...) {
  return stretto::api::caught("ncclCommWindowRegister");
}

STRETTO_API(ncclCommWindowDeregister)
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) try {
  STRETTO_PASS_ON(ncclCommWindowDeregister, comm, (comm, win));
  constexpr auto kName = "ncclCommWindowDeregister";
  const auto ours = [=](auto& communicator) {
    STRETTO_TRY(deregisterRange(kName, comm, win));
    communicator.windows().remove(win);
    return stretto::kOkStatus;
  };
  return finish(serve(comm, kName, ours, &ForeignLibrary::ncclCommWindowDeregister, kTheirs, win));
} catch (...) {
  return stretto::api::caught("ncclCommWindowDeregister");
}

STRETTO_API(ncclWinGetUserPtr)
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) try {
  STRETTO_PASS_ON(ncclWinGetUserPtr, comm, (comm, win, outUserPtr));
  constexpr auto kName = "ncclWinGetUserPtr";
  if (outUserPtr == nullptr)
    return finish(stretto::fail(Code::kInvalidArgument, "%s: no place for the answer", kName));
  const auto ours = [=](auto&) {
    const auto found = stretto::memory::findRegistration(win);
    if (found.owner != comm) return notRegistered(kName, win);
    *outUserPtr = const_cast<void*>(found.buffer);
    return stretto::kOkStatus;
  };
  return finish(serve(comm, kName, ours, &ForeignLibrary::ncclWinGetUserPtr, kTheirs, win, outUserPtr));
} catch (...) {
  return stretto::api::caught("ncclWinGetUserPtr");
}

Status stretto::api::addressInWindow(const char* function, ncclWindow_t window, InWindow where, void** out) {
  const auto found = memory::findRegistration(window);
  if (found.owner == nullptr) return notRegistered(function, window);
  auto* const comm = static_cast<ncclComm_t>(const_cast<void*>(found.owner));
  const InUse communicator(comm, function);
  if (communicator == nullptr) return Status{Code::kInvalidArgument};
  return communicator->windows().address(window, where.peer, where.offset, out);
}

STRETTO_API(ncclRedOpCreatePreMulSum)
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) try {
  STRETTO_PASS_ON(ncclRedOpCreatePreMulSum, comm, (op, scalar, datatype, residence, comm));
  constexpr auto kName = "ncclRedOpCreatePreMulSum";
  const bool typed = static_cast<int>(datatype) >= 0 && static_cast<int>(datatype) < ncclNumTypes;
  if (op == nullptr || scalar == nullptr || !typed ||
      (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
    return finish(stretto::fail(
        Code::kInvalidArgument, "ncclRedOpCreatePreMulSum: op %p, scalar %p, data type %d, residence %d",
        static_cast<void*>(op), scalar, static_cast<int>(datatype), static_cast<int>(residence)));
  }
  const auto ours = [=](auto& communicator) {
    const bool immediate = residence == ncclScalarHostImmediate;
    if (immediate && !communicator.self().onDevice())
      STRETTO_TRY(
          stretto::communicator::refuseDeviceMemory(kName, "scalar", scalar, communicator.self().rank()));
    const int index =
        communicator.operators().add(static_cast<stretto::DataType>(datatype), scalar, immediate);
    *op = static_cast<ncclRedOp_t>(ncclNumOps + index);
    return stretto::kOkStatus;
  };
  return finish(serve(comm, kName, ours, &ForeignLibrary::ncclRedOpCreatePreMulSum, op, scalar, datatype,
                      residence, kTheirs));
} catch (...) {
  return stretto::api::caught("ncclRedOpCreatePreMulSum");
}

STRETTO_API(ncclRedOpDestroy)
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) try {
  STRETTO_PASS_ON(ncclRedOpDestroy, comm, (op, comm));
  const auto ours = [=](auto& communicator) {
    return communicator.operators().remove(static_cast<int>(op) - ncclNumOps);
  };
  return finish(serve(comm, "ncclRedOpDestroy", ours, &ForeignLibrary::ncclRedOpDestroy, op, kTheirs));
} catch (...) {
  return stretto::api::caught("ncclRedOpDestroy");
}
