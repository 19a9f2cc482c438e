#include "conductor.hpp"

#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "memory.hpp"
#include "rank.hpp"

namespace hostile {
namespace {

constexpr int64_t kGivenUp = 8 * kSecond;  // more than late
constexpr int64_t kRoundLimit = 100 * kSecond;
constexpr int kMaker = -1, kStranger = -2;

double seconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

// On a GPU those of a round, and one or two that begin to use it meanwhile: not more, since a GPU has memory
// for the contexts of a dozen or two, those of all jobs together.
size_t lastingOf(const Options& options) {
  if (!options.device) return 1;
  return options.layout == "threads" ? 2 : 6;
}
constexpr int64_t kReadyIn = 60 * kSecond;

Bound boundOf(const Plan& plan, const RankEntry& rank, int64_t since) {
  if (since == 0) return Bound::kNoFault;
  if (rank.mayWait) return Bound::kOthers;
  const bool hostStopped =
      plan.kind == Kind::kStopFault || (plan.kind == Kind::kMaker && plan.makerActs == 2);
  return hostStopped || plan.odd != kNobody ? Bound::kHost : Bound::kUsual;
}

// Since the latest thing before it was told that ranks are told of.
void noteTold(const Plan& plan, const Board& board, int rank, int64_t since, Totals& totals) {
  const RankEntry& entry = board.ranks[rank];
  const Told& told = entry.told;
  if (told.code == ncclSuccess || since == 0 || plan.isVictim(rank)) return;
  int64_t from = told.entered;
  const auto latest = [&](int64_t when) {
    if (when <= told.at) from = std::max(from, when);
  };
  latest(since);
  latest(board.lastFault);
  for (const auto& fault : board.faults) latest(fault);
  Waits& all = totals.waits[static_cast<size_t>(told.mayWait ? Bound::kOthers : boundOf(plan, entry, since))];
  ++all.told;
  raise(all.longestTold, told.at - from);
}

// In the order in which they were told: the first one has found what the others are told of.
void printTold(const Plan& plan, const Board& board, int64_t began) {
  std::vector<int> ranks;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (board.ranks[rank].told.code != 0) ranks.push_back(rank);
  }
  const auto when = [&](int rank) { return board.ranks[rank].told.at; };
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return when(a) < when(b); });
  const int64_t since = board.lastFault != 0 ? board.lastFault.load() : began;
  for (const int rank : ranks) {
    const Told& told = board.ranks[rank].told;
    printf("  rank %d, step %d, %.1f ms after the %s, \"%s\" returned %d: %s\n", rank, told.step,
           static_cast<double>(told.at - since) * 1e-6, board.lastFault != 0 ? "fault" : "begin", told.call,
           told.code.load(), told.words);
  }
}

template <typename T>
T* sharedMemory() {
  void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return static_cast<T*>(memory);
}

}  // namespace

Conductor::Conductor(const Options& options, Totals& totals)
    : options_(options), totals_(totals), board_(sharedMemory<Board>()), lasting_(lastingOf(options)) {
  for (Lasting& process : lasting_) process.orders = sharedMemory<Orders>();
  // Children of ranks that were killed come here.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Conductor::~Conductor() {
  endLasting();
  for (Lasting& process : lasting_) munmap(process.orders, sizeof *process.orders);
  munmap(board_, sizeof *board_);
}

template <typename Body>
pid_t Conductor::start(const Body& body) const {
  const pid_t parent = getpid();
  const pid_t id = fork();
  if (id == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    body();
    _exit(0);
  }
  if (id < 0) abort();
  return id;
}

