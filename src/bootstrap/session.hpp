// The hosting side of one communicator's control plane: who has joined, the all-gathers, who left and who
// was lost. A Session is told what its members send and speaks to them through their Ports; it knows neither
// sockets nor time. SessionDirectory holds a Service's sessions. For bootstrap/ only; one thread, the loop's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "bootstrap/dialogue.hpp"
#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {

class Session {
 public:
  Session(uint64_t id, const Key128& secret, Welcome host)
      : id_(id), secret_(secret), host_(std::move(host)) {}

  uint64_t id() const { return id_; }
  const Key128& secret() const { return secret_; }

  // A client that has proved the secret wants to be `who.rank` of `ranks`. Nothing returned: it is a member
  // now, `port` is kept until leave or lose, and Welcome (with the last one, the Table) is on its way.
  std::optional<Refusal> admit(uint32_t ranks, const MemberInfo& who, Port& port);

  // Messages of a member. False: it broke the protocol, `complaint` says how; drop and lose() it.
  bool contribute(int rank, const Exchange& part, std::string& complaint);
  void answer(int rank, QueryKind kind);
  void nudge(int rank);  // passed on to all others
  // It said goodbye, or it vanished. Its port is not used again.
  void leave(int rank, const Goodbye& goodbye);
  void lose(int rank, LossKind kind, const std::string& text);
  // The hosting process ends: its own members are lost, the others are told that liveness ends with it.
  void hostExits();

  // Somebody had joined and nobody is left: the session can be forgotten.
  bool over() const { return ranks_ != 0 && present_ == 0; }
  // Nobody has joined yet.
  bool unused() const { return ranks_ == 0; }
  // Why nobody can join any more; its text is empty while all is well.
  const Refusal& failure() const { return failure_; }

 private:
  enum class Presence : uint8_t { kAwaited, kPresent, kLeft, kLost };
  struct Member {
    Presence presence = Presence::kAwaited;
    MemberInfo info;
    Port* port = nullptr;  // not owned; null unless present
    bool contributed = false;
    Bytes blob;
  };

  std::optional<Refusal> objectionTo(uint32_t ranks, const MemberInfo& who) const;
  void broadcast(const SharedBytes& frame);
  void completeJoin();
  void completeExchange();
  void failExchange(Refusal why);
  std::string missingText(QueryKind kind) const;

  const uint64_t id_;
  const Key128 secret_;
  const Welcome host_;
  uint32_t ranks_ = 0;  // 0 until the first member says how many
  int firstRank_ = -1;  // who said it
  std::vector<Member> members_;
  uint32_t joined_ = 0;
  uint32_t present_ = 0;
  bool complete_ = false;
  Refusal failure_;          // text is empty while all is well
  std::string lastRefusal_;  // for those who wait for somebody that was turned away
  uint32_t sequence_ = 0;    // of the exchange that is being gathered
  std::string exchangeName_;
  int exchangeFirstRank_ = -1;
  uint32_t contributed_ = 0;
  size_t exchangeBytes_ = 0;
  Refusal exchangeFailure_;  // once ranks disagree about the order, every later exchange fails alike
};

// The sessions of one process, by id.
class SessionDirectory {
 public:
  // `host` describes this process to the members.
  explicit SessionDirectory(Welcome host) : host_(std::move(host)) {}

  // Opening an id twice changes nothing.
  void open(uint64_t id, const Key128& secret);
  // Forgets an id that nobody has joined; sessions with members end by themselves.
  void closeUnused(uint64_t id);
  Session* find(uint64_t id);
  // What to tell those who ask for a session that has ended; null if it never was, or ended long ago.
  const Refusal* epitaph(uint64_t id) const;
  // Forgets the session if it is over.
  void settle(uint64_t id);
  void hostExits();
  size_t size() const { return sessions_.size(); }

 private:
  static constexpr size_t kEpitaphs = 256;

  const Welcome host_;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::deque<std::pair<uint64_t, Refusal>> epitaphs_;
};

// "rank 2", "ranks 2, 5-7": at most a few hundred bytes, then "and N more".
std::string describeRanks(std::span<const int> ranks);

}  // namespace stretto::bootstrap
