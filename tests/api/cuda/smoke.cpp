// A first look at a machine with GPUs: every collective once, through nccl.h, by ranks that are threads of
// this process. Usage: smoke [RANKS [shared]]; prints one line a collective and returns the number of those
// that failed.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"

namespace {

constexpr size_t kCount = 3001;  // elements of one block

struct Rank {
  int rank = 0;
  int ranks = 1;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* send = nullptr;  // `ranks` blocks each
  float* receive = nullptr;
  std::string failure;

  bool fine(cudaError_t error, const char* what) {
    if (error != cudaSuccess && failure.empty())
      failure = std::string(what) + ": " + cudaGetErrorString(error);
    return failure.empty();
  }
  bool fine(ncclResult_t result, const char* what) {
    if (result != ncclSuccess && failure.empty()) {
      failure = std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(comm);
    }
    return failure.empty();
  }
};

float valueOf(int rank, size_t i) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 17);
}
float sumOf(int ranks, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += valueOf(rank, i);
  return sum;
}

// A collective, how it is called, and what a rank must find at element i of its result (of `blocks` blocks).
struct Check {
  const char* name;
  std::function<ncclResult_t(Rank&)> call;
  std::function<size_t(const Rank&)> blocks;
  std::function<float(const Rank&, size_t i)> expected;
};

std::vector<Check> checks() {
  const auto one = [](const Rank&) { return size_t{1}; };
  const auto all = [](const Rank& r) { return static_cast<size_t>(r.ranks); };
  const auto atRoot = [](size_t blocks) {
    return [blocks](const Rank& r) { return r.rank == 0 ? blocks : 0; };
  };
  const auto sum = [](const Rank& r, size_t i) { return sumOf(r.ranks, i); };
  const auto mine = [](const Rank& r, size_t i) { return static_cast<size_t>(r.rank) * kCount + i; };
  std::vector<Check> list;
  list.push_back(
      {"all_reduce",
       [](Rank& r) { return ncclAllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum, r.comm, r.stream); },
       one, sum});
  list.push_back({"reduce_scatter",
                  [](Rank& r) {
                    return ncclReduceScatter(r.send, r.receive, kCount, ncclFloat, ncclSum, r.comm, r.stream);
                  },
                  one, [=](const Rank& r, size_t i) { return sumOf(r.ranks, mine(r, i)); }});
  list.push_back(
      {"all_gather",
       [](Rank& r) { return ncclAllGather(r.send, r.receive, kCount, ncclFloat, r.comm, r.stream); }, all,
       [](const Rank&, size_t i) { return valueOf(static_cast<int>(i / kCount), i % kCount); }});
  list.push_back(
      {"all_to_all",
       [](Rank& r) { return ncclAlltoAll(r.send, r.receive, kCount, ncclFloat, r.comm, r.stream); }, all,
       [=](const Rank& r, size_t i) { return valueOf(static_cast<int>(i / kCount), mine(r, i % kCount)); }});
  list.push_back(
      {"broadcast",
       [](Rank& r) { return ncclBroadcast(r.send, r.receive, kCount, ncclFloat, 0, r.comm, r.stream); }, one,
       [](const Rank&, size_t i) { return valueOf(0, i); }});
  list.push_back(
      {"reduce",
       [](Rank& r) { return ncclReduce(r.send, r.receive, kCount, ncclFloat, ncclSum, 0, r.comm, r.stream); },
       atRoot(1), sum});
  list.push_back(
      {"gather",
       [](Rank& r) { return ncclGather(r.send, r.receive, kCount, ncclFloat, 0, r.comm, r.stream); },
       [](const Rank& r) { return r.rank == 0 ? static_cast<size_t>(r.ranks) : 0; },
       [](const Rank&, size_t i) { return valueOf(static_cast<int>(i / kCount), i % kCount); }});
  list.push_back(
      {"scatter",
       [](Rank& r) { return ncclScatter(r.send, r.receive, kCount, ncclFloat, 0, r.comm, r.stream); }, one,
       [=](const Rank& r, size_t i) { return valueOf(0, mine(r, i)); }});
  list.push_back({"send_recv",
                  [](Rank& r) {
                    const int next = (r.rank + 1) % r.ranks, before = (r.rank + r.ranks - 1) % r.ranks;
                    ncclGroupStart();
                    ncclSend(r.send, kCount, ncclFloat, next, r.comm, r.stream);
                    ncclRecv(r.receive, kCount, ncclFloat, before, r.comm, r.stream);
                    return ncclGroupEnd();
                  },
                  one, [](const Rank& r, size_t i) { return valueOf((r.rank + r.ranks - 1) % r.ranks, i); }});
  return list;
}

