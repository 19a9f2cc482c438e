#include "session.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "../p2p_pattern.hpp"
#include "net/open.hpp"
#include "net/tcp/settings.hpp"
#include "platform/clock.hpp"

namespace stretto::bench {
namespace {

constexpr char kMagic[16] = "stretto p2p 2";
constexpr uint32_t kMostVariables = 32;
constexpr uint32_t kMostText = 512;
constexpr size_t kMostFootprint = size_t{1} << 30;  // of the buffers of one direction
constexpr const char* kPassedOn = "STRETTO_NET_";
constexpr double kSlowest = 1e6;  // bytes a second that a turn may be as slow as

// Calls `step` until it is true.
template <typename Step>
void until(Step step, double seconds, const char* what) {
  const uint64_t begin = platform::monotonicNanoseconds();
  for (uint32_t calls = 1; !step(); ++calls) {
    if (calls % 1024 == 0 && platform::secondsSince(begin) > seconds) {
      throw Failure(std::string(what) + ": took more than " + std::to_string(int(seconds)) + " s");
    }
  }
}

void putText(Control& control, const std::string& text) {
  control.put(static_cast<uint32_t>(text.size()));
  control.write(text.data(), text.size());
}
std::string getText(Control& control) {
  const auto size = control.get<uint32_t>();
  if (size > kMostText) throw Failure("the other side said something too long");
  std::string text(size, 0);
  control.read(text.data(), size);
  return text;
}

void expectSane(const Order& order) {
  const bool sane = order.bytes > 0 && order.bytes <= kMostBytes && order.count > 0 &&
                    order.count <= kMostMessages && order.inFlight > 0 && order.inFlight <= kMostInFlight &&
                    order.bytes * order.inFlight <= kMostFootprint;
  if (!sane) {
    throw Failure(
        "a turn of up to 1048576 messages of 1 byte to 1 GB, with up to 32 and 1 GB in flight, is what can "
        "be");
  }
}

// Sockets of a plain end say first which they are, as they may be accepted in any order.
std::vector<FileDescriptor> acceptAll(const std::vector<FileDescriptor>& listeners, size_t flows) {
  constexpr double kSeconds = 30;
  const uint64_t begin = platform::monotonicNanoseconds();
  std::vector<FileDescriptor> sockets(flows);
  for (size_t accepted = 0; accepted < flows;) {
    FileDescriptor socket;
    const auto come = [&] {
      for (const FileDescriptor& listener : listeners) {
        socket = acceptFrom(listener);
        if (socket.valid()) return true;
      }
      return false;
    };
    until(come, kSeconds - platform::secondsSince(begin), "plain sockets");
    Control greeting(std::move(socket));
    const auto index = greeting.get<uint32_t>(5);
    if (index >= flows || sockets[index].valid()) continue;
    sockets[index] = greeting.release();
    ++accepted;
  }
  return sockets;
}

FileDescriptor connectPlain(const SocketAddress& to, const std::vector<NetworkInterface>& own,
                            uint32_t index) {
  SocketAddress from;
  for (const NetworkInterface& one : own) {
    if (inNetworkOf(one, to)) from = one.address;
  }
  Control greeting(connectTo(to, from));
  greeting.put(index);
  return greeting.release();
}

std::vector<NetworkInterface> ownInterfaces() {
  auto settings = net::tcp::settingsOfEnvironment({});
  check(settings.status(), "network interfaces");
  return std::move(settings.value().interfaces);
}

}  // namespace

bool waitReadable(const FileDescriptor& socket, int seconds) {
  pollfd wanted{socket.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, seconds < 0 ? -1 : seconds * 1000);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

FileDescriptor connectTo(const SocketAddress& address, const SocketAddress& from) {
  FileDescriptor socket = beginConnect(address, from);
  const auto isThere = [&] {
    const int error = socket.valid() ? connectError(socket) : errno;
    if (error != 0) throw Failure("cannot connect to " + toText(address) + ": " + strerror(error));
    return isConnected(socket);
  };
  until(isThere, 30, "connecting");
  return socket;
}

void Control::write(const void* bytes, size_t size, double seconds) {
  const auto* at = static_cast<const char*>(bytes);
  const auto step = [&] {
    if (size == 0) return true;
    const IoSpan piece{const_cast<char*>(at), size};
    const Transfer sent = sendSome(socket_, std::span(&piece, 1));
    if (sent.outcome == IoOutcome::kWouldBlock) return false;
    if (sent.outcome != IoOutcome::kSome) throw Failure("the other side has gone");
    at += sent.bytes;
    return (size -= sent.bytes) == 0;
  };
  until(step, seconds, "the other side does not listen");
}

void Control::read(void* bytes, size_t size, double seconds) {
  auto* at = static_cast<uint8_t*>(bytes);
  const auto step = [&] {
    if (size == 0) return true;
    const Transfer got = receiveSome(socket_, std::span(at, size));
    if (got.outcome == IoOutcome::kWouldBlock) return false;
    if (got.outcome != IoOutcome::kSome) throw Failure("the other side has gone");
    at += got.bytes;
    return (size -= got.bytes) == 0;
  };
  until(step, seconds, "the other side says nothing");
}

void Control::keepAlive() {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket_.get(), level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

bool Control::awaits(int seconds) {
  if (!waitReadable(socket_, seconds)) {
    throw Failure("the other side has asked for nothing for " + std::to_string(seconds) + " s");
  }
  char byte = 0;
  return ::recv(socket_.get(), &byte, 1, MSG_PEEK) == 1;
}

Session::Session(FileDescriptor control, bool answers) : control_(std::move(control)), answers_(answers) {
  char theirs[sizeof kMagic];
  control_.keepAlive();
  control_.write(kMagic, sizeof kMagic, 5);
  control_.read(theirs, sizeof theirs, 5);
  if (memcmp(theirs, kMagic, sizeof kMagic) != 0) throw Failure("that is no `stretto p2p` of this version");
}

Session::~Session() {
  for (const auto& [name, value] : replaced_) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
}

std::string Session::agree(const std::vector<std::string>& variables) {
  control_.put(static_cast<uint32_t>(variables.size()));
  for (const std::string& one : variables) putText(control_, one);
  netName_ = theNet().name();
  return getText(control_);
}

// Who answers works as who asks has it.
void Session::adopt(const std::vector<std::string>& variables) {
  for (const std::string& one : variables) {
    const size_t equals = one.find('=');
    if (one.rfind(kPassedOn, 0) != 0 || equals == std::string::npos) continue;
    const std::string name = one.substr(0, equals);
    const char* const before = getenv(name.c_str());
    replaced_.emplace_back(name, before == nullptr ? "" : before);
    setenv(name.c_str(), one.c_str() + equals + 1, 1);
  }
}

net::Net& Session::theNet() {
  if (net_ == nullptr) {
    auto opened = net::open();
    check(opened.status(), "the net");
    net_ = std::move(opened.value());
    if (net_->devices() == 0) throw Failure("the net has no devices");
  }
  return *net_;
}

uint32_t Session::open(Kind kind, int flows) {
  if (flows < 1 || flows > kMostPlainFlows) throw Failure("1 to 64 flows");
  if (ends_.size() == kMostEnds) throw Failure("64 ends are open, which is all that can be");
  if (!answers_) {
    Order order;
    order.verb = Order::Verb::kOpen;
    order.kind = kind;
    order.flows = flows;
    control_.put(order);
  }
  ends_.push_back(kind == Kind::kNet ? openNet() : openPlain(flows, kind == Kind::kThreads));
  return static_cast<uint32_t>(ends_.size() - 1);
}

std::unique_ptr<End> Session::openNet() {
  auto listener = theNet().listen(0);
  check(listener.status(), "listen");
  control_.put(listener.value()->handle());
  auto connecting = theNet().connect(0, control_.get<net::Handle>());
  check(connecting.status(), "connect");
  std::unique_ptr<net::Sender> sender;
  std::unique_ptr<net::Receiver> receiver;
  const auto whole = [&] {
    if (sender == nullptr) check(connecting.value()->poll(sender), "connect");
    if (receiver == nullptr) check(listener.value()->accept(receiver), "accept");
    return sender != nullptr && receiver != nullptr;
  };
  until(whole, 30, "connecting");
  return std::make_unique<NetEnd>(std::move(sender), std::move(receiver));
}

std::unique_ptr<End> Session::openPlain(int flows, bool hasThreads) {
  const std::vector<NetworkInterface> own = ownInterfaces();
  std::vector<FileDescriptor> sockets;
  if (answers_) {
    std::vector<FileDescriptor> listeners;
    control_.put(static_cast<uint32_t>(own.size()));
    for (const NetworkInterface& one : own) {
      auto listener = listenOn(one.address);
      check(listener.status(), "listen");
      control_.put(boundAddress(listener.value()).value());
      listeners.push_back(std::move(listener.value()));
    }
    sockets = acceptAll(listeners, size_t(flows));
  } else {
    std::vector<SocketAddress> addresses(std::min(control_.get<uint32_t>(), kMostVariables));
    for (SocketAddress& address : addresses) address = control_.get<SocketAddress>();
    if (addresses.empty()) throw Failure("the other side has no network interface");
    for (uint32_t i = 0; i < uint32_t(flows); ++i) {
      sockets.push_back(connectPlain(addresses.at(i % addresses.size()), own, i));
    }
  }
  return std::make_unique<PlainEnd>(std::move(sockets), hasThreads);
}

// Buffers of the turn's shape; what arrives has something else in them before.
void Session::prepare(const Order& order) {
  const size_t bytes = order.bytes;
  const size_t messages = order.inFlight;
  if (out_.size() != messages || out_.front().size() != bytes) {
    out_.assign(messages, std::vector<std::byte>(bytes));
    in_.assign(messages, std::vector<std::byte>(bytes));
  }
  ++turns_;
  for (size_t i = 0; i < messages; ++i)
    MessagePattern(i, turns_, answers_ ? 1 : 0).fill(out_[i].data(), bytes);
  for (std::vector<std::byte>& message : in_) std::fill(message.begin(), message.end(), std::byte{0xa5});
}

uint64_t Session::countWrong(const Order& order) const {
  if (order.way == Way::kThere && !answers_) return 0;
  uint64_t wrong = 0;
  for (size_t i = 0; i < in_.size(); ++i) {
    wrong += MessagePattern(i, turns_, answers_ ? 0 : 1).countWrong(in_[i].data(), in_[i].size());
  }
  return wrong;
}

void Session::exchange(const Order& order, std::vector<double>& halves) {
  End& end = *ends_.at(order.end);
  const double bytes = static_cast<double>(order.bytes) * static_cast<double>(order.count);
  const double seconds = std::min(60 + bytes / kSlowest, kMostSecondsOfTurn);
  const auto take = [&](bool sends, uint64_t count) {
    const std::unique_ptr<Move> move = sends ? end.sending(out_, count) : end.receiving(in_, count);
    until([&] { return move->step(); }, seconds, "a turn");
  };
  if (order.way == Way::kThere) {
    take(!answers_, order.count);
  } else if (order.way == Way::kPingPong) {
    for (uint64_t i = 0; i < order.count; ++i) {
      const uint64_t begin = platform::monotonicNanoseconds();
      take(!answers_, 1);
      take(answers_, 1);
      halves.push_back(platform::secondsSince(begin) * 1e6 / 2);
    }
  } else {
    const std::unique_ptr<Move> there = end.sending(out_, order.count);
    const std::unique_ptr<Move> here = end.receiving(in_, order.count);
    bool sent = false;
    bool received = false;
    const auto step = [&] {
      sent = sent || there->step();
      received = received || here->step();
      return sent && received;
    };
    until(step, seconds, "a turn");
  }
}

Outcome Session::turn(const Order& order) {
  expectSane(order);
  if (order.end >= ends_.size()) throw Failure("there is no such end");
  Outcome outcome;
  if (answers_) {
    prepare(order);
    control_.put(char{1});
    exchange(order, outcome.halves);
    control_.put(char{1});
    control_.put(countWrong(order));
    return outcome;
  }
  control_.put(order);
  prepare(order);
  control_.get<char>(120);
  const uint64_t begin = platform::monotonicNanoseconds();
  exchange(order, outcome.halves);
  control_.get<char>(120);
  outcome.seconds = platform::secondsSince(begin);
  outcome.wrong = control_.get<uint64_t>(120) + countWrong(order);
  return outcome;
}

void Session::answer(int patience) {
  std::vector<std::string> variables(std::min(control_.get<uint32_t>(), kMostVariables));
  for (std::string& one : variables) one = getText(control_);
  adopt(variables);
  netName_ = theNet().name();
  putText(control_, netName_);
  while (control_.awaits(patience)) {
    const auto order = control_.get<Order>();
    if (order.verb == Order::Verb::kOpen) {
      open(order.kind, order.flows);
    } else {
      turn(order);
    }
  }
}

}  // namespace stretto::bench
