#include "bootstrap/loop.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/os.hpp"
#include "base/parameters.hpp"
#include "platform/network_interface.hpp"
#include "platform/random.hpp"

namespace stretto::bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kListenerToken = 1;
constexpr size_t kScratchBytes = 256 << 10;
constexpr int kAcceptsPerTurn = 64;
constexpr auto kHandshakeTime = milliseconds(5000);
constexpr auto kLateTime = milliseconds(3000);     // how long ranks may come after the others have given up
constexpr auto kDrainTime = milliseconds(1000);    // how long a finished connection may linger
constexpr auto kAcceptPause = milliseconds(100);   // when no descriptor is left
constexpr auto kFarewellTime = milliseconds(300);  // at the process's exit
constexpr int kDropLinesPerSecond = 10;

// Over loopback, unless the user names a network interface: nobody listens to a network unasked.
Result<SocketAddress> addressToListenOn() {
  if (!parameters::kSocketInterface.isSet()) return loopbackAddress();
  return interfaceAddress(parameters::kSocketInterface.text());
}

Result<Welcome> describeThisProcess() {
  Welcome host;
  host.pid = static_cast<uint32_t>(os::processId());
  STRETTO_TRY(fillRandom(std::span(reinterpret_cast<uint8_t*>(&host.process), sizeof host.process)));
  char name[kMaxNameBytes + 1] = "";
  os::hostName(name, sizeof name);
  host.host = name;
  return host;
}

}  // namespace

Loop::Loop(Poller poller, FileDescriptor listener, const SocketAddress& address, Welcome host)
    : poller_(std::move(poller)),
      listener_(std::move(listener)),
      address_(address),
      host_(std::move(host)),
      sessions_(
          host_, [this](uint64_t session) { return testify(session); },
          [this](uint64_t session, const Departure& departure) { hear(session, departure); }),
      scratch_(kScratchBytes) {}

Result<std::shared_ptr<Loop>> Loop::create() {
  Result<Poller> poller = Poller::create();
  STRETTO_TRY(poller.status());
  const Result<SocketAddress> wanted = addressToListenOn();
  STRETTO_TRY(wanted.status());
  Result<FileDescriptor> listener = listenOn(wanted.value());
  STRETTO_TRY(listener.status());
  const Result<SocketAddress> address = boundAddress(listener.value());
  STRETTO_TRY(address.status());
  Result<Welcome> host = describeThisProcess();
  STRETTO_TRY(host.status());
  STRETTO_TRY(poller.value().add(listener.value(), kListenerToken, Poller::For::kReading));
  return std::shared_ptr<Loop>(new Loop(std::move(poller.value()), std::move(listener.value()),
                                        address.value(), std::move(host.value())));
}

bool Loop::post(Command command) {
  bool first = false;
  {
    std::lock_guard lock(commandMutex_);
    if (ended_) return false;
    first = commands_.empty();
    commands_.push_back(std::move(command));
  }
  if (first) poller_.wake();
  return true;
}

bool Loop::endIfQuiet() {
  std::lock_guard lock(commandMutex_);
  ended_ = commands_.empty();
  return ended_;
}

void Loop::drainCommands() {
  std::vector<Command> commands;
  {
    std::lock_guard lock(commandMutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) {
    command(*this);
  }
}

bool Loop::run(const std::function<bool()>& mayRetire) {
  Poller::Event events[64];
  while (true) {
    flushDirty();
    hosted_.store(sessions_.size(), std::memory_order_relaxed);
    if (shuttingDown_) break;
    awaitLateRanks();
    if (quiet() && mayRetire()) return true;
    const size_t count = poller_.wait(events, millisecondsToNext());
    drainCommands();
    for (size_t i = 0; i < count; ++i) {
      handle(events[i]);
    }
    runTimers();
    reviewRestless();
  }
  sayFarewells();
  std::lock_guard lock(commandMutex_);
  ended_ = true;
  commands_.clear();
  return false;
}

// Who comes late to a communicator that has failed is told why, by the process that made its id.
void Loop::awaitLateRanks() {
  if (!sessions_.takeLateRanks()) return;
  ++clients_;
  at(Clock::now() + kLateTime, [](Loop& loop) { --loop.clients_; });
}

Connection* Loop::find(uint64_t token) {
  const auto found = connections_.find(token);
  return found == connections_.end() ? nullptr : found->second.get();
}

void Loop::handle(const Poller::Event& event) {
  if (event.tag == kListenerToken) {
    acceptAll();
    return;
  }
  Connection* connection = find(event.tag);
  if (connection == nullptr) {
    return;  // closed earlier in this turn
  }
  if (connection->connecting) {
    finishConnecting(*connection);
    return;
  }
  if (event.writable) flushOne(*connection);
  if (event.readable) readFrom(*connection);
}

void Loop::readFrom(Connection& connection) {
  if (connection.pull(scratch_) == Connection::Pull::kEnded) {
    close(connection.token(), connection.why());
    return;
  }
  if (connection.isStranger && connection.dialogue->trusted()) trust(connection);
  if (connection.link) afterReading(connection);
}

void Loop::finishConnecting(Connection& connection) {
  const int error = connectError(connection.socket());
  if (error == 0) {
    connection.connecting = false;
    if (connection.call != nullptr) {
      connection.call->open();
    } else {
      connection.member->open();
    }
    return;
  }
  connection.connectError = error;
  if (connection.member != nullptr) connection.member->farewell();
  close(connection.token(), std::strerror(error));
}

// --- strangers ------------------------------------------------------------------------------------------

void Loop::acceptAll() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    FileDescriptor socket = acceptFrom(listener_);
    if (socket.valid()) {
      adopt(std::move(socket));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      STRETTO_LOG(kWarn, kInit, "bootstrap: cannot accept a connection for the moment: %s",
                  std::strerror(errno));
      poller_.change(listener_, kListenerToken, Poller::For::kNothing);
      at(Clock::now() + kAcceptPause,
         [](Loop& loop) { loop.poller_.change(loop.listener_, kListenerToken, Poller::For::kReading); });
      return;
    }
    if (errno != EINTR && errno != ECONNABORTED) return;
  }
}

