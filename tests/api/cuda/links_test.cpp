// Messages between GPUs that go several times round a link's ring of runs, in turns with algorithms that use
// the same links by warps: each must find its cursors where it left them.
#include <gtest/gtest.h>
#include <stretto.h>

#include <vector>

#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

// More than all channels' rings hold: 64 channels of 32 warp chunks of 16 KB.
constexpr size_t kLarge = (size_t{40} << 20) + 12;
constexpr size_t kSmall = 1000;
constexpr size_t kReduced = 300001;

class Links : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

unsigned char byteOf(int rank, size_t i, int round) {
  return static_cast<unsigned char>((i * 7 + i / 4096 + static_cast<size_t>(rank * 31 + round * 3)) & 0xff);
}

// A rank with a buffer to send from and one to receive into.
class Sender {
 public:
  explicit Sender(Member& member) : member_(member) {}

  // To the next rank and from the one before.
  bool pass(size_t bytes, int round) {
    const int ranks = member_.ranks();
    const int from = (member_.rank + ranks - 1) % ranks;
    std::vector<unsigned char> bytesOut(bytes);
    for (size_t i = 0; i < bytes; ++i) bytesOut[i] = byteOf(member_.rank, i, round);
    upload(bytesOut);
    ncclGroupStart();
    ncclSend(out_, bytes, ncclUint8, (member_.rank + 1) % ranks, member_.comm, member_.stream());
    ncclRecv(in_, bytes, ncclUint8, from, member_.comm, member_.stream());
    if (!member_.expect(ncclGroupEnd(), "a message")) return false;
    const std::vector<unsigned char> got = download<unsigned char>(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      if (got[i] == byteOf(from, i, round)) continue;
      member_.complain("round %d: byte %zu of %zu from rank %d is %u", round, i, bytes, from, got[i]);
      return false;
    }
    return true;
  }

  // Each rank gives its number plus one.
  bool sum(const char* algorithm) {
    std::vector<float> values(kReduced, static_cast<float>(member_.rank + 1));
    upload(values);
    if (!member_.expect(strettoCommForce(member_.comm, "all_reduce", algorithm, "chunks", 0, 0), "force") ||
        !member_.expect(
            ncclAllReduce(out_, in_, kReduced, ncclFloat, ncclSum, member_.comm, member_.stream()),
            algorithm)) {
      return false;
    }
    values = download<float>(kReduced);
    const auto expected = static_cast<float>(member_.ranks() * (member_.ranks() + 1) / 2);
    for (size_t i = 0; i < kReduced; ++i) {
      if (values[i] == expected) continue;
      member_.complain("%s: element %zu is %g, should be %g", algorithm, i, values[i], expected);
      return false;
    }
    return true;
  }

 private:
  template <typename T>
  void upload(const std::vector<T>& values) {
    member_.device->upload(out_, reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  // What has been received, once it is there.
  template <typename T>
  std::vector<T> download(size_t count) {
    std::vector<T> values(count);
    member_.device->synchronize();
    member_.device->download(reinterpret_cast<char*>(values.data()), in_, count * sizeof(T));
    return values;
  }

  Member& member_;
  char* const out_ = member_.device->at(0, nullptr);
  char* const in_ = member_.device->at(1, nullptr);
};

TEST_F(Links, CarryMessagesOfManyRunsBetweenRings) {
  for (const int ranks : {2, 3}) {
    asThreads(ranks, connected([](Member& member) {
                Sender sender(member);
                int round = 0;
                for (const size_t bytes : {kLarge, kSmall, kLarge / 3, size_t{1}}) {
                  if (!sender.pass(bytes, round++) || !sender.sum("ring")) return;
                }
                sender.pass(kLarge, round);
              }),
              100);
  }
}

}  // namespace
}  // namespace stretto
