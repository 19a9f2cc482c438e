// Loads Stretto (with GPUs that are made up) and an NCCL (looped_nccl.cpp) in the order that it is told,
// works with communicators of both, and says how it went:
//   order_driver STRETTO NCCL STEP...
// Steps: `ours:MODE` and `theirs:MODE` load one of them (MODE: global, local, lazy = local and bound at the
// first call), `serve` uses communicators that Stretto hands over, `direct` uses NCCL's own functions on a
// communicator of its own, and Stretto's on that; `tool` and `nvidia` are for other libraries. Ends with
// status 0 and prints how many of NCCL's calls of its own functions came by way of Stretto.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "nccl.h"

namespace {

constexpr unsigned kSecondsAtMost = 60;

void* gOurs = nullptr;
void* gTheirs = nullptr;
const char* gStep = "start";

[[noreturn]] void give(const char* what, int number) {
  fprintf(stderr, "%s: %s: %d\n", gStep, what, number);
  if (gOurs != nullptr) {
    const auto words = reinterpret_cast<decltype(&ncclGetLastError)>(dlsym(gOurs, "ncclGetLastError"));
    fprintf(stderr, "%s\n", words(nullptr));
  }
  exit(1);
}
void expect(ncclResult_t result, const char* what, ncclResult_t wanted = ncclSuccess) {
  if (result != wanted) give(what, static_cast<int>(result));
}

template <typename Function>
Function of(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) give(name, 0);
  return reinterpret_cast<Function>(found);
}
#define OURS(name) of<decltype(&::name)>(gOurs, #name)
#define THEIRS(name) of<decltype(&::name)>(gTheirs, #name)

int theirCount(const char* name) {
  return reinterpret_cast<int (*)()>(dlsym(gTheirs, name))();
}

