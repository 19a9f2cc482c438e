// The hosts of a member's session: who they are to be, what follows when one ends, and how a new one finds
// out about members that have not come to it. hosts.hpp has the rules.
#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "bootstrap/loop.hpp"

namespace stretto::bootstrap {
namespace {

using std::chrono::milliseconds;

// What a process that has ended may have said before: its goodbye may be on its way through another host.
constexpr auto kSuspicionTime = milliseconds(50);
constexpr int kPatience = 5;
constexpr auto kResultTime = milliseconds(1000);
// A new host gives its members this long to come before it calls them, and calls again after as long.
constexpr auto kPatrolPause = milliseconds(100);
constexpr size_t kMaxCallsPerPatrol = 32;

}  // namespace

// Reviews come after all that has arrived in one turn.
void Loop::unsettle(const Link& link) {
  if (link->hosting.restless || link->hosting.over) return;
  link->hosting.restless = true;
  restless_.push_back(link);
}

void Loop::reviewRestless() {
  while (!restless_.empty()) {
    const std::vector<Link> links = std::exchange(restless_, {});
    for (const Link& link : links) {
      link->hosting.restless = false;
      review(link);
    }
  }
}

void Loop::review(const Link& link) {
  Hosting& hosting = link->hosting;
  if (hosting.over || shuttingDown_) {
    return;
  }
  if (link->isJoined()) {
    judge(link);
    Session* here = sessions_.find(link->where.session);
    for (; hosting.passedOn < hosting.departures.size(); ++hosting.passedOn) {
      if (here != nullptr) here->learn(hosting.departures[hosting.passedOn]);
    }
    if (hosting.ready) elect(link);
    awaitResults(link);
  }
  if (hosting.parting == nullptr) return;
  const bool nobodyToNotify = link->isJoined() && link->desiredHosts().empty();
  if (nobodyToNotify || (hosting.hosts.empty() && hosting.suspects.empty())) partingDone(link);
}

// A rank took part in an exchange and left, and one host says so before another has sent the result. If no
// host has the result, those who had it have ended: it is given up after a while.
void Loop::awaitResults(const Link& link) {
  if (link->hosting.awaiting || !link->awaitsExchange()) return;
  link->hosting.awaiting = true;
  at(Clock::now() + kResultTime, [waiting = std::weak_ptr(link)](Loop& loop) {
    const Link late = waiting.lock();
    if (late == nullptr) return;
    late->hosting.awaiting = false;
    if (late->awaitsExchange()) late->giveUpExchanges();
    loop.unsettle(late);
  });
}

// --- who has ended -----------------------------------------------------------------------------------------

// Nobody listens where the process did.
void Loop::suspect(const Link& link, uint64_t process, const std::string& why) {
  if (link->hosting.suspected(process)) return;
  // Who leaves only looks for somebody to tell it to.
  const bool leaving = link->hosting.parting != nullptr;
  const Clock::time_point due = Clock::now() + (leaving ? milliseconds(0) : kSuspicionTime);
  link->hosting.suspects.push_back({process, why, due, kPatience});
  link->hosting.ready = true;
  at(due, [link](Loop& loop) { loop.unsettle(link); });
}

// All that the hosts have said so far.
void Loop::readAll(ClientLink& link) {
  std::vector<uint64_t> tokens;
  for (const HostLink& host : link.hosting.hosts) tokens.push_back(host.connection);
  for (const uint64_t token : tokens) {
    Connection* connection = find(token);
    if (connection != nullptr && !connection->connecting) readFrom(*connection);
  }
}

void Loop::judge(const Link& link) {
  std::vector<Suspect>& suspects = link->hosting.suspects;
  const auto nextDue = [&] {
    return std::find_if(suspects.begin(), suspects.end(),
                        [now = Clock::now()](const Suspect& suspect) { return suspect.due <= now; });
  };
  if (link->hosting.parting != nullptr) {
    for (Suspect& suspect : suspects) suspect = {suspect.process, suspect.why, {}, 0};
  }
  while (nextDue() != suspects.end()) {
    readAll(*link);  // more suspects, perhaps, but each connection ends once
    const auto due = nextDue();
    if (due->patience > 0 && !link->hosting.heard() && link->isPeopled(due->process)) {
      --due->patience;
      due->due = Clock::now() + kSuspicionTime;
      at(due->due, [link](Loop& loop) { loop.unsettle(link); });
      continue;
    }
    const Suspect judged = std::move(*due);
    suspects.erase(due);
    if (link->hosting.parting == nullptr) {
      link->processEnded(judged.process, judged.why);
    } else {
      link->writeOff(judged.process);
    }
  }
}

// --- who hosts ---------------------------------------------------------------------------------------------

void Loop::elect(const Link& link) {
  Hosting& hosting = link->hosting;
  for (const size_t first : link->desiredHosts()) {
    const MemberInfo& who = link->members()[first];
    if (hosting.byProcess(who.process) != nullptr || hosting.suspected(who.process)) continue;
    if (hosting.succession) {
      STRETTO_LOG(kInfo, kInit, "rank %d: the process of rank %d (%s, pid %u) hosts the session from now on",
                  link->self.rank, who.rank, who.host.c_str(), who.pid);
    }
    HostLink host;
    host.address = who.service;
    host.process = who.process;
    hosting.hosts.push_back(host);
    connect(link, who.process);
  }
}

// --- who has not come --------------------------------------------------------------------------------------

void Loop::startPatrol(uint64_t session) {
  if (!patrols_.try_emplace(session).second) return;
  at(Clock::now() + kPatrolPause, [session](Loop& loop) { loop.patrol(session); });
}

// Members may have ended after the last host that knew them and before they came to this one. A process is
// called once, and the connection kept: it ends when the process does, or when the process has had enough of
// it.
void Loop::patrol(uint64_t session) {
  const Session* here = sessions_.find(session);
  const Link link = localLink(session);
  const bool needed = here != nullptr && link != nullptr;
  const std::vector<MemberInfo> absent = needed ? here->absentees() : std::vector<MemberInfo>{};
  const auto isAbsent = [&](uint64_t process) {
    return std::any_of(absent.begin(), absent.end(),
                       [&](const MemberInfo& who) { return who.process == process; });
  };
  std::vector<uint64_t> answered;
  for (const auto& [process, token] : patrols_[session]) {
    if (!isAbsent(process)) answered.push_back(token);
  }
  for (const uint64_t token : answered) close(token, "its member has come, or is known to be gone");
  if (absent.empty()) {
    patrols_.erase(session);
    return;
  }
  size_t calls = 0;
  for (const MemberInfo& who : absent) {
    if (patrols_[session].contains(who.process) || calls == kMaxCallsPerPatrol) continue;
    ++calls;
    call(*link, who);
  }
  at(Clock::now() + kPatrolPause, [session](Loop& loop) { loop.patrol(session); });
}

void Loop::call(const ClientLink& link, const MemberInfo& who) {
  const uint64_t session = link.where.session;
  Nonce nonce;
  if (!freshNonce(nonce)) return;
  FileDescriptor socket = beginConnect(who.service);
  const int error = errno;
  const uint64_t token = nextToken_++;
  auto connection = std::make_unique<Connection>(token, std::move(socket), dirty_);
  auto dialogue = std::make_unique<CallDialogue>(*connection, session, link.where.secret, who.process, nonce,
                                                 link.where.encryption.on);
  if (!connection->socket().valid()) {
    callEnded(*dialogue, error);
    return;
  }
  if (!poller_.add(connection->socket(), token, Poller::For::kBoth).ok()) {
    return;
  }
  connection->call = dialogue.get();
  connection->dialogue = std::move(dialogue);
  connection->connecting = true;
  connection->watchedForWriting = true;
  connections_.emplace(token, std::move(connection));
  patrols_[session][who.process] = token;
}

void Loop::callEnded(const CallDialogue& dialogue, int error) {
  if (const auto calls = patrols_.find(dialogue.session()); calls != patrols_.end()) {
    calls->second.erase(dialogue.process());
  }
  if (error != ECONNREFUSED && !dialogue.foreign()) {
    return;
  }
  const auto [first, last] = joined_.equal_range(dialogue.session());
  for (auto member = first; member != last; ++member) {
    suspect(member->second, dialogue.process(),
            dialogue.foreign() ? "its process has ended: another one listens in its place"
                               : "its process has ended: it does not answer any more");
  }
}

}  // namespace stretto::bootstrap
