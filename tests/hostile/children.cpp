// What a rank does to make communicators of one that it has, to use them, and to end them.
#include <algorithm>

#include "rank.hpp"

namespace hostile {
namespace {

// All splits of a step in one group, in their order. No communicator is told of before the group ends.
ncclResult_t splitAll(const Step& step, ncclComm_t parent, int rank, std::vector<Side>& made) {
  const auto mine = static_cast<size_t>(rank);
  const auto one = [&](const Split& split, Side& side) {
    return ncclCommSplit(parent, split.colours[mine], split.keys[mine], &side.comm, nullptr);
  };
  if (step.further.empty()) return one(step.child, made[0]);
  ncclResult_t first = ncclGroupStart();
  const auto goesOn = [&] { return first == ncclSuccess || first == ncclInProgress; };
  for (size_t i = 0; i < made.size() && goesOn(); ++i) {
    first = one(i == 0 ? step.child : step.further[i - 1], made[i]);
  }
  const ncclResult_t ended = ncclGroupEnd();
  return goesOn() ? ended : first;
}

ncclResult_t shrink(const Step& step, ncclComm_t parent, Side& made) {
  std::vector<int> out;
  for (size_t rank = 0; rank < step.child.colours.size(); ++rank) {
    if (step.child.colours[rank] == kNobody) out.push_back(static_cast<int>(rank));
  }
  return ncclCommShrink(parent, out.data(), static_cast<int>(out.size()), &made.comm, nullptr,
                        NCCL_SHRINK_DEFAULT);
}

// What a child of `rank` must be that has been made.
void become(Side& child, const std::vector<int>& members, int rank, const char* what, Board& board) {
  if ((child.comm == nullptr) != members.empty()) {
    board.report(Wrong::kUnexpected, "rank %d: %s succeeded %s a communicator", rank, what,
                 members.empty() ? "with" : "without");
  }
  if (members.empty()) return;
  child.members = members;
  child.ranks = static_cast<int>(members.size());
  while (members[static_cast<size_t>(child.rank)] != rank) ++child.rank;
  int own = -1, ranks = -1;
  (void)ncclCommUserRank(child.comm, &own);
  (void)ncclCommCount(child.comm, &ranks);
  if (own != child.rank || ranks != child.ranks) {
    board.report(Wrong::kData, "rank %d of a child: it says %d of %d, not %d of %d", rank, own, ranks,
                 child.rank, child.ranks);
  }
}

// One that was there makes the name of the growth, which the others wait for; or the whole says why it will
// not come.
ncclResult_t awaitName(const Board& board, ncclComm_t whole) {
  ncclResult_t state = ncclSuccess;
  while (!board.grownIdReady && !board.over && state == ncclSuccess) {
    if (ncclCommGetAsyncError(whole, &state) != ncclSuccess) return ncclInvalidArgument;
    sleepMicroseconds(100);
  }
  return board.grownIdReady ? ncclSuccess : state;
}

// In half of the rounds in which one is lost that joins, the last rank of those that were there comes after
// that.
void awaitLoss(const Plan& plan, const Board& board, int step, const Side& child) {
  const bool isLate = plan.seed % 2 == 0 && child.rank == child.ranks - 1 && !plan.events.empty() &&
                      plan.events[0].step == step && plan.joinsAt(plan.events[0].rank, step) &&
                      !plan.isVictim(child.members.back());
  for (int64_t until = now() + 5 * kSecond; isLate && board.faults[0] == 0 && now() < until && !board.over;)
    sleepMicroseconds(500);
  if (isLate) sleepMicroseconds(static_cast<int64_t>(plan.seed % 200) * 1000);
}

// Of a rank that was there, and has a child, or of one that joins.
ncclResult_t callGrow(const Plan& plan, const Split& whole, int rank, const Side& child, ncclUniqueId& id,
                      Side& grown) {
  const int ranks = static_cast<int>(whole.keys.size());
  if (child.comm != nullptr)
    return ncclCommGrow(child.comm, ranks, child.rank == 0 ? &id : nullptr, -1, &grown.comm, nullptr);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = plan.blocking ? 1 : 0;
  return ncclCommGrow(nullptr, ranks, &id, whole.keys[static_cast<size_t>(rank)], &grown.comm, &config);
}

}  // namespace

bool Rank::makeChildren(const Step& step) {
  const std::vector<std::vector<int>> members = allMembersOf(step, rank_);
  const bool shrinks = step.what == Step::Do::kShrink;
  if (shrinks && members[0].empty()) return true;
  child_ = Side{};
  std::vector<Side> made(members.size());
  const char* what = shrinks            ? "ncclCommShrink"
                     : made.size() == 1 ? "ncclCommSplit"
                                        : "ncclCommSplit in a group";
  const Side* failing = &whole_;
  const ncclResult_t result = enter(what, nullptr, [&] {
    ncclResult_t first =
        shrinks ? shrink(step, whole_.comm, made[0]) : splitAll(step, whole_.comm, rank_, made);
    // A non-blocking split is over when the parent says so, and then the child's own making.
    if (first == ncclInProgress) first = settled(whole_.comm, ncclInProgress);
    for (const Side& one : made) {
      if (first != ncclSuccess || one.comm == nullptr) continue;
      first = settled(one.comm, ncclInProgress);
      if (first != ncclSuccess) failing = &one;
    }
    return first;
  });
  if (result != ncclSuccess) {
    // The words may be those of the child's joining, with its numbers of ranks.
    const bool goesOn = failed(what, result, *failing, true);
    // The parent may have failed while a child was made in peace: its members would wait for a rank that does
    // not use it.
    abortChildren(made);
    return goesOn;
  }
  for (size_t i = 0; i < made.size(); ++i) become(made[i], members[i], rank_, what, board_);
  child_ = made[0];
  further_.assign(made.begin() + 1, made.end());
  return true;
}

// An operation of its own, compared with what must come out.
ncclResult_t Rank::useOnce(const Side& side, const Call& call, const std::string& what) {
  Operation operation(call, side, *memory_, 0, {});
  const ncclResult_t done = enter(what, side.comm, [&] {
    // On a shared GPU the null stream is one for all ranks of a process.
    if (!memory_->sharesDevice()) return operation.enqueue(nullptr);
    ncclResult_t enqueued = settled(side.comm, operation.enqueue(stream_));
    if (enqueued == ncclSuccess) enqueued = memory_->synchronise(stream_);
    return enqueued == ncclSuccess ? ncclInProgress : enqueued;  // the communicator says the rest
  });
  const std::string wrong = done == ncclSuccess ? operation.compare() : "";
  if (!wrong.empty()) board_.report(Wrong::kData, "rank %d: %s %s", rank_, what.c_str(), wrong.c_str());
  return done;
}

// The further children are used once each, and go.
bool Rank::useFurther() {
  Call call;
  call.count = 3000;
  call.number = 6000;
  for (Side& side : further_) {
    call.function = ++call.number % 2 == 0 ? Function::kAllReduce : Function::kAllGather;
    if (side.comm == nullptr) continue;
    const char* const what = "an operation on a further child";
    const ncclResult_t result = useOnce(side, call, what);
    if (result != ncclSuccess) return failed(what, result, side, true);
    const ncclResult_t ended =
        enter("ncclCommDestroy of a further child", nullptr, [&] { return ncclCommDestroy(side.comm); });
    side.comm = nullptr;
    if (ended != ncclSuccess && !plan_.expectsErrors()) {
      return failed("ncclCommDestroy of a further child", ended, whole_, false);
    }
  }
  return true;
}

// The child becomes what all ranks are, those that were left out of it too.
bool Rank::growChild(const Step& step) {
  const bool isNew = child_.comm == nullptr;
  if (!isNew && child_.rank == 0) {
    const ncclResult_t result = enter("ncclCommGetUniqueId", nullptr,
                                      [&] { return ncclCommGetUniqueId(child_.comm, &board_.grownId); });
    if (result != ncclSuccess) return failed("ncclCommGetUniqueId", result, child_, true);
    board_.grownIdReady = true;
  }
  if (isNew) {
    const ncclResult_t named = awaitName(board_, whole_.comm);
    if (named != ncclSuccess) return failed("waiting for the name of a growth", named, whole_, false);
    me_.joining = now();
  } else {
    awaitLoss(plan_, board_, me_.step, child_);
  }
  Side grown;
  bool aborted = false, inGrown = false;
  const ncclResult_t result = enter("ncclCommGrow", nullptr, [&] {
    ncclResult_t first = callGrow(plan_, step.child, rank_, child_, board_.grownId, grown);
    if (first == ncclInProgress && !isNew) first = settled(child_.comm, first);
    aborted = abortsWhileJoining();
    if (aborted) abortChildren({grown});
    inGrown = !aborted && grown.comm != nullptr && (first == ncclSuccess || first == ncclInProgress);
    return inGrown ? settled(grown.comm, ncclInProgress) : first;
  });
  if (aborted) {
    abortAll();
    ended_ = true;
    return false;
  }
  if (result != ncclSuccess) {
    const bool goesOn = failed("ncclCommGrow", result, inGrown ? grown : isNew ? whole_ : child_, true);
    abortChildren({grown});
    return goesOn;
  }
  become(grown, membersOf(step.child, rank_), rank_, "ncclCommGrow", board_);
  if (!isNew && !dropChild()) {
    abortChildren({grown});
    return false;
  }
  child_ = grown;
  return true;
}

void Rank::abortChildren(const std::vector<Side>& children) {
  for (const Side& child : children) {
    if (child.comm == nullptr) continue;
    enter("ncclCommAbort of a child", nullptr, [&] {
      abortOne(board_, rank_, child.comm);
      return ncclSuccess;
    });
  }
}

bool Rank::dropChild() {
  endSteps();
  if (child_.comm == nullptr || ended_) return !ended_;
  const ncclResult_t result =
      enter("ncclCommDestroy of a child", nullptr, [&] { return ncclCommDestroy(child_.comm); });
  child_.comm = nullptr;
  return result == ncclSuccess || plan_.expectsErrors() ||
         failed("ncclCommDestroy of a child", result, whole_, false);
}

}  // namespace hostile