// It runs what ranks of rounds have nothing to fear for their process, so that what they leave behind adds
// up. On a GPU a process takes seconds before it can begin, so all come from there, and those that die too.
void Conductor::startLasting(Lasting& process) const {
  Orders& orders = *process.orders;
  orders.isReady = orders.isLast = false;
  orders.done = orders.command = 0;
  process.startedAt = now();
  process.id = start([this, &orders] {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    if (options_.device && !deviceMemory()->open()) _exit(3);
    orders.isReady = true;
    for (uint32_t last = 0, naps = 0;;) {
      if (orders.command == last) {
        sleepMicroseconds(100);
        if (++naps % 200 == 0) orders.heap = heapInUse(true);  // of what ends a little later than its round
        continue;
      }
      last = orders.command;
      naps = 0;
      const Plan plan = makePlan(board_->seed, options_);
      runProcess(plan, *board_, orders.number, options_.device);
      orders.heap = heapInUse(last % 16 == 0);
      orders.done = last;
      if (orders.isLast) return;
    }
  });
  process.leaks.begin(process.id, orders.heap, !options_.device);
}

// A GPU that takes no more processes is asked twice a second, not hundreds of times: MPS counts each.
void Conductor::startAllLasting() {
  for (Lasting& process : lasting_) {
    if (process.id == 0 && now() - process.startedAt > kSecond / 2) startLasting(process);
  }
}

void Conductor::endLasting() {
  for (Lasting& process : lasting_) {
    if (process.id == 0) continue;
    kill(process.id, SIGKILL);
    (void)waitpid(process.id, nullptr, 0);
    process.id = 0;
  }
}

bool Conductor::mayLast(int number) const {
  if (options_.device) return true;
  const std::vector<int> victims = plan_.victims();
  const bool dies = std::any_of(victims.begin(), victims.end(), [&](int rank) {
    return plan_.processOf[rank] == number && plan_.layout != Layout::kThreads;
  });
  return number == 0 && !dies && plan_.kind != Kind::kLeave;
}

// One that this round does not use yet, the first to be ready.
size_t Conductor::takeLasting() {
  for (const int64_t until = now() + kReadyIn; now() < until; sleepMicroseconds(1000)) {
    reap();
    startAllLasting();
    for (size_t i = 0; i < lasting_.size(); ++i) {
      const bool isTaken = std::any_of(processes_.begin(), processes_.end(),
                                       [&](const Process& process) { return process.lasting == i; });
      if (!isTaken && lasting_[i].orders->isReady) return i;
    }
  }
  fprintf(stderr, "hostile: no process can use the GPU\n");
  abort();
}

void Conductor::begin() {
  memset(static_cast<void*>(board_), 0, sizeof *board_);
  board_->seed = plan_.seed;
  for (RankEntry& rank : board_->ranks) rank.step = -2;
  processes_.clear();
  stoppedAt_ = 0;
  std::fill(std::begin(happened_), std::end(happened_), false);
  Process stranger{.number = kStranger};  // the first, as it watches the others come
  if (plan_.kind == Kind::kStrangers) {
    const int ear = openEar();
    stranger.id = start([&] { pester(*board_, plan_.seed, ear); });
    if (ear >= 0) close(ear);
  }
  for (int number = 0; number < plan_.processes(); ++number) {
    Process process{.number = number};
    if (mayLast(number)) {
      process.lasting = takeLasting();
      process.id = lasting_[process.lasting].id;
    } else {
      process.id = start([&] { runProcess(plan_, *board_, number, options_.device); });
    }
    process.queuedBefore = nanosecondsQueued(process.id);
    processes_.push_back(process);
  }
  for (const Process& process : processes_) {
    if (process.lasting == kNone) continue;
    Orders& orders = *lasting_[process.lasting].orders;
    orders.number = process.number;
    orders.isLast = plan_.kind == Kind::kLeave;
    ++orders.command;
  }
  if (plan_.maker == Maker::kProcess) {
    Process process{.number = kMaker};
    process.id = start([this] {
      makeId(*board_);
      const bool exits = plan_.kind == Kind::kMaker && plan_.makerActs == 0;
      while (!exits || board_->joined < plan_.ranks) sleepMicroseconds(500);
      board_->makerGone = now();
    });
    processes_.push_back(process);
  }
  if (stranger.id != 0) processes_.push_back(stranger);
}

