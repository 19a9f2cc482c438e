#include "costs.hpp"

#include <dirent.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <memory>

namespace stretto::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWords = 2;
constexpr size_t kGroup = 8;
constexpr size_t kPlaceBytes = 16;
constexpr size_t kBufferBytes = 4096;

double millisecondsSince(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

double entriesOf(const char* folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder), closedir);
  double count = 0;
  while (opened != nullptr && readdir(opened.get()) != nullptr) ++count;
  return count;
}

double residentBytes() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen("/proc/self/statm", "r"), fclose);
  unsigned long all = 0, resident = 0;
  if (file == nullptr || fscanf(file.get(), "%lu %lu", &all, &resident) != 2) return 0;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// A library may end connections and threads a moment after it has said that they are gone.
Holdings settled(const Holdings& before) {
  constexpr double kMilliseconds = 500;
  const auto began = Clock::now();
  Holdings now = Holdings::now();
  while ((now.descriptors > before.descriptors || now.threads > before.threads) &&
         millisecondsSince(began) < kMilliseconds) {
    usleep(1000);
    now = Holdings::now();
  }
  return now;
}

}  // namespace

Holdings Holdings::now() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {static_cast<double>(total - free), residentBytes(), entriesOf("/proc/self/fd"),
          entriesOf("/proc/self/task")};
}

Holdings Holdings::since(const Holdings& before, double count, double sharersOfDevice) const {
  return {(deviceBytes - before.deviceBytes) / count / sharersOfDevice,
          (hostBytes - before.hostBytes) / count, (descriptors - before.descriptors) / count,
          (threads - before.threads) / count};
}

Costs::Costs(const Library& library, Watchdog& watchdog, Crew& crew, const Setup& setup)
    : library_(library),
      watchdog_(watchdog),
      crew_(crew),
      timeout_(setup.timeout),
      sharesDevice_(setup.sharedDevice) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  void* at = nullptr;
  check(cudaMalloc(&at, kBufferBytes), "cudaMalloc of a buffer");
  words_ = static_cast<std::byte*>(at);
  check(cudaMemsetAsync(words_, 0, kBufferBytes, stream_), "cudaMemsetAsync");
  wait();
}

// The process ends after it; to free memory may wait for another rank's kernel.
Costs::~Costs() {
  watchdog_.rest(crew_.rank());
}

void Costs::expect(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess) return;
  throw Failure(std::string(what) + ": " + library_.getErrorString(result));
}

ncclComm_t Costs::join(int ranks) {
  if (crew_.rank() == 0) {
    ncclUniqueId id;
    expect(library_.getUniqueId(&id), "ncclGetUniqueId");
    crew_.giveId(id);
  }
  crew_.meet();
  if (crew_.rank() >= ranks) return nullptr;
  ncclComm_t comm = nullptr;
  expect(library_.commInitRank(&comm, ranks, crew_.takeId(), crew_.rank()), "ncclCommInitRank");
  watchdog_.adopt(comm);
  return comm;
}

void Costs::leave(ncclComm_t comm) {
  watchdog_.release(comm);
  expect(library_.commDestroy(comm), "ncclCommDestroy");
}

ncclResult_t Costs::submit(ncclComm_t comm, size_t place) {
  std::byte* const from = words_ + place * kPlaceBytes;
  return library_.allReduce(from, from + kBufferBytes / 2, kWords, ncclFloat32, ncclSum, comm, stream_);
}

void Costs::wait() {
  for (size_t look = 1;; ++look) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, "running the operation");
    if (look > 4096) sched_yield();
  }
}

void Costs::operate(ncclComm_t comm) {
  expect(submit(comm), "ncclAllReduce");
  wait();
}

std::vector<Making> Costs::make(size_t count, int ranks) {
  std::vector<Making> found;
  for (size_t i = 0; i < count; ++i) {
    watchdog_.expect(crew_.rank(), "making and ending a communicator", timeout_);
    crew_.meet();
    Making one{};
    auto began = Clock::now();
    const ncclComm_t comm = join(ranks);
    one.init = millisecondsSince(began);
    if (comm != nullptr) {
      began = Clock::now();
      operate(comm);
      one.first = millisecondsSince(began);
      strettoCounters_t counted{};
      counted.size = sizeof counted;
      if (library_.commCounters != nullptr && library_.commCounters(comm, &counted) == ncclSuccess) {
        one.meeting = static_cast<double>(counted.initBootstrapNanoseconds) / 1e6;
        one.connecting = static_cast<double>(counted.initConnectNanoseconds) / 1e6;
      }
      began = Clock::now();
      leave(comm);
      one.destroy = millisecondsSince(began);
      found.push_back(one);
    }
    crew_.meet();
  }
  watchdog_.rest(crew_.rank());
  return found;
}

Opened Costs::open(size_t count) {
  const double sharers = sharesDevice_ ? crew_.ranks() : 1;
  const auto many = static_cast<double>(count);
  crew_.meet();
  const Holdings before = Holdings::now();
  crew_.meet();
  std::vector<ncclComm_t> comms;
  for (size_t i = 0; i < count; ++i) {
    watchdog_.expect(crew_.rank(), "making a communicator that stays open", timeout_);
    comms.push_back(join(crew_.ranks()));
    operate(comms.back());
    crew_.meet();
  }
  const Holdings opened = Holdings::now();
  crew_.meet();
  for (const ncclComm_t comm : comms) {
    watchdog_.expect(crew_.rank(), "ending a communicator", timeout_);
    leave(comm);
  }
  crew_.meet();
  const Holdings after = settled(before);
  crew_.meet();
  watchdog_.rest(crew_.rank());
  return {opened.since(before, many, sharers), after.since(before, many, sharers)};
}

void Costs::group(ncclComm_t comm, size_t operations) {
  expect(library_.groupStart(), "ncclGroupStart");
  // In places of their own, as a program has them: operations that write to one place cannot share a launch.
  for (size_t i = 0; i < operations; ++i) expect(submit(comm, i), "ncclAllReduce");
  expect(library_.groupEnd(), "ncclGroupEnd");
}

CallCosts Costs::call(size_t calls, size_t batches) {
  watchdog_.expect(crew_.rank(), "timing calls", timeout_);
  const ncclComm_t comm = join(crew_.ranks());
  operate(comm);
  CallCosts found;
  int ranks = 0;
  const auto time = [&](std::vector<double>* costs, size_t step, auto&& call) {
    crew_.meet();
    const auto began = Clock::now();
    for (size_t i = 0; i < calls; i += step) call();
    costs->push_back(1e6 * millisecondsSince(began) / static_cast<double>(calls));
    // What was submitted runs after the clock was read.
    wait();
  };
  for (size_t batch = 0; batch < batches; ++batch) {
    time(&found.empty, 1, [&] { expect(library_.commCount(comm, &ranks), "ncclCommCount"); });
    time(&found.call, 1, [&] { expect(submit(comm), "ncclAllReduce"); });
    time(&found.group, kGroup, [&] { group(comm, kGroup); });
    watchdog_.expect(crew_.rank(), "timing calls", timeout_);
  }
  crew_.meet();
  leave(comm);
  watchdog_.rest(crew_.rank());
  return found;
}

}  // namespace stretto::bench
