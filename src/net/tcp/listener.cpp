#include "net/tcp/listener.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "net/tcp/receiver.hpp"
#include "platform/clock.hpp"
#include "platform/random.hpp"

namespace stretto::net::tcp {
namespace {

constexpr size_t kMostStrangers = 64;
constexpr double kSecondsOfStrangers = 5;
constexpr ptrdiff_t kMostPartial = 64;
constexpr double kSecondsOfPartial = 60;

}  // namespace

Result<std::unique_ptr<Listener>> TcpListener::create(const Settings& settings,
                                                      std::vector<NetworkInterface> interfaces) {
  std::unique_ptr<TcpListener> listener(new TcpListener(settings));
  STRETTO_TRY(listener->listen(std::move(interfaces)));
  return std::unique_ptr<Listener>(std::move(listener));
}

Status TcpListener::listen(std::vector<NetworkInterface> interfaces) {
  STRETTO_TRY(fillRandom(where_.key));
  for (NetworkInterface& interface : interfaces) {
    if (doors_.size() == kMostAddresses) break;
    auto socket = listenOn(interface.address);
    if (!socket.ok()) return socket.status();
    const auto address = boundAddress(socket.value());
    if (!address.ok()) return address.status();
    where_.addresses.push_back(address.value());
    doors_.push_back({std::move(socket.value()), std::move(interface)});
  }
  handle_ = encode(where_);
  return kOkStatus;
}

Status TcpListener::accept(std::unique_ptr<Receiver>& connection) {
  STRETTO_TRY(hear());
  dropLate();
  STRETTO_TRY(admit());
  const auto whole = std::find_if(partial_.begin(), partial_.end(),
                                  [](const Partial& one) { return one.there == one.hello.flows; });
  if (whole == partial_.end()) return kOkStatus;
  connection = std::make_unique<TcpReceiver>(whole->hello, std::move(whole->flows), settings_);
  partial_.erase(whole);
  return kOkStatus;
}

// Those for whom there is no room wait in the kernel's queue: the next may be a peer, and so may any of those
// that are being heard.
Status TcpListener::admit() {
  for (Door& door : doors_) {
    while (strangers_.size() < kMostStrangers) {
      FileDescriptor socket = acceptFrom(door.socket);
      if (!socket.valid()) {
        if (!isShortage(errno))
          break;  // nobody is there, or who was there is gone: accept(2) tells of that, too
        return fail(Code::kSystem, "net/tcp: cannot accept connections at %s: %s",
                    toText(door.interface.address).c_str(), std::strerror(errno));
      }
      const SocketAddress from = peerAddress(socket);
      strangers_.push_back({Answerer(std::move(socket), settings_.encryption), from, door.interface.name});
      strangers_.back().answerer.since = platform::monotonicNanoseconds();
    }
  }
  return kOkStatus;
}

Status TcpListener::hear() {
  for (auto at = strangers_.begin(); at != strangers_.end();) {
    std::string why;
    const Shake state = at->answerer.poll(where_.key, why);
    if (state == Shake::kGoesOn) {
      ++at;
      continue;
    }
    if (state == Shake::kDone) join(*at);
    const std::string who = toText(at->from);
    const bool disagrees = at->answerer.disagrees();
    at = strangers_.erase(at);
    if (disagrees) {
      return fail(Code::kInvalidUsage, "net/tcp: no connection from the peer at %s: %s", who.c_str(),
                  why.c_str());
    }
    if (state == Shake::kFailed && !why.empty()) sayDropped(who, why);
  }
  return kOkStatus;
}

// One that holds the handle. What it says may still be wrong.
void TcpListener::join(Stranger& stranger) {
  const Hello& hello = stranger.answerer.hello();
  auto at = std::find_if(partial_.begin(), partial_.end(),
                         [&](const Partial& one) { return one.hello.connection == hello.connection; });
  if (at == partial_.end()) {
    const auto open = std::count_if(partial_.begin(), partial_.end(),
                                    [](const Partial& one) { return one.there < one.hello.flows; });
    if (open >= kMostPartial) return sayDropped(toText(stranger.from), "too many connections");
    partial_.push_back({hello, platform::monotonicNanoseconds(), {}, 0});
    at = std::prev(partial_.end());
    at->flows.resize(hello.flows);
  }
  const Hello& first = at->hello;
  if (hello.flows != first.flows || hello.chunk != first.chunk || hello.small != first.small ||
      hello.copied != first.copied) {
    return sayDropped(toText(stranger.from), "it says another thing of its connection than before");
  }
  if (!stranger.answerer.admit()) return sayDropped(toText(stranger.from), "it closed before it was taken");
  Joined& flow = at->flows[hello.flow];
  if (!flow.stream.valid()) ++at->there;
  ByteStream stream = stranger.answerer.take();
  std::string route = routeOf(stream.socket(), stranger.interface, stranger.from);
  flow = {std::move(stream), std::move(route)};
}

void TcpListener::dropLate() {
  while (!strangers_.empty() &&
         platform::secondsSince(strangers_.front().answerer.since) > kSecondsOfStrangers) {
    sayDropped(toText(strangers_.front().from), "it proved nothing for too long");
    strangers_.pop_front();
  }
  std::erase_if(partial_, [](const Partial& one) {
    return one.there < one.hello.flows && platform::secondsSince(one.since) > kSecondsOfPartial;
  });
}

// Once: who scans ports could fill the log otherwise.
void TcpListener::sayDropped(const std::string& who, const std::string& why) {
  if (saidDropped_) return;
  saidDropped_ = true;
  STRETTO_LOG(kWarn, kNet,
              "net/tcp: dropped a connection from %s that is none of this job's: %s; others "
              "like it are dropped without a word",
              who.c_str(), why.c_str());
}

}  // namespace stretto::net::tcp
