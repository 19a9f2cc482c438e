// What every Net must do, whatever is behind it.
#include <gtest/gtest.h>

#include <thread>

#include "base/scoped_variable.hpp"
#include "harness/encrypted.hpp"
#include "harness/watchdog.hpp"
#include "net/drive.hpp"
#include "net/nets.hpp"
#include "net/plugin/plugin.hpp"

namespace stretto::net::testing {
namespace {

using stretto::testing::ScopedVariable;

struct Kind {
  const char* name;
  std::unique_ptr<Net> (*open)();
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

// net/tcp once more, behind NCCL's interface and back.
template <int kVersion>
std::unique_ptr<Net> throughPlugin() {
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "lo");
  const ScopedVariable flows("STRETTO_NET_FLOWS", kVersion == 10 ? "3" : "1");
  const ScopedVariable grouped("STRETTO_NET_GROUPED", "8");
  std::string why;
  auto net = plugin::open(STRETTO_NET, "Stretto", 30, why, kVersion);
  EXPECT_NE(net, nullptr) << why;
  return net;
}

const Kind kKinds[] = {
    {"OneFlow", [] { return tcp::open(oneFlow()); }},
    {"FourFlows", [] { return tcp::open(manyFlows(4)); }},
    {"Helpers", [] { return tcp::open(withHelpers(4)); }},
    {"TwoInterfaces", [] { return tcp::open(twoInterfaces()); }},
    {"EncryptedOneFlow", [] { return tcp::open(encrypted(oneFlow())); }},
    {"EncryptedFourFlows", [] { return tcp::open(encrypted(manyFlows(4))); }},
    {"EncryptedHelpers", [] { return tcp::open(encrypted(withHelpers(4))); }},
    {"Ipv6",
     [] {
       tcp::Settings settings = oneFlow();
       settings.interfaces = {loopback6()};
       return tcp::open(settings);
     }},
    {"Plugin12", throughPlugin<12>},
    {"Plugin11", throughPlugin<11>},
    {"Plugin10", throughPlugin<10>},
};

class EveryNet : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam().name).starts_with("Encrypted")) STRETTO_NEEDS_OPENSSL();
    net_ = GetParam().open();
    ASSERT_NE(net_, nullptr);
    properties_ = net_->properties(0).value();
  }

  stretto::testing::Watchdog watchdog_{"a test of net/", 4 * kPatience};
  std::unique_ptr<Net> net_;
  Properties properties_;
};

TEST_P(EveryNet, SaysWhatItIs) {
  EXPECT_NE(net_->name(), nullptr);
  ASSERT_GT(net_->devices(), 0);
  for (int device = 0; device < net_->devices(); ++device) {
    const auto properties = net_->properties(device);
    ASSERT_TRUE(properties.ok());
    EXPECT_FALSE(properties.value().name.empty());
    EXPECT_GE(properties.value().mostGrouped, 1);
    EXPECT_LE(properties.value().mostGrouped, kMostGrouped);
    EXPECT_GT(properties.value().mostConnections, 0);
    EXPECT_GE(properties.value().mostBytes, size_t{64} << 20);
  }
  EXPECT_FALSE(net_->properties(net_->devices()).ok());
  EXPECT_FALSE(net_->listen(-1).ok());
}

TEST_P(EveryNet, MovesMessagesOfSizesAroundEveryBound) {
  Pair pair = join(*net_, *net_);
  std::vector<size_t> sizes{0, 1, 15, 16, 17, 127, 128, 129};
  for (const size_t bound : {4u << 10, 16u << 10, 32u << 10, 64u << 10, 512u << 10, 1u << 20}) {
    for (const size_t bytes : {bound - 1, bound, bound + 1}) sizes.push_back(bytes);
  }
  sizes.push_back(9 << 20);
  sizes.push_back(0);
  expectAllArrives(pair, trafficOf(sizes));
}

