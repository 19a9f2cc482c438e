#include "rank.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "stretto.h"

namespace hostile {

void sleepMicroseconds(int64_t microseconds) {
  if (microseconds > 0) usleep(static_cast<useconds_t>(microseconds));
}

void Board::report(Wrong wrong, const char* format, ...) {
  const int at = findings.fetch_add(1);
  if (at >= kFindings) return;
  finding[at].wrong = wrong;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(finding[at].text, sizeof finding[at].text, format, arguments);
  va_end(arguments);
  finding[at].written = true;
}

bool Board::allEnded(const Plan& plan) const {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (!plan.isVictim(rank) && ranks[rank].phase != static_cast<int>(Phase::kEnded)) return false;
  }
  return true;
}

int64_t Board::joiningSince(const Plan& plan, const Event& event) const {
  const bool whole = event.act == Act::kKill || event.act == Act::kExit;
  int64_t latest = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const bool isTaken = rank == event.rank || (whole && plan.processOf[rank] == plan.processOf[event.rank]);
    if (!isTaken || !plan.joinsAt(rank, event.step)) continue;
    if (ranks[rank].joining == 0) return 0;
    latest = std::max(latest, ranks[rank].joining.load());
  }
  return latest;
}

void Board::faultHappened(size_t event) {
  const int64_t when = now();
  lastFault = when;
  faults[event] = when;
}

void makeId(Board& board) {
  const ncclResult_t result = ncclGetUniqueId(&board.id);
  if (result != ncclSuccess)
    board.report(Wrong::kUnexpected, "ncclGetUniqueId: %s", ncclGetLastError(nullptr));
  board.idReady = true;
}

namespace {

// Until all others that live and know of nothing have come to that step, too; bounded.
void awaitOthers(const Plan& plan, const Board& board, int index) {
  const int64_t until = now() + 3 * kSecond;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const RankEntry& other = board.ranks[rank];
    while (other.step < index && other.phase == static_cast<int>(Phase::kRunning) &&
           other.told.code == ncclSuccess && !board.over && now() < until) {
      sleepMicroseconds(100);
    }
  }
}

// Whether a rank may rightly wait in a child for a rank that is stopped, though the parent has lost another
// one. `children`: the members of those that it makes or uses.
bool mayWaitInChild(const Plan& plan, const std::vector<std::vector<int>>& children) {
  return std::any_of(children.begin(), children.end(), [&](const std::vector<int>& members) {
    // What happens to a rank's process happens to all ranks there.
    const auto isOne = [&](Act act) {
      return std::any_of(members.begin(), members.end(), [&](int member) {
        return std::any_of(plan.events.begin(), plan.events.end(), [&](const Event& event) {
          return event.act == act && plan.processOf[event.rank] == plan.processOf[member];
        });
      });
    };
    return isOne(Act::kStop) && !isOne(Act::kKill);
  });
}

// Those of the step, or what the one who disagrees makes of them.
std::vector<Call> callsOf(const Plan& plan, int rank, int index) {
  const std::vector<Call>& planned = plan.steps[static_cast<size_t>(index)].calls;
  if (rank != plan.odd) return planned;
  const auto of = [&](int other) { return plan.steps[static_cast<size_t>(other)].calls; };
  if (plan.quirk == Quirk::kSwapped && index == plan.quirkStep) return of(index + 1);
  if (plan.quirk == Quirk::kSwapped && index == plan.quirkStep + 1) return of(index - 1);
  if (index != plan.quirkStep) return planned;
  if (plan.quirk == Quirk::kMissing) return {};
  return {plan.quirkCall};
}

}  // namespace

Rank::Rank(const Plan& plan, Board& board, int rank, bool device)
    : plan_(plan),
      board_(board),
      me_(board.ranks[rank]),
      rank_(rank),
      memory_(device ? deviceMemory() : hostMemory()) {
  whole_.rank = rank;
  whole_.ranks = plan.ranks;
  for (int other = 0; other < plan.ranks; ++other) whole_.members.push_back(other);
}

