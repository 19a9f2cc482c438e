#include "platform/socket.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "harness/watchdog.hpp"
#include "platform/connected_pair.hpp"
#include "platform/random.hpp"

namespace stretto {
namespace {

using namespace testing;

TEST(Socket, CarriesBytesBothWaysAndEnds) {
  const Watchdog watchdog("socket pair", 20);
  const Pair pair = connected();
  uint8_t buffer[64];
  EXPECT_EQ(receiveSome(pair.server, buffer).outcome, IoOutcome::kWouldBlock);
  EXPECT_EQ(sendText(pair.client, "hello").bytes, 5u);
  ASSERT_TRUE(waitReadable(pair.server));
  const Transfer got = receiveSome(pair.server, buffer);
  EXPECT_EQ(got.outcome, IoOutcome::kSome);
  EXPECT_EQ(std::string(buffer, buffer + got.bytes), "hello");
  endSending(pair.client);
  ASSERT_TRUE(waitReadable(pair.server));
  EXPECT_EQ(receiveSome(pair.server, buffer).outcome, IoOutcome::kClosed);
  EXPECT_EQ(sendText(pair.server, "still").outcome, IoOutcome::kSome);
}

TEST(Socket, SendingToTheDeadFailsWithoutASignal) {
  const Watchdog watchdog("dead peer", 20);
  Pair pair = connected();
  resetOnClose(pair.client);
  pair.client.reset();
  ASSERT_TRUE(waitReadable(pair.server));
  const Transfer sent = sendText(pair.server, "anyone?");
  EXPECT_EQ(sent.outcome, IoOutcome::kFailed);
  EXPECT_NE(sent.error, 0);
}

TEST(Socket, NobodyListeningIsAnError) {
  uint16_t port = 0;
  {
    const Result<FileDescriptor> listener = listenOn(loopbackAddress());
    port = boundAddress(listener.value()).value().port;
  }
  const FileDescriptor socket = beginConnect(loopbackAddress(port));
  int error = errno;
  if (socket.valid()) {
    ASSERT_TRUE(waitReadable(socket));
    error = connectError(socket);
  }
  EXPECT_EQ(error, ECONNREFUSED);
  EXPECT_FALSE(beginConnect(SocketAddress{}).valid());
  EXPECT_FALSE(listenOn(SocketAddress{}).ok());
}

TEST(Socket, KnowsWhomItIsConnectedWith) {
  const Pair pair = connected();
  EXPECT_TRUE(isConnected(pair.client));
  EXPECT_TRUE(isConnected(pair.server));
  EXPECT_EQ(peerAddress(pair.client), boundAddress(pair.server).value());
  EXPECT_EQ(peerAddress(pair.server), boundAddress(pair.client).value());
  const Result<FileDescriptor> listener = listenOn(loopbackAddress());
  ASSERT_TRUE(listener.ok()) << lastError();
  EXPECT_FALSE(isConnected(listener.value()));
  EXPECT_EQ(peerAddress(listener.value()), SocketAddress{});
}

TEST(Socket, NobodyListensWhereAnotherDoes) {
  const Result<FileDescriptor> listener = listenOn(loopbackAddress());
  ASSERT_TRUE(listener.ok()) << lastError();
  EXPECT_FALSE(listenOn(boundAddress(listener.value()).value()).ok());
}

TEST(Socket, ThatNobodyConnectsToAcceptsNobody) {
  const Result<FileDescriptor> listener = listenOn(loopbackAddress());
  ASSERT_TRUE(listener.ok()) << lastError();
  EXPECT_FALSE(acceptFrom(listener.value()).valid());
  EXPECT_TRUE(errno == EAGAIN || errno == EWOULDBLOCK) << errno;
}

TEST(Socket, FillsUpAndGoesOnOnceItIsReceived) {
  const Watchdog watchdog("a full socket", 60);
  const Pair pair = connected();
  std::vector<uint8_t> bytes(1 << 20, 5);
  const IoSpan piece{bytes.data(), bytes.size()};
  size_t sent = 0;
  Transfer last;
  while ((last = sendSome(pair.client, std::span(&piece, 1))).outcome == IoOutcome::kSome) sent += last.bytes;
  EXPECT_EQ(last.outcome, IoOutcome::kWouldBlock);
  EXPECT_GT(sent, 0u);
  size_t received = 0;
  while (received < sent) {
    ASSERT_TRUE(waitReadable(pair.server));
    const Transfer got = receiveSome(pair.server, bytes);
    ASSERT_EQ(got.outcome, IoOutcome::kSome);
    received += got.bytes;
  }
  EXPECT_TRUE(waitUntilReady(pair.client, Poller::For::kWriting));
  EXPECT_EQ(sendSome(pair.client, std::span(&piece, 1)).outcome, IoOutcome::kSome);
}

TEST(Socket, AddressesAsText) {
  EXPECT_EQ(toText(loopbackAddress(80)), "127.0.0.1:80");
  SocketAddress six{6, 443, {}};
  six.bytes[15] = 1;
  EXPECT_EQ(toText(six), "[::1]:443");
  EXPECT_EQ(toText(SocketAddress{}), "no address");
}

TEST(Socket, Version6Works) {
  SocketAddress six{6, 0, {}};
  six.bytes[15] = 1;
  const Result<FileDescriptor> listener = listenOn(six);
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << lastError();
  const SocketAddress bound = boundAddress(listener.value()).value();
  EXPECT_EQ(bound.family, 6);
  EXPECT_TRUE(beginConnect(bound).valid());
}

TEST(Poller, ReportsWhatIsReadyAndWakes) {
  const Watchdog watchdog("poller", 20);
  Result<Poller> made = Poller::create();
  ASSERT_TRUE(made.ok()) << lastError();
  Poller& poller = made.value();
  const Pair pair = connected();
  ASSERT_TRUE(poller.add(pair.server, 7, Poller::For::kReading).ok());
  Poller::Event events[4];
  EXPECT_EQ(poller.wait(events, 0), 0u);
  sendText(pair.client, "data");
  ASSERT_EQ(poller.wait(events, 5000), 1u);
  EXPECT_EQ(events[0].tag, 7u);
  EXPECT_TRUE(events[0].readable);
  EXPECT_FALSE(events[0].writable);
  poller.change(pair.server, 7, Poller::For::kBoth);
  ASSERT_EQ(poller.wait(events, 5000), 1u);
  EXPECT_TRUE(events[0].writable);
  poller.change(pair.server, 7, Poller::For::kWriting);
  ASSERT_EQ(poller.wait(events, 5000), 1u);
  EXPECT_FALSE(events[0].readable) << "nobody asked, though something is there";
  poller.change(pair.server, 7, Poller::For::kNothing);
  EXPECT_EQ(poller.wait(events, 0), 0u);
  poller.remove(pair.server);
  std::thread waker([&] { poller.wake(); });
  EXPECT_EQ(poller.wait(events, 5000), 0u);  // returns at once, with nothing to tell
  waker.join();
}

TEST(Random, IsNeverTheSame) {
  std::set<std::vector<uint8_t>> seen;
  for (int i = 0; i < 100; ++i) {
    std::vector<uint8_t> bytes(16);
    ASSERT_TRUE(fillRandom(bytes).ok()) << lastError();
    EXPECT_TRUE(seen.insert(bytes).second);
  }
}

}  // namespace
}  // namespace stretto