void Conductor::round(uint64_t seed) {
  plan_ = makePlan(seed, options_);
  lastLook_ = clock_.begin(totals_.beats);
  begin();
  watch();
  end();
  if (!board_->over) judge(plan_, *board_);
  for (const Process& process : processes_) {
    if (process.lasting == kNone || !process.lives) continue;
    LeakWatch& leaks = lasting_[process.lasting].leaks;
    const std::string kept = leaks.look(plan_.seed);
    for (size_t i = 0; i < std::size(LeakWatch::kCounts); ++i) {
      raise(totals_.grown[i], leaks.grown().*LeakWatch::kCounts[i]);
    }
    if (!kept.empty()) board_->report(Wrong::kLeak, "%s", kept.c_str());
  }
  count();
  if (options_.device && board_->findings > 0) endLasting();  // what went wrong may have a consequence
  history_ += " " + std::to_string(seed);
  if (history_.size() > 100) history_.erase(0, history_.find(' ', 1));
}

void Conductor::watch() {
  while (!allEnded() && !board_->over) {
    sleepMicroseconds(300);
    const int64_t time = now(), gap = std::max(time - lastLook_, totals_.beats.lateness(time));
    if (gap > worstGap_ || time - worstAt_ > 5 * kSecond) {
      worstGap_ = gap;
      worstAt_ = time;
    }
    raise(totals_.worstGap, gap);
    board_->lateness = worstGap_;
    lastLook_ = time;
    reap();
    act();
    actMaker();
    goOn();
    if (plan_.kind == Kind::kInit || plan_.kind == Kind::kGrow) board_->queued = longestQueued();
    lookForLate();
    lookForCrash();
    if (clock_.lasted(totals_.beats, time) > kRoundLimit) giveUp("the round does not end");
  }
}

bool Conductor::allEnded() {
  return std::all_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    if (process.number < 0 || !process.lives) return true;
    return process.lasting != kNone && !lasting_[process.lasting].orders->isLast &&
           lasting_[process.lasting].isDone();
  });
}