ncclResult_t Rank::enter(const std::string& what, ncclComm_t comm,
                         const std::function<ncclResult_t()>& body) {
  snprintf(me_.call, sizeof me_.call, "%s", what.c_str());
  me_.slack = slack_;
  me_.overdue = me_.beyond = 0;
  me_.entered = called_ = now();
  const ncclResult_t result = settled(comm, body());
  me_.entered = 0;
  return result;
}

// What a call of a non-blocking communicator came to in the end.
ncclResult_t Rank::settled(ncclComm_t comm, ncclResult_t result) const {
  while (result == ncclInProgress && comm != nullptr && !board_.over) {
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclInvalidArgument;
    if (result == ncclInProgress) sleepMicroseconds(50);
  }
  return result;
}

void Rank::run() {
  me_.process = getpid();
  me_.phase = static_cast<int>(Phase::kRunning);
  if (memory_ == nullptr || !memory_->open()) _exit(3);
  if (plan_.streams && memory_->makeStream(&stream_) != ncclSuccess) _exit(3);
  if (join() && runSteps()) {
    untilTold();
    if (!told_) finish();
  }
  endSteps();
  if (told_) {
    afterwards();
  } else {
    abortAll();  // what its last deed has left
  }
  me_.phase = static_cast<int>(Phase::kEnded);
  pending_.clear();
  given_.clear();
  // Peers may write into a window until they have ended too.
  const int64_t until = now() + 5 * kSecond;
  while (window_ != nullptr && !board_.allEnded(plan_) && now() < until) sleepMicroseconds(200);
  window_.reset();
  if (stream_ != nullptr) {
    slack_ = 0;
    enter("destroy of the stream", nullptr, [&] {
      memory_->destroyStream(stream_);
      return ncclSuccess;
    });
  }
}

ncclResult_t Rank::joinCall() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = plan_.blocking ? 1 : 0;
  const ncclResult_t result = ncclCommInitRankConfig(&whole_.comm, plan_.ranks, board_.id, rank_, &config);
  if (!abortsWhileJoining()) return result;
  abortAll();
  ended_ = true;
  return ncclSuccess;
}

bool Rank::join() {
  me_.step = kInitStep;
  me_.began = now();
  if (plan_.maker == Maker::kRank && plan_.makerRank == rank_) makeId(board_);
  while (!board_.idReady && !board_.over) sleepMicroseconds(100);
  const bool waits =
      plan_.kind == Kind::kInit && !plan_.isVictim(rank_) && plan_.isVictim((rank_ + 1) % plan_.ranks);
  for (int64_t until = now() + 5 * kSecond; waits && board_.faults[0] == 0 && now() < until;)
    sleepMicroseconds(500);
  if (waits) sleepMicroseconds(static_cast<int64_t>(plan_.seed % 200) * 1000);
  if (!act(kInitStep)) return false;
  me_.mayWait = plan_.kind == Kind::kInit;  // for who has not come yet
  me_.joining = now();
  ncclResult_t result = enter("ncclCommInitRankConfig", nullptr, [&] {
    const ncclResult_t first = joinCall();
    return ended_ ? first : settled(whole_.comm, first);
  });
  me_.mayWait = false;
  if (ended_) return false;
  if (result != ncclSuccess) return failed("ncclCommInitRankConfig", result, whole_, false);
  if (!plan_.algorithm.empty()) {
    const char* const protocol = plan_.protocol.empty() ? nullptr : plan_.protocol.c_str();
    for (const char* collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}) {
      (void)strettoCommForce(whole_.comm, collective, plan_.algorithm.c_str(), protocol, 0, 0);
    }
  }
  me_.joining = 0;
  ++board_.joined;
  return !plan_.windows || registerWindow();
}

bool Rank::registerWindow() {
  window_ = std::make_unique<WindowMemory>(*memory_);
  whole_.windowBase = static_cast<const uint8_t*>(window_->base());
  const bool symmetric = plan_.kind == Kind::kOneSided || plan_.seed % 2 != 0;
  const int flags = symmetric ? NCCL_WIN_COLL_SYMMETRIC : NCCL_WIN_DEFAULT;
  const ncclResult_t result = enter("ncclCommWindowRegister", whole_.comm, [&] {
    return ncclCommWindowRegister(whole_.comm, window_->base(), WindowMemory::kBytes, &whole_.window, flags);
  });
  return result == ncclSuccess || failed("ncclCommWindowRegister", result, whole_, false);
}

