// Runs rounds, one at a time: starts the processes of each, kills and stops them as the plan says, watches
// that everybody who waits is told in time, and judges what came of it. It is no rank, and calls nothing of
// the library but strettoDoctor, about ranks that hang.
#pragma once

#include <sys/types.h>

#include <deque>
#include <string>
#include <vector>

#include "board.hpp"

namespace hostile {

// Which limit a wait has.
enum class Bound {
  kUsual,    // for what ranks are told of a fault
  kHost,     // the same, where a process that may host the session is stopped
  kOthers,   // for ranks that may rightly come late, say because they have not been told yet
  kNoFault,  // a call without any fault
};
inline constexpr int kBounds = 4;
inline constexpr int64_t kLimits[kBounds] = {2 * kSecond, 5 * kSecond, 8 * kSecond, 25 * kSecond};

// The waits of one limit, in nanoseconds since the fault, or since the call if that came later.
struct Waits {
  std::atomic<long> told;             // ranks that were told of a fault
  std::atomic<int64_t> longestTold;   // until then, by their own clock
  std::atomic<int64_t> longest;       // whatever became of it, by the conductor's
  std::atomic<int64_t> largestLimit;  // with the time for bytes, and for the machine's lateness
  std::atomic<long> beyond;           // waits above the limit without both
};

// A thread on each core writes down when it has run, a thousand times a second: who had to wait for that core
// could not do so sooner.
struct Beats {
  static constexpr int kMostCores = 256;
  std::atomic<int> cores;
  std::atomic<int64_t> last[kMostCores];
  // A thread passes the kernel's fence for all threads (membarrier) again and again.
  std::atomic<int64_t> fenceBegan;    // the one that goes on; 0: none does
  std::atomic<int64_t> longestFence;  // how long one has taken
  std::atomic<int64_t> longFences;    // the sum of what each took beyond a second

  // Starts the threads, which end with the process.
  void begin();
  // For how long the core that is the latest has not let its thread run.
  int64_t lateness(int64_t time) const;
  // For how long, since the threads began, the kernel has let who asked for a fence wait longer than a
  // second. A process whose thread waits so has not ended, even if it was killed.
  int64_t stalled(int64_t time) const;
};

// How long a round has lasted, without what the kernel stalled.
class RoundClock {
 public:
  int64_t begin(const Beats& beats);  // the time
  int64_t began() const { return began_; }
  int64_t lasted(const Beats& beats, int64_t time) const {
    return time - began_ - (beats.stalled(time) - stalledBefore_);
  }

 private:
  int64_t began_ = 0, stalledBefore_ = 0;
};

// What a run has seen so far; in memory that all conductors share.
struct Totals {
  Beats beats;
  std::atomic<long> rounds[kKinds];
  std::atomic<long> faults[kKinds];
  std::atomic<long> wrong[kKinds][kWrongs];
  std::atomic<long> allRounds, allFaults, allFailures, stacks;
  Waits waits[kBounds];
  std::atomic<int64_t> worstGap;                      // between looks of a conductor, or beats of a core
  std::atomic<int64_t> longestDeath;                  // from a SIGKILL until the process has ended
  std::atomic<int64_t> longestAbort, longestRunning;  // of ncclCommAbort; of it without waits for a core
  std::atomic<long> replayed;                         // handshakes, by strangers
  std::atomic<long> grown[6];                         // LeakWatch::grown(), the most of all processes
  std::atomic<bool> stop;
};

// KiB of this process's heap that are not freed. `trims`: gives back first what is.
long heapInUse(bool trims);

// Whether a process that lives through many rounds keeps anything of them.
class LeakWatch {
 public:
  struct Counts {
    long descriptors, threads, mappings, shared, heap, resident;  // the last three in KiB
  };
  static constexpr long Counts::*kCounts[] = {&Counts::descriptors, &Counts::threads, &Counts::mappings,
                                              &Counts::shared,      &Counts::heap,    &Counts::resident};

  // `byResident`: more resident memory is a leak as well; else it is only told.
  void begin(pid_t process, const std::atomic<long>& heap, bool byResident);
  // After a round in which it had so many ranks; "" or what it keeps.
  std::string look(uint64_t seed);
  std::string text() const;
  // How much more it has had, at most, than after the first rounds.
  const Counts& grown() const { return grown_; }

 private:
  Counts measure() const;
  bool isMore(const Counts& now) const;

  pid_t process_ = 0;
  const std::atomic<long>* heap_ = nullptr;
  bool byResident_ = true;
  long rounds_ = 0;
  Counts first_{}, recent_{}, grown_{};
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
    int64_t killedAt = 0;
    size_t lasting = kNone;    // its place in lasting_
    int64_t queuedBefore = 0;  // nanosecondsQueued() when the round began
  };
  static constexpr size_t kNone = SIZE_MAX;
  struct Lasting {
    pid_t id = 0;
    int64_t startedAt = 0;
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
  int64_t limitFor(const RankEntry& rank, Bound bound) const;
  void note(int rank, Bound bound, int64_t waits, int64_t limit);
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
  RoundClock clock_;
  int64_t lastLook_ = 0, worstGap_ = 0, worstAt_ = 0;
  int64_t stoppedAt_ = 0;
  std::string history_;  // seeds of the last rounds
  bool happened_[3] = {};
};

// Compares what the ranks were told with what had happened.
void judge(const Plan& plan, Board& board);

// Talks to all ports on which these processes listen, until it is killed.
// `ear` is openEar(), from before others talked.
void pester(Board& board, uint64_t seed, int ear);
// A socket that hears what everybody says over loopback; -1 without the right to do so: then nobody's
// handshake is repeated.
int openEar();

}  // namespace hostile
