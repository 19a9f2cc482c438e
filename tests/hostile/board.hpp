// What the processes of a round share: one page of plain memory that the conductor maps before it forks them.
// Each rank writes its own entry; the conductor reads them all, and says what it has done to whom.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "plan.hpp"

namespace hostile {

inline int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}
inline constexpr int64_t kMillisecond = 1000000, kSecond = 1000000000;
void sleepMicroseconds(int64_t microseconds);

template <typename T>
void raise(std::atomic<T>& most, T value) {
  for (T before = most; value > before && !most.compare_exchange_weak(before, value);) {
  }
}

enum class Phase : int { kUnborn, kRunning, kEnded };

// What a rank was told: the first error of a call that its plan wanted to succeed.
struct Told {
  std::atomic<int> code;  // ncclSuccess: nothing yet
  int64_t at;
  int64_t entered;  // when the call began
  int step;
  bool before;  // the communicator was broken before the call
  bool inChild;
  bool mayWait;  // RankEntry::mayWait, then
  char call[96];
  char words[1100];
};

struct RankEntry {
  std::atomic<int> phase;
  std::atomic<int> process;
  std::atomic<int> step;         // the last one begun
  std::atomic<int64_t> began;    // when that was
  std::atomic<int64_t> entered;  // a call into the library; 0 outside
  std::atomic<int64_t> slack;    // more nanoseconds that this call may take, for its size
  std::atomic<bool> mayWait;     // in a call that others may rightly keep waiting
  std::atomic<int> overdue;      // the conductor's
  std::atomic<int> beyond;       // the conductor's
  std::atomic<int64_t> joining;  // when it began to join others that do not know it yet; 0: not yet
  char call[96];
  Told told;
};

// What went wrong. The columns of the table.
enum class Wrong : int { kData, kHang, kLate, kWords, kUnexpected, kCrash, kLeak };
inline constexpr int kWrongs = 7;
inline constexpr const char* kWrongNames[kWrongs] = {"data",       "hang",  "late", "words",
                                                     "unexpected", "crash", "leak"};

struct Finding {
  std::atomic<bool> written;
  Wrong wrong;
  char text[1500];
};
inline constexpr int kFindings = 24;

// A process that lives through many rounds: what it is to do next, and what it has done.
struct Orders {
  std::atomic<bool> isReady;
  std::atomic<uint32_t> command, done;
  std::atomic<int> number;   // of the plan's processes, that it is in this round
  std::atomic<bool> isLast;  // it ends after this one
  std::atomic<long> heap;    // KiB that were allocated and not freed when it was done
};

struct Board {
  uint64_t seed;
  std::atomic<bool> idReady;
  ncclUniqueId id;
  std::atomic<bool> grownIdReady;
  ncclUniqueId grownId;  // of a communicator that grows
  std::atomic<int> makerProcess;
  std::atomic<int> joined;         // ranks that have a communicator
  std::atomic<int64_t> faults[3];  // when each event happened, 0: not yet
  std::atomic<int64_t> lastFault;  // also when a stopped process went on
  std::atomic<int64_t> makerGone;
  std::atomic<int64_t> firstAbort;                    // of a rank that had been told of something
  std::atomic<int64_t> lateness;                      // of the machine, lately
  std::atomic<int64_t> longestAbort, longestRunning;  // of ncclCommAbort; of it without waits for a core
  std::atomic<int> childProcess;                      // of a rank that forked
  std::atomic<int> childSays;
  std::atomic<int> crashed;     // a process of the round
  std::atomic<int64_t> queued;  // while ranks join: Conductor::longestQueued()
  std::atomic<long> replayed;   // handshakes, by strangers
  std::atomic<bool> over;       // the conductor has given the round up
  RankEntry ranks[kMaxRanks];
  std::atomic<int> findings;
  Finding finding[kFindings];

  [[gnu::format(printf, 3, 4)]] void report(Wrong wrong, const char* format, ...);
  void faultHappened(size_t event);
  // Since when all whom an event takes, and who join others in its step, have done so; 0: not all yet.
  int64_t joiningSince(const Plan& plan, const Event& event) const;
  // All but those that are lost.
  bool allEnded(const Plan& plan) const;
};

// For how long the threads of a process were ready to run and had no core.
int64_t nanosecondsQueued(pid_t process);

}  // namespace hostile