bool Rank::runSteps() {
  for (int index = 0; index < plan_.finalStep() && !board_.over; ++index) {
    if (plan_.tail >= 0 && index >= plan_.tail && !plan_.inTail[static_cast<size_t>(rank_)]) break;
    if (!runStep(index)) return false;
  }
  const bool all = flush(pendingInChild_);
  me_.mayWait = false;
  return all;
}

void Rank::lag(int index) {
  const Step& step = plan_.steps[static_cast<size_t>(index)];
  if (step.laggard == rank_ || (plan_.tail >= 0 && index >= plan_.tail)) sleepMicroseconds(step.lag);
}

bool Rank::runStep(int index) {
  const Step& step = plan_.steps[static_cast<size_t>(index)];
  if (!act(index)) return false;
  lag(index);
  me_.step = index;
  const bool makes = step.what == Step::Do::kSplit || step.what == Step::Do::kShrink;
  const bool uses = step.onChild || pendingInChild_;
  me_.mayWait = plan_.kind == Kind::kStopFault && (makes || uses) &&
                mayWaitInChild(plan_, makes ? allMembersOf(step, rank_)
                                            : std::vector<std::vector<int>>(1, child_.members));
  me_.began = now();
  if (memory_->sharesDevice() && index > 0 &&
      plan_.steps[static_cast<size_t>(index) - 1].what == Step::Do::kDrop)
    awaitOthers(plan_, board_, index);
  switch (step.what) {
    case Step::Do::kSplit:
    case Step::Do::kShrink:
      return flush(false) && makeChildren(step) && useFurther();
    case Step::Do::kGrow:
      return flush(pendingInChild_) && growChild(step);
    case Step::Do::kDrop:
      return flush(true) && dropChild();
    default:
      break;
  }
  if (step.onChild && child_.comm == nullptr) return true;
  if (step.onChild != pendingInChild_ && !flush(pendingInChild_)) return false;
  return callAll(step, callsOf(plan_, rank_, index), index);
}

