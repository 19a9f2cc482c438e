#include "platform/socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "harness/watchdog.hpp"
#include "platform/random.hpp"

namespace stretto {
namespace {

using testing::Watchdog;

struct Pair {
  FileDescriptor client;
  FileDescriptor server;
};

Pair connected() {
  Result<FileDescriptor> listener = listenOn(loopbackAddress());
  EXPECT_TRUE(listener.ok()) << lastError();
  Pair pair;
  pair.client = beginConnect(boundAddress(listener.value()).value());
  pollfd ready{listener.value().get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 5000), 1);
  pair.server = acceptFrom(listener.value());
  EXPECT_TRUE(pair.server.valid());
  EXPECT_EQ(connectError(pair.client), 0);
  return pair;
}

Transfer sendText(const FileDescriptor& socket, std::string text) {
  const iovec pieces[] = {{text.data(), 1}, {text.data() + 1, text.size() - 1}};
  return sendSome(socket, pieces);
}

bool isOpen(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(Socket, CarriesBytesBothWaysAndEnds) {
  const Watchdog watchdog("socket pair", 20);
  const Pair pair = connected();
  uint8_t buffer[64];
  EXPECT_EQ(receiveSome(pair.server, buffer).outcome, IoOutcome::kWouldBlock);
  EXPECT_EQ(sendText(pair.client, "hello").bytes, 5u);
  pollfd ready{pair.server.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 5000), 1);
  const Transfer got = receiveSome(pair.server, buffer);
  EXPECT_EQ(got.outcome, IoOutcome::kSome);
  EXPECT_EQ(std::string(buffer, buffer + got.bytes), "hello");
  endSending(pair.client);
  ASSERT_EQ(::poll(&ready, 1, 5000), 1);
  EXPECT_EQ(receiveSome(pair.server, buffer).outcome, IoOutcome::kClosed);
  EXPECT_EQ(sendText(pair.server, "still").outcome, IoOutcome::kSome);
}

TEST(Socket, SendingToTheDeadFailsWithoutASignal) {
  const Watchdog watchdog("dead peer", 20);
  Pair pair = connected();
  resetOnClose(pair.client);
  pair.client.reset();
  pollfd ready{pair.server.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 5000), 1);
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
  const int error = socket.valid() ? connectError(socket) : errno;
  EXPECT_EQ(error, ECONNREFUSED);
  EXPECT_FALSE(beginConnect(SocketAddress{}).valid());
  EXPECT_FALSE(listenOn(SocketAddress{}).ok());
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

TEST(Socket, DescriptorsCloseOnExecAndWithTheirOwner) {
  Pair pair = connected();
  const int fd = pair.client.get();
  EXPECT_TRUE((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  FileDescriptor moved = std::move(pair.client);
  EXPECT_FALSE(pair.client.valid());
  EXPECT_TRUE(isOpen(fd));
  moved = FileDescriptor();
  EXPECT_FALSE(isOpen(fd));
}

TEST(ForkedChild, HasNoCopiesOfSocketsAndClosesNoStrangers) {
  const Watchdog watchdog("fork", 20);
  Pair pair = connected();
  const int numbers[] = {pair.client.get(), pair.server.get()};
  const pid_t child = ::fork();
  if (child == 0) {
    if (isOpen(numbers[0]) || isOpen(numbers[1])) ::_exit(1);
    while (!isOpen(numbers[0]) || !isOpen(numbers[1])) {
      if (::open("/dev/null", O_RDONLY) < 0) ::_exit(2);  // takes the lowest free number
    }
    if (pair.client.valid() || pair.server.get() >= 0) ::_exit(4);
    pair.client.reset();
    pair.server.reset();
    ::_exit(isOpen(numbers[0]) && isOpen(numbers[1]) ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(sendText(pair.client, "alive").outcome, IoOutcome::kSome);
}

TEST(Poller, ReportsWhatIsReadyAndWakes) {
  const Watchdog watchdog("poller", 20);
  Result<Poller> made = Poller::create();
  ASSERT_TRUE(made.ok()) << lastError();
  Poller& poller = made.value();
  const Pair pair = connected();
  ASSERT_TRUE(poller.add(pair.server, 7, false).ok());
  Poller::Event events[4];
  EXPECT_EQ(poller.wait(events, 0), 0u);
  sendText(pair.client, "data");
  ASSERT_EQ(poller.wait(events, 5000), 1u);
  EXPECT_EQ(events[0].tag, 7u);
  EXPECT_TRUE(events[0].readable);
  EXPECT_FALSE(events[0].writable);
  poller.setWantWritable(pair.server, 7, true);
  ASSERT_EQ(poller.wait(events, 5000), 1u);
  EXPECT_TRUE(events[0].writable);
  poller.setPaused(pair.server, 7, true);
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
