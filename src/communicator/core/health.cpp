#include "communicator/core/health.hpp"

#include <chrono>
#include <thread>

#include "platform/clock.hpp"
#include "primitives/call_record.hpp"

namespace stretto::communicator {

bool Health::advance(State to) {
  State now = state_.load(std::memory_order_acquire);
  while (now < to) {
    if (state_.compare_exchange_weak(now, to, std::memory_order_acq_rel)) return true;
  }
  return false;
}

Status Health::usable() const {
  STRETTO_TRY(self_.mayTouch());
  const int rank = self_.rank();
  switch (state()) {
    case State::kReady:
      return kOkStatus;
    case State::kInitialising:
      return fail(Code::kInvalidUsage,
                  "rank %d: the communicator is still being made; poll ncclCommGetAsyncError until it is not "
                  "ncclInProgress",
                  rank);
    case State::kFinalised:
      return fail(Code::kInvalidUsage, "rank %d: the communicator was finalised; make a new one", rank);
    case State::kRevoked:
      return fail(Code::kInvalidUsage, "rank %d: the communicator was revoked; shrink, split or destroy it",
                  rank);
    case State::kAborted:
      return fail(Code::kAborted, "rank %d: the communicator was aborted", rank);
    case State::kFailed:
      break;
  }
  std::string text;
  const Status why = first(&text);
  return failAbout(why.peer, why.code, "%s", text.c_str());
}

Status Health::whyLetGo() const {
  STRETTO_TRY(usable());
  return fail(Code::kAborted, "rank %d: the communicator was destroyed before this call had its turn",
              self_.rank());
}

Status Health::first(std::string* text) const {
  const std::lock_guard lock(mutex_);
  if (text != nullptr) *text = text_;
  return first_;
}

Status Health::whyAborted() const {
  const uint32_t word = abort_.load(std::memory_order_acquire);
  if (word == 0) return kOkStatus;
  const Status why = statusOfAbort(word);
  if (why.code == Code::kAborted) return fail(Code::kAborted, "%s", farewell("called ncclCommAbort").c_str());
  std::string text;
  (void)first(&text);
  return failAbout(why.peer, why.code, "%s", text.c_str());
}

Status Health::reasonSoon() const {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(2);
  const uint64_t began = platform::monotonicNanoseconds();
  do {
    STRETTO_TRY(whyAborted());
    std::this_thread::sleep_for(kBetweenLooks);
  } while (platform::secondsSince(began) < kSecondHandSeconds);
  return kOkStatus;
}

void Health::markBroken(Status why, State state, const std::string& text) {
  Status known;
  {
    const std::lock_guard lock(mutex_);
    if (first_.ok()) {
      first_ = why;
      text_ = text;
    }
    known = first_;
  }
  advance(state);
  plane_.sayFailed(known.ok() ? Status{Code::kAborted} : known);
}

void Health::raiseAbort(Status why) {
  uint32_t none = 0;
  abort_.compare_exchange_strong(none, stretto::abortWord(why));
  stopOperations(abort_.load());
}

void Health::stopOperations(uint32_t word) {
  endWaits_(word);
  plane_.sayAbort(word);
}

void Health::strike(Status why, const std::string& words) {
  markBroken(why, State::kFailed, words);
  flight_.note(words.c_str());
  raiseAbort(why);
}

std::string Health::nameOperation(const std::string& words) {
  const std::lock_guard lock(mutex_);
  if (first_.code == Code::kRemote && !std::exchange(namesOperation_, true)) text_ += "; " + words;
  return text_;
}

Status Health::refuse(const Operation& operation, Status status) {
  if (self_.isOfThisProcess() && state() == State::kFailed) {
    setLastError(nameOperation(std::string(nameOf(operation.collective)) + " was not started"));
  }
  return status;
}

Status Health::explain(const std::string& what, Status status) {
  std::string text = lastError();
  const bool live = state() == State::kReady || state() == State::kFailed;
  const uint32_t word = abort_.load();
  const bool isReported = word != 0 && statusOfAbort(word).code == status.code;
  if (status.code == Code::kAborted) {
    text = "rank " + std::to_string(self_.rank()) + ": " + what +
           " was ended by ncclCommAbort or ncclCommRevoke of this rank";
  } else if (status.code == Code::kRemote || status.code == Code::kSystem || isReported) {
    if (live) markBroken(status, State::kFailed, text);  // unless the reason is known
    std::string reason = nameOperation(what + " did not finish");
    if (!reason.empty()) {
      text = std::move(reason);
      status.code = first().code;
    }
  }
  setLastError(text);
  flight_.note(text.c_str());
  if (live) markBroken(status, State::kFailed, text);
  return status;
}

void Health::noteLost(int rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  lost_.emplace(rank, text);
}

std::string Health::wordsOfLoss(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = lost_.find(rank);
  return found == lost_.end() ? std::string() : found->second;
}

std::vector<int> Health::lostRanks() const {
  std::vector<int> ranks;
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, text] : lost_) ranks.push_back(rank);
  return ranks;
}

std::string Health::farewell(const char* what) const {
  std::string own;
  (void)first(&own);
  return own.empty() ? what : std::string(what) + " after an error: " + own;
}

// A misuse that concerns this rank alone blames nobody.
bootstrap::Leaving Health::leaving() const {
  const Status why = first();
  const bool disagrees = why.code == Code::kInvalidUsage && why.peer >= 0;
  return disagrees ? bootstrap::Leaving::kDisagreed : bootstrap::Leaving::kAborted;
}

void Health::notifyPeers(const char* what) {
  plane_.sayGoodbye(leaving(), farewell(what));
}

}  // namespace stretto::communicator