void Conductor::reap() {
  int status = 0;
  for (pid_t id = 0; (id = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (Process& process : processes_) {
      if (process.id == id && process.lives) ended(process, status);
    }
    forget(id);
  }
}

void Conductor::forget(pid_t id) {
  for (Lasting& process : lasting_) {
    if (process.id != id) continue;
    process.id = 0;
    process.orders->isReady = false;
  }
}

void Conductor::ended(Process& process, int status) {
  process.lives = false;
  if (process.killed && process.number >= 0) {
    // Nobody can know before the kernel has closed what it had open.
    raise(totals_.longestDeath, now() - process.killedAt);
    board_->lastFault = now();
  }
  bool victim = process.killed || process.number < 0;
  for (const Event& event : plan_.events) {
    victim = victim || (event.act == Act::kExit && plan_.processOf[event.rank] == process.number);
  }
  if (victim || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  board_->report(Wrong::kCrash, "process %d of the round ended with %s %d: %s", process.number,
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), state().c_str());
  board_->lastFault = now();
}

Conductor::Process* Conductor::processOf(int rank) {
  return &processes_[static_cast<size_t>(plan_.processOf[rank])];
}
const Conductor::Process* Conductor::processOf(int rank) const {
  return &processes_[static_cast<size_t>(plan_.processOf[rank])];
}

// Whether what the conductor is to do to a rank's process is to be done now.
bool Conductor::due(const Event& event, size_t index) const {
  if (happened_[index] || (event.act != Act::kKill && event.act != Act::kStop)) return false;
  if (plan_.aftermath == Aftermath::kShrink && board_->joined < plan_.ranks) return false;
  const RankEntry& rank = board_->ranks[event.rank];
  const int64_t delay = int64_t{event.delay} * 1000;
  if (event.follows) {
    const int64_t before = plan_.kind == Kind::kMaker ? board_->makerGone.load() : board_->faults[0].load();
    return before != 0 && now() > before + delay;
  }
  if (rank.step < event.step) return false;
  // Who has not even begun to join is lost to nobody, and has not where its process, or its host's, waits for
  // a core all the time.
  const bool joins = plan_.joinsAt(event.rank, event.step);
  const int64_t since = joins ? board_->joiningSince(plan_, event) : rank.began.load();
  return since != 0 && now() > since + delay && (!joins || now() > since + delay + longestQueued());
}

int64_t Conductor::longestQueued() const {
  int64_t longest = 0;
  for (const Process& process : processes_) {
    if (process.lives) longest = std::max(longest, nanosecondsQueued(process.id) - process.queuedBefore);
  }
  return longest;
}

void Conductor::act() {
  for (size_t i = 0; i < plan_.events.size(); ++i) {
    const Event& event = plan_.events[i];
    if (!due(event, i)) continue;
    happened_[i] = true;
    Process& process = *processOf(event.rank);
    if (!process.lives || board_->ranks[event.rank].phase == static_cast<int>(Phase::kEnded)) continue;
    board_->faultHappened(i);
    if (event.act == Act::kKill) {
      signalTo(process, SIGKILL);
    } else {
      signalTo(process, SIGSTOP);
      stoppedAt_ = now();
    }
  }
}

void Conductor::signalTo(Process& process, int signal) {
  if (!process.lives) return;
  if (signal == SIGKILL) {
    process.killed = true;
    process.killedAt = now();
  }
  process.stopped = signal == SIGSTOP || (process.stopped && signal != SIGCONT);
  kill(process.id, signal);
}

// A maker that is no rank: what the plan has for it once everybody has joined. It exits by itself.
void Conductor::actMaker() {
  if (plan_.kind != Kind::kMaker || plan_.makerActs == 0 || board_->makerGone != 0) return;
  if (board_->joined < plan_.ranks) return;
  for (Process& process : processes_) {
    if (process.number == kMaker) signalTo(process, plan_.makerActs == 1 ? SIGKILL : SIGSTOP);
  }
  board_->makerGone = now();
}

bool Conductor::othersKnow(const Process& stopped) const {
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (processOf(rank) == &stopped || plan_.isVictim(rank) || !running(rank)) continue;
    if (board_->ranks[rank].told.code == 0) return false;
  }
  return true;
}

// Stopped processes: shortly, or until the others know of what happened meanwhile.
void Conductor::goOn() {
  if (stoppedAt_ == 0) return;
  const int64_t stopped = now() - stoppedAt_;
  for (Process& process : processes_) {
    if (!process.stopped || process.number < 0) continue;
    const int64_t second = plan_.kind == Kind::kStopFault ? board_->faults[1].load() : 0;
    const bool enough = plan_.kind == Kind::kStop
                            ? stopped > static_cast<int64_t>(50 + plan_.seed % 750) * kMillisecond
                        : second == 0 ? stopped > 6 * kSecond
                                      : othersKnow(process) || now() > second + 7 * kSecond;
    if (!enough) continue;
    signalTo(process, SIGCONT);
    board_->lastFault = now();
  }
}

bool Conductor::running(int rank) const {
  const Process& process = *processOf(rank);
  return process.lives && !process.killed && !process.stopped &&
         board_->ranks[rank].phase != static_cast<int>(Phase::kEnded);
}

// From when on who waits should be told; 0: nothing has happened that is told.
int64_t Conductor::tellSince() const {
  if (plan_.odd != kNobody) {
    int64_t since = 0;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const RankEntry& entry = board_->ranks[rank];
      const bool there =
          entry.step > plan_.quirkStep || (entry.step == plan_.quirkStep && entry.entered != 0);
      if (!there) return 0;
      since = std::max(since, entry.began.load());
    }
    return since;
  }
  for (size_t i = 0; i < plan_.events.size(); ++i) {
    const Act act = plan_.events[i].act;
    if (board_->faults[i] != 0 && act != Act::kStop && act != Act::kFork) return board_->lastFault;
  }
  return 0;
}