void prepare(Rank& r, int device, const ncclUniqueId& id) {
  const size_t elements = kCount * static_cast<size_t>(r.ranks);
  std::vector<float> input(elements);
  for (size_t i = 0; i < elements; ++i) input[i] = valueOf(r.rank, i);
  if (!r.fine(cudaSetDevice(device), "cudaSetDevice")) return;
  if (!r.fine(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking), "a stream")) return;
  void *send = nullptr, *receive = nullptr;
  if (!r.fine(cudaMalloc(&send, elements * sizeof(float)), "memory")) return;
  if (!r.fine(cudaMalloc(&receive, elements * sizeof(float)), "memory")) return;
  r.send = static_cast<float*>(send);
  r.receive = static_cast<float*>(receive);
  r.fine(cudaMemcpyAsync(send, input.data(), elements * sizeof(float), cudaMemcpyHostToDevice, r.stream),
         "input");
  r.fine(cudaStreamSynchronize(r.stream), "input");
  r.fine(ncclCommInitRank(&r.comm, r.ranks, id, r.rank), "ncclCommInitRank");
}

void run(Rank& r, const Check& check) {
  const size_t bytes = kCount * static_cast<size_t>(r.ranks) * sizeof(float);
  if (!r.fine(cudaMemsetAsync(r.receive, 0x5a, bytes, r.stream), "memset")) return;
  if (!r.fine(check.call(r), check.name)) return;
  std::vector<float> got(kCount * static_cast<size_t>(r.ranks));
  r.fine(cudaMemcpyAsync(got.data(), r.receive, bytes, cudaMemcpyDeviceToHost, r.stream), "result");
  if (!r.fine(cudaStreamSynchronize(r.stream), check.name)) return;
  ncclResult_t asynchronous = ncclSuccess;
  ncclCommGetAsyncError(r.comm, &asynchronous);
  if (!r.fine(asynchronous, check.name)) return;
  for (size_t i = 0; i < check.blocks(r) * kCount; ++i) {
    const float wanted = check.expected(r, i);
    if (got[i] == wanted) continue;
    char text[120];
    snprintf(text, sizeof text, "element %zu is %g, should be %g", i, got[i], wanted);
    r.failure = text;
    return;
  }
}

// Runs `body` for all ranks at once; says how it went.
bool everywhere(std::vector<Rank>& ranks, const char* name, const std::function<void(Rank&)>& body) {
  std::vector<std::thread> threads;
  for (Rank& rank : ranks) threads.emplace_back([&] { body(rank); });
  for (std::thread& thread : threads) thread.join();
  bool fine = true;
  for (Rank& rank : ranks) {
    if (rank.failure.empty()) continue;
    printf("%-16s rank %d: %s\n", name, rank.rank, rank.failure.c_str());
    rank.failure.clear();
    fine = false;
  }
  if (fine) printf("%-16s ok\n", name);
  fflush(stdout);
  return fine;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? atoi(arguments[1]) : 2;
  const bool shared = count > 2 && strcmp(arguments[2], "shared") == 0;
  if (ranks < 1 || ranks > 8) return fprintf(stderr, "usage: smoke [1 to 8 ranks [shared]]\n"), 2;
  if (shared) setenv("STRETTO_SHARED_DEVICE", "2", 1);  // a kernel of each rank
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (shared) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("STRETTO_TIMEOUT", "20", 0);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return fprintf(stderr, "no GPU\n"), 2;
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess)
    return fprintf(stderr, "no id: %s\n", ncclGetLastError(nullptr)), 2;
  std::vector<Rank> all(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    all[static_cast<size_t>(rank)].rank = rank;
    all[static_cast<size_t>(rank)].ranks = ranks;
  }
  int failed = 0;
  if (!everywhere(all, "init", [&](Rank& r) { prepare(r, shared ? 0 : r.rank % devices, id); })) return 1;
  for (const Check& check : checks()) {
    failed += everywhere(all, check.name, [&](Rank& r) { run(r, check); }) ? 0 : 1;
  }
  failed +=
      everywhere(all, "destroy", [](Rank& r) { r.fine(ncclCommDestroy(r.comm), "ncclCommDestroy"); }) ? 0 : 1;
  return failed;
}
