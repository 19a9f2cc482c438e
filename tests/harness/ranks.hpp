// Ranks of one test, as threads of this process or as forked processes, with a board that they share in
// either case: it carries the unique id, a barrier, room for results, and complaints, which become failures
// of the test that started the ranks. For tests of everything that needs a communicator.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/device.hpp"
#include "harness/now.hpp"
#include "nccl.h"
#include "platform/shared_memory.hpp"

// Forking from a process with threads, and killing processes, are no business of the thread sanitizer.
#if defined(__SANITIZE_THREAD__)
#define STRETTO_TEST_TSAN 1
#else
#define STRETTO_TEST_TSAN 0
#endif

namespace stretto::testing {

// Seconds in which every failure must be known.
inline constexpr double kNoticed = 1.0;

bool eventually(double seconds, const std::function<bool()>& condition);

// What this process holds of the kernel.
struct Held {
  size_t threads = 0;
  size_t descriptors = 0;
  size_t mappings = 0;

  static Held now();
  bool operator==(const Held&) const = default;
};
// Waits until two looks, a while apart, find the same, so that what is about to end has ended. False if that
// is not so within ten seconds.
bool comesToRest(Held& held);

// How late a crowded machine lets threads run: a thread that sleeps and looks at the clock. Tests of times
// add what it found to their limits.
class Canary {
 public:
  Canary();
  ~Canary();
  Canary(const Canary&) = delete;
  Canary& operator=(const Canary&) = delete;
  // `seconds`, and several times the worst lateness so far.
  double limit(double seconds) const;
  // The worst lateness so far, in seconds.
  double worst() const { return worst_; }

 private:
  std::atomic<bool> ending_{false};
  std::atomic<double> worst_{0};
  std::thread thread_;
};

// Memory that ranks share, threads and processes alike. Made before they start, outlives them.
class Board {
 public:
  explicit Board(int ranks, size_t bytesPerRank = 4096);
  // The same as `first`, in memory that another process made for its own.
  Board(const Board& first, Result<platform::SharedMemory> memory);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int ranks() const { return ranks_; }
  // Room of one rank; who may write when is between the ranks.
  std::byte* area(int rank) const;
  // Numbers of the test's own.
  std::atomic<uint64_t>& word(int index) const;

  // The barrier: true when all ranks have come; false at once if one of them has left it or after 100 s.
  bool meet() const;
  // This rank will not come again.
  void leave() const;
  // A unique id that rank 0 makes. Collective.
  bool shareId(int rank, ncclUniqueId* id) const;

  // Keeps the first complaints of each rank.
  void complain(int rank, const std::string& text) const;
  std::string complaints(int rank) const;

  // What it lies in, for other processes to map.
  int descriptor() const { return memory_.value().descriptor(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Header;
  Header& header() const;
  std::byte* data() const;
  int ranks_;
  size_t bytesPerRank_;
  size_t bytes_;
  Result<platform::SharedMemory> memory_;
};

// One rank, as its body sees it.
struct Member {
  int rank;
  const Board& board;
  ncclComm_t comm = nullptr;
  std::shared_ptr<OnDevice> device = nullptr;  // null: the rank keeps its data in host memory

  // To enqueue on; 0 in host memory, where calls return when they are done.
  cudaStream_t stream() const { return device == nullptr ? nullptr : device->stream(); }
  int ranks() const { return board.ranks(); }
  [[gnu::format(printf, 2, 3)]] void complain(const char* format, ...) const;
  // Complains, with the library's last error, unless `got` is `wanted`.
  bool expect(ncclResult_t got, const char* what, ncclResult_t wanted = ncclSuccess) const;
  // Complains unless the last error holds every one of `parts`.
  void expectError(const char* what, const std::vector<std::string>& parts) const;
  bool check(bool condition, const char* what) const;
};
using Body = std::function<void(Member&)>;

// `body` between making a communicator of all ranks and destroying it, unless the body set comm to null.
Body connected(Body body);

// True in a process that has run the test again only to come to its rank (tests/windows/processes.cpp).
bool isRankRunAgain();
// One rank's body on the calling thread; those of `count` ranks, each on a thread of its own; and what they
// complained of.
void runRank(const Board& board, const Body& body, int rank);
void runThreads(const Board& board, const Body& body, int first, int count);
void addFailures(const Board& board);

// Runs the body on one thread per rank and waits for all; what they complained of fails the test. Aborts the
// process when that takes longer than `seconds`.
void asThreads(const Board& board, const Body& body, double seconds = 60);
void asThreads(int ranks, const Body& body, double seconds = 60);

// Runs the body in forked processes (on Windows in this program, run again). Needs a process of one thread to
// fork from: waits for threads of earlier tests to end.
class Processes {
 public:
  // A process has `each` ranks (the last one maybe fewer): its threads, where that is more than one. Several
  // such processes say that they are as many hosts. A child that takes longer than `seconds` is ended by its
  // alarm.
  Processes(const Board& board, const Body& body, double seconds = 60, int each = 1);
  // Waits for all.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Of the process with this rank.
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank / each_)]; }
  void kill(int rank) const;
  static constexpr int kNone = -1;
  static constexpr int kAll = -2;
  // Waits for all; complaints and unexpected ends fail the test. `killed`, a rank, must have died of SIGKILL.
  void finish(int killed = kNone);

 private:
  const Board& board_;
  const int each_;
  std::vector<pid_t> pids_;
};

void asProcesses(const Board& board, const Body& body, double seconds = 60);
void asProcesses(int ranks, const Body& body, double seconds = 60);

}  // namespace stretto::testing
