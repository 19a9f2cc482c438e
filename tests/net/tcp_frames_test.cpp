// What both ends of net/tcp make of frames and records that a test writes by hand, in orders that seldom
// come.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <span>
#include <thread>

#include "harness/child.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "net/drive.hpp"
#include "net/nets.hpp"
#include "net/tcp/handshake.hpp"
#include "net/tcp/sender.hpp"

namespace stretto::net::testing {
namespace {

class TcpFrames : public ::testing::Test {
 protected:
  stretto::testing::Watchdog watchdog_{"a test of the frames of net/tcp", 4 * kPatience};
};

// A sender by hand, of flows that hold the key: it writes whatever frames a test wants.
class HandMade {
 public:
  HandMade(Net& net, uint16_t flows) {
    auto listener = net.listen(0);
    tcp::Rendezvous where;
    if (!listener.ok() || !tcp::decode(listener.value()->handle(), where)) return;
    hello.flows = flows;
    hello.chunk = kChunk;
    hello.small = 4 << 10;
    std::vector<std::unique_ptr<tcp::Caller>> callers;
    for (uint16_t flow = 0; flow < flows; ++flow) {
      hello.flow = flow;
      callers.push_back(std::make_unique<tcp::Caller>(where.key, hello, where.addresses.front(), nullptr));
    }
    std::vector<bool> joined(flows);
    EXPECT_TRUE(eventually([&] {
      tcp::FailedCall failed;
      for (size_t i = 0; i < flows; ++i) {
        joined[i] = joined[i] || callers[i]->poll(failed) == tcp::Shake::kDone;
      }
      EXPECT_TRUE(listener.value()->accept(receiver).ok());
      return receiver != nullptr && std::find(joined.begin(), joined.end(), false) == joined.end();
    }));
    for (const auto& caller : callers) flows_.push_back(caller->take());
  }
  static constexpr uint32_t kChunk = 16 << 10;

