// What a rank does to others, and how it goes on when something was done to it.
#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "rank.hpp"

namespace hostile {
namespace {

constexpr int64_t kAbortLimit = kSecond;

Board* crashBoard = nullptr;
pid_t crashProcess = 0;

// Says where it happened, and waits for the conductor, which looks closer where there is a debugger, and ends
// the process.
void crashed(int signal) {
  if (getpid() != crashProcess) _exit(42);  // a forked child
  constexpr int kMostFrames = 40;
  void* frames[kMostFrames];
  dprintf(STDERR_FILENO, "\nhostile: process %d: %s in\n", getpid(), strsignal(signal));
  backtrace_symbols_fd(frames, backtrace(frames, kMostFrames), STDERR_FILENO);
  crashBoard->crashed = crashProcess;
  for (int i = 0; i < 600; ++i) usleep(100000);
  _exit(42);
}

void waitForFirst(const Plan& plan, const Board& board, const Event& event) {
  // Who has never joined could not go on without the others.
  const auto early = [&] { return plan.aftermath == Aftermath::kShrink && board.joined < plan.ranks; };
  for (int64_t until = now() + 5 * kSecond; early() && now() < until && !board.over;) sleepMicroseconds(200);
  if (!event.follows) return;
  const bool maker = plan.kind == Kind::kMaker;
  const auto happened = [&] { return (maker ? board.makerGone : board.faults[0]) != 0; };
  for (int64_t until = now() + 5 * kSecond; !happened() && now() < until && !board.over;)
    sleepMicroseconds(200);
  sleepMicroseconds(event.delay);
}

// A child that has nothing to do with the communicator, and touches it nevertheless. It outlives its parent.
void meddle(Board& board, ncclComm_t comm, const Event& event, size_t index) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    ncclResult_t result = ncclSuccess;
    float number = 0;
    switch (event.variant) {
      case 0:
        (void)ncclCommAbort(comm);
        break;
      case 1:
        (void)ncclCommDestroy(comm);
        break;
      case 2:
        (void)ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
        break;
      case 3:
        board.childSays = 1;
        exit(0);
      case 4:
        (void)ncclCommFinalize(comm);
        break;
      case 5:
        result = ncclAllReduce(&number, &number, 1, ncclFloat32, ncclSum, comm, nullptr);
        break;
      case 6:
        (void)ncclCommAbort(comm);
        board.childSays = 1;
        exit(0);
      default:
        break;
    }
    board.childSays = 1 + (result << 8);
    for (;;) pause();
  }
  board.childProcess = child;
  board.faultHappened(index);
}

}  // namespace

bool Rank::act(int step) {
  for (size_t i = 0; i < plan_.events.size(); ++i) {
    const Event& event = plan_.events[i];
    if (event.rank != rank_ || event.step != step) continue;
    const bool inside = event.act == Act::kAbortThread ||
                        (event.act == Act::kExit && (event.variant % 2 == 0 || plan_.joinsAt(rank_, step)));
    if (inside) {
      actLater(event, i);
    } else if (!actNow(event, i)) {
      return false;
    }
  }
  return true;
}

// Before the call, on the rank's own thread. False: it has no communicator any more.
bool Rank::actNow(const Event& event, size_t index) {
  const bool whileJoining =
      plan_.joinsAt(rank_, event.step) && event.act == Act::kAbort;  // by the call itself
  if (event.act == Act::kKill || event.act == Act::kStop || whileJoining) return true;
  waitForFirst(plan_, board_, event);
  if (!event.follows) sleepMicroseconds(event.delay % 3000);
  switch (event.act) {
    case Act::kFork:
      meddle(board_, whole_.comm, event, index);
      return true;
    case Act::kExit:
      board_.faultHappened(index);
      if (event.variant % 4 == 1) exit(0);
      _exit(0);
    case Act::kAbort:
      board_.faultHappened(index);
      abortAll();
      break;
    case Act::kDestroy:
      board_.faultHappened(index);
      destroyAll();
      break;
    case Act::kRevoke: {
      board_.faultHappened(index);
      if (child_.comm != nullptr) (void)ncclCommRevoke(child_.comm, NCCL_REVOKE_DEFAULT);
      const ncclResult_t result =
          enter("ncclCommRevoke", nullptr, [&] { return ncclCommRevoke(whole_.comm, NCCL_REVOKE_DEFAULT); });
      if (result != ncclSuccess && !told_) {
        board_.report(Wrong::kUnexpected, "rank %d: ncclCommRevoke: %s", rank_, ncclGetLastError(nullptr));
      }
      sleepMicroseconds(event.delay);
      if (stream_ != nullptr) (void)memory_->synchronise(stream_);
      reuseBuffers();
      destroyAll();
      break;
    }
    default:
      return true;
  }
  ended_ = true;
  reuseBuffers();
  return false;
}