bool Rank::callAll(const Step& step, const std::vector<Call>& calls, int index) {
  if (calls.empty()) return true;
  const Side& side = step.onChild ? child_ : whole_;
  std::vector<int> around;
  for (int rank = 0; rank < side.ranks; ++rank) {
    const bool tail = plan_.tail >= 0 && index >= plan_.tail;
    if (!tail || plan_.inTail[static_cast<size_t>(rank)]) around.push_back(rank);
  }
  const size_t first = pending_.size();
  size_t bytes = 0;
  for (const Call& call : calls) {
    Memory& memory = window_ != nullptr ? static_cast<Memory&>(*window_) : *memory_;
    pending_.emplace_back(call, side, memory, step.memory, around);
    bytes += call.count * sizeOf(call.type) * static_cast<size_t>(side.ranks * side.ranks);
  }
  pendingInChild_ = step.onChild;
  slack_ += static_cast<int64_t>(bytes) * 10;  // 100 MB/s
  const auto enqueueAll = [&] {
    if (calls.size() == 1) return pending_[first].enqueue(stream_);
    ncclResult_t result = ncclGroupStart();
    for (size_t i = 0; i < calls.size(); ++i) {
      const ncclResult_t one = pending_[first + i].enqueue(stream_);
      if (result == ncclSuccess || result == ncclInProgress) result = one;
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  };
  ncclResult_t state = ncclSuccess;
  (void)ncclCommGetAsyncError(side.comm, &state);
  me_.told.before = state != ncclSuccess && state != ncclInProgress;
  const std::string what = pending_[first].text() + (step.onChild ? " (child)" : "");
  ncclResult_t result = ncclSuccess;
  if (stream_ == nullptr) {
    result = enter(what, side.comm, enqueueAll);
  } else {
    result = enter(what, nullptr, enqueueAll);
    if (result == ncclInProgress) result = ncclSuccess;
  }
  if (result != ncclSuccess) return failed(what.c_str(), result, side, step.onChild);
  if (stream_ == nullptr || step.synchronise || bytes > (4u << 20)) return flush(step.onChild);
  return true;
}

// Compares all that has been called, once it has ended.
bool Rank::flush(bool inChild) {
  if (pending_.empty()) return true;
  const Side& side = inChild ? child_ : whole_;
  if (stream_ != nullptr) {
    const std::string what = "synchronise after " + pending_.back().text();
    const int64_t called = called_;
    const ncclResult_t result = enter(what, side.comm, [&] {
      const ncclResult_t ended = memory_->synchronise(stream_);
      return ended == ncclSuccess ? ncclInProgress : ended;  // the communicator says the rest
    });
    called_ = called;  // the operation's own call
    if (result != ncclSuccess) return failed(what.c_str(), result, side, inChild);
  }
  slack_ = 0;
  for (Operation& operation : pending_) {
    if (const std::string wrong = operation.compare(); !wrong.empty()) {
      board_.report(Wrong::kData, "rank %d, step %d: %s succeeded and %s", rank_, me_.step.load(),
                    operation.text().c_str(), wrong.c_str());
    }
    operation.reuse(false);
  }
  pending_.clear();
  return true;
}

// With a recovery to come, nobody leaves before having been told.
void Rank::untilTold() {
  if (told_) return;
  for (const Event& event : plan_.events) {
    // The fault is to happen, even if the steps were over sooner.
    const bool isDeath = event.act == Act::kKill || event.act == Act::kExit;
    const bool dies = isDeath && plan_.processOf[event.rank] == plan_.processOf[rank_];
    if (!dies || event.step >= plan_.finalStep()) continue;
    for (int64_t limit = now() + 6 * kSecond; now() < limit && !board_.over;) sleepMicroseconds(1000);
  }
  if (plan_.aftermath != Aftermath::kShrink || plan_.isVictim(rank_)) return;
  const int64_t until = now() + 10 * kSecond;
  Step step;
  for (uint32_t number = 5000; !told_ && !board_.over; ++number) {
    if (now() > until) {
      board_.report(Wrong::kLate, "rank %d was never told", rank_);
      return;
    }
    Call call;
    call.number = number;
    call.count = 100;
    (void)callAll(step, {call}, plan_.finalStep());
  }
}

bool Rank::failed(const char* what, ncclResult_t result, const Side& side, bool inChild) {
  Told& told = me_.told;
  if (told_ || board_.over) {
    told_ = true;
    return false;
  }
  told_ = true;
  told.at = now();
  told.step = me_.step;
  told.inChild = inChild;
  told.mayWait = me_.mayWait;
  told.entered = called_;
  snprintf(told.call, sizeof told.call, "%s", what);
  // Of a blocking call the thread knows; of a communicator that failed between calls only that.
  const char* words = side.comm != nullptr ? ncclGetLastError(side.comm) : "";
  if (words == nullptr || *words == 0) words = ncclGetLastError(nullptr);
  snprintf(told.words, sizeof told.words, "%s", words);
  told.code = result;
  // Those on streams have ended, since nothing of one that failed goes on; of a call of a non-blocking
  // communicator that is known only when the communicator has gone.
  if (stream_ == nullptr && !plan_.blocking) return false;
  if (stream_ != nullptr)
    enter("synchronise after an error", nullptr, [&] { return memory_->synchronise(stream_); });
  reuseBuffers();
  return false;
}

void Rank::reuseBuffers() {
  for (Operation& operation : pending_) {
    if (const std::string wrong = operation.untouched(); !wrong.empty()) {
      board_.report(Wrong::kData, "rank %d, step %d: %s failed, and %s", rank_, me_.step.load(),
                    operation.text().c_str(), wrong.c_str());
    }
    operation.reuse(true);
    given_.push_back(std::move(operation));
  }
  pending_.clear();
}

}  // namespace hostile
