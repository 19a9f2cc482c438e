// NVIDIA's own NCCL as this process has loaded it: found, opened beside this library, and every function of
// nccl.h that serves a communicator as a pointer. For communicator/handover/foreign.cpp, and for api/ where a
// call belongs to no communicator. Loaded once per process and never unloaded; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "nccl.h"
#include "platform/dynamic_library.hpp"

namespace stretto::communicator {

// In every release that is accepted (2.19 and later).
#define STRETTO_FOREIGN_ALWAYS(X) \
  X(ncclGetVersion)               \
  X(ncclGetUniqueId)              \
  X(ncclGetErrorString)           \
  X(ncclGetLastError)             \
  X(ncclCommInitRankConfig)       \
  X(ncclCommFinalize)             \
  X(ncclCommDestroy)              \
  X(ncclCommAbort)                \
  X(ncclCommGetAsyncError)        \
  X(ncclCommRegister)             \
  X(ncclCommDeregister)           \
  X(ncclMemAlloc)                 \
  X(ncclMemFree)                  \
  X(ncclRedOpCreatePreMulSum)     \
  X(ncclRedOpDestroy)             \
  X(ncclAllReduce)                \
  X(ncclReduce)                   \
  X(ncclReduceScatter)            \
  X(ncclAllGather)                \
  X(ncclBroadcast)                \
  X(ncclSend)                     \
  X(ncclRecv)                     \
  X(ncclGroupStart)               \
  X(ncclGroupEnd)
// In some of them: null elsewhere.
#define STRETTO_FOREIGN_SOMETIMES(X) \
  X(ncclAlltoAll)                    \
  X(ncclGather)                      \
  X(ncclScatter)                     \
  X(ncclGroupSimulateEnd)            \
  X(ncclCommWindowRegister)          \
  X(ncclCommWindowDeregister)        \
  X(ncclWinGetUserPtr)               \
  X(ncclCommMemStats)                \
  X(ncclCommSuspend)                 \
  X(ncclCommResume)

// Marks the calling thread as being inside a function of NCCL's, while it lives.
class InsideForeign {
 public:
  InsideForeign();
  ~InsideForeign();
  InsideForeign(const InsideForeign&) = delete;
  InsideForeign& operator=(const InsideForeign&) = delete;
  static bool here();
};

// One function of NCCL's, null where the release lacks it. A thread that is in it counts as inside: the
// dynamic linker may have bound NCCL's calls of its own functions to the functions of this library, which
// then know whose they are to answer (api/pass_on.hpp).
template <typename Function>
class ForeignFunction;
template <typename Answer, typename... Arguments>
class ForeignFunction<Answer (*)(Arguments...)> {
 public:
  using Pointer = Answer (*)(Arguments...);
  ForeignFunction() = default;
  explicit ForeignFunction(void* address) : function_(reinterpret_cast<Pointer>(address)) {}

  Answer operator()(Arguments... arguments) const {
    const InsideForeign inside;
    return function_(arguments...);
  }
  bool operator==(std::nullptr_t) const { return function_ == nullptr; }
  const void* address() const { return reinterpret_cast<const void*>(function_); }

 private:
  Pointer function_ = nullptr;
};

struct ForeignLibrary {
  platform::DynamicLibrary file;
  std::string path;
  int version = 0;  // as ncclGetVersion codes it
#define STRETTO_FOREIGN_POINTER(name) ForeignFunction<decltype(&::name)> name;
  STRETTO_FOREIGN_ALWAYS(STRETTO_FOREIGN_POINTER)
  STRETTO_FOREIGN_SOMETIMES(STRETTO_FOREIGN_POINTER)
#undef STRETTO_FOREIGN_POINTER

  std::string versionText() const;  // "2.28.9"
};

// The one that STRETTO_REAL_NCCL names, else the first that is found: loaded into this process already, where
// what is loaded would look for it, beside other Python packages in use, in the system's folders. Never this
// library itself. kInvalidUsage when the variable forbids it, names something else than NCCL, or NCCL is too
// old; kSystem when there is none. The words say where it looked and what to set.
Result<const ForeignLibrary*> foreignLibrary();
// The same if it is loaded, else null: looks for nothing.
const ForeignLibrary* foreignLibraryIfLoaded();

// Device memory for ncclMemAlloc that either library can use: NCCL's as soon as it serves a communicator of
// this process, because only its own can be its windows; and its return, whoever gave it.
Result<void*> allocateForBoth(int device, size_t bytes);
Status releaseForBoth(void* pointer);

// Whether a file's name is one that NCCL is installed under.
bool namedNccl(const std::string& file);
// Files to try, best first; for tests. `mapped` and `folders` are what platform/loaded_files.hpp finds.
std::vector<std::string> foreignCandidates(const std::vector<std::string>& mapped,
                                           const std::vector<std::string>& folders);

}  // namespace stretto::communicator
