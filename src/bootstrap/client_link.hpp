// What a Membership and the background thread share: the thread writes down what the hosts say, the
// Membership's callers wait for it. For bootstrap/ only. Every member is guarded by the mutex unless it says
// otherwise; the callbacks have a mutex of their own, never held together with the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/heard.hpp"
#include "bootstrap/hosts.hpp"
#include "bootstrap/membership.hpp"
#include "bootstrap/unique_id.hpp"
#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {

enum class Waited : uint8_t { kDone, kTimeout, kStopped };
// How a wait ended. `why` is what a stop check said, whose words are the waiting thread's last error; asked
// again, it may say something else.
struct WaitEnd {
  Waited how;
  Status why;
};
// How far the way to the host has come, for a timeout's explanation.
enum class Joining : uint8_t { kNothing, kConnected, kNotOpened, kAdmitted };

// Where a member meets the others, and how it speaks to all its hosts: as when it came.
struct Meeting : Rendezvous {
  Encryption encryption = {};
};

class ClientLink {
 public:
  ClientLink(const Meeting& where, const MemberInfo& self, int ranks, StopCheck stop, LossCallback onLost,
             NudgeCallback onNudged);

  // Set at birth.
  const Meeting where;
  const MemberInfo self;
  const int ranks;

  // Only for the background thread.
  Hosting hosting;
  std::vector<size_t> desiredHosts() const {
    return bootstrap::desiredHosts(members(), gone_, hosting.wanted());
  }
  bool isJoined() const { return joined_; }
  bool isGone(int rank) const { return gone_[static_cast<size_t>(rank)]; }
  // Whether the process holds a member that is not known to be gone.
  bool isPeopled(uint64_t process) const;

  // --- for the background thread: what happened -------------------------------------------------------
  // Several hosts tell the same: the first word counts.
  void reached(Joining how);
  void welcomed(const Welcome& host);
  void joined(std::shared_ptr<const std::vector<MemberInfo>> members);
  void refused(Refusal why);                                       // ends the join
  bool exchanged(std::span<const uint8_t> payload, Heard& heard);  // false: it is none
  uint32_t resultsSeen() const;
  void exchangeRefused(ExchangeFailure why);
  void told(Missing missing);
  void peerLeft(const Left& left);
  void peerLost(const Lost& loss);
  void nudged(const Nudge& nudge);
  void hostLeaves(const Welcome& host);
  void hostVanished(const Welcome& host, const std::string& why);
  void processEnded(uint64_t process, const std::string& why);  // every member there is lost
  // An exchange is waited for that some rank has taken part in and left. And: its result will not come.
  bool awaitsExchange() const;
  void giveUpExchanges();
  // Who leaves does not wait to hear whether a process that has ended had said goodbye, and must not say that
  // it had not: its members are gone for the choice of hosts alone.
  void writeOff(uint64_t process);
  void left();      // this member itself says goodbye
  void detached();  // the goodbye has been passed on, or cannot be
  void orphaned();  // this process is exiting: nothing will happen any more

  // --- for callers: waiting ------------------------------------------------------------------------
  WaitEnd waitJoined(Clock::time_point deadline);
  // After waitJoined: kOk, or why not. Sets the caller's last error.
  Status joinOutcome() const;
  bool admitted() const;
  std::string unreachedText(double timeoutSeconds) const;

  // Reserves the next exchange; not ok when none is possible any more.
  Result<uint32_t> beginExchange(const char* name);
  WaitEnd waitExchange(uint32_t sequence, Clock::time_point deadline, const StopCheck& stop);
  Result<Contributions> exchangeOutcome(const char* name, uint32_t sequence);
  void spoilExchanges(Refusal why);

  void expectAnswer();
  bool waitAnswer(Clock::time_point deadline, Missing& answer);
  void waitDetached(Clock::time_point deadline, bool mayStop);
  // Makes waiting callers return and lets no callback run any more.
  void silence();
  // Why this member waits for nothing any more, or kOk.
  Status stopReason() const;
  bool hasGone(int rank) const;

  // Valid, and constant, once joined.
  std::span<const MemberInfo> members() const {
    return members_ == nullptr ? std::span<const MemberInfo>{} : *members_;
  }

 private:
  template <typename Predicate>
  WaitEnd await(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, const StopCheck& stop,
                Predicate&& satisfied);
  void deliver(const MemberInfo& who, const Lost& loss);
  void disrupt(uint32_t exchange, int peer, std::string text);
  bool isDisrupted(uint32_t exchange) const { return disruption_ && exchange >= disruptedFrom_; }
  bool markGone(Departure departure);

  const StopCheck stop_;
  std::mutex callbackMutex_;
  LossCallback onLost_;     // guarded by callbackMutex_
  NudgeCallback onNudged_;  // the same

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Joining reach_ = Joining::kNothing;
  Welcome host_;  // the rendezvous
  bool joined_ = false;
  std::optional<Refusal> joinFailure_;
  std::shared_ptr<const std::vector<MemberInfo>> members_;
  std::vector<bool> gone_;             // left or lost, by rank; changed by the background thread alone
  std::vector<uint32_t> heardNudges_;  // how many of each rank's, by rank
  std::optional<Refusal> disruption_;  // why no exchange from disruptedFrom_ on can complete any more
  uint32_t disruptedFrom_ = 0;
  std::optional<Refusal> spoiled_;  // the same, found by this rank itself or told by a host
  uint32_t nextSequence_ = 0;
  uint32_t resultsSeen_ = 0;  // exchanges 0 .. resultsSeen_ - 1 have their result
  SharedBytes result_;        // of the last of them
  std::optional<Missing> answer_;
  bool detached_ = false;
  bool silenced_ = false;
};

}  // namespace stretto::bootstrap
