// Messages between ranks: all sizes around what a cache line, a chunk and a whole link hold, in every order
// that pairs up, alone and in groups.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>

#include "harness/oracle.hpp"
#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kChunk = 65536;
constexpr size_t kDepth = 8;
constexpr size_t kSizes[] = {0,      1,      39, 40, 41, 64, kChunk - 1, kChunk, kChunk + 1, kChunk* kDepth,
                             524289, 3000001};

using Bytes = std::vector<char>;

// What `from` sends to `to` as its message `number`.
Bytes message(int from, int to, int number, size_t bytes) {
  Bytes all(bytes);
  Random random(static_cast<uint64_t>(from * 1000000 + to * 10000 + number));
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) put<uint64_t>(all.data(), i / 8, random());
  for (; i < bytes; ++i) all[i] = static_cast<char>(random());
  return all;
}

ncclResult_t send(const Member& member, const Bytes& bytes, int to) {
  return ncclSend(bytes.data(), bytes.size(), ncclInt8, to, member.comm, nullptr);
}
ncclResult_t receive(const Member& member, Bytes& bytes, int from) {
  return ncclRecv(bytes.data(), bytes.size(), ncclInt8, from, member.comm, nullptr);
}
void expectMessage(const Member& member, const Bytes& got, int from, int number) {
  if (got != message(from, member.rank, number, got.size())) {
    member.complain("message %d from rank %d, %zu bytes, arrived changed", number, from, got.size());
  }
}

// Every test runs among threads and among processes.
class Messages : public ::testing::TestWithParam<bool> {
 protected:
  static void run(int ranks, const Body& body) {
    if (!GetParam()) {
      asThreads(ranks, connected(body));
    } else if (!STRETTO_TEST_TSAN) {
      asProcesses(ranks, connected(body));
    }
  }
};

TEST_P(Messages, GoRoundARing) {
  run(3, [](Member& member) {
    const int next = (member.rank + 1) % 3;
    const int previous = (member.rank + 2) % 3;
    int number = 0;
    for (const size_t size : kSizes) {
      const Bytes out = message(member.rank, next, ++number, size);
      Bytes in(size);
      member.expect(ncclGroupStart(), "start");
      member.expect(send(member, out, next), "send");
      member.expect(receive(member, in, previous), "receive");
      if (!member.expect(ncclGroupEnd(), "end")) return;
      expectMessage(member, in, previous, number);
    }
  });
}

// Rank 0 takes what comes first, whoever sent it: each message when a look says that it is there, and none
// before its sender has begun. Rank 3 sends nothing. At the end rank 0 hears that the others have left. The
// harness runs these tests over sockets as well.
TEST_P(Messages, AreFoundByALook) {
  run(4, [](Member& member) {
    constexpr int kMessages = 10;
    const auto sizeOf = [](int number) { return number % 2 == 0 ? size_t{100} : kChunk * kDepth + 5; };
    Bytes word(1);
    float value = 1;  // a call before, with a number
    member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr), "sum");
    if (member.rank == 0) {
      int arrived = -1;
      member.expect(strettoCommProbe(member.comm, 1, &arrived), "a look before all");
      member.check(arrived == 0, "nobody has sent anything");
      for (int to = 1; to < 3; ++to) member.expect(send(member, word, to), "go");
      int came[3] = {};
      while (came[1] + came[2] < 2 * kMessages) {
        for (int from = 1; from < 3; ++from) {
          if (came[from] == kMessages) continue;
          if (!member.expect(strettoCommProbe(member.comm, from, &arrived), "look")) return;
          if (arrived == 0) continue;
          Bytes in(sizeOf(came[from]));
          if (!member.expect(receive(member, in, from), "receive")) return;
          expectMessage(member, in, from, came[from]++);
        }
      }
      for (const int from : {1, 3}) {
        ncclResult_t result = ncclSuccess;
        const auto began = std::chrono::steady_clock::now();
        while (result == ncclSuccess && std::chrono::steady_clock::now() < began + std::chrono::seconds(20))
          result = strettoCommProbe(member.comm, from, &arrived);
        member.check(result == ncclRemoteError && arrived == 0, "it sends nothing more and has left");
      }
    } else if (member.rank != 3) {
      member.expect(receive(member, word, 0), "go");
      for (int number = 0; number < kMessages; ++number)
        member.expect(send(member, message(member.rank, 0, number, sizeOf(number)), 0), "send");
    }
  });
}

