// The hosting side of one communicator's control plane at one of its hosts (hosts.hpp says which they are):
// who has joined, the all-gathers, who left and who was lost. A Session is told what its members send and
// speaks to them through their Ports; it knows neither sockets nor time. SessionDirectory holds a Service's
// sessions. For bootstrap/ only; one thread, the loop's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "bootstrap/dialogue.hpp"
#include "bootstrap/gathering.hpp"
#include "bootstrap/hosts.hpp"
#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {

// Told what a further host hears of a rank, for the members that live in its process: their own connections
// to it may still have to be made.
using Hearsay = std::function<void(uint64_t session, const Departure& departure)>;

// What the members of a session share: it stays as it was when the session was made here, whatever the
// process is told about encryption later.
struct SessionKeys {
  Key128 secret{};
  Encryption encryption = {};
};

class Session {
 public:
  // The rendezvous: it gathers the members itself.
  Session(uint64_t id, SessionKeys keys, Welcome host)
      : id_(id), keys_(std::move(keys)), host_(std::move(host)) {}
  // A further host: all have joined, and come here because they know so.
  Session(uint64_t id, SessionKeys keys, Welcome host, std::span<const MemberInfo> members,
          const Hearsay& hearsay);

  // Why somebody was turned away before it could prove that it belongs here, for those who wait: nothing
  // that is known better gives way to it.
  void noteRefusal(const std::string& refusal);
  uint64_t id() const { return id_; }
  const SessionKeys& keys() const { return keys_; }

  // A client that has proved the secret wants to be `who.rank` of `ranks`. Nothing returned: it is a member
  // now, `port` is kept until leave or lose, and Welcome is on its way; then, at the rendezvous and with the
  // last one, the Table, or at a further host what is known of those who are gone.
  std::optional<Refusal> admit(uint32_t ranks, const MemberInfo& who, Port& port);

  // Messages of a member. False: it broke the protocol, `complaint` says how; drop and lose() it.
  bool contribute(int rank, const Exchange& part, std::string& complaint);
  void answer(int rank, QueryKind kind);
  void nudge(int rank, const Nudge& nudge);  // passed on to all others
  // It said goodbye, or it vanished. Its port is not used again.
  void leave(int rank, const Goodbye& goodbye);
  void lose(int rank, LossKind kind, const std::string& text);
  // What somebody else has heard of a rank. The first word about a rank wins; its port stays until it ends.
  void learn(const Departure& departure);
  // A member that lives in this process leaves. This host says so before the process can end, so that no
  // member sees this connection close first.
  void leaveHere(int rank, const Goodbye& goodbye);
  // While ranks are awaited: one of them will not come.
  void fail(const Lost& loss);
  // The hosting process ends: its own members are lost, the others are told to look elsewhere.
  void hostExits();

  // Somebody had joined and nobody is left: the session can be forgotten.
  bool over() const { return ranks_ != 0 && present_ == 0; }
  // 0 as long as nobody has joined.
  uint32_t ranks() const { return ranks_; }
  bool isRendezvous() const { return rendezvous_; }
  // It ended before every rank had come.
  bool lacksRanks() const { return joined_ < ranks_; }
  // Why nobody can join any more; its text is empty while all is well.
  const Refusal& failure() const { return failure_; }
  // Whether a member that has said goodbye here may go: those who stay hear of it. `local`: a member that
  // stays lives in this process. It knows, and when it leaves it says so with its own goodbye.
  bool vouches(bool local) const;
  // Members of other processes that are not known to be gone and have not come here, one of each process.
  std::vector<MemberInfo> absentees() const;

 private:
  enum class Presence : uint8_t { kAwaited, kPresent, kLeft, kLost };
  struct Member {
    Presence presence = Presence::kAwaited;
    MemberInfo info;
    Port* port = nullptr;  // not owned; null unless connected
    bool gone() const { return presence == Presence::kLeft || presence == Presence::kLost; }
  };

  std::optional<Refusal> objectionTo(uint32_t ranks, const MemberInfo& who) const;
  std::optional<Refusal> objectionToNewcomer(uint32_t ranks, const MemberInfo& who) const;
  void seat(Member& member, Port& port);
  void broadcast(const SharedBytes& frame, int except = -1);
  void unseat(Member& member);
  void remember(Departure departure);
  void reportLeft(Member& member, uint32_t exchanges);
  void reportLost(Member& member, LossKind kind, const std::string& text);
  void take(Member& member, const Goodbye& goodbye);
  std::vector<int> missing(int rank, QueryKind kind) const;

  const uint64_t id_;
  const SessionKeys keys_;
  const Welcome host_;
  const bool rendezvous_ = true;
  const Hearsay hearsay_;
  uint32_t ranks_ = 0;  // 0 until the first member says how many
  int firstRank_ = -1;  // who said it
  std::vector<Member> members_;
  uint32_t joined_ = 0;
  uint32_t present_ = 0;  // connected
  bool complete_ = false;
  Refusal failure_;                     // text is empty while all is well
  std::string lastRefusal_;             // for those who wait for somebody that was turned away
  std::vector<Departure> departures_;   // in the order that they became known, once all had joined
  std::optional<Gathering> gathering_;  // once all have joined
};

// What those who stay are to know of a rank that has said goodbye.
Departure departureBy(int rank, const Goodbye& goodbye);

// What a process knows of a session that one of its own members has joined: enough to host it.
struct Testimony {
  SessionKeys keys;
  std::span<const MemberInfo> members;
  std::span<const Departure> departures;
};
// Asked for a session's id; nothing when no member of this process has joined it.
using Witness = std::function<std::optional<Testimony>(uint64_t id)>;

// The sessions of one process, by id.
class SessionDirectory {
 public:
  // `host` describes this process to the members.
  explicit SessionDirectory(Welcome host, Witness witness = {}, Hearsay hearsay = {})
      : host_(std::move(host)), witness_(std::move(witness)), hearsay_(std::move(hearsay)) {}

  const Welcome& host() const { return host_; }
  // Opening an id twice changes nothing.
  void open(uint64_t id, const SessionKeys& keys);
  // Forgets an id that nobody has joined; sessions with members end by themselves.
  void closeUnused(uint64_t id);
  // A rank of this process will not come: told to who waits, and as an epitaph to who comes late.
  void fail(uint64_t id, int rank, const std::string& why);
  Session* find(uint64_t id);
  // Those of a session that is hosted here, or can be. A stranger's hello goes no further than this.
  std::optional<SessionKeys> keysOf(uint64_t id);
  // The session; opened, when it is not and can be. Only for clients that have proved the secret.
  Session* findOrOpen(uint64_t id);
  // Whether a member of this process has joined the session and stays.
  bool hasMember(uint64_t id) const { return witness_ && witness_(id).has_value(); }
  // Whether sessions have ended since it was last asked for which some rank has still to come.
  bool takeLateRanks() { return std::exchange(lateRanks_, false); }
  // What to tell those who ask for a session that has ended; null if it never was, or ended long ago.
  const Refusal* epitaph(uint64_t id) const;
  // Forgets the session if it is over.
  void settle(uint64_t id);
  void hostExits();
  size_t size() const { return sessions_.size(); }

 private:
  static constexpr size_t kEpitaphs = 256;

  void bury(const Session& session);

  const Welcome host_;
  const Witness witness_;
  const Hearsay hearsay_;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::deque<std::pair<uint64_t, Refusal>> epitaphs_;
  bool lateRanks_ = false;
};

// "rank 2", "ranks 2, 5-7": at most a few hundred bytes, then "and N more".
std::string describeRanks(std::span<const int> ranks);

}  // namespace stretto::bootstrap
