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

struct PullForm {
  Algorithm algorithm;
  Protocol protocol;
  bool inPlace;
  size_t buffers;  // that take turns
  int ranks = 3;
  size_t count = 300;
  int blocks = 2;

  size_t bytes() const { return count * sizeof(float); }
};

constexpr size_t kTurns = 6;

// A rank's buffers: as many as take turns, what goes into them, and what came of it.
struct Side {
  std::vector<Buffer> send, receive;
  std::byte* given;
  std::byte* taken;
};

class Turns {
 public:
  Turns(uint64_t seed, const PullForm& form, size_t turns = kTurns)
      : machine_({seed, true}),
        ranks_(machine_, form.ranks, form.blocks),
        form_(form),
        turns_(turns),
        data_(makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), form.ranks,
                          form.count * turns)) {
    const size_t bytes = form.bytes();
    for (int rank = 0; rank < form.ranks; ++rank) {
      Side& side = sides_.emplace_back();
      for (size_t i = 0; i < form.buffers; ++i) {
        side.send.emplace_back(machine_, bytes, 0);
        side.receive.emplace_back(machine_, bytes, 0);
      }
      side.given = machine_.allocate(bytes * turns);
      side.taken = machine_.allocate(bytes * turns);
      std::memcpy(side.given, data_.inputs[static_cast<size_t>(rank)].data(), bytes * turns);
    }
  }

  void enqueueAll() {
    for (size_t turn = 0; turn < turns_; ++turn) {
      for (int rank = 0; rank < form_.ranks; ++rank) enqueue(rank, turn);
    }
  }
  // How many results are right, of all ranks and turns; the machine must have nothing to say.
  size_t run() {
    enqueueAll();
    EXPECT_EQ(ranks_.run(), "");
    size_t right = 0;
    for (const Side& side : sides_) {
      for (const auto* const buffers : {&side.send, &side.receive}) {
        for (const Buffer& buffer : *buffers) EXPECT_TRUE(buffer.isGuarded());
      }
      for (size_t at = 0; at < form_.bytes() * turns_; at += form_.bytes()) {
        if (std::memcmp(side.taken + at, data_.expected.data() + at, form_.bytes()) == 0) ++right;
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
    launch.blocks = form_.blocks;
    launch.tag = 0x70 + turn;
    launch.sequence = turn + 1;
    launch.sends = sends.data();
    launch.receives = receives.data();
    launch.arguments.send = sends[static_cast<size_t>(rank)];
    launch.arguments.receive = receives[static_cast<size_t>(rank)];
    launch.arguments.count = form_.count;
    launch.arguments.elementBytes = sizeof(float);
    const Side& side = sides_[static_cast<size_t>(rank)];
    const size_t bytes = form_.bytes();
    const cudaStream_t stream = ranks_.stream(rank);
    cudaMemcpyAsync(sends[static_cast<size_t>(rank)], side.given + turn * bytes, bytes,
                    cudaMemcpyDeviceToDevice, stream);
    EXPECT_TRUE(ranks_.engine(rank).launch(launch, stream).ok()) << lastError();
    cudaMemcpyAsync(side.taken + turn * bytes, launch.arguments.receive, bytes, cudaMemcpyDeviceToDevice,
                    stream);
  }

  Machine machine_;
  Ranks ranks_;
  const PullForm form_;
  const size_t turns_;
  const Dataset data_;
  std::vector<Side> sides_;
};

constexpr size_t kAllRight = kTurns * 3;
constexpr uint64_t kSeeds = 12;

class Pulls : public ::testing::TestWithParam<PullForm> {};

TEST_P(Pulls, ReadWhatThisTurnHasWritten) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_EQ(Turns(seed, GetParam()).run(), kAllRight) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Pulls,
                         ::testing::Values(PullForm{Algorithm::kOneShot, Protocol::kPull, false, 1},
                                           PullForm{Algorithm::kTwoShot, Protocol::kPull, false, 1},
                                           PullForm{Algorithm::kTwoShot, Protocol::kPull, true, 1},
                                           PullForm{Algorithm::kOneShot, Protocol::kPullNosync, false, 2},
                                           PullForm{Algorithm::kTwoShot, Protocol::kPullNosync, false, 2},
                                           PullForm{Algorithm::kTwoShot, Protocol::kPullNosync, true, 2},
                                           PullForm{Algorithm::kTwoShot, Protocol::kPullPush, false, 1},
                                           PullForm{Algorithm::kTwoShot, Protocol::kPullPush, true, 1}),
                         [](const auto& suite) {
                           return std::string(nameOf(suite.param.algorithm)) + "_" +
                                  nameOf(suite.param.protocol) + (suite.param.inPlace ? "_in_place" : "");
                         });

// So these tests can fail: what the name asks for is needed.
TEST(PullsWithoutABarrier, GoWrongWithOneBuffer) {
  for (const PullForm& form : {PullForm{Algorithm::kOneShot, Protocol::kPullNosync, false, 1},
                               PullForm{Algorithm::kTwoShot, Protocol::kPullNosync, true, 1}}) {
    size_t right = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) right += Turns(seed, form).run();
    EXPECT_LT(right, kAllRight * kSeeds) << nameOf(form.algorithm);
  }
}

}  // namespace
}  // namespace stretto