// Receives before sends, and the ranks in opposite orders: a group lets all go on together.
TEST_P(Messages, AreExchangedByAllPairs) {
  run(4, [](Member& member) {
    for (const size_t size : {size_t{100}, size_t{200000}, kChunk * kDepth + 5}) {
      std::vector<Bytes> out(4), in(4, Bytes(size));
      for (int peer = 0; peer < 4; ++peer)
        out[static_cast<size_t>(peer)] = message(member.rank, peer, 1, size);
      ncclGroupStart();
      for (int step = 0; step < 4; ++step) {
        const int peer = (step * 3 + member.rank) % 4;
        const auto at = static_cast<size_t>(peer);
        if (member.rank % 2 == 0) member.expect(send(member, out[at], peer), "send");
        member.expect(receive(member, in[at], peer), "receive");
        if (member.rank % 2 == 1) member.expect(send(member, out[at], peer), "send");
      }
      if (!member.expect(ncclGroupEnd(), "end")) return;
      for (int peer = 0; peer < 4; ++peer) expectMessage(member, in[static_cast<size_t>(peer)], peer, 1);
    }
  });
}

// A hundred of every size in one group, and as many one by one; the order of the calls is kept.
TEST_P(Messages, KeepTheirOrder) {
  run(2, [](Member& member) {
    for (const bool grouped : {true, false}) {
      std::vector<Bytes> all;
      if (grouped) ncclGroupStart();
      for (int number = 0; number < 100; ++number) {
        const size_t size = number % 17 == 0 ? 0 : static_cast<size_t>(number * number * 13 % 150000);
        all.push_back(member.rank == 0 ? message(0, 1, number, size) : Bytes(size));
        const bool sent = member.rank == 0 ? send(member, all.back(), 1) == ncclSuccess
                                           : receive(member, all.back(), 0) == ncclSuccess;
        if (!member.check(sent, ncclGetLastError(member.comm))) return;
      }
      if (grouped && !member.expect(ncclGroupEnd(), "end")) return;
      for (int number = 0; member.rank == 1 && number < 100; ++number) {
        expectMessage(member, all[static_cast<size_t>(number)], 0, number);
      }
    }
  });
}

TEST_P(Messages, ToOneselfAreCopied) {
  run(2, [](Member& member) {
    const int self = member.rank;
    const Bytes first = message(self, self, 1, 5000), second = message(self, self, 2, 0);
    const Bytes third = message(self, self, 3, 777777);
    Bytes in1(5000), in2, in3(777777);
    ncclGroupStart();
    receive(member, in1, self);
    send(member, first, self);
    send(member, second, self);
    send(member, third, self);
    receive(member, in2, self);
    receive(member, in3, self);
    member.expect(ncclGroupEnd(), "end");
    expectMessage(member, in1, self, 1);
    expectMessage(member, in3, self, 3);
  });
}

TEST_P(Messages, MixWithCollectivesInOneGroup) {
  run(3, [](Member& member) {
    const int next = (member.rank + 1) % 3;
    const int previous = (member.rank + 2) % 3;
    for (const size_t size : {size_t{10}, size_t{700000}}) {
      const Bytes out = message(member.rank, next, 1, size);
      Bytes in(size);
      std::vector<int> sums(1000, member.rank + 1), root(500, member.rank == 2 ? 42 : 0), all(3 * 10);
      std::vector<int> mine(10, member.rank);
      ncclGroupStart();
      ncclAllReduce(sums.data(), sums.data(), sums.size(), ncclInt32, ncclSum, member.comm, nullptr);
      send(member, out, next);
      ncclBroadcast(root.data(), root.data(), root.size(), ncclInt32, 2, member.comm, nullptr);
      receive(member, in, previous);
      ncclAllGather(mine.data(), all.data(), mine.size(), ncclInt32, member.comm, nullptr);
      if (!member.expect(ncclGroupEnd(), "end")) return;
      expectMessage(member, in, previous, 1);
      member.check(sums == std::vector<int>(1000, 6), "a wrong sum");
      member.check(root == std::vector<int>(500, 42), "a wrong broadcast");
      for (size_t i = 0; i < all.size(); ++i)
        member.check(all[i] == static_cast<int>(i / 10), "a wrong gather");
    }
  });
}

