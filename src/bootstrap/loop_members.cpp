// The members' ends of connections: how a member comes to its hosts, what it sends to them, how it leaves.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bootstrap/loop.hpp"

namespace stretto::bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxRetryShift = 8;  // 1, 2, 4 … 256 ms
// Between the join and the connections to further hosts: communicators that live no longer do without.
constexpr auto kSettleTime = milliseconds(5);
constexpr auto kPartingTime = milliseconds(1000);  // for hosts that are still to be told a goodbye
constexpr auto kVouchTime = milliseconds(500);     // after which who has said it waits no longer
constexpr size_t kMaxBacklog = size_t{1} << 20;    // queued for a host that does not read
constexpr size_t kPartsKept = 2;                   // gathering.hpp says why that is enough

}  // namespace

// --- coming ------------------------------------------------------------------------------------------------

void Loop::enter(const Link& link) {
  HostLink rendezvous;
  rendezvous.address = link->where.address;
  link->hosting.hosts.push_back(rendezvous);
  connect(link, 0);
}

void Loop::connect(const Link& link, uint64_t process) {
  HostLink* host = link->hosting.byProcess(process);
  if (host == nullptr || link->hosting.over || shuttingDown_) {
    return;
  }
  FileDescriptor socket = beginConnect(host->address);
  if (!socket.valid()) {
    unreachable(link, process, errno);
    return;
  }
  Nonce nonce;
  const uint64_t token = nextToken_++;
  auto connection = std::make_unique<Connection>(token, std::move(socket), dirty_);
  if (!freshNonce(nonce) || !poller_.add(connection->socket(), token, Poller::For::kBoth).ok()) {
    link->refused({Code::kSystem, -1, lastError()});
    if (process != 0) retryLater(link, process);
    return;
  }
  auto dialogue = std::make_unique<MemberDialogue>(link, *connection, heard_, nonce, process);
  connection->member = dialogue.get();
  connection->dialogue = std::move(dialogue);
  connection->link = link;
  connection->connecting = true;
  connection->watchedForWriting = true;
  host->connection = token;
  ++clients_;
  connections_.emplace(token, std::move(connection));
}

void Loop::unreachable(const Link& link, uint64_t process, int error) {
  const SocketAddress address =
      process == 0 ? link->where.address : link->hosting.byProcess(process)->address;
  if (process == 0) {
    const char* hint =
        error == ECONNREFUSED
            ? ": the process that made this unique id has ended, has given up the communicator "
              "a while ago, or is on another host or in another network namespace"
            : "";
    link->hosting.forget(process);
    link->refused(
        {error == ECONNREFUSED || error == ECONNRESET ? Code::kRemote : Code::kSystem, -1,
         "no connection to the rendezvous at " + toText(address) + ": " + std::strerror(error) + hint});
    unsettle(link);
    return;
  }
  if (error != ECONNREFUSED) {
    retryLater(link, process);
    return;
  }
  link->hosting.forget(process);
  suspect(link, process, "its process has ended: nobody listens at " + toText(address) + " any more");
}

void Loop::retryLater(const Link& link, uint64_t process) {
  HostLink* host = link->hosting.byProcess(process);
  host->connection = 0;
  const auto delay = milliseconds(1 << std::min(host->attempts++, kMaxRetryShift));
  ++clients_;
  at(Clock::now() + delay, [link, process](Loop& loop) {
    --loop.clients_;
    if (process == 0 || link->isPeopled(process)) {
      loop.connect(link, process);
      return;
    }
    link->hosting.forget(process);  // nobody is there who could host
    loop.unsettle(link);
  });
}

void Loop::afterReading(Connection& connection) {
  const Link link = connection.link;
  Hosting& hosting = link->hosting;
  if (HostLink* host = hosting.byConnection(connection.token()); host != nullptr && !hosting.parting) {
    if (connection.member->isMember() && !host->member) seated(link, *host, connection);
    if (connection.finishing() && host->member) {  // it has said that it leaves
      host->member = false;
      hosting.ready = hosting.succession = true;
    }
  }
  if (hosting.parting != nullptr) {
    if (!connection.finishing()) part(connection);
    if (connection.member->acknowledged()) partingDone(link);
  }
  if (hosting.departures.size() > hosting.passedOn || !hosting.suspects.empty()) unsettle(link);
  contributeDue(*link);
}

