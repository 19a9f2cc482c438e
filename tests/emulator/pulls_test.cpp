// All-reduces that read peers' buffers, with what follows them on the streams: the next input is written
// where peers may still read. With a barrier at the end one buffer serves; without one two that take turns
// do, and one does not.
#include <gtest/gtest.h>

#include "emulator/ranks.hpp"
#include "harness/conformance.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Algorithm;
using algorithms::Protocol;
using emulator::Buffer;
using emulator::Machine;
using emulator::Ranks;
using executors::cuda::Launch;

struct Form {
  Algorithm algorithm;
  Protocol protocol;
  bool inPlace;
  size_t buffers;  // that take turns
};

constexpr int kRanks = 3;
constexpr size_t kCount = 300;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr size_t kTurns = 6;

const Dataset& data() {
  static const Dataset made =
      makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), kRanks, kCount * kTurns);
  return made;
}

// A rank's buffers: as many as take turns, what goes into them, and what came of it.
struct Side {
  std::vector<Buffer> send, receive;
  std::byte* given;
  std::byte* taken;
};

class Turns {
 public:
  Turns(uint64_t seed, const Form& form) : machine_({seed, true}), ranks_(machine_, kRanks, 2), form_(form) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Side& side = sides_.emplace_back();
      for (size_t i = 0; i < form.buffers; ++i) {
        side.send.emplace_back(machine_, kBytes, 0);
        side.receive.emplace_back(machine_, kBytes, 0);
      }
      side.given = machine_.allocate(kBytes * kTurns);
      side.taken = machine_.allocate(kBytes * kTurns);
      std::memcpy(side.given, data().inputs[static_cast<size_t>(rank)].data(), kBytes * kTurns);
    }
  }

  // How many results are right, of all ranks and turns; the machine must have nothing to say.
  size_t run() {
    for (size_t turn = 0; turn < kTurns; ++turn) {
      for (int rank = 0; rank < kRanks; ++rank) enqueue(rank, turn);
    }
    EXPECT_EQ(ranks_.run(), "");
    size_t right = 0;
    for (const Side& side : sides_) {
      for (size_t at = 0; at < kBytes * kTurns; at += kBytes) {
        if (std::memcmp(side.taken + at, data().expected.data() + at, kBytes) == 0) ++right;
      }
    }
    return right;
  }

 private:
  void enqueue(int rank, size_t turn) {
    const size_t which = turn % form_.buffers;
    const auto all = [&](bool sends) {
      std::vector<std::byte*> places;
      for (const Side& side : sides_) {
        places.push_back((sends && !form_.inPlace ? side.send : side.receive)[which].data());
      }
      return places;
    };
    const auto sends = all(true), receives = all(false);
    Launch launch;
    launch.collective = Collective::kAllReduce;
    launch.algorithm = form_.algorithm;
    launch.protocol = form_.protocol;
    launch.blocks = 2;
    launch.tag = 0x70 + turn;
    launch.sequence = turn + 1;
    launch.sends = sends.data();
    launch.receives = receives.data();
    launch.arguments.send = sends[static_cast<size_t>(rank)];
    launch.arguments.receive = receives[static_cast<size_t>(rank)];
    launch.arguments.count = kCount;
    launch.arguments.elementBytes = sizeof(float);
    const Side& side = sides_[static_cast<size_t>(rank)];
    const cudaStream_t stream = ranks_.stream(rank);
    cudaMemcpyAsync(sends[static_cast<size_t>(rank)], side.given + turn * kBytes, kBytes,
                    cudaMemcpyDeviceToDevice, stream);
    EXPECT_TRUE(ranks_.engine(rank).launch(launch, stream).ok()) << lastError();
    cudaMemcpyAsync(side.taken + turn * kBytes, launch.arguments.receive, kBytes, cudaMemcpyDeviceToDevice,
                    stream);
  }

  Machine machine_;
  Ranks ranks_;
  const Form form_;
  std::vector<Side> sides_;
};

constexpr size_t kAll = kTurns * kRanks;
constexpr uint64_t kSeeds = 12;

class Pulls : public ::testing::TestWithParam<Form> {};

TEST_P(Pulls, ReadWhatThisTurnHasWritten) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_EQ(Turns(seed, GetParam()).run(), kAll) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Pulls,
                         ::testing::Values(Form{Algorithm::kOneShot, Protocol::kPull, false, 1},
                                           Form{Algorithm::kTwoShot, Protocol::kPull, false, 1},
                                           Form{Algorithm::kTwoShot, Protocol::kPull, true, 1},
                                           Form{Algorithm::kOneShot, Protocol::kPullNosync, false, 2},
                                           Form{Algorithm::kTwoShot, Protocol::kPullNosync, false, 2},
                                           Form{Algorithm::kTwoShot, Protocol::kPullNosync, true, 2},
                                           Form{Algorithm::kTwoShot, Protocol::kPullPush, false, 1},
                                           Form{Algorithm::kTwoShot, Protocol::kPullPush, true, 1}),
                         [](const auto& suite) {
                           return std::string(nameOf(suite.param.algorithm)) + "_" +
                                  nameOf(suite.param.protocol) + (suite.param.inPlace ? "_in_place" : "");
                         });

// So these tests can fail: what the name asks for is needed.
TEST(PullsWithoutABarrier, GoWrongWithOneBuffer) {
  for (const Form& form : {Form{Algorithm::kOneShot, Protocol::kPullNosync, false, 1},
                           Form{Algorithm::kTwoShot, Protocol::kPullNosync, true, 1}}) {
    size_t right = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) right += Turns(seed, form).run();
    EXPECT_LT(right, kAll * kSeeds) << nameOf(form.algorithm);
  }
}

}  // namespace
}  // namespace stretto