  bool write(size_t flow, const tcp::Frame& frame) { return tcp::writeWhole(flows_[flow].stream, frame); }
  bool write(size_t flow, std::span<std::byte> bytes) {
    const IoSpan piece{bytes.data(), bytes.size()};
    return flows_[flow].stream.send(std::span(&piece, 1)).bytes == bytes.size();
  }
  // The sender that the library would have made of these flows, whose kernel takes only so many bytes.
  std::unique_ptr<Sender> become(int bytes) {
    for (const tcp::Joined& flow : flows_) {
      EXPECT_EQ(::setsockopt(flow.stream.socket().get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    }
    return std::make_unique<tcp::TcpSender>(hello, std::move(flows_), oneFlow());
  }
  int descriptorOf(size_t flow) const { return flows_[flow].stream.socket().get(); }
  // Until the request is done. The kernel of a busy machine may bring late what was written.
  bool finish(Request* request, bool& done) {
    return eventually([&] { return done || !receiver->test(request, done, nullptr).ok() || done; }) && done;
  }
  // What was written so far is read, as a rule; the request is not expected to be done.
  void settle(Request* request, bool& done) {
    for (int i = 0; i < 100 && !done; ++i) {
      EXPECT_TRUE(receiver->test(request, done, nullptr).ok()) << lastError();
      if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  tcp::Hello hello;
  std::unique_ptr<Receiver> receiver;

 private:
  std::vector<tcp::Joined> flows_;
};

// A message of the wire from an end that is a socket only.
template <typename T>
bool writeTo(const FileDescriptor& socket, T value) {
  const auto bytes = tcp::bytesOf(value);
  const IoSpan piece{bytes.data(), bytes.size()};
  return sendSome(socket, std::span(&piece, 1)).bytes == bytes.size();
}

std::vector<std::byte> numbered(size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 7 + i / 256);
  return all;
}

// Sends small messages, which nobody reads, for as long as the kernel takes them. How many are done.
size_t fillTheKernel(Sender& sender, const std::vector<std::byte>& bytes) {
  std::deque<Request*> sending;
  size_t done = 0;
  uint64_t moved = platform::monotonicNanoseconds();
  while (platform::secondsSince(moved) < 0.3) {
    Request* request = nullptr;
    const bool room = sending.size() < kMostRequests / 2;
    EXPECT_TRUE(!room || sender.send(bytes.data(), bytes.size(), 7, nullptr, request).ok()) << lastError();
    if (request != nullptr) sending.push_back(request);
    bool sent = false;
    EXPECT_TRUE(sending.empty() || sender.test(sending.front(), sent).ok()) << lastError();
    if (!sent) continue;
    sending.pop_front();
    ++done;
    moved = platform::monotonicNanoseconds();
  }
  EXPECT_FALSE(sending.empty());
  return done;
}

// Whoever was told that a small message is done need not come back for it to arrive.
TEST_F(TcpFrames, WhatIsDoneArrivesThoughItsSenderStopsOrEnds) {
  const auto net = tcp::open(oneFlow());
  for (const bool ends : {false, true}) {
    HandMade ready(*net, 2);
    ASSERT_TRUE(ready.receiver != nullptr);
    auto sender = ready.become(8 << 10);
    const std::vector<std::byte> from = patternOf(1, ready.hello.small);
    const size_t done = fillTheKernel(*sender, from);
    ASSERT_GT(done, 0u);
    ASSERT_LT(done, tcp::kMostUnconfirmedParts);  // which would be the limit otherwise
    if (ends) sender.reset();
    for (size_t i = 0; i < done; ++i) {
      std::vector<std::byte> to(from.size());
      const Receive receive{to.data(), to.size(), 7, nullptr};
      Request* request = nullptr;
      ASSERT_TRUE(ready.receiver->receive(&receive, 1, request).ok());
      bool came = false;
      EXPECT_TRUE(eventually([&] { return !ready.receiver->test(request, came, nullptr).ok() || came; }, 10));
      ASSERT_TRUE(came) << i << " of " << done << ": " << lastError();
      EXPECT_EQ(from, to);
    }
  }
}

// What lingers belongs to the process that sent it: a child of fork() may have other things under the same
// numbers.
TEST_F(TcpFrames, AForkedChildReadsNothingThatLingeredInItsParent) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  const auto net = tcp::open(oneFlow());
  HandMade ready(*net, 1);
  ASSERT_TRUE(ready.receiver != nullptr);
  const int number = ready.descriptorOf(0);
  auto sender = ready.become(8 << 10);
  ASSERT_GT(fillTheKernel(*sender, patternOf(1, ready.hello.small)), 0u);
  sender.reset();
  EXPECT_EQ(stretto::testing::inChild([&] {
              int ends[2];
              char byte = 0;
              if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return 1;
              const int far = ::fcntl(ends[1], F_DUPFD, 100);
              if (ends[0] != number && ::dup2(ends[0], number) != number) return 2;
              if (::send(far, "own", 3, 0) != 3) return 3;
              if (!net->listen(0).ok()) return 4;  // sees whether anything that lingers may end
              return ::recv(number, &byte, 1, MSG_DONTWAIT) == 1 && byte == 'o' ? 0 : 5;
            }),
            0);
}

// Two flows whose kernel takes little at a time, and the far ends of both.
struct Narrow {
  Narrow() {
    std::vector<tcp::Joined> flows;
    for (FileDescriptor& end : far) {
      int ends[2] = {-1, -1};
      end = FileDescriptor::create(
          [&] { return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0 ? ends[0] : -1; });
      const int least = 1;
      EXPECT_EQ(::setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
      flows.push_back({FileDescriptor::create([&] { return ends[1]; }), "a flow"});
    }
    tcp::Hello hello;
    hello.flows = 2;
    hello.chunk = tcp::kLeastChunk;
    hello.small = 256;
    sender = std::make_unique<tcp::TcpSender>(hello, std::move(flows), oneFlow());
  }
  // Says of all messages of tag 7 that they may come, or of those below `number` that they have.
  bool say(tcp::RecordKind kind, uint64_t number) {
    tcp::Record record;
    record.kind = kind;
    record.tag = kind == tcp::RecordKind::kReady ? 7 : 0;
    record.count = number;
    return writeTo(far[0], record);
  }
  // At most so many bytes that have come over a flow.
  std::vector<uint8_t> read(size_t flow, size_t most) {
    std::vector<uint8_t> bytes(most);
    bytes.resize(receiveSome(far[flow], std::span(bytes)).bytes);
    return bytes;
  }
  std::array<FileDescriptor, 2> far;
  std::unique_ptr<tcp::TcpSender> sender;
};

// A message is complete while a second copy of a chunk is being sent, and the flow of that copy is lost, too.
TEST_F(TcpFrames, OfAMessageThatIsDoneNoCopyIsSent) {
  constexpr size_t kChunks = 60, kOfSecond = 20;
  Narrow narrow;
  std::vector<std::byte> bytes(kChunks * tcp::kLeastChunk, std::byte{0x11});
  Request* request = nullptr;
  bool done = false;
  ASSERT_TRUE(narrow.say(tcp::RecordKind::kReady, 1));
  ASSERT_TRUE(narrow.sender->send(bytes.data(), bytes.size(), 7, nullptr, request).ok());
  // Until the first flow gets no more, and the second one does not get rid of its last.
  size_t ofSecond = 0;
  for (int idle = 0; idle < 100; ++idle) {
    ASSERT_TRUE(narrow.sender->test(request, done).ok());
    const size_t most = std::min<size_t>(1000, kOfSecond * tcp::kLeastChunk - ofSecond);
    const size_t came = narrow.read(1, most).size();
    ofSecond += came;
    if (came + narrow.read(0, 1000).size() != 0) idle = 0;
  }
  ASSERT_TRUE(narrow.say(tcp::RecordKind::kComplete, 1));
  ASSERT_TRUE(narrow.sender->test(request, done).ok());
  ASSERT_FALSE(done) << "the second flow has a part of it";
  narrow.far[1].reset();
  for (int i = 0; i < 1000 && !done; ++i) {
    ASSERT_TRUE(narrow.sender->test(request, done).ok());
    if (!done) narrow.read(0, 1000);
  }
  ASSERT_TRUE(done);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xee});  // they are the caller's again
  const std::byte next{0x22};
  request = nullptr;
  size_t late = 0;
  for (int i = 0; i < 100; ++i) {  // whoever sends or tests moves what waits
    const std::vector<uint8_t> came = narrow.read(0, 1 << 20);
    late += static_cast<size_t>(std::count(came.begin(), came.end(), 0xee));
    ASSERT_TRUE(request != nullptr || narrow.sender->send(&next, 1, 8, nullptr, request).ok());
    ASSERT_TRUE(request == nullptr || narrow.sender->test(request, done).ok());
    if (done) request = nullptr;
  }
  EXPECT_EQ(late, 0u);
}

// The sender has lost a flow and sends its chunk again, and what the lost flow still held is read after the
// beginning of the second copy.
TEST_F(TcpFrames, AChunkOfALostFlowThatIsReadLateCostsNoOther) {
  const auto net = tcp::open(oneFlow());
  HandMade sender(*net, 2);
  ASSERT_TRUE(sender.receiver != nullptr);
  std::vector<std::byte> from = numbered(2 * HandMade::kChunk);
  std::vector<std::byte> to(from.size());
  const Receive receive{to.data(), to.size(), 0, nullptr};
  Request* request = nullptr;
  ASSERT_TRUE(sender.receiver->receive(&receive, 1, request).ok());
  tcp::Frame again;
  again.kind = tcp::FrameKind::kPart;
  again.total = 2 * HandMade::kChunk;
  again.bytes = HandMade::kChunk;
  again.losses = 1;
  tcp::Frame first = again;
  first.losses = 0;
  const std::span bytes(from);
  bool done = false;
  ASSERT_TRUE(sender.write(1, again) && sender.write(1, bytes.first(1000)));
  sender.settle(request, done);
  ASSERT_TRUE(sender.write(0, first) && sender.write(0, bytes.first(HandMade::kChunk)));
  sender.settle(request, done);
  EXPECT_FALSE(done);
  again.offset = HandMade::kChunk;
  ASSERT_TRUE(sender.write(1, bytes.subspan(1000, HandMade::kChunk - 1000)));
  ASSERT_TRUE(sender.write(1, again) && sender.write(1, bytes.subspan(HandMade::kChunk)));
  EXPECT_TRUE(sender.finish(request, done)) << lastError();
  EXPECT_EQ(to, from);
}

// A small message comes twice: aside, since its receive is not there yet, and over another flow when it is.
TEST_F(TcpFrames, ASmallMessageThatComesTwiceTakesNoRoomForGood) {
  const auto net = tcp::open(oneFlow());
  HandMade sender(*net, 2);
  ASSERT_TRUE(sender.receiver != nullptr);
  std::vector<std::byte> from = numbered(1000);
  std::vector<std::byte> to(from.size());
  const std::span bytes(from);
  // Nothing comes for it: who tests it reads what has come for others.
  std::vector<std::byte> nothing(8);
  const Receive never{nothing.data(), nothing.size(), 1, nullptr};
  Request* reading = nullptr;
  bool came = false;
  ASSERT_TRUE(sender.receiver->receive(&never, 1, reading).ok());
  for (uint64_t number = 0; number < tcp::kMostUnconfirmedParts + 8; ++number) {
    tcp::Frame frame;
    frame.number = frame.index = number;
    frame.total = frame.bytes = 1000;
    ASSERT_TRUE(sender.write(0, frame) && sender.write(0, bytes.first(500)));
    sender.settle(reading, came);
    const Receive receive{to.data(), to.size(), 0, nullptr};
    Request* request = nullptr;
    std::fill(to.begin(), to.end(), std::byte{});
    ASSERT_TRUE(sender.receiver->receive(&receive, 1, request).ok());
    frame.losses = 1;
    ASSERT_TRUE(sender.write(1, frame) && sender.write(1, bytes));
    bool done = false;
    EXPECT_TRUE(eventually([&] { return !sender.receiver->test(request, done, nullptr).ok() || done; }));
    ASSERT_TRUE(done) << number << ": " << lastError();
    EXPECT_EQ(to, from);
    ASSERT_TRUE(sender.write(0, bytes.subspan(500)));
    sender.settle(reading, came);
  }
}

// Half of a small message lies aside when its receive comes, and a second copy goes straight to the receive.
// The two end in either order, and each may be the later one.
struct TwoCopies {
  explicit TwoCopies(uint8_t lossesOfFirst) {
    if (sender.receiver == nullptr) return;
    frame.total = frame.bytes = 1000;
    tcp::Frame first = frame;
    first.losses = lossesOfFirst;
    frame.losses = 1 - lossesOfFirst;
    // Nothing comes for it: who tests it reads what has come for others.
    const Receive never{nothing.data(), nothing.size(), 1, nullptr};
    EXPECT_TRUE(sender.receiver->receive(&never, 1, reading).ok());
    EXPECT_TRUE(sender.write(0, first) && sender.write(0, bytes.first(500)));
    bool came = false;
    sender.settle(reading, came);
    const Receive receive{to.data(), to.size(), 0, nullptr};
    EXPECT_TRUE(sender.receiver->receive(&receive, 1, request).ok());
    EXPECT_TRUE(sender.write(1, frame) && sender.write(1, bytes.first(700)));
    sender.settle(request, done);
    EXPECT_FALSE(done);
  }
  // Over `flow`, which is not lost.
  void expectNext(size_t flow) {
    for (int i = 0; i < 3; ++i) {
      const uint64_t number = ++last;
      tcp::Frame next;
      next.number = next.index = number;
      next.total = next.bytes = 1000;
      next.losses = 1;
      std::fill(to.begin(), to.end(), std::byte{});
      const Receive receive{to.data(), to.size(), 0, nullptr};
      ASSERT_TRUE(sender.receiver->receive(&receive, 1, request).ok());
      ASSERT_TRUE(sender.write(flow, next) && sender.write(flow, bytes));
      done = false;
      EXPECT_TRUE(eventually([&] { return !sender.receiver->test(request, done, nullptr).ok() || done; }));
      ASSERT_TRUE(done) << lastError();
      EXPECT_EQ(to, from);
    }
  }
  const std::unique_ptr<Net> net = tcp::open(oneFlow());
  HandMade sender{*net, 2};
  std::vector<std::byte> from = numbered(1000);
  const std::span<std::byte> bytes{from};
  std::vector<std::byte> to = std::vector<std::byte>(1000);
  std::vector<std::byte> nothing = std::vector<std::byte>(8);
  tcp::Frame frame;
  uint64_t last = 0;  // number of a message
  Request* reading = nullptr;
  Request* request = nullptr;
  bool done = false;
};

TEST_F(TcpFrames, AnAsideThatEndsWhileALaterCopyComesIsForgotten) {
  TwoCopies copies(0);
  ASSERT_TRUE(copies.request != nullptr);
  ASSERT_TRUE(copies.sender.write(0, copies.bytes.subspan(500)));
  copies.sender.settle(copies.request, copies.done);
  EXPECT_FALSE(copies.done);  // flow 1 writes to the receive still
  ASSERT_TRUE(copies.sender.write(1, copies.bytes.subspan(700)));
  ASSERT_TRUE(copies.sender.finish(copies.request, copies.done));
  EXPECT_EQ(copies.to, copies.from);
  copies.expectNext(0);
  copies.expectNext(1);
}

TEST_F(TcpFrames, AnAsideThatEndsWhileAnOlderCopyComesIsTaken) {
  TwoCopies copies(1);
  ASSERT_TRUE(copies.request != nullptr);
  ASSERT_TRUE(copies.sender.write(0, copies.bytes.subspan(500)));
  // The rest of what flow 1 brought may never come: the sender has lost it.
  ASSERT_TRUE(copies.sender.finish(copies.request, copies.done));
  EXPECT_EQ(copies.to, copies.from);
  EXPECT_EQ(lostOf(copies.sender.receiver->flows()), 1u);
  copies.expectNext(0);
}

// One that holds the key and breaks the protocol.
TEST_F(TcpFrames, AFrameThatIsNoneEndsTheConnection) {
  const auto net = tcp::open(oneFlow());
  for (int kind = 0; kind < 6; ++kind) {
    HandMade sender(*net, 1);
    ASSERT_TRUE(sender.receiver != nullptr);
    tcp::Frame frame;
    frame.total = frame.bytes = 100;
    if (kind == 0) frame.magic = 1;
    if (kind == 1) frame.total = frame.bytes = 5 << 10;                  // longer than a small one may be
    if (kind == 2) frame.number = 100'000;                               // too far ahead
    if (kind == 3) frame.kind = tcp::FrameKind::kPart, frame.index = 5;  // nobody waits for it
    if (kind == 4) frame.kind = static_cast<tcp::FrameKind>(77);
    if (kind == 5) frame.kind = tcp::FrameKind::kPart;  // of a message that goes at once
    ASSERT_TRUE(sender.write(0, frame));
    std::vector<std::byte> to(100);
    const Receive receive{to.data(), to.size(), 0, nullptr};
    Request* request = nullptr;
    ASSERT_TRUE(sender.receiver->receive(&receive, 1, request).ok());
    Status status;
    bool done = false;
    EXPECT_TRUE(
        eventually([&] { return !(status = sender.receiver->test(request, done, nullptr)).ok() || done; }));
    EXPECT_EQ(status.code, Code::kRemote) << kind;
  }
}

TEST_F(TcpFrames, ARecordOfMessagesThatWereNotSentEndsTheConnection) {
  const std::vector<std::byte> bytes(300);
  for (const uint64_t bits : {uint64_t{1}, uint64_t{4}, uint64_t{1} << 63}) {
    int ends[2] = {-1, -1};
    const FileDescriptor far = FileDescriptor::create(
        [&] { return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0 ? ends[0] : -1; });
    std::vector<tcp::Joined> flows;
    flows.push_back({FileDescriptor::create([&] { return ends[1]; }), "a flow"});
    tcp::Hello hello;
    hello.chunk = tcp::kLeastChunk;
    hello.small = 256;
    tcp::TcpSender sender(hello, std::move(flows), oneFlow());
    // A large one, which waits for its receive: it reads records whenever it is tested.
    Request* request = nullptr;
    ASSERT_TRUE(sender.send(bytes.data(), 100, 7, nullptr, request).ok());
    bool done = false;
    ASSERT_TRUE(sender.test(request, done).ok() && done);
    ASSERT_TRUE(sender.send(bytes.data(), 300, 7, nullptr, request).ok());
    tcp::Record record;
    record.bits[0] = bits;
    ASSERT_TRUE(writeTo(far, record));
    const Status status = sender.test(request, done);
    EXPECT_EQ(status.code, bits == 1 ? Code::kOk : Code::kRemote) << bits;
  }
}

}  // namespace
}  // namespace stretto::net::testing
