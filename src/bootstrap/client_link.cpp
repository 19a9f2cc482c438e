#include "bootstrap/client_link.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace stretto::bootstrap {
namespace {

constexpr auto kStopPoll = std::chrono::milliseconds(20);

std::string describe(const MemberInfo& who) {
  return "rank " + std::to_string(who.rank) + " (" + who.host + ", pid " + std::to_string(who.pid) + ")";
}

Status failWith(int rank, const Refusal& why) {
  return failAbout(why.peer, why.code, "rank %d: %s", rank, why.text.c_str());
}

}  // namespace

ClientLink::ClientLink(const Meeting& place, const MemberInfo& who, int rankCount, StopCheck stop,
                       LossCallback onLost, NudgeCallback onNudged)
    : where(place),
      self(who),
      ranks(rankCount),
      stop_(std::move(stop)),
      onLost_(std::move(onLost)),
      onNudged_(std::move(onNudged)) {}

template <typename Predicate>
WaitEnd ClientLink::await(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                          const StopCheck& stop, Predicate&& satisfied) {
  while (!satisfied()) {
    if (const Status why = stop ? stop() : kOkStatus; !why.ok()) return {Waited::kStopped, why};
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      return {Waited::kTimeout, {}};
    }
    changed_.wait_until(lock, stop ? std::min(deadline, now + kStopPoll) : deadline);
  }
  return {Waited::kDone, {}};
}

// --- the background thread ------------------------------------------------------------------------------

void ClientLink::reached(Joining how) {
  std::lock_guard lock(mutex_);
  reach_ = std::max(reach_, how);  // a retry does not unlearn what is known
}

void ClientLink::welcomed(const Welcome& host) {
  std::lock_guard lock(mutex_);
  reach_ = Joining::kAdmitted;
  host_ = host;
}

void ClientLink::joined(std::shared_ptr<const std::vector<MemberInfo>> members) {
  {
    std::lock_guard lock(mutex_);
    members_ = std::move(members);
    gone_.assign(members_->size(), false);
    heardNudges_.assign(members_->size(), 0);
    joined_ = true;
  }
  changed_.notify_all();
}

void ClientLink::refused(Refusal why) {
  {
    std::lock_guard lock(mutex_);
    if (joined_ || joinFailure_) return;
    joinFailure_ = std::move(why);
  }
  changed_.notify_all();
}

bool ClientLink::exchanged(std::span<const uint8_t> payload, Heard& heard) {
  uint32_t sequence = 0;
  {
    std::lock_guard lock(mutex_);
    if (!decodeSequence(payload, sequence) || sequence > resultsSeen_ || sequence >= nextSequence_) {
      return false;
    }
    if (sequence < resultsSeen_) return true;  // another host was first
    result_ = heard.results.keep(Bytes(payload.begin(), payload.end()));
    ++resultsSeen_;
  }
  changed_.notify_all();
  return true;
}

uint32_t ClientLink::resultsSeen() const {
  std::lock_guard lock(mutex_);
  return resultsSeen_;
}

void ClientLink::exchangeRefused(ExchangeFailure why) {
  spoilExchanges(std::move(why.why));
}

void ClientLink::spoilExchanges(Refusal why) {
  {
    std::lock_guard lock(mutex_);
    if (!spoiled_) spoiled_ = std::move(why);
  }
  changed_.notify_all();
}

void ClientLink::told(Missing missing) {
  {
    std::lock_guard lock(mutex_);
    answer_ = std::move(missing);
  }
  changed_.notify_all();
}

// Whether the rank was there until now. With the mutex held. Nobody is told of itself.
bool ClientLink::markGone(Departure departure) {
  const auto index = static_cast<size_t>(departure.rank);
  if (index >= gone_.size() || gone_[index] || departure.rank == self.rank) {
    return false;
  }
  gone_[index] = true;
  hosting.departures.push_back(std::move(departure));
  return true;
}

// With the mutex held.
void ClientLink::disrupt(uint32_t exchange, int peer, std::string text) {
  if (disruption_ && disruptedFrom_ <= exchange) return;
  disruption_ = Refusal{Code::kRemote, peer, std::move(text)};
  disruptedFrom_ = exchange;
}

bool ClientLink::awaitsExchange() const {
  std::lock_guard lock(mutex_);
  return disruption_ && resultsSeen_ < std::min(nextSequence_, disruptedFrom_);
}

void ClientLink::giveUpExchanges() {
  {
    std::lock_guard lock(mutex_);
    disruptedFrom_ = 0;
  }
  changed_.notify_all();
}

void ClientLink::deliver(const MemberInfo& who, const Lost& loss) {
  const auto call = [&]() noexcept {
    std::lock_guard lock(callbackMutex_);
    if (!onLost_) return;
    onLost_(PeerLoss{who.rank, who.pid, who.host, loss.text, loss.kind == LossKind::kDisagreed});
  };
  call();
}

