// Runs rounds, one at a time: starts the processes of each, kills and stops them as the plan says, watches
// that everybody who waits is told in time, and judges what came of it. Never calls the library itself.
#pragma once

#include <sys/types.h>

#include <deque>
#include <string>
#include <vector>

#include "board.hpp"

namespace hostile {

// What a run has seen so far; in memory that all conductors share.
struct Totals {
  std::atomic<long> rounds[kKinds];
  std::atomic<long> faults[kKinds];
  std::atomic<long> wrong[kKinds][kWrongs];
  std::atomic<long> allRounds, allFaults, allFailures, stacks;
  std::atomic<bool> stop;
};

// Whether a process that lives through many rounds keeps anything of them.
class LeakWatch {
 public:
  void begin(pid_t process);
  // After a round of it; "" or what it keeps.
  std::string look(uint64_t seed);
  std::string text() const;

 private:
  struct Counts {
    long descriptors, threads, mappings, kilobytes;
  };
  Counts measure() const;

  pid_t process_ = 0;
  long rounds_ = 0;
  Counts first_{}, base_{}, recent_{};
  uint64_t since_ = 0;  // the round from which on it has kept descriptors or mappings; 0: it keeps none
  bool told_ = false;
};

class Conductor {
 public:
  Conductor(const Options& options, Totals& totals);
  ~Conductor();
  void round(uint64_t seed);
  const LeakWatch& leaks() const { return lasting_.front().leaks; }

 private:
  enum class End { kNotYet, kEnded };
  struct Process {
    pid_t id = 0;
    int number = -1;  // of the plan's processes; -1: the maker, -2: the strangers
    bool lives = true;
    bool stopped = false;
    bool killed = false;
    size_t lasting = kNone;    // its place in lasting_
    int64_t queuedBefore = 0;  // nanosecondsQueued() when the round began
  };
  static constexpr size_t kNone = SIZE_MAX;
  struct Lasting {
    pid_t id = 0;
    Orders* orders = nullptr;
    LeakWatch leaks;

    bool isDone() const { return orders->done == orders->command; }
  };

  template <typename Body>
  pid_t start(const Body& body) const;
  void startLasting(Lasting& process) const;
  void endLasting();
  void startAllLasting();
  bool mayLast(int number) const;
  size_t takeLasting();
  void begin();
  void watch();
  bool allEnded();
  void reap();
  void forget(pid_t id);
  void ended(Process& process, int status);
  void act();
  bool due(const Event& event, size_t index) const;
  int64_t longestQueued() const;
  void actMaker();
  void goOn();
  bool othersKnow(const Process& stopped) const;
  void lookForLate();
  void lookAt(int rank, int64_t time);
  int64_t limitFor(const RankEntry& rank) const;
  int64_t tellSince() const;
  bool running(int rank) const;
  Process* processOf(int rank);
  const Process* processOf(int rank) const;
  void signalTo(Process& process, int signal);
  void end();
  void killAll();
  void lookForCrash();
  void giveUp(const char* why);
  void showStacks();
  void count();
  void print(const Finding& finding) const;
  std::string state() const;

  const Options& options_;
  Totals& totals_;
  Board* board_;
  Plan plan_;
  std::vector<Process> processes_;
  std::vector<Lasting> lasting_;
  int64_t began_ = 0, lastLook_ = 0, worstGap_ = 0, worstAt_ = 0;
  int64_t stoppedAt_ = 0;
  std::string history_;  // seeds of the last rounds
  bool happened_[3] = {};
};

// Compares what the ranks were told with what had happened.
void judge(const Plan& plan, Board& board);

// Sends garbage to all ports on which these processes listen, until it is killed.
void pester(const Board& board, uint64_t seed);

}  // namespace hostile