// Collectives over links use the same rings of chunks as messages do: nothing may be left over between them.
TEST_P(Messages, ShareTheLinksWithCollectives) {
  run(3, [](Member& member) {
    member.expect(strettoCommForce(member.comm, "all_reduce", "ring", "simple", 1024, 0), "force");
    member.expect(strettoCommForce(member.comm, "broadcast", "chain", "simple", 4096, 0), "force");
    for (int round = 0; round < 50; ++round) {
      const int from = round % 3, to = (round + 1 + round % 2) % 3;
      const size_t size = static_cast<size_t>(round * 7919 % 90000);
      Bytes bytes = member.rank == from ? message(from, to, round, size) : Bytes(size);
      if (member.rank == from && !member.expect(send(member, bytes, to), "send")) return;
      if (member.rank == to) {
        if (!member.expect(receive(member, bytes, from), "receive")) return;
        expectMessage(member, bytes, from, round);
      }
      std::vector<int> values(static_cast<size_t>(round * 37 + 1), 1);
      const size_t count = values.size();
      if (!member.expect(
              ncclAllReduce(values.data(), values.data(), count, ncclInt32, ncclSum, member.comm, nullptr),
              "sum") ||
          !member.expect(
              ncclBroadcast(values.data(), values.data(), count, ncclInt32, to, member.comm, nullptr),
              "broadcast")) {
        return;
      }
      member.check(values == std::vector<int>(count, 3), "a wrong sum");
    }
  });
}

TEST_P(Messages, OfEveryTypeMoveTheirBytes) {
  run(2, [](Member& member) {
    for (const DataType type : kTypes) {
      const size_t size = 1001 * sizeOf(type);
      Bytes bytes = member.rank == 0 ? message(0, 1, 1, size) : Bytes(size);
      const auto as = static_cast<ncclDataType_t>(type);
      const ncclResult_t result = member.rank == 0
                                      ? ncclSend(bytes.data(), 1001, as, 1, member.comm, nullptr)
                                      : ncclRecv(bytes.data(), 1001, as, 0, member.comm, nullptr);
      if (!member.expect(result, nameOf(type))) return;
      if (member.rank == 1) expectMessage(member, bytes, 0, 1);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Among, Messages, ::testing::Bool(),
                         [](const auto& suite) { return suite.param ? "Processes" : "Threads"; });

TEST(MessagesToOneself, WithoutTheirOtherHalfAreRefused) {
  asThreads(1, [](Member& member) {
    const auto fresh = [&](const Body& body) { connected(body)(member); };
    fresh([](Member& m) {
      float value = 0;
      m.expect(ncclSend(&value, 1, ncclFloat32, 0, m.comm, nullptr), "send", ncclInvalidUsage);
      m.expectError("the error", {"rank 0", "itself", "4 bytes"});
    });
    fresh([](Member& m) {
      float value = 0;
      m.expect(ncclRecv(&value, 1, ncclFloat32, 0, m.comm, nullptr), "receive", ncclInvalidUsage);
      m.expectError("the error", {"rank 0", "itself"});
    });
    fresh([](Member& m) {
      float value[2] = {};
      ncclGroupStart();
      ncclSend(value, 2, ncclFloat32, 0, m.comm, nullptr);
      ncclRecv(value, 1, ncclFloat32, 0, m.comm, nullptr);
      m.expect(ncclGroupEnd(), "end", ncclInvalidUsage);
      m.expectError("the error", {"rank 0", "same count and type"});
    });
  });
}

}  // namespace
}  // namespace stretto