void ClientLink::nudged(const Nudge& nudge) {
  if (!joined_ || nudge.rank >= heardNudges_.size() || nudge.number <= heardNudges_[nudge.rank]) {
    return;
  }
  heardNudges_[nudge.rank] = nudge.number;
  const auto call = [&]() noexcept {
    std::lock_guard lock(callbackMutex_);
    if (onNudged_) onNudged_(static_cast<int>(nudge.rank), nudge.message);
  };
  call();
}

void ClientLink::peerLeft(const Left& left) {
  const int rank = static_cast<int>(std::min<uint32_t>(left.rank, kMaxRanks));
  {
    std::lock_guard lock(mutex_);
    if (!markGone({.rank = rank, .left = true, .exchanges = left.exchanges})) return;
    disrupt(left.exchanges, rank,
            describe(members()[static_cast<size_t>(rank)]) + " has left the communicator");
  }
  changed_.notify_all();
}

void ClientLink::peerLost(const Lost& loss) {
  const int rank = static_cast<int>(std::min<uint32_t>(loss.rank, kMaxRanks));
  MemberInfo who;
  who.rank = rank;
  who.pid = loss.pid;
  who.host = loss.host;
  std::unique_lock lock(mutex_);
  if (!joined_) {
    lock.unlock();
    if (loss.kind == LossKind::kGaveUp) {
      refused({Code::kTimeout, rank, loss.text + " (" + describe(who) + " gave up first)"});
    } else {
      refused({Code::kRemote, rank, describe(who) + " was lost before all ranks had joined: " + loss.text});
    }
    return;
  }
  if (!markGone({.rank = rank, .kind = loss.kind, .text = loss.text})) {
    return;
  }
  disrupt(0, rank, describe(who) + " is lost: " + loss.text);
  lock.unlock();
  // Written down first, so that whom the callback wakes finds the reason; told before waiting exchanges wake.
  deliver(who, loss);
  changed_.notify_all();
}

void ClientLink::hostLeaves(const Welcome& host) {
  const std::string name = host.host + ", pid " + std::to_string(host.pid);
  if (!joined_) {
    refused({Code::kRemote, -1,
             "the process that hosts the rendezvous (" + name + ") exited before all had joined"});
    return;
  }
  STRETTO_LOG(kInfo, kInit, "rank %d: a process that hosted the session (%s) has exited", self.rank,
              name.c_str());
  hosting.suspects.push_back(
      {host.process, "its process exited without destroying the communicator", Clock::now()});
}

void ClientLink::hostVanished(const Welcome& host, const std::string& why) {
  const std::string name = host.host + ", pid " + std::to_string(host.pid);
  if (!joined_) {
    refused({Code::kRemote, -1,
             "the process that hosts the rendezvous (" + name + ") died before all had joined: " + why});
    return;
  }
  STRETTO_LOG(kInfo, kInit, "rank %d: a process that hosted the session (%s) is lost: %s", self.rank,
              name.c_str(), why.c_str());
  hosting.suspects.push_back({host.process, why, Clock::now()});
}

bool ClientLink::isPeopled(uint64_t process) const {
  const auto all = members();
  return std::any_of(all.begin(), all.end(), [&](const MemberInfo& who) {
    return who.process == process && !gone_[static_cast<size_t>(who.rank)];
  });
}

void ClientLink::processEnded(uint64_t process, const std::string& why) {
  for (const MemberInfo& who : members()) {
    if (who.process != process) continue;
    peerLost(Lost{static_cast<uint32_t>(who.rank), LossKind::kDied, who.pid, who.host, why});
  }
}

void ClientLink::writeOff(uint64_t process) {
  std::lock_guard lock(mutex_);
  for (const MemberInfo& who : members()) {
    if (who.process == process) gone_[static_cast<size_t>(who.rank)] = true;
  }
}

void ClientLink::left() {
  std::lock_guard lock(mutex_);
  if (joined_) gone_[static_cast<size_t>(self.rank)] = true;
}

void ClientLink::detached() {
  {
    std::lock_guard lock(mutex_);
    detached_ = true;
  }
  changed_.notify_all();
}

void ClientLink::orphaned() {
  const Refusal why{Code::kAborted, -1, "this process is exiting"};
  refused(why);
  spoilExchanges(why);
  detached();
}

// --- callers ---------------------------------------------------------------------------------------------

WaitEnd ClientLink::waitJoined(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return await(lock, deadline, stop_, [&] { return joined_ || joinFailure_; });
}