// A host counts the member in, and all have joined.
void Loop::seated(const Link& link, HostLink& host, Connection& connection) {
  Hosting& hosting = link->hosting;
  host.member = true;
  host.process = connection.member->host().process;
  if (!hosting.registered) {
    hosting.registered = true;
    joined_.emplace(link->where.session, link);
    const auto elsewhere = [&](const MemberInfo& who) { return who.process != host.process; };
    if (std::any_of(link->members().begin(), link->members().end(), elsewhere)) {
      hosting.settling = at(Clock::now() + kSettleTime, [waiting = std::weak_ptr(link)](Loop& loop) {
        const Link settled = waiting.lock();
        if (settled == nullptr) return;
        settled->hosting.ready = true;
        loop.unsettle(settled);
      });
    }
    return;
  }
  testifyTo(*link, connection, false);
  catchUp(*link, host, connection);
  if (host.process == host_.process) startPatrol(link->where.session);
}

// Tells a host whom this member knows to be gone.
void Loop::testifyTo(ClientLink& link, Connection& connection, bool firsthandOnly) {
  for (const Departure& gone : link.hosting.departures) {
    if (firsthandOnly && !gone.firsthand) continue;
    const MemberInfo& who = link.members()[static_cast<size_t>(gone.rank)];
    const auto rank = static_cast<uint32_t>(gone.rank);
    connection.send(gone.left ? encode(Left{rank, gone.exchanges})
                              : encode(Lost{rank, gone.kind, who.pid, who.host, gone.text}));
  }
}

// Sends what a host has not been sent of all that still matters to it.
void Loop::catchUp(ClientLink& link, HostLink& host, Connection& connection) {
  host.behind = false;
  for (const auto& [sequence, part] : link.hosting.parts) {
    if (sequence < host.nextExchange) continue;
    host.nextExchange = uint64_t{sequence} + 1;
    connection.send(part);
  }
  if (link.hosting.nudge != nullptr) connection.send(link.hosting.nudge);
}

Loop::Link Loop::localLink(uint64_t session) const {
  const auto found = joined_.find(session);
  return found == joined_.end() ? nullptr : found->second;
}

std::optional<Testimony> Loop::testify(uint64_t session) const {
  const Link link = localLink(session);
  if (link == nullptr) {
    return std::nullopt;
  }
  return Testimony{{link->where.secret, link->where.encryption}, link->members(), link->hosting.departures};
}

void Loop::hear(uint64_t session, const Departure& departure) {
  const auto [first, last] = joined_.equal_range(session);
  for (auto member = first; member != last && !shuttingDown_; ++member) {
    ClientLink& link = *member->second;
    const MemberInfo& who = link.members()[static_cast<size_t>(departure.rank)];
    if (departure.left) {
      link.peerLeft({static_cast<uint32_t>(who.rank), departure.exchanges});
    } else {
      link.peerLost(Lost{static_cast<uint32_t>(who.rank), departure.kind, who.pid, who.host, departure.text});
    }
    std::vector<Departure>& known = link.hosting.departures;
    if (!known.empty() && known.back().rank == who.rank) known.back().firsthand = true;
    unsettle(member->second);
  }
}

// --- sending -----------------------------------------------------------------------------------------------

void Loop::ask(ClientLink& link, QueryKind kind) {
  const SharedBytes query = encodeQuery(kind);
  for (const HostLink& host : link.hosting.hosts) {
    Connection* connection = find(host.connection);
    if (connection != nullptr && connection->member->trusted()) connection->send(query);
  }
}

// Members are in step (gathering.hpp), also those that no caller waits for.
void Loop::contribute(ClientLink& link, uint32_t sequence, const SharedBytes& part) {
  link.hosting.partsDue.emplace_back(sequence, part);
  contributeDue(link);
}

void Loop::contributeDue(ClientLink& link) {
  std::deque<std::pair<uint32_t, SharedBytes>>& due = link.hosting.partsDue;
  if (due.empty() || due.front().first > link.resultsSeen()) return;
  send(link, due.front().first, due.front().second);
  due.pop_front();
}

void Loop::send(ClientLink& link, uint32_t sequence, const SharedBytes& part) {
  Hosting& hosting = link.hosting;
  hosting.parts.emplace_back(sequence, part);
  if (hosting.parts.size() > kPartsKept) hosting.parts.pop_front();
  for (HostLink& host : hosting.hosts) {
    Connection* connection = find(host.connection);
    if (connection == nullptr || !host.member) continue;
    host.behind = host.behind || connection->queued() > kMaxBacklog;
    if (host.behind) continue;
    connection->send(part);
    host.nextExchange = uint64_t{sequence} + 1;
  }
}

void Loop::nudge(ClientLink& link, const Bytes& message) {
  const SharedBytes frame =
      encode(Nudge{static_cast<uint32_t>(link.self.rank), ++link.hosting.nudges, message});
  link.hosting.nudge = frame;
  for (HostLink& host : link.hosting.hosts) {
    Connection* connection = find(host.connection);
    if (connection == nullptr || !host.member) continue;
    host.behind = host.behind || connection->queued() > kMaxBacklog;
    if (!host.behind) connection->send(frame);
  }
}

