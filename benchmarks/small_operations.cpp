// What a small operation costs, one library or profiler plugin beside another: an 8-byte all-reduce, call
// after call, in many short batches. Each cell runs in processes of its own, all cells in turns, so that what
// the machine does meanwhile meets them alike.
//
//   small_operations ROUNDS one|threads|processes BYTES LIBRARY[,PLUGIN[,EVERY]]...
//
// `one` is a communicator of one rank: the way through the library and nothing else. PLUGIN is what
// NCCL_PROFILER_PLUGIN becomes; none without it. EVERY is what STRETTO_PROFILE_EVERY becomes. Ranks are kept
// on processors 0 and 1. Prints, for each cell, nanoseconds an operation: the least batch of all rounds, the
// median of the rounds' least, and the median, least and largest of the rounds' medians.
#include <dlfcn.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "nccl.h"

namespace {

constexpr int kBatches = 300;
constexpr int kCalls = 200;
constexpr int kWarmUp = 2000;

struct Times {
  double least = 0;
  double median = 0;
};

struct Library {
  decltype(&ncclGetUniqueId) uniqueId;
  decltype(&ncclCommInitRank) init;
  decltype(&ncclAllReduce) allReduce;
  decltype(&ncclCommDestroy) destroy;

  explicit Library(const char* path) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(dlerror());
    find(library, "ncclGetUniqueId", uniqueId);
    find(library, "ncclCommInitRank", init);
    find(library, "ncclAllReduce", allReduce);
    find(library, "ncclCommDestroy", destroy);
  }
  [[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "small_operations: %s\n", what);
    _exit(1);
  }

 private:
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) fail(name);
  }
};

double nanoseconds() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Times runRank(const Library& library, const ncclUniqueId& id, int rank, int ranks, size_t bytes) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(static_cast<size_t>(rank), &mine);
  (void)sched_setaffinity(0, sizeof mine, &mine);
  ncclComm_t comm = nullptr;
  if (library.init(&comm, ranks, id, rank) != ncclSuccess) Library::fail("ncclCommInitRank failed");
  std::vector<float> data(bytes / sizeof(float));
  const auto batch = [&](int calls) {
    const double began = nanoseconds();
    for (int i = 0; i < calls; ++i) {
      if (library.allReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr) !=
          ncclSuccess) {
        Library::fail("ncclAllReduce failed");
      }
    }
    return (nanoseconds() - began) / calls;
  };
  batch(kWarmUp);
  std::vector<double> batches(kBatches);
  for (double& one : batches) one = batch(kCalls);
  library.destroy(comm);
  std::sort(batches.begin(), batches.end());
  return {batches.front(), batches[kBatches / 2]};
}

// In a process that has nothing else to do.
void runCell(std::string_view mode, const std::string& path, size_t bytes, int out) {
  const Library library(path.c_str());
  const int ranks = mode == "one" ? 1 : 2;
  ncclUniqueId id{};
  int other[2];
  if (pipe(other) != 0) Library::fail("pipe");
  if (mode == "processes" && fork() == 0) {
    if (read(other[0], &id, sizeof id) != sizeof id) _exit(1);
    (void)runRank(library, id, 1, ranks, bytes);
    _exit(0);
  }
  library.uniqueId(&id);
  if (mode == "processes" && write(other[1], &id, sizeof id) != sizeof id) Library::fail("write");
  std::thread second;
  if (mode == "threads") second = std::thread([&] { (void)runRank(library, id, 1, ranks, bytes); });
  const Times times = runRank(library, id, 0, ranks, bytes);
  if (second.joinable()) second.join();
  if (mode == "processes") wait(nullptr);
  if (write(out, &times, sizeof times) != sizeof times) Library::fail("write");
}

std::vector<std::string> partsOf(const std::string& cell) {
  std::vector<std::string> parts;
  std::istringstream text(cell);
  for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
  return parts;
}

Times measure(std::string_view mode, const std::string& cell, size_t bytes) {
  int result[2];
  if (pipe(result) != 0) Library::fail("pipe");
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<std::string> parts = partsOf(cell);
    setenv("NCCL_PROFILER_PLUGIN", parts.size() < 2 ? "none" : parts[1].c_str(), 1);
    if (parts.size() > 2) setenv("STRETTO_PROFILE_EVERY", parts[2].c_str(), 1);
    runCell(mode, parts[0], bytes, result[1]);
    exit(0);
  }
  close(result[1]);
  Times times;
  if (read(result[0], &times, sizeof times) != sizeof times) Library::fail("a cell's process has failed");
  close(result[0]);
  waitpid(child, nullptr, 0);
  return times;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view mode = count < 5 ? "" : words[2];
  if (mode != "one" && mode != "threads" && mode != "processes") {
    fprintf(stderr, "small_operations ROUNDS one|threads|processes BYTES LIBRARY[,PLUGIN[,EVERY]]...\n");
    return 2;
  }
  const std::vector<std::string> cells(words + 4, words + count);
  std::vector<std::vector<double>> least(cells.size()), medians(cells.size());
  for (int round = 0; round < atoi(words[1]); ++round) {
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      const Times times = measure(mode, cells[cell], static_cast<size_t>(atoi(words[3])));
      least[cell].push_back(times.least);
      medians[cell].push_back(times.median);
    }
  }
  for (size_t cell = 0; cell < cells.size(); ++cell) {
    std::sort(least[cell].begin(), least[cell].end());
    std::sort(medians[cell].begin(), medians[cell].end());
    const size_t middle = least[cell].size() / 2;
    printf("%7.1f %7.1f  %7.1f (%.1f to %.1f)  %s\n", least[cell].front(), least[cell][middle],
           medians[cell][middle], medians[cell].front(), medians[cell].back(), cells[cell].c_str());
  }
  return 0;
}