Status ClientLink::joinOutcome() const {
  std::lock_guard lock(mutex_);
  if (joined_) {
    return kOkStatus;
  }
  return joinFailure_ ? failWith(self.rank, *joinFailure_) : Status{Code::kInProgress};
}

bool ClientLink::admitted() const {
  std::lock_guard lock(mutex_);
  return reach_ == Joining::kAdmitted;
}

// An address of loopback is of no use on another host.
static std::string hintFor(const SocketAddress& address) {
  const bool loopback = address.family == 4 && address.bytes[0] == 127;
  return loopback ? ", which only ranks of that very host can reach; if ranks are on several hosts, set "
                    "NCCL_SOCKET_IFNAME to a network interface on all of them"
                  : "";
}

std::string ClientLink::unreachedText(double timeoutSeconds) const {
  std::lock_guard lock(mutex_);
  char within[48];
  snprintf(within, sizeof within, " within %g s", timeoutSeconds);
  const std::string place = toText(where.address);
  switch (reach_) {
    case Joining::kNothing:
      return "no connection to the rendezvous at " + place + within + hintFor(where.address);
    case Joining::kNotOpened:
      return "the process at " + place + " has not opened the session of this unique id" + within +
             ": the rank that leads it is late or has failed";
    case Joining::kConnected:
      return "the process at " + place + " did not answer the handshake" + within;
    case Joining::kAdmitted:
      break;
  }
  return "the process that hosts the rendezvous (" + host_.host + ", pid " + std::to_string(host_.pid) +
         ") stopped answering while ranks were missing" + within;
}

Result<uint32_t> ClientLink::beginExchange(const char* name) {
  std::lock_guard lock(mutex_);
  const std::optional<Refusal> why = spoiled_ || !isDisrupted(nextSequence_) ? spoiled_ : disruption_;
  if (silenced_) {
    return fail(Code::kAborted, "rank %d: exchange \"%s\" after the communicator was left", self.rank, name);
  }
  if (why) {
    return failAbout(why->peer, why->code, "rank %d: exchange \"%s\" is not possible: %s", self.rank, name,
                     why->text.c_str());
  }
  return nextSequence_++;
}

bool ClientLink::hasGone(int rank) const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(rank) < gone_.size() && gone_[static_cast<size_t>(rank)];
}

Status ClientLink::stopReason() const {
  return stop_ ? stop_() : kOkStatus;
}

WaitEnd ClientLink::waitExchange(uint32_t sequence, Clock::time_point deadline, const StopCheck& stop) {
  std::unique_lock lock(mutex_);
  const auto stops = [&] {
    if (stop) STRETTO_TRY(stop());
    return stopReason();
  };
  return await(lock, deadline, stops,
               [&] { return resultsSeen_ > sequence || spoiled_ || isDisrupted(sequence) || silenced_; });
}

Result<Contributions> ClientLink::exchangeOutcome(const char* name, uint32_t sequence) {
  std::unique_lock lock(mutex_);
  if (resultsSeen_ > sequence) {
    const SharedBytes payload = std::exchange(result_, {});
    lock.unlock();
    uint32_t claimed = 0;
    Contributions parts;
    if (payload == nullptr || !decodeExchangeResult(payload, ranks, claimed, parts) || claimed != sequence) {
      return fail(Code::kInternal, "rank %d: the result of exchange \"%s\" is malformed", self.rank, name);
    }
    return parts;
  }
  if (spoiled_ || isDisrupted(sequence)) {
    const Refusal why = spoiled_ ? *spoiled_ : *disruption_;
    lock.unlock();
    return failAbout(why.peer, why.code, "rank %d: exchange \"%s\" failed: %s", self.rank, name,
                     why.text.c_str());
  }
  return fail(Code::kAborted, "rank %d: the communicator was left during exchange \"%s\"", self.rank, name);
}

void ClientLink::expectAnswer() {
  std::lock_guard lock(mutex_);
  answer_.reset();
}

bool ClientLink::waitAnswer(Clock::time_point deadline, Missing& answer) {
  std::unique_lock lock(mutex_);
  // What was waited for may still come, or fail for a better reason: that ends the wait as well.
  await(lock, deadline, stop_, [&] { return answer_ || joinFailure_ || disruption_; });
  if (!answer_) {
    return false;
  }
  answer = *answer_;
  return true;
}

void ClientLink::waitDetached(Clock::time_point deadline, bool mayStop) {
  std::unique_lock lock(mutex_);
  await(lock, deadline, mayStop ? stop_ : StopCheck(), [&] { return detached_; });
}

void ClientLink::silence() {
  {
    std::lock_guard lock(mutex_);
    silenced_ = true;
  }
  changed_.notify_all();
  std::lock_guard lock(callbackMutex_);
  onLost_ = nullptr;
  onNudged_ = nullptr;
}

}  // namespace stretto::bootstrap