TEST_P(EveryNet, KeepsManyRequestsUnderWay) {
  Pair pair = join(*net_, *net_);
  expectAllArrives(pair, trafficOf(std::vector<size_t>(200, 100), kMostRequests));
  expectAllArrives(pair, trafficOf(std::vector<size_t>(100, 200'000), kMostRequests));
}

TEST_P(EveryNet, MovesMessagesThatComeBeforeTheirReceives) {
  Pair pair = join(*net_, *net_);
  for (const size_t bytes : {0, 1, 3000, 300'000}) {
    Traffic traffic = trafficOf(std::vector<size_t>(20, bytes), 8);
    traffic.receives = 1;
    expectAllArrives(pair, traffic);
  }
}

TEST_P(EveryNet, FillsReceivesThatAreLarger) {
  Pair pair = join(*net_, *net_);
  Traffic traffic = trafficOf({0, 1, 100, 5000, 100'000, 0, 2'000'000, 3});
  for (Traffic::Message& message : traffic.messages) message.room = 2'100'000;
  expectAllArrives(pair, traffic);
}

// As NCCL does with several peers behind one connection: tags tell them apart.
TEST_P(EveryNet, GroupsReceives) {
  if (properties_.mostGrouped < 2) GTEST_SKIP() << "this net takes one receive in a request";
  Pair pair = join(*net_, *net_);
  std::mt19937 random(1);
  Traffic traffic;
  traffic.sends = 16;
  for (int i = 0; i < 40; ++i) {
    const int count = 1 + i % properties_.mostGrouped;
    std::vector<size_t> group;
    for (int tag = 0; tag < count; ++tag) {
      group.push_back(traffic.messages.size());
      const size_t bytes = random() % 3 == 0 ? random() % 100'000 : random() % 3000;
      traffic.messages.push_back({bytes, tag, bytes + random() % 2 * 100});
    }
    std::shuffle(group.begin(), group.end(), random);
    traffic.groups.push_back(group);
  }
  expectAllArrives(pair, traffic);
}

TEST_P(EveryNet, MovesRandomSizes) {
  Pair pair = join(*net_, *net_);
  std::mt19937 random(2);
  for (int i = 0; i < 5; ++i) {
    std::vector<size_t> sizes(40);
    for (size_t& bytes : sizes) bytes = random() % (size_t{1} << random() % 21);
    Traffic traffic = trafficOf(sizes);
    traffic.sends = 1 + random() % kMostRequests;
    traffic.receives = 1 + random() % kMostRequests;
    expectAllArrives(pair, traffic);
  }
}

TEST_P(EveryNet, RefusesAMessageThatIsLongerThanItsReceive) {
  for (const size_t bytes : {101u, 1u << 20}) {
    // The refused message is the sender's until its connection closes, so it outlives the pair.
    std::vector<std::byte> from(bytes), to(100);
    Pair pair = join(*net_, *net_);
    ASSERT_TRUE(pair.whole());
    const Receive receive{to.data(), to.size(), 7, nullptr};
    Request* receiving = nullptr;
    Request* sending = nullptr;
    ASSERT_TRUE(pair.receiver->receive(&receive, 1, receiving).ok());
    ASSERT_TRUE(pair.sender->send(from.data(), from.size(), 7, nullptr, sending).ok());
    Status status;
    EXPECT_TRUE(eventually([&] {
      bool done = false;
      (void)pair.sender->test(sending, done);
      status = pair.receiver->test(receiving, done, nullptr);
      return !status.ok() || done;
    }));
    EXPECT_EQ(status.code, Code::kInvalidUsage);
  }
}

TEST_P(EveryNet, SaysThatThePeerHasGone) {
  std::vector<std::byte> bytes(1 << 20);
  Pair pair = join(*net_, *net_);
  ASSERT_TRUE(pair.whole());
  const Receive receive{bytes.data(), bytes.size(), 7, nullptr};
  Request* request = nullptr;
  ASSERT_TRUE(pair.receiver->receive(&receive, 1, request).ok());
  pair.sender.reset();
  Status status;
  bool done = false;
  EXPECT_TRUE(
      eventually([&] { return !(status = pair.receiver->test(request, done, nullptr)).ok() || done; }));
  EXPECT_EQ(status.code, Code::kRemote);

  pair = join(*net_, *net_);
  ASSERT_TRUE(pair.whole());
  pair.receiver.reset();
  EXPECT_TRUE(eventually([&] {
    request = nullptr;
    status = pair.sender->send(bytes.data(), bytes.size(), 7, nullptr, request);
    if (status.ok() && request != nullptr) status = pair.sender->test(request, done);
    return !status.ok();
  }));
  EXPECT_EQ(status.code, Code::kRemote);
}

// What was done before the sender closed arrives, though nobody waited for it.
TEST_P(EveryNet, DeliversWhatWasDoneBeforeTheSenderClosed) {
  for (int i = 0; i < 10; ++i) {
    Pair pair = join(*net_, *net_);
    ASSERT_TRUE(pair.whole());
    const std::vector<std::byte> from = patternOf(1, 60'000);
    std::vector<std::byte> to(from.size());
    std::vector<Request*> requests(3);
    for (Request*& request : requests) {
      ASSERT_TRUE(pair.sender->send(from.data(), 1000, 7, nullptr, request).ok());
      bool done = false;
      EXPECT_TRUE(eventually([&] { return !pair.sender->test(request, done).ok() || done; }));
    }
    pair.sender.reset();
    for (size_t message = 0; message < requests.size(); ++message) {
      const Receive receive{to.data(), to.size(), 7, nullptr};
      Request* request = nullptr;
      ASSERT_TRUE(pair.receiver->receive(&receive, 1, request).ok());
      bool done = false;
      size_t size = 0;
      EXPECT_TRUE(eventually([&] { return !pair.receiver->test(request, done, &size).ok() || done; }));
      ASSERT_TRUE(done) << lastError();
      EXPECT_EQ(size, 1000u);
      EXPECT_EQ(std::memcmp(from.data(), to.data(), size), 0);
    }
  }
}

// Stages: handles, half a handshake, a connection, a send, a receive.
void closeAt(Net& net, int stage, bool senderFirst) {
  static std::vector<std::byte> bytes(4 << 20);
  auto listener = net.listen(0);
  ASSERT_TRUE(listener.ok());
  auto connecting = net.connect(0, listener.value()->handle());
  ASSERT_TRUE(connecting.ok());
  Pair pair;
  if (stage == 1) {
    EXPECT_TRUE(connecting.value()->poll(pair.sender).ok());
    EXPECT_TRUE(listener.value()->accept(pair.receiver).ok());
  }
  if (stage < 2) return;
  pair = join(net, net);
  ASSERT_TRUE(pair.whole());
  Request* request = nullptr;
  if (stage >= 3) {
    EXPECT_TRUE(pair.sender->send(bytes.data(), bytes.size(), 7, nullptr, request).ok());
  }
  if (stage >= 4) {
    const Receive receive{bytes.data(), bytes.size(), 7, nullptr};
    ASSERT_TRUE(pair.receiver->receive(&receive, 1, request).ok());
    bool done = false;
    EXPECT_TRUE(pair.receiver->test(request, done, nullptr).ok());
  }
  if (senderFirst) {
    pair.sender.reset();
  } else {
    pair.receiver.reset();
  }
}

TEST_P(EveryNet, ClosesInAnyState) {
  for (int stage = 0; stage < 5; ++stage) {
    closeAt(*net_, stage, false);
    closeAt(*net_, stage, true);
  }
}

TEST_P(EveryNet, MakesManyConnectionsToOneListener) {
  auto listener = net_->listen(0);
  ASSERT_TRUE(listener.ok());
  constexpr size_t kCount = 5;
  std::vector<std::unique_ptr<Connecting>> connecting;
  std::vector<Pair> pairs(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    auto begun = net_->connect(0, listener.value()->handle());
    ASSERT_TRUE(begun.ok());
    connecting.push_back(std::move(begun.value()));
  }
  std::vector<std::unique_ptr<Receiver>> receivers;
  size_t senders = 0;
  EXPECT_TRUE(eventually([&] {
    for (size_t i = 0; i < kCount; ++i) {
      if (pairs[i].sender != nullptr) continue;
      EXPECT_TRUE(connecting[i]->poll(pairs[i].sender).ok()) << lastError();
      if (pairs[i].sender != nullptr) ++senders;
    }
    std::unique_ptr<Receiver> receiver;
    EXPECT_TRUE(listener.value()->accept(receiver).ok());
    if (receiver != nullptr) receivers.push_back(std::move(receiver));
    return senders == kCount && receivers.size() == kCount;
  }));
}

// Connections of one net, each of its own thread.
TEST_P(EveryNet, IsUsedByManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Pair pair = join(*net_, *net_);
      expectAllArrives(pair, trafficOf({10, 1000, 100'000, 1'000'000, 0, 5}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(EveryNet, TakesMemoryOfTheHostOnly) {
  Pair pair = join(*net_, *net_);
  ASSERT_TRUE(pair.whole());
  std::vector<std::byte> bytes(100);
  EXPECT_TRUE(pair.sender->enrol(bytes.data(), bytes.size(), Memory::kHost).ok());
  EXPECT_TRUE(pair.receiver->enrol(bytes.data(), bytes.size(), Memory::kHost).ok());
  if (properties_.takesDevice) return;
  EXPECT_FALSE(pair.sender->enrol(bytes.data(), bytes.size(), Memory::kDevice).ok());
}

INSTANTIATE_TEST_SUITE_P(Net, EveryNet, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace stretto::net::testing