// The machine's lateness counts many times: what a rank is told goes through several threads, each of which
// waits for a core.
int64_t Conductor::limitFor(const RankEntry& rank, Bound bound) const {
  return options_.slow * kLimits[static_cast<size_t>(bound)] + rank.slack + 20 * worstGap_;
}

// A wait as far as it has come: what is beyond the plain limit is counted, and said, once for each call.
void Conductor::note(int rank, Bound bound, int64_t waits, int64_t limit) {
  Waits& all = totals_.waits[static_cast<size_t>(bound)];
  raise(all.longest, waits);
  raise(all.largestLimit, limit);
  RankEntry& entry = board_->ranks[rank];
  if (waits <= kLimits[static_cast<size_t>(bound)] || entry.beyond.exchange(1) != 0) return;
  ++all.beyond;
  printf(
      "\nbeyond %.0f s, in round %llu: rank %d in \"%s\"; its limit is %.2f s, of it %.2f s for its bytes; "
      "a core was late by %.3f s, and in the round's %.2f s one process was kept from a core for %.2f s\n",
      seconds(kLimits[static_cast<size_t>(bound)]), static_cast<unsigned long long>(plan_.seed), rank,
      entry.call, seconds(limit), seconds(entry.slack), seconds(worstGap_), seconds(now() - clock_.began()),
      seconds(longestQueued()));
  fflush(stdout);
}

void Conductor::lookForLate() {
  const bool dies = std::any_of(processes_.begin(), processes_.end(), [](const Process& process) {
    return process.lives && process.killed && process.number >= 0;
  });
  if (dies) return;
  const int64_t since = tellSince(), time = now();
  for (int rank = 0; rank < plan_.ranks && !board_->over; ++rank) {
    RankEntry& entry = board_->ranks[rank];
    const int64_t entered = entry.entered;
    if (entered == 0 || !running(rank)) continue;
    const int64_t waits = time - std::max({entered, since, since == 0 ? 0 : board_->lastFault.load()});
    const Bound bound = boundOf(plan_, entry, since);
    const int64_t limit = limitFor(entry, bound);
    note(rank, bound, waits, limit);
    if (waits > limit && entry.overdue.exchange(1) == 0 && since != 0) {
      board_->report(Wrong::kLate, "rank %d is in \"%s\" for %.2f s, %.2f s after the last fault: %s", rank,
                     entry.call, seconds(time - entered), seconds(time - board_->lastFault), state().c_str());
    }
    if (waits > limit + (since == 0 ? 0 : kGivenUp)) {
      board_->report(Wrong::kHang, "rank %d is in \"%s\" for %.2f s: %s", rank, entry.call,
                     seconds(time - entered), state().c_str());
      giveUp("");
    }
  }
}

void Conductor::lookForCrash() {
  for (const Process& process : processes_) {
    if (board_->crashed != process.id || process.id == 0 || process.killed) continue;
    const std::string before = process.lasting != kNone ? "; it had run" + history_ : "";
    board_->report(Wrong::kCrash, "process %d of the round crashed%s: %s", process.number, before.c_str(),
                   state().c_str());
    giveUp("");
  }
}

void Conductor::giveUp(const char* why) {
  if (*why != 0) board_->report(Wrong::kHang, "%s: %s", why, state().c_str());
  if (++totals_.stacks <= 12) showStacks();
  board_->over = true;
}

// All that is still there, by its id.
void Conductor::killAll() {
  for (Process& process : processes_) {
    if (!process.lives) continue;
    if (process.lasting != kNone && !board_->over) continue;
    kill(process.id, SIGKILL);
    (void)waitpid(process.id, nullptr, 0);
    process.lives = false;
    forget(process.id);
  }
}

