// What net/tcp does when flows break, peers fall silent or die, and strangers come.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <thread>

#include "harness/captured_log.hpp"
#include "harness/child.hpp"
#include "harness/share.hpp"
#include "harness/watchdog.hpp"
#include "net/drive.hpp"
#include "net/nets.hpp"
#include "net/relay.hpp"
#include "net/tcp/handshake.hpp"

namespace stretto::net::testing {
namespace {

using stretto::testing::CapturedWarnings;
using stretto::testing::isShortened;
using stretto::testing::timesIn;
using stretto::testing::Watchdog;

class TcpFailure : public ::testing::Test {
 protected:
  Watchdog watchdog_{"a test of what fails in net/tcp", 4 * kPatience};
};

// With and without helper threads, which get flows of their own.
class TcpFlowFailure : public TcpFailure, public ::testing::WithParamInterface<int> {
 protected:
  static tcp::Settings flows(int all) {
    tcp::Settings settings = GetParam() == 0 ? manyFlows(all) : withHelpers(all - 1);
    settings.threads = GetParam();
    return settings;
  }
};

INSTANTIATE_TEST_SUITE_P(Threads, TcpFlowFailure, ::testing::Values(0, 2),
                         [](const auto& one) { return std::to_string(one.param); });

// A sender that needs a flow no more notices late that it is gone: more traffic goes until it has.
void expectLost(Pair& pair, size_t flows) {
  EXPECT_TRUE(eventually([&] {
    if (lostOf(pair.sender->flows()) == flows) return true;
    expectAllArrives(pair, trafficOf({100, 300'000}));
    return false;
  }));
}

Traffic mixedTraffic(size_t messages, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<size_t> sizes(messages);
  for (size_t& bytes : sizes) bytes = random() % 3 == 0 ? random() % 4000 : random() % 400'000;
  return trafficOf(sizes);
}

// Every flow in turn is cut once, after as many messages as chance says.
TEST_P(TcpFlowFailure, WhatACutFlowCarriedGoesOverTheOthers) {
  const unsigned step = isShortened() ? 3 : 1;
  for (unsigned seed = 0; seed < 12; seed += step) {
    Relayed relayed(flows(4));
    ASSERT_TRUE(relayed.pair.whole());
    const Traffic traffic = mixedTraffic(60, seed);
    Exchange exchange(relayed.pair, traffic);
    bool cut = false;
    const Status status = exchange.run([&](size_t received) {
      if (!cut && received >= 3 * seed) relayed.relay->cut(seed % 4);
      cut = cut || received >= 3 * seed;
    });
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << lastError();
    EXPECT_EQ(exchange.wrong(), 0u);
    expectLost(relayed.pair, 1);
  }
}

TEST_P(TcpFlowFailure, OneFlowOfFourCarriesItAll) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    Relayed relayed(flows(4));
    ASSERT_TRUE(relayed.pair.whole());
    const Traffic traffic = mixedTraffic(80, seed);
    Exchange exchange(relayed.pair, traffic);
    size_t cuts = 0;
    const Status status = exchange.run([&](size_t received) {
      if (cuts < 3 && received >= 10 * (cuts + 1)) relayed.relay->cut((seed + cuts++) % 4);
    });
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << lastError();
    EXPECT_EQ(exchange.wrong(), 0u);
    expectLost(relayed.pair, 3);
  }
}

TEST_P(TcpFlowFailure, ALostFlowIsSaidInTheLog) {
  Relayed relayed(flows(2));
  ASSERT_TRUE(relayed.pair.whole());
  CapturedWarnings warnings;
  relayed.relay->cut(1);
  expectLost(relayed.pair, 1);
  // Nothing is said until it is known that the other flow stays.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  expectAllArrives(relayed.pair, trafficOf({200'000}));
  const std::string log = warnings.take();
  EXPECT_NE(log.find("a flow is lost, the others go on"), std::string::npos) << log;
  EXPECT_NE(log.find("127.0.0.1:"), std::string::npos) << log;
}

TEST_P(TcpFlowFailure, WithoutAnyFlowBothEndsAreTold) {
  Relayed relayed(flows(3));
  ASSERT_TRUE(relayed.pair.whole());
  const Traffic traffic = mixedTraffic(60, 1);
  Exchange exchange(relayed.pair, traffic);
  bool cut = false;
  const Status status = exchange.run([&](size_t received) {
    for (size_t i = 0; received >= 5 && !cut && i < 3; ++i) relayed.relay->cut(i);
    cut = cut || received >= 5;
  });
  EXPECT_EQ(status.code, Code::kRemote);
  EXPECT_NE(lastError().find("127.0.0.1:"), std::string::npos) << lastError();
  Status sending;
  Status receiving;
  std::vector<std::byte> bytes(1000);
  Request* received = nullptr;
  EXPECT_TRUE(eventually([&] {
    Request* sent = nullptr;
    bool done = false;
    sending = relayed.pair.sender->send(bytes.data(), bytes.size(), 7, nullptr, sent);
    const Receive receive{bytes.data(), bytes.size(), 7, nullptr};
    if (received == nullptr) receiving = relayed.pair.receiver->receive(&receive, 1, received);
    if (receiving.ok() && received != nullptr)
      receiving = relayed.pair.receiver->test(received, done, nullptr);
    if (done) received = nullptr;
    return !sending.ok() && !receiving.ok();
  }));
  EXPECT_EQ(sending.code, Code::kRemote);
  EXPECT_EQ(receiving.code, Code::kRemote);
}

// A process that is stopped, or computes, is no process that is gone: its kernel answers.
TEST_P(TcpFlowFailure, APeerThatStopsReadingIsWaitedFor) {
  for (const int number : {1, 2}) {
    tcp::Settings settings = flows(2);
    settings.silence = 2;
    settings.flows = number;
    const auto net = tcp::open(settings);
    Pair pair = join(*net, *net);
    ASSERT_TRUE(pair.whole());
    std::vector<std::byte> from = patternOf(3, 32 << 20);
    std::vector<std::byte> to(from.size());
    Request* sending = nullptr;
    Request* receiving = nullptr;
    const Receive receive{to.data(), to.size(), 7, nullptr};
    ASSERT_TRUE(pair.receiver->receive(&receive, 1, receiving).ok());
    ASSERT_TRUE(pair.sender->send(from.data(), from.size(), 7, nullptr, sending).ok());
    bool received = false;
    ASSERT_TRUE(pair.receiver->test(receiving, received, nullptr).ok());  // hears that it is asked
    bool sent = false;
    const uint64_t begin = platform::monotonicNanoseconds();
    while (platform::secondsSince(begin) < 3.5) ASSERT_TRUE(pair.sender->test(sending, sent).ok());
    EXPECT_FALSE(sent);
    EXPECT_FALSE(received);
    EXPECT_TRUE(bothDone(pair, sending, receiving));
    EXPECT_EQ(from, to);
    EXPECT_EQ(lostOf(pair.sender->flows()), 0u);
  }
}

TEST_P(TcpFlowFailure, ARelayThatHoldsEverythingLosesNothing) {
  Relayed relayed(flows(4));
  ASSERT_TRUE(relayed.pair.whole());
  const Traffic traffic = mixedTraffic(60, 5);
  Exchange exchange(relayed.pair, traffic);
  uint64_t held = 0;
  const Status status = exchange.run([&](size_t received) {
    if (received >= 10 && held == 0) {
      held = platform::monotonicNanoseconds();
      relayed.relay->hold(true);
    }
    if (held != 0 && platform::secondsSince(held) > 0.5) relayed.relay->hold(false);
  });
  EXPECT_TRUE(status.ok()) << lastError();
  EXPECT_EQ(exchange.wrong(), 0u);
}

FileDescriptor strangerTo(const Handle& handle) {
  tcp::Rendezvous where;
  EXPECT_TRUE(tcp::decode(handle, where));
  FileDescriptor socket = beginConnect(where.addresses.front());
  EXPECT_TRUE(eventually([&] { return isConnected(socket); }));
  return socket;
}

void say(const FileDescriptor& socket, std::span<const uint8_t> bytes) {
  const IoSpan piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  sendSome(socket, std::span(&piece, 1));
}

// Many that say nothing, more than may be heard at a time, and many that talk nonsense.
TEST_F(TcpFailure, StrangersKeepNobodyFromConnecting) {
  CapturedWarnings warnings;
  const auto net = tcp::open(manyFlows(2));
  auto listener = net->listen(0);
  ASSERT_TRUE(listener.ok());
  const Handle handle = listener.value()->handle();
  std::vector<FileDescriptor> strangers;
  std::vector<uint8_t> garbage(5000, 0x5a);
  for (int i = 0; i < 150; ++i) {
    strangers.push_back(strangerTo(handle));
    if (i % 3 == 1) say(strangers.back(), std::span(garbage).first(1 + static_cast<size_t>(i) * 30));
    if (i % 3 == 2) say(strangers.back(), std::span(garbage).first(3));
    std::unique_ptr<Receiver> receiver;
    ASSERT_TRUE(listener.value()->accept(receiver).ok());
    EXPECT_EQ(receiver, nullptr);
  }
  Pair pair = join(*net, std::move(listener.value()), handle);
  expectAllArrives(pair, mixedTraffic(10, 1));
  EXPECT_EQ(timesIn(warnings.take(), "dropped a connection from 127.0.0.1:"), 1u);
}

TEST_F(TcpFailure, WhoComesBehindSilentStrangersHasItsTurn) {
  const auto net = tcp::open(oneFlow());
  auto listener = net->listen(0);
  ASSERT_TRUE(listener.ok());
  const Handle handle = listener.value()->handle();
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(strangerTo(handle));
  Pair pair = join(*net, std::move(listener.value()), handle);
  expectAllArrives(pair, trafficOf({100, 200'000}));
}

// The listener reads the whole handshake and drops the flow: who called is not connected, and comes again.
TEST_F(TcpFailure, WhoIsDroppedAfterItsProofIsNotConnected) {
  const auto net = tcp::open(oneFlow());
  auto listener = listenOn(loopbackAddress());
  ASSERT_TRUE(listener.ok());
  tcp::Rendezvous where;
  where.key[0] = 1;
  where.addresses = {boundAddress(listener.value()).value()};
  auto connecting = net->connect(0, tcp::encode(where));
  ASSERT_TRUE(connecting.ok());
  std::unique_ptr<Sender> sender;
  std::unique_ptr<tcp::Answerer> answerer;
  int proved = 0;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(connecting.value()->poll(sender).ok()) << lastError();
    FileDescriptor came = acceptFrom(listener.value());
    if (came.valid()) answerer = std::make_unique<tcp::Answerer>(std::move(came));
    std::string why;
    if (answerer == nullptr || answerer->poll(where.key, why) != tcp::Shake::kDone) return sender != nullptr;
    EXPECT_EQ(sender, nullptr);
    const bool taken = ++proved == 3;
    EXPECT_TRUE(!taken || answerer->admit());
    if (!taken) answerer.reset();
    return sender != nullptr;
  }));
  EXPECT_EQ(proved, 3);
}

// While there is one, this process gets no descriptor: those below the limit are in use.
class WithoutDescriptors {
 public:
  WithoutDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const FileDescriptor next = FileDescriptor::create([] { return ::dup(STDERR_FILENO); });
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~WithoutDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

// A process that has no descriptor left is told so, and goes on when it has some again.
TEST_F(TcpFailure, AListenerWithoutDescriptorsSaysSo) {
  const auto net = tcp::open(oneFlow());
  auto listener = net->listen(0);
  ASSERT_TRUE(listener.ok());
  const Handle handle = listener.value()->handle();
  const FileDescriptor stranger = strangerTo(handle);
  std::unique_ptr<Receiver> receiver;
  const Status status = [&] {
    const WithoutDescriptors without;
    return listener.value()->accept(receiver);
  }();
  EXPECT_EQ(status.code, Code::kSystem);
  EXPECT_NE(lastError().find("Too many open files"), std::string::npos) << lastError();
  Pair pair = join(*net, std::move(listener.value()), handle);
  expectAllArrives(pair, trafficOf({100}));
}

// Who connects, too: that is not the peer's doing.
TEST_F(TcpFailure, WhoConnectsWithoutDescriptorsSaysSo) {
  tcp::Settings settings = oneFlow();
  settings.attempts = 0.1;
  const auto net = tcp::open(settings);
  auto listener = net->listen(0);
  ASSERT_TRUE(listener.ok());
  auto connecting = net->connect(0, listener.value()->handle());
  ASSERT_TRUE(connecting.ok());
  std::unique_ptr<Sender> sender;
  Status status;
  {
    const WithoutDescriptors without;
    EXPECT_TRUE(eventually([&] { return !(status = connecting.value()->poll(sender)).ok(); }, 20));
  }
  EXPECT_EQ(status.code, Code::kSystem);
  EXPECT_NE(lastError().find("Too many open files"), std::string::npos) << lastError();
}

// More than are heard at a time, all of them before the first accept().
TEST_F(TcpFailure, ManyPeersThatComeAtOnceAllConnect) {
  constexpr size_t kPeers = 80;
  const auto net = tcp::open(oneFlow());
  auto listener = net->listen(0);
  ASSERT_TRUE(listener.ok());
  std::vector<std::unique_ptr<Connecting>> connecting;
  for (size_t i = 0; i < kPeers; ++i) {
    auto one = net->connect(0, listener.value()->handle());
    ASSERT_TRUE(one.ok());
    connecting.push_back(std::move(one.value()));
  }
  std::vector<std::unique_ptr<Sender>> senders(kPeers);
  const auto pollAll = [&] {
    for (size_t i = 0; i < kPeers; ++i) {
      if (senders[i] != nullptr) continue;
      EXPECT_TRUE(connecting[i]->poll(senders[i]).ok()) << lastError();
    }
  };
  for (int i = 0; i < 20; ++i) pollAll();
  std::vector<std::unique_ptr<Receiver>> receivers;
  eventually(
      [&] {
        std::unique_ptr<Receiver> receiver;
        EXPECT_TRUE(listener.value()->accept(receiver).ok()) << lastError();
        if (receiver != nullptr) receivers.push_back(std::move(receiver));
        pollAll();
        return receivers.size() == kPeers;
      },
      20);
  EXPECT_EQ(receivers.size(), kPeers);
  EXPECT_EQ(std::count(senders.begin(), senders.end(), nullptr), 0);
}

TEST_F(TcpFailure, AReplayedHandshakeProvesNothing) {
  Relayed relayed(oneFlow());
  ASSERT_TRUE(relayed.pair.whole());
  expectAllArrives(relayed.pair, trafficOf({100}));
  const std::vector<uint8_t> heard = relayed.relay->begun();
  ASSERT_GT(heard.size(), sizeof(tcp::Hello) + sizeof(tcp::Join));
  FileDescriptor stranger = strangerTo(relayed.pair.listener->handle());
  say(stranger, heard);
  std::unique_ptr<Receiver> receiver;
  bool closed = false;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(relayed.pair.listener->accept(receiver).ok());
    uint8_t answer[256];
    const Transfer got = receiveSome(stranger, std::span<uint8_t>(answer));
    closed = got.outcome == IoOutcome::kClosed || got.outcome == IoOutcome::kFailed;
    return closed || receiver != nullptr;
  }));
  EXPECT_TRUE(closed);
  EXPECT_EQ(receiver, nullptr);
  expectAllArrives(relayed.pair, trafficOf({100, 200'000}));
}

// A listener and what its handle says, which a test changes before it connects by it.
struct Dialled {
  explicit Dialled(Net& theNet) : net(theNet) {
    auto made = net.listen(0);
    EXPECT_TRUE(made.ok() && tcp::decode(made.value()->handle(), where));
    listener = std::move(made.value());
  }
  // Until both ends are there, or the one that connects has given up.
  Status connect() {
    auto connecting = net.connect(0, tcp::encode(where));
    if (!connecting.ok()) return connecting.status();
    Status status;
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(listener->accept(receiver).ok());
      status = connecting.value()->poll(sender);
      return !status.ok() || (sender != nullptr && receiver != nullptr);
    }));
    return status;
  }