// --- leaving -----------------------------------------------------------------------------------------------

// The goodbye goes to all hosts, and to those that are just being found, before any connection ends: so
// nobody can see one close and not have been told. It is done when the first host has passed it on.
void Loop::farewell(const Link& link, Goodbye goodbye) {
  Hosting& hosting = link->hosting;
  if (!hosting.parts.empty()) goodbye.exchanges = hosting.parts.back().first + 1;
  hosting.parting = encode(goodbye);
  if (link->isJoined()) {
    const auto [first, last] = joined_.equal_range(link->where.session);
    const auto mine = std::find_if(first, last, [&](const auto& entry) { return entry.second == link; });
    if (mine != last) joined_.erase(mine);
    link->left();
    // Members of this process hear it without a host: there may be none but one that is stopped.
    if (Session* here = sessions_.find(link->where.session)) {
      here->leaveHere(link->self.rank, goodbye);
    } else {
      hear(link->where.session, departureBy(link->self.rank, goodbye));
    }
  }
  std::vector<uint64_t> tokens;
  for (const HostLink& host : hosting.hosts) tokens.push_back(host.connection);
  // Who aborts while it is about to join joins first, if it is let in soon: else nobody would know of it.
  const bool comes = !link->isJoined() && goodbye.kind == Farewell::kAborted;
  bool owed = false;
  for (const uint64_t token : tokens) {
    Connection* connection = find(token);
    if (connection == nullptr || connection->finishing()) continue;
    part(*connection);
    owed = owed || connection->finishing() || comes;
  }
  if (!owed && !(link->isJoined() && !hosting.hosts.empty())) {
    partingDone(link);
    return;
  }
  unsettle(link);
  at(Clock::now() + kVouchTime, [leaving = std::weak_ptr(link)](Loop&) {
    if (const Link late = leaving.lock()) late->detached();
  });
  hosting.leaving = at(Clock::now() + kPartingTime, [leaving = std::weak_ptr(link)](Loop& loop) {
    if (const Link late = leaving.lock()) loop.partingDone(late);
  });
}

// Says goodbye where the host may count us in.
void Loop::part(Connection& connection) {
  if (!connection.member->mayBeMember()) {
    return;
  }
  ClientLink& link = *connection.link;
  const HostLink* host = link.hosting.byConnection(connection.token());
  if (connection.member->isFurther() && host != nullptr) testifyTo(link, connection, host->member);
  connection.member->farewell();
  connection.send(link.hosting.parting);
  connection.finish();
}

// Those hosts that have the goodbye on its way keep their connections until they have read it.
void Loop::partingDone(const Link& link) {
  Hosting& hosting = link->hosting;
  if (!hosting.over) {
    hosting.over = true;
    cancel(hosting.leaving);
    cancel(hosting.settling);
    link->detached();
  }
  std::vector<uint64_t> useless;
  for (const HostLink& host : hosting.hosts) {
    const Connection* connection = find(host.connection);
    if (connection != nullptr && !connection->finishing()) useless.push_back(host.connection);
  }
  for (const uint64_t token : useless) {
    find(token)->member->farewell();
    close(token, "its owner left");
  }
}

void Loop::memberEndClosed(Connection& connection) {
  const Link link = connection.link;
  Hosting& hosting = link->hosting;
  --clients_;
  HostLink* host = hosting.byConnection(connection.token());
  if (host == nullptr) {
    return;
  }
  const uint64_t process = host->process;
  host->connection = 0;
  host->member = false;
  // A further host that could not vouch for us may do so later.
  const bool inVain = hosting.parting != nullptr && connection.member->isFurther() &&
                      connection.finishing() && !connection.member->acknowledged();
  // Who leaves before it has joined tries no more.
  const bool again = connection.member->wantsRetry() && (hosting.parting == nullptr || link->isJoined());
  if (hosting.over) {
    hosting.forget(process);
  } else if (connection.connectError != 0) {
    unreachable(link, process, connection.connectError);
  } else if (connection.member->foreign()) {
    const std::string place = toText(host->address);
    hosting.forget(process);
    suspect(link, process, "its process has ended: another one listens at " + place);
  } else if (again || inVain) {
    resetOnClose(connection.socket());
    retryLater(link, process);
  } else {
    hosting.forget(process);
    hosting.ready = hosting.succession = true;
  }
  // Its last words may have been that it has passed the goodbye on.
  if (hosting.parting != nullptr && connection.member->acknowledged()) partingDone(link);
  unsettle(link);
}

}  // namespace stretto::bootstrap