void Loop::adopt(FileDescriptor socket) {
  if (strangers_.size() >= kMaxStrangers) {
    close(strangers_.front(), "too many connections wait for their handshake, and it is the oldest");
  }
  Nonce nonce;
  if (!freshNonce(nonce)) {
    return;
  }
  const uint64_t token = nextToken_++;
  auto connection = std::make_unique<Connection>(token, std::move(socket), dirty_);
  connection->dialogue = std::make_unique<HostDialogue>(sessions_, *connection, nonce);
  if (!poller_.add(connection->socket(), token, Poller::For::kReading).ok()) {
    return;
  }
  connection->deadline = Clock::now() + kHandshakeTime;
  connection->stranger = strangers_.insert(strangers_.end(), token);
  connection->isStranger = true;
  connections_.emplace(token, std::move(connection));
}

void Loop::trust(Connection& connection) {
  strangers_.erase(connection.stranger);
  connection.isStranger = false;
}

bool Loop::freshNonce(Nonce& nonce) {
  return fillRandom(nonce).ok();
}

void Loop::logDrop(const std::string& why) {
  const Clock::time_point now = Clock::now();
  if (now - dropWindow_ >= std::chrono::seconds(1)) {
    if (dropsInWindow_ > kDropLinesPerSecond) {
      STRETTO_LOG(kInfo, kInit, "bootstrap: dropped %d more connections",
                  dropsInWindow_ - kDropLinesPerSecond);
    }
    dropWindow_ = now;
    dropsInWindow_ = 0;
  }
  if (++dropsInWindow_ <= kDropLinesPerSecond) {
    STRETTO_LOG(kInfo, kInit, "bootstrap: dropped a connection that is not ours: %s", why.c_str());
  }
}

// --- all connections
// ----------------------------------------------------------------------------------------

void Loop::flushDirty() {
  for (size_t i = 0; i < dirty_.size(); ++i) {  // grows while we go
    Connection* connection = find(dirty_[i]);
    if (connection == nullptr) continue;
    connection->clearDirty();
    flushOne(*connection);
  }
  dirty_.clear();
}

void Loop::flushOne(Connection& connection) {
  if (connection.connecting) {
    return;
  }
  connection.flush();
  const bool more = !connection.flushed();
  if (!more && connection.link) {
    HostLink* host = connection.link->hosting.byConnection(connection.token());
    if (host != nullptr && host->behind) catchUp(*connection.link, *host, connection);
  }
  if (more != connection.watchedForWriting) {
    connection.watchedForWriting = more;
    poller_.change(connection.socket(), connection.token(),
                   more ? Poller::For::kBoth : Poller::For::kReading);
  }
  if (!connection.finishing()) {
    return;
  }
  if (connection.drain == Timer{}) {
    connection.drain = at(Clock::now() + kDrainTime,
                          [token = connection.token()](Loop& loop) { loop.close(token, "it lingered"); });
  }
}

void Loop::close(uint64_t token, const std::string& why) {
  const auto found = connections_.find(token);
  if (found == connections_.end()) {
    return;
  }
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  poller_.remove(connection->socket());
  cancel(connection->drain);
  if (connection->isStranger) {
    strangers_.erase(connection->stranger);
    if (!connection->finishing()) logDrop(why);
  }
  connection->dialogue->onClosed(why);
  if (connection->link) memberEndClosed(*connection);
  if (connection->call != nullptr) callEnded(*connection->call, connection->connectError);
}

Timer Loop::at(Clock::time_point when, Command action) {
  const Timer timer{when, nextToken_++};
  timers_.emplace(timer, std::move(action));
  return timer;
}

void Loop::runTimers() {
  const Clock::time_point now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const Command action = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    action(*this);
  }
  while (!strangers_.empty()) {
    const Connection* oldest = find(strangers_.front());
    if (oldest == nullptr || oldest->deadline > now) return;
    close(strangers_.front(), "it did not finish its handshake in time");
  }
}

int Loop::millisecondsToNext() const {
  Clock::time_point next = Clock::time_point::max();
  if (!timers_.empty()) next = timers_.begin()->first.first;
  if (!strangers_.empty()) next = std::min(next, connections_.at(strangers_.front())->deadline);
  if (next == Clock::time_point::max()) {
    return -1;
  }
  const auto left = std::chrono::ceil<milliseconds>(next - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
}

void Loop::sayFarewells() {
  sessions_.hostExits();
  for (const auto& [token, connection] : connections_) {
    if (connection->member != nullptr && connection->member->mayBeMember()) {
      connection->member->farewell();
      connection->send(encode(Goodbye{Farewell::kExited, ""}));
    }
    connection->finish();
  }
  const Clock::time_point deadline = Clock::now() + kFarewellTime;
  Poller::Event events[64];
  for (bool pending = true; pending && Clock::now() < deadline;) {
    pending = false;
    for (const auto& [token, connection] : connections_) {
      flushOne(*connection);
      pending = pending || !connection->flushed();
    }
    if (pending) poller_.wait(events, 1);
  }
  for (const auto& [token, connection] : connections_) {
    while (receiveSome(connection->socket(), scratch_).outcome == IoOutcome::kSome) {
    }
    if (connection->link) connection->link->orphaned();
  }
  connections_.clear();
}

}  // namespace stretto::bootstrap
