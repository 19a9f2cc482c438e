// What communicators of a library cost on GPUs, whoever made the library: the time to make and to end one,
// what an open one holds of the GPU, of the host and of the kernel, and what a call costs the rank that makes
// it. `stretto audit --library` asks two libraries the same in turns. Every function is called by all ranks;
// all throw Failure.
#pragma once

#include <cstddef>
#include <vector>

#include "check.hpp"
#include "crew.hpp"
#include "library.hpp"
#include "setup.hpp"
#include "watchdog.hpp"

namespace stretto::bench {

// Of one communicator on this rank: milliseconds. The first operation is one of 8 bytes until its result is
// there, as libraries leave part of their work to it. The last two are what the library itself says, and 0
// where it says nothing.
struct Making {
  double init, first, destroy;
  double meeting, connecting;
};

// What a process holds, counted by the kernel and by CUDA. Pages that only the driver maps (pinned memory of
// some kinds) are in no process's resident memory.
struct Holdings {
  double deviceBytes = 0;  // of the whole GPU
  double hostBytes = 0;
  double descriptors = 0;
  double threads = 0;

  static Holdings now();
  // For each of `count`.
  Holdings since(const Holdings& before, double count, double sharersOfDevice) const;
};

struct Opened {
  Holdings each, left;
};

// Nanoseconds of one call, for each batch.
struct CallCosts {
  std::vector<double> empty, call, group;
};

class Costs {
 public:
  Costs(const Library& library, Watchdog& watchdog, Crew& crew, const Setup& setup);
  Costs(const Costs&) = delete;
  Costs& operator=(const Costs&) = delete;
  ~Costs();

  // `count` communicators of the first `ranks` ranks, one after another. Empty on ranks that are not among
  // them.
  std::vector<Making> make(size_t count, int ranks);
  // What each of `count` that are open at once holds, and what each has left when all are destroyed.
  Opened open(size_t count);
  // An all-reduce of 8 bytes in a communicator of all ranks, by itself and eight in a group, beside a call
  // that only reads a number.
  CallCosts call(size_t calls, size_t batches);

 private:
  ncclComm_t join(int ranks);
  void leave(ncclComm_t comm);
  void operate(ncclComm_t comm);  // and waits for the result
  ncclResult_t submit(ncclComm_t comm, size_t place = 0);
  void group(ncclComm_t comm, size_t operations);
  void wait();
  void expect(ncclResult_t result, const char* what) const;

  const Library& library_;
  Watchdog& watchdog_;
  Crew& crew_;
  const double timeout_;
  const bool sharesDevice_;
  cudaStream_t stream_ = nullptr;
  std::byte* words_ = nullptr;
};

}  // namespace stretto::bench