  Net& net;
  std::unique_ptr<Listener> listener;
  tcp::Rendezvous where;
  std::unique_ptr<Sender> sender;
  std::unique_ptr<Receiver> receiver;
};

TEST_F(TcpFailure, AListenerThatDoesNotKnowTheKeyIsRefused) {
  const auto net = tcp::open(oneFlow());
  Dialled dialled(*net);
  dialled.where.key[0] ^= 1;
  EXPECT_EQ(dialled.connect().code, Code::kRemote);
  EXPECT_EQ(dialled.receiver, nullptr);
}

// A host may have addresses that the peer cannot reach: one that is refused, and one where nothing answers,
// as that of a listener whose queue is full. All flows go over the one that can be reached.
TEST_F(TcpFailure, AddressesThatCannotBeReachedCostNoConnection) {
  const auto net = tcp::open(oneFlow());
  Dialled dialled(*net);
  const SocketAddress good = dialled.where.addresses.front();
  auto refusing = listenOn(loopbackAddress());
  auto silent = listenOn(loopbackAddress());
  ASSERT_TRUE(refusing.ok() && silent.ok());
  const SocketAddress refused = boundAddress(refusing.value()).value();
  const SocketAddress unanswered = boundAddress(silent.value()).value();
  refusing.value().reset();
  ASSERT_EQ(::listen(silent.value().get(), 0), 0);
  const FileDescriptor filling[] = {beginConnect(unanswered, {}), beginConnect(unanswered, {})};
  dialled.where.addresses = {unanswered, refused, good};
  ASSERT_TRUE(dialled.connect().ok()) << lastError();
  ASSERT_TRUE(dialled.sender != nullptr && dialled.receiver != nullptr);
  EXPECT_EQ(dialled.sender->flows().size(), 3u);
}

// Addresses of bridges are those of several hosts: somebody else may listen there, who waits for more. A peer
// that does not answer is one that has much to do, if it has no other address.
TEST_F(TcpFailure, WhoNeverAnswersAtAnAddressCostsNoConnection) {
  const auto net = tcp::open(oneFlow());
  Dialled dialled(*net);
  auto silent = listenOn(loopbackAddress());
  ASSERT_TRUE(silent.ok());
  dialled.where.addresses.insert(dialled.where.addresses.begin(), boundAddress(silent.value()).value());
  ASSERT_TRUE(dialled.connect().ok()) << lastError();
  ASSERT_TRUE(dialled.sender != nullptr && dialled.receiver != nullptr);
  EXPECT_EQ(dialled.sender->flows().size(), 2u);
}

TEST_F(TcpFailure, NobodyListensForLong) {
  tcp::Settings settings = oneFlow();
  settings.attempts = 0.3;
  const auto net = tcp::open(settings);
  Handle handle;
  {
    auto listener = net->listen(0);
    ASSERT_TRUE(listener.ok());
    handle = listener.value()->handle();
  }
  auto connecting = net->connect(0, handle);
  ASSERT_TRUE(connecting.ok());
  std::unique_ptr<Sender> sender;
  Status status;
  EXPECT_TRUE(eventually([&] { return !(status = connecting.value()->poll(sender)).ok(); }));
  EXPECT_EQ(status.code, Code::kRemote);
  EXPECT_FALSE(net->connect(0, Handle{}).ok());
}

// Loopback of a network namespace of its own, whose packets can be made to vanish. False if the kernel, or
// who runs the test, does not allow it.
bool enterOwnNetwork() {
  return ::unshare(CLONE_NEWNET) == 0 && ::system("ip link set lo up 2>/dev/null") == 0 &&
         ::system("tc -V >/dev/null 2>&1") == 0;
}
bool loseAllPackets() {
  return ::system("tc qdisc replace dev lo root blackhole 2>/dev/null") == 0;
}

constexpr int kNotAllowed = 77;

// Until both ends have said that the other is gone, which takes less than `most` seconds; with `underWay`,
// while a message is on its way. They are tested every `pause` milliseconds.
int noticeSilence(const tcp::Settings& settings, bool underWay, int pause, double most) {
  if (!enterOwnNetwork()) return kNotAllowed;
  const auto net = tcp::open(settings);
  Pair pair = join(*net, *net);
  if (!pair.whole()) return 1;
  if (!loseAllPackets()) return kNotAllowed;
  std::vector<std::byte> bytes(1 << 20);
  Request* sending = nullptr;
  Request* receiving = nullptr;
  const Receive receive{bytes.data(), bytes.size(), 7, nullptr};
  if (!pair.receiver->receive(&receive, 1, receiving).ok()) return 1;
  if (underWay && !pair.sender->send(bytes.data(), bytes.size(), 7, nullptr, sending).ok()) return 1;
  Status sent;
  Status received;
  const uint64_t begin = platform::monotonicNanoseconds();
  const bool told = eventually([&] {
    bool done = false;
    if (underWay && sent.ok()) sent = pair.sender->test(sending, done);
    if (received.ok()) received = pair.receiver->test(receiving, done, nullptr);
    // Who has much else to do tests seldom.
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    return !received.ok() && (!underWay || !sent.ok());
  });
  const double seconds = platform::secondsSince(begin);
  const bool remote = received.code == Code::kRemote && (!underWay || sent.code == Code::kRemote);
  return told && remote && seconds > 1 && seconds < most ? 0 : 1;
}

// A suite of its own, since it has processes.
TEST(TcpSilence, APeerThatFallsSilentIsGone) {
  tcp::Settings settings = oneFlow();
  settings.silence = 2;
  for (const bool underWay : {false, true}) {
    for (const int pause : {0, 50}) {
      const int result =
          stretto::testing::inChild([&] { return noticeSilence(settings, underWay, pause, 20); });
      if (result == kNotAllowed) {
        GTEST_SKIP() << "no network namespace, or no blackhole in it, can be had here";
      }
      EXPECT_EQ(result, 0) << underWay << " " << pause;
    }
  }
}

// As it comes: where the machine lets both ends run when they are due, which it does in one of three tries.
TEST(TcpSilence, IsToldOfWithinFiveSeconds) {
  for (const bool underWay : {false, true}) {
    int result = 1;
    for (int tries = 0; tries < 3 && result == 1; ++tries)
      result = stretto::testing::inChild([&] { return noticeSilence(oneFlow(), underWay, 1, 5); });
    if (result == kNotAllowed) {
      GTEST_SKIP() << "no network namespace, or no blackhole in it, can be had here";
    }
    EXPECT_EQ(result, 0) << underWay;
  }
}

TEST_F(TcpFailure, CountsWhatFlowsDo) {
  const auto net = tcp::open(twoInterfaces());
  Pair pair = join(*net, *net);
  expectAllArrives(pair, trafficOf({100, 1 << 20}));
  const auto out = pair.sender->flows();
  const auto in = pair.receiver->flows();
  ASSERT_EQ(out.size(), 2u);
  ASSERT_EQ(in.size(), 2u);
  EXPECT_EQ(out[0].bytes + out[1].bytes, (1u << 20) + 100);
  EXPECT_EQ(in[0].bytes + in[1].bytes, (1u << 20) + 100);
  EXPECT_GT(out[0].bytes, 0u);
  EXPECT_GT(out[1].bytes, 0u);
  EXPECT_NE(out[1].route.find("lo2 127.0.0.2:"), std::string::npos) << out[1].route;
}

}  // namespace
}  // namespace stretto::net::testing