// While the rank is in its call, by a thread of its own.
void Rank::actLater(const Event& event, size_t index) {
  endSteps();
  later_ = std::thread([this, event, index] {
    waitForFirst(plan_, board_, event);
    const bool joins = plan_.joinsAt(rank_, event.step);
    const int64_t patience = now() + 10 * kSecond;
    while (joins && board_.joiningSince(plan_, event) == 0 && now() < patience && !board_.over)
      sleepMicroseconds(200);
    const int64_t until = now() + event.delay * 1000;
    if (!event.follows) sleepMicroseconds(event.delay);
    // Nobody can tell of a rank that ends before the others have heard of it: they wait for it as for one
    // that never comes.
    const auto mayBeUnheard = [&] { return now() < until + std::min<int64_t>(board_.queued, 3 * kSecond); };
    while (joins && mayBeUnheard() && !board_.over) sleepMicroseconds(500);
    board_.faultHappened(index);
    if (event.act == Act::kExit) {
      if (event.variant % 4 == 0) exit(0);
      _exit(0);
    }
    if (whole_.comm != nullptr) abortOne(board_, rank_, whole_.comm);
    ended_ = true;
  });
}

// In a call by which it joins others that goes on without it. True if this rank is one that aborts then.
bool Rank::abortsWhileJoining() {
  for (size_t i = 0; i < plan_.events.size(); ++i) {
    const Event& event = plan_.events[i];
    if (event.act != Act::kAbort || event.rank != rank_ || event.step != me_.step) continue;
    if (!plan_.joinsAt(rank_, event.step)) continue;
    sleepMicroseconds(event.delay);
    board_.faultHappened(i);
    return true;
  }
  return false;
}

// No thread of this rank acts any more.
void Rank::endSteps() {
  if (later_.joinable()) later_.join();
}

void abortOne(Board& board, int rank, ncclComm_t comm) {
  const int64_t began = now(), queued = nanosecondsQueued(getpid());
  (void)ncclCommAbort(comm);
  const int64_t whole = now() - began;
  const int64_t took = whole - std::max<int64_t>(0, nanosecondsQueued(getpid()) - queued);
  raise(board.longestAbort, whole);
  raise(board.longestRunning, took);
  if (took > kAbortLimit + board.ranks[rank].slack / 4 + board.lateness) {
    board.report(Wrong::kLate, "rank %d: ncclCommAbort took %.3f s, and the machine was late by %.3f s", rank,
                 static_cast<double>(took) * 1e-9, static_cast<double>(board.lateness) * 1e-9);
  }
}

void Rank::abortAll() {
  enter("ncclCommAbort", nullptr, [&] {
    for (const Side& side : further_) {
      if (side.comm != nullptr) abortOne(board_, rank_, side.comm);
    }
    if (child_.comm != nullptr) abortOne(board_, rank_, child_.comm);
    if (whole_.comm != nullptr && !ended_) abortOne(board_, rank_, whole_.comm);
    return ncclSuccess;
  });
  further_.clear();
  child_.comm = whole_.comm = nullptr;
}

void Rank::destroyAll() {
  const ncclResult_t result = enter("ncclCommDestroy", nullptr, [&] {
    ncclResult_t first = ncclSuccess;
    for (const Side& side : further_) {
      if (side.comm != nullptr) (void)ncclCommDestroy(side.comm);
    }
    if (child_.comm != nullptr) first = ncclCommDestroy(child_.comm);
    const ncclResult_t second =
        whole_.comm != nullptr && !ended_ ? ncclCommDestroy(whole_.comm) : ncclSuccess;
    return first == ncclSuccess ? second : first;
  });
  further_.clear();
  child_.comm = whole_.comm = nullptr;
  if (result != ncclSuccess && result != ncclInProgress && !plan_.expectsErrors()) {
    board_.report(Wrong::kUnexpected, "rank %d: ncclCommDestroy returned %d: %s", rank_, result,
                  ncclGetLastError(nullptr));
  }
}

void Rank::finish() {
  const int index = plan_.finalStep();
  me_.step = index;
  me_.began = now();
  endSteps();
  if (ended_) return abortAll();
  if (!act(index)) return;
  if (plan_.kind == Kind::kFinal &&
      rank_ == static_cast<int>(plan_.seed % static_cast<uint64_t>(plan_.ranks))) {
    sleepMicroseconds(20000);
  }
  if (whole_.window != nullptr && !told_) (void)ncclCommWindowDeregister(whole_.comm, whole_.window);
  if (plan_.finalise) {
    const bool late =
        plan_.kind == Kind::kLate && (rank_ == 0 || (plan_.seed >> static_cast<unsigned>(rank_)) % 2 == 0);
    ncclResult_t result = enter("ncclCommFinalize", nullptr, [&] { return ncclCommFinalize(whole_.comm); });
    if (late) lateCall();
    if (result == ncclInProgress) {
      result = enter("waiting for ncclCommFinalize", whole_.comm, [&] { return ncclInProgress; });
    }
    if (result != ncclSuccess && !plan_.expectsErrors() && !late) {
      failed("ncclCommFinalize", result, whole_, false);
      return;
    }
  }
  destroyAll();
}