void load(const char* path, const char* mode, void*& into) {
  const int binding = std::strcmp(mode, "lazy") == 0 ? RTLD_LAZY : RTLD_NOW;
  into = dlopen(path, binding | (std::strcmp(mode, "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  if (into == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
}

void serve(const char* path) {
  ncclComm_t comms[2] = {}, children[2] = {};
  float values[4] = {1, 2, 3, 4};
  expect(OURS(ncclCommInitAll)(comms, 2, nullptr), "init");
  if (gTheirs == nullptr) load(path, "local", gTheirs);  // Stretto has loaded it by now
  OURS(ncclGroupStart)();
  for (ncclComm_t comm : comms) {
    expect(OURS(ncclAllReduce)(values, values, 4, ncclFloat32, ncclSum, comm, nullptr), "all-reduce");
  }
  expect(OURS(ncclGroupEnd)(), "group");
  expect(OURS(ncclBcast)(values, 4, ncclFloat32, 0, comms[0], nullptr), "bcast");
  ncclResult_t state = ncclInternalError;
  expect(OURS(ncclCommGetAsyncError)(comms[0], &state), "error");
  expect(state, "state");
  void* memory = nullptr;
  expect(OURS(ncclMemAlloc)(&memory, 100), "alloc");
  expect(OURS(ncclMemFree)(memory), "free");
  OURS(ncclGroupStart)();
  for (int rank = 0; rank < 2; ++rank) {
    expect(OURS(ncclCommSplit)(comms[rank], 0, rank, &children[rank], nullptr), "split");
  }
  expect(OURS(ncclGroupEnd)(), "group of splits");
  int count = 0;
  expect(OURS(ncclCommCount)(children[1], &count), "count");
  if (count != 2) give("count", count);
  for (ncclComm_t comm : comms) expect(OURS(ncclCommDestroy)(comm), "destroy");
  for (ncclComm_t comm : children) expect(OURS(ncclCommAbort)(comm), "abort");
  // A handle of a communicator that is gone is still ours to answer for.
  expect(OURS(ncclCommCount)(comms[0], &count), "count of a destroyed one", ncclInvalidArgument);
  expect(OURS(ncclCommCount)(nullptr, &count), "count of nothing", ncclInvalidArgument);
  expect(OURS(ncclCommDestroy)(nullptr), "destroy of nothing");
}

void direct() {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr, child = nullptr;
  float values[4] = {};
  expect(THEIRS(ncclGetUniqueId)(&id), "their unique id");
  expect(THEIRS(ncclCommInitRank)(&comm, 1, id, 0), "their init");
  expect(THEIRS(ncclAllReduce)(values, values, 4, ncclFloat32, ncclSum, comm, nullptr), "their all-reduce");
  expect(THEIRS(ncclBcast)(values, 4, ncclFloat32, 0, comm, nullptr), "their bcast");
  expect(THEIRS(ncclCommSplit)(comm, 0, 0, &child, nullptr), "their split");
  expect(OURS(ncclAllReduce)(values, values, 4, ncclFloat32, ncclSum, comm, nullptr), "all-reduce there");
  int count = 0;
  expect(OURS(ncclCommCount)(comm, &count), "count there");
  if (count != 1) give("count there", count);
  expect(OURS(ncclCommDestroy)(comm), "destroy there");
  expect(THEIRS(ncclCommDestroy)(child), "their destroy");
  // None of their groups was opened here.
  expect(OURS(ncclGroupEnd)(), "end of no group", ncclInvalidUsage);
}

// NCCL is NVIDIA's, which makes no communicator without a GPU: what is none of either reaches it all the
// same, and it says so in its own words. Its groups are its own.
void nvidia() {
  static char nothing[1 << 20];
  auto* const comm = reinterpret_cast<ncclComm_t>(nothing);
  int count = 0;
  expect(OURS(ncclCommCount)(comm, &count), "count of what is no communicator", ncclInvalidArgument);
  if (*THEIRS(ncclGetLastError)(nullptr) == 0) give("NVIDIA's library was not asked", 0);
  expect(THEIRS(ncclGroupStart)(), "their group");
  expect(OURS(ncclGroupEnd)(), "end of no group", ncclInvalidUsage);
  expect(THEIRS(ncclGroupEnd)(), "end of their group");
  printf("0\n");
  exit(0);
}

void* findOurs(const char* name) {
  return dlsym(gOurs, name);
}

// NCCL is a tool that calls us: nothing goes round in circles.
void asTool() {
  of<void (*)(void* (*)(const char*))>(gTheirs, "toolUse")(findOurs);
  int version = 0;
  expect(THEIRS(ncclGetVersion)(&version), "version");
  if (version != NCCL_VERSION_CODE) give("version", version);
  expect(THEIRS(ncclGroupStart)(), "start");
  expect(THEIRS(ncclGroupEnd)(), "end");
  expect(THEIRS(ncclGroupEnd)(), "end of no group", ncclInvalidUsage);
  expect(THEIRS(ncclCommCount)(nullptr, &version), "count of nothing", ncclInvalidArgument);
  printf("0\n");
  exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  alarm(kSecondsAtMost);  // kills
  for (int at = 3; at < argc; ++at) {
    gStep = argv[at];
    const char* const mode = std::strchr(gStep, ':');
    if (std::strncmp(gStep, "ours:", 5) == 0) {
      load(argv[1], mode + 1, gOurs);
    } else if (std::strncmp(gStep, "theirs:", 7) == 0) {
      load(argv[2], mode + 1, gTheirs);
    } else if (std::strcmp(gStep, "serve") == 0) {
      serve(argv[2]);
    } else if (std::strcmp(gStep, "direct") == 0) {
      direct();
    } else if (std::strcmp(gStep, "tool") == 0) {
      asTool();
    } else if (std::strcmp(gStep, "nvidia") == 0) {
      nvidia();
    } else {
      give("unknown step", at);
    }
  }
  if (theirCount("loopedAstray") != 0) give("calls of their own went astray", theirCount("loopedAstray"));
  printf("%d\n", theirCount("loopedCrossed"));
  return 0;
}
