// How long an all-reduce between two processes takes, on either system: each process is one rank.
//
//   two_processes RANK FILE [BYTES]
//
// Rank 0 writes the unique id to FILE, which must not be there before, and rank 1 waits for it. Rank 0 prints
// the least and the median microseconds an operation, over batches; each batch's result is checked.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"

namespace {

constexpr int kBatches = 200;
constexpr int kCalls = 200;
constexpr int kMostSecondsToMeet = 60;

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "two_processes: %s: %s\n", what, ncclGetLastError(nullptr));
  exit(1);
}
void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) fail(what);
}

ncclUniqueId meet(int rank, const std::string& file) {
  ncclUniqueId id;
  if (rank == 0) {
    check(ncclGetUniqueId(&id), "no id");
    std::ofstream(file + ".part", std::ios::binary).write(id.internal, sizeof id.internal);
    std::filesystem::rename(file + ".part", file);
    return id;
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kMostSecondsToMeet);
  while (!std::filesystem::exists(file)) {
    if (std::chrono::steady_clock::now() > limit) fail("rank 0 has not written the file");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!std::ifstream(file, std::ios::binary).read(id.internal, sizeof id.internal)) fail("no id in the file");
  return id;
}

// Microseconds a call.
double batch(ncclComm_t comm, std::vector<float>& values) {
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < kCalls; ++call) {
    check(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclMax, comm, nullptr),
          "all-reduce");
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / kCalls;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) fail("usage: two_processes RANK FILE [BYTES]");
  const int rank = atoi(words[1]);
  const size_t floats = (count > 3 ? strtoul(words[3], nullptr, 10) : 1024) / sizeof(float);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, 2, meet(rank, words[2]), rank), "no communicator");
  std::vector<double> times;
  for (int i = 0; i < kBatches; ++i) {
    std::vector<float> values(floats, static_cast<float>(rank + i));
    times.push_back(batch(comm, values));
    for (const float value : values) {
      if (value != static_cast<float>(1 + i)) fail("a wrong result");
    }
  }
  check(ncclCommDestroy(comm), "destroy");
  std::sort(times.begin(), times.end());
  if (rank == 0) printf("least %.3f us, median %.3f us\n", times.front(), times[times.size() / 2]);
  return 0;
}