void Rank::lateCall() {
  float number = 0;
  const ncclResult_t result = enter("an operation after ncclCommFinalize", nullptr, [&] {
    return ncclAllReduce(&number, &number, 1, ncclFloat32, ncclSum, whole_.comm, nullptr);
  });
  if (result == ncclInvalidUsage) return;
  board_.report(Wrong::kUnexpected,
                "rank %d: an operation after ncclCommFinalize returned %d, not ncclInvalidUsage: %s", rank_,
                result, ncclGetLastError(whole_.comm));
}

void Rank::afterwards() {
  if (plan_.waits) {
    const auto allKnow = [&] {
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        const RankEntry& other = board_.ranks[rank];
        if (other.told.code == 0 && other.phase != static_cast<int>(Phase::kEnded)) return false;
      }
      return true;
    };
    for (int64_t until = now() + 6 * kSecond; !allKnow() && now() < until && !board_.over;)
      sleepMicroseconds(200);
  }
  int64_t none = 0;
  board_.firstAbort.compare_exchange_strong(none, now());
  const bool joined = whole_.comm != nullptr && me_.told.step != kInitStep;
  if (plan_.aftermath == Aftermath::kShrink && !plan_.isVictim(rank_) && joined) recover();
  if (plan_.aftermath == Aftermath::kDestroy) {
    destroyAll();
  } else {
    abortAll();
  }
  reuseBuffers();
}

// Those who are left go on without the others.
void Rank::recover() {
  std::vector<int> out = plan_.victims();
  Side rest;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (!plan_.isVictim(rank)) rest.members.push_back(rank);
  }
  while (rest.members[static_cast<size_t>(rest.rank)] != rank_) ++rest.rank;
  rest.ranks = static_cast<int>(rest.members.size());
  me_.mayWait = true;
  const ncclResult_t result = enter("ncclCommShrink after the loss", nullptr, [&] {
    const ncclResult_t first = ncclCommShrink(whole_.comm, out.data(), static_cast<int>(out.size()),
                                              &rest.comm, nullptr, NCCL_SHRINK_ABORT);
    return rest.comm != nullptr ? settled(rest.comm, first) : first;
  });
  me_.mayWait = false;
  if (result != ncclSuccess && !board_.over) {
    board_.report(Wrong::kUnexpected, "rank %d: ncclCommShrink after the loss returned %d: %s | %s", rank_,
                  result, rest.comm != nullptr ? ncclGetLastError(rest.comm) : "", ncclGetLastError(nullptr));
  }
  for (uint32_t number = 7000; number < 7003 && result == ncclSuccess; ++number) {
    Call call;
    call.number = number;
    call.count = 5000;
    call.function = number % 2 == 0 ? Function::kAllReduce : Function::kAllGather;
    const ncclResult_t done = useOnce(rest, call, "an operation after the recovery");
    if (done != ncclSuccess && !board_.over) {
      board_.report(Wrong::kUnexpected, "rank %d: an operation after the recovery returned %d: %s", rank_,
                    done, ncclGetLastError(rest.comm));
      break;
    }
  }
  if (rest.comm != nullptr) {
    enter("ncclCommDestroy after the recovery", nullptr, [&] { return ncclCommDestroy(rest.comm); });
  }
}

void runProcess(const Plan& plan, Board& board, int process, bool device) {
  crashBoard = &board;
  crashProcess = getpid();
  void* frame = nullptr;
  (void)backtrace(&frame, 1);  // loads what it needs, which a crashed process may not be able to
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) ::signal(signal, crashed);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (plan.processOf[rank] == process) ranks.push_back(std::make_unique<Rank>(plan, board, rank, device));
  }
  for (auto& rank : ranks) threads.emplace_back([&rank] { rank->run(); });
  for (std::thread& thread : threads) thread.join();
  // Who made the unique id lives until all have joined, and who comes late is told what happened.
  const int64_t patience = now() + 12 * kSecond;
  const bool joins = plan.kind == Kind::kInit || plan.kind == Kind::kGrow;
  while (joins && !board.allEnded(plan) && now() < patience && !board.over) sleepMicroseconds(1000);
  for (const Event& event : plan.events) {
    const pid_t child = board.childProcess;
    if (event.act != Act::kFork || plan.processOf[event.rank] != process || child <= 0) continue;
    const bool exits = event.variant == 3 || event.variant == 6;
    int status = 0;
    pid_t ended = 0;
    for (int64_t until = now() + 3 * kSecond; exits && ended == 0 && now() < until;) {
      ended = waitpid(child, &status, WNOHANG);
      if (ended == 0) sleepMicroseconds(500);
    }
    if (exits && ended == 0) board.report(Wrong::kHang, "a forked child did not end by exit()");
    if (ended == child && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
      board.report(Wrong::kCrash, "a forked child ended with status 0x%x", status);
    }
    if (ended == 0) {
      const int says = board.childSays;
      kill(child, SIGKILL);
      (void)waitpid(child, &status, 0);
      if (event.variant == 5 && says != 0 && says >> 8 != ncclInvalidUsage) {
        board.report(Wrong::kUnexpected, "an operation in a forked child returned %d", says >> 8);
      }
    }
    board.childProcess = 0;
  }
}

}  // namespace hostile
