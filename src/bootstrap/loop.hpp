// The background thread behind a process's Service and Memberships: it owns every socket of the control
// plane, the hosted sessions, and the members' ends of connections to sessions hosted here or elsewhere. For
// bootstrap/ only: others use service.hpp and membership.hpp. Other threads reach it by post() alone.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/heard.hpp"
#include "bootstrap/host_dialogue.hpp"
#include "bootstrap/session.hpp"
#include "platform/socket.hpp"

namespace stretto::bootstrap {

class Loop {
 public:
  using Command = std::function<void(Loop&)>;

  // Listening already, not yet running.
  static Result<std::shared_ptr<Loop>> create();

  // Any thread. False when the loop has ended: the command will never run.
  bool post(Command command);
  const SocketAddress& address() const { return address_; }
  const Welcome& host() const { return host_; }
  // How many sessions there were a moment ago.
  size_t hosted() const { return hosted_.load(std::memory_order_relaxed); }

  // The thread's body. Whenever there is nothing to host and nobody to serve it asks `mayRetire`, which
  // answers under a lock that keeps new users away, and returns true if so. After shutDown() it says goodbye
  // to everybody and returns false.
  bool run(const std::function<bool()>& mayRetire);
  // True once nothing is queued; from then on post() is refused. For mayRetire.
  bool endIfQuiet();

  // Commands: on the loop's thread only.
  void shutDown() { shuttingDown_ = true; }
  SessionDirectory& sessions() { return sessions_; }
  void enter(const std::shared_ptr<ClientLink>& link);
  void ask(ClientLink& link, QueryKind kind);
  void contribute(ClientLink& link, uint32_t sequence, const SharedBytes& part);
  void nudge(ClientLink& link, const Bytes& message);
  void farewell(const std::shared_ptr<ClientLink>& link, Goodbye goodbye);

 private:
  static constexpr size_t kMaxStrangers = 128;  // connections that have not proved anything yet

  Loop(Poller poller, FileDescriptor listener, const SocketAddress& address, Welcome host);

  using Link = std::shared_ptr<ClientLink>;

  void drainCommands();
  void handle(const Poller::Event& event);
  void contributeDue(ClientLink& link);
  void send(ClientLink& link, uint32_t sequence, const SharedBytes& part);
  void readFrom(Connection& connection);
  void acceptAll();
  void adopt(FileDescriptor socket);
  void finishConnecting(Connection& connection);
  void trust(Connection& connection);
  void flushDirty();
  void flushOne(Connection& connection);
  void close(uint64_t token, const std::string& why);
  Timer at(Clock::time_point when, Command action);
  void cancel(const Timer& timer) { timers_.erase(timer); }
  void runTimers();
  int millisecondsToNext() const;
  void awaitLateRanks();
  bool quiet() const { return sessions_.size() == 0 && clients_ == 0; }
  void sayFarewells();
  void logDrop(const std::string& why);
  bool freshNonce(Nonce& nonce);
  Connection* find(uint64_t token);

  // The members' ends (loop_members.cpp). A member names its hosts by their processes; 0 is the rendezvous
  // before it has answered.
  void connect(const Link& link, uint64_t process);
  void unreachable(const Link& link, uint64_t process, int error);
  void retryLater(const Link& link, uint64_t process);
  void afterReading(Connection& connection);
  void seated(const Link& link, HostLink& host, Connection& connection);
  void testifyTo(ClientLink& link, Connection& connection, bool firsthandOnly);
  void catchUp(ClientLink& link, HostLink& host, Connection& connection);
  void memberEndClosed(Connection& connection);
  void part(Connection& connection);
  void partingDone(const Link& link);
  void afterParting(Connection& connection);
  Link localLink(uint64_t session) const;
  std::optional<Testimony> testify(uint64_t session) const;
  void hear(uint64_t session, const Departure& departure);

  // The hosts of a member's session (loop_hosts.cpp).
  void unsettle(const Link& link);
  void reviewRestless();
  void review(const Link& link);
  void awaitResults(const Link& link);
  void suspect(const Link& link, uint64_t process, const std::string& why);
  void judge(const Link& link);
  void readAll(ClientLink& link);
  void elect(const Link& link);
  void startPatrol(uint64_t session);
  void patrol(uint64_t session);
  void call(const ClientLink& link, const MemberInfo& who);
  void callEnded(const CallDialogue& dialogue, int error);

  Poller poller_;
  FileDescriptor listener_;
  const SocketAddress address_;
  const Welcome host_;

  std::mutex commandMutex_;
  std::vector<Command> commands_;  // guarded by commandMutex_
  bool ended_ = false;             // guarded by commandMutex_
  std::atomic<size_t> hosted_{0};

  // The rest belongs to the thread.
  SessionDirectory sessions_;
  Heard heard_;  // before the connections, which refer to it
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t nextToken_ = 2;         // of connections and timers; 1 is the listener's
  std::list<uint64_t> strangers_;  // oldest first
  Connection::Dirty dirty_;
  std::map<Timer, Command> timers_;
  size_t clients_ = 0;                              // members' ends, and those that wait to connect again
  std::unordered_multimap<uint64_t, Link> joined_;  // members that have joined and not left, by session
  std::vector<Link> restless_;                      // whose hosts are to be reviewed
  // The sessions whose missing members are called, and the calls: tokens by process.
  std::unordered_map<uint64_t, std::map<uint64_t, uint64_t>> patrols_;
  bool shuttingDown_ = false;
  Clock::time_point dropWindow_{};
  int dropsInWindow_ = 0;
  std::vector<uint8_t> scratch_;
};

}  // namespace stretto::bootstrap