void Conductor::end() {
  killAll();
  if (const pid_t child = board_->childProcess; child > 0) {
    int status = 0;
    // It has come here only if its parent is gone.
    if (waitpid(child, &status, WNOHANG) == 0) {
      kill(child, SIGKILL);
      (void)waitpid(child, &status, 0);
    }
  }
  reap();
}

// Where everybody is, for a report.
std::string Conductor::state() const {
  std::string text;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    const RankEntry& entry = board_->ranks[rank];
    const Process& process = *processOf(rank);
    char one[220];
    snprintf(one, sizeof one, "[%d p%d%s step %d %s%s%s] ", rank, plan_.processOf[rank],
             !process.lives || process.killed ? " dead"
             : process.stopped                ? " stopped"
                                              : "",
             entry.step.load(),
             entry.phase == static_cast<int>(Phase::kEnded) ? "ended"
             : entry.entered != 0                           ? entry.call
                                                            : "outside",
             entry.told.code != 0 ? " told" : "",
             entry.phase == static_cast<int>(Phase::kUnborn) ? " unborn" : "");
    if (text.size() < 1000) text += one;
  }
  return text;
}

void Conductor::count() {
  for (int rank = 0; rank < plan_.ranks; ++rank) noteTold(plan_, *board_, rank, tellSince(), totals_);
  totals_.replayed += board_->replayed;
  raise(totals_.longestAbort, board_->longestAbort.load());
  raise(totals_.longestRunning, board_->longestRunning.load());
  const auto kind = static_cast<size_t>(plan_.kind);
  long faults = plan_.odd != kNobody || plan_.kind == Kind::kStrangers || plan_.kind == Kind::kLate;
  for (size_t i = 0; i < plan_.events.size(); ++i) faults += board_->faults[i] != 0;
  faults += plan_.kind == Kind::kMaker && board_->makerGone != 0;
  ++totals_.rounds[kind];
  ++totals_.allRounds;
  totals_.faults[kind] += faults;
  totals_.allFaults += faults;
  const int findings = std::min(board_->findings.load(), kFindings);
  bool counted[kWrongs] = {};
  for (int i = 0; i < findings; ++i) {
    const Finding& finding = board_->finding[i];
    if (!finding.written) continue;
    const auto wrong = static_cast<size_t>(finding.wrong);
    const bool another = std::exchange(counted[wrong], true);
    if (!another) ++totals_.wrong[kind][wrong];
    if (i < 3 || !another || options_.verbose || options_.oneRound) print(finding);
  }
  if (findings > 0) ++totals_.allFailures;
  if (options_.verbose || options_.oneRound || findings > 0) {
    const std::string text = plan_.text();
    printf("%s%.3f s, %ld faults, %d findings\n", text.c_str(),
           static_cast<double>(now() - clock_.began()) * 1e-9, faults, findings);
    printTold(plan_, *board_, clock_.began());
    fflush(stdout);
  }
}

void Conductor::print(const Finding& finding) const {
  char text[2200];
  std::string more;
  if (!options_.kinds.empty()) more += " --kinds " + options_.kinds;
  if (!options_.layout.empty()) more += " --layout " + options_.layout;
  if (options_.ranks > 0) more += " --ranks " + std::to_string(options_.ranks);
  if (options_.device) more += " --device cuda";
  if (options_.net) more += " --link net";
  if (options_.slow > 1) more += " --slow " + std::to_string(options_.slow);
  const int length = snprintf(text, sizeof text, "\nFAILED %s (%s): %s\n  repeat: hostile --round %llu%s\n",
                              kWrongNames[static_cast<size_t>(finding.wrong)], nameOf(plan_.kind),
                              finding.text, static_cast<unsigned long long>(plan_.seed), more.c_str());
  (void)!write(STDOUT_FILENO, text, std::min(static_cast<size_t>(length), sizeof text - 1));
}

}  // namespace hostile
