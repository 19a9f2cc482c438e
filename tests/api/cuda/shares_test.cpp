// What a block's share of an operation can come to: a little more than its lines hold, so that its three
// stages have few warps between them; and channels of messages that the two ends take in different launches.
#include <gtest/gtest.h>
#include <stretto.h>

#include <vector>

#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr int kShareRanks = 4;

class Shares : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

// A rank with a buffer to send from and one to receive into.
struct Buffers {
  explicit Buffers(Member& member)
      : device(*member.device), out(member.device->at(0, nullptr)), in(member.device->at(1, nullptr)) {}

  void fill(char* at, size_t count, float value) {
    const std::vector<float> values(count, value);
    device.upload(at, reinterpret_cast<const char*>(values.data()), count * sizeof(float));
  }
  // Whether all that was received is `value`.
  bool holds(size_t count, float value) {
    std::vector<float> values(count);
    device.synchronize();
    device.download(reinterpret_cast<char*>(values.data()), in, count * sizeof(float));
    for (const float one : values) {
      if (one != value) return false;
    }
    return true;
  }

  OnDevice& device;
  char* out;
  char* in;
};

TEST_F(Shares, OfATwoShotMayBeALittleMoreThanItsLines) {
  asThreads(
      kShareRanks, connected([](Member& member) {
        Buffers buffers(member);
        const auto given = static_cast<float>(member.rank + 1);
        for (const char* protocol : {"lines", "wide"}) {
          for (size_t count = 256; count <= 4096; count += 30) {
            buffers.fill(buffers.out, count, given);
            buffers.fill(buffers.in, count, -1);
            member.expect(strettoCommForce(member.comm, "broadcast", "two_shot", protocol, 0, 1), "force");
            member.expect(
                ncclBroadcast(buffers.out, buffers.in, count, ncclFloat, 1, member.comm, member.stream()),
                "broadcast");
            if (!member.check(buffers.holds(count, 2), "what the root had")) return;
            member.expect(strettoCommForce(member.comm, "all_reduce", "two_shot", protocol, 0, 1), "force");
            member.expect(ncclAllReduce(buffers.out, buffers.in, count, ncclFloat, ncclSum, member.comm,
                                        member.stream()),
                          "all-reduce");
            if (!member.check(buffers.holds(count, 10), "the sum")) return;
          }
        }
      }),
      100);
}

// Rank 0 sends two large messages to rank 1 in one group with others, so that its blocks serve several
// channels; rank 1 receives them in two launches.
TEST_F(Shares, OfMessagesArriveInWhateverLaunchesTheyAreReceived) {
  constexpr size_t kFirst = size_t{256} << 10, kSecond = size_t{2} << 20;
  asThreads(kShareRanks, connected([](Member& member) {
              Buffers buffers(member);
              buffers.fill(buffers.out, kSecond, 7);
              const auto send = [&](size_t count, int to) {
                member.expect(ncclSend(buffers.out, count, ncclFloat, to, member.comm, member.stream()),
                              "send");
              };
              const auto receive = [&](size_t count, int from) {
                member.expect(ncclRecv(buffers.in, count, ncclFloat, from, member.comm, member.stream()),
                              "receive");
              };
              if (member.rank == 0) {
                ncclGroupStart();
                send(kFirst, 1);
                send(kSecond, 1);
                send(kFirst, 2);
                send(kFirst, 3);
                member.expect(ncclGroupEnd(), "a group");
                member.device->synchronize();
                return;
              }
              buffers.fill(buffers.in, kSecond, -1);
              receive(kFirst, 0);
              if (!member.check(buffers.holds(kFirst, 7), "the first message") || member.rank != 1) return;
              receive(kSecond, 0);
              member.check(buffers.holds(kSecond, 7), "the second message");
            }),
            60);
}

}  // namespace
}  // namespace stretto
