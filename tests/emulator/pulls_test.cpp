// All-reduces that read peers' buffers, with what follows them on the streams: the next input is written
// where peers may still read. With a barrier at the end one buffer serves; without one two that take turns
// do, and one does not.
#include <gtest/gtest.h>

#include <cstdlib>

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
  int ranks = 3;
  size_t count = 300;
  int blocks = 2;
  size_t offset = 0;  // of all buffers from where they are aligned

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
  Turns(uint64_t seed, const Form& form, size_t turns = kTurns)
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
        side.send.emplace_back(machine_, bytes, form.offset);
        side.receive.emplace_back(machine_, bytes, form.offset);
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
  uint64_t unitCopies() const { return machine_.unitCopies(); }
  // What rank 0 reports when it is aborted after so many copies by copy units, while those that are under way
  // make no progress; the machine must have nothing to say of that either.
  Status abortAfter(uint64_t copies) {
    enqueueAll();
    machine_.await([&] { return unitCopies() >= copies; });
    executors::cuda::Engine& engine = ranks_.engine(0);
    machine_.holdUnitCopies(true);
    engine.abort(static_cast<uint32_t>(Code::kAborted));
    machine_.await([&] { return !engine.report().status.ok(); });
    machine_.holdUnitCopies(false);
    EXPECT_EQ(ranks_.end(), "");
    return engine.report().status;
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
  const Form form_;
  const size_t turns_;
  const Dataset data_;
  std::vector<Side> sides_;
};

constexpr size_t kAll = kTurns * 3;
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

// By copy units: more tiles than there are stages, with and without a rest that is no whole tile or pack;
// the next turn's input is written as soon as this turn's kernel has ended.
class PushedInTiles : public ::testing::TestWithParam<Form> {};

TEST_P(PushedInTiles, ResultsAreRight) {
  const Form& form = GetParam();
  constexpr size_t kFewTurns = 2;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Turns turns(seed, form, kFewTurns);
    ASSERT_EQ(turns.run(), kFewTurns * static_cast<size_t>(form.ranks)) << "seed " << seed;
    EXPECT_EQ(turns.unitCopies() != 0, form.offset % 16 == 0);
  }
}

constexpr Form tiled(bool inPlace, int ranks, size_t count, int blocks, size_t offset = 0) {
  return {Algorithm::kTwoShot, Protocol::kPullBulk, inPlace, 1, ranks, count, blocks, offset};
}
INSTANTIATE_TEST_SUITE_P(Forms, PushedInTiles,
                         ::testing::Values(tiled(false, 2, 131072, 1), tiled(true, 2, 280003, 1),
                                           tiled(false, 3, 100001, 2, 16), tiled(true, 3, 100003, 1),
                                           tiled(false, 5, 100001, 1, 48), tiled(true, 5, 170000, 2),
                                           tiled(true, 2, 70001, 1, 4), tiled(false, 3, 80002, 1, 8)),
                         [](const auto& suite) {
                           const Form& form = suite.param;
                           return std::to_string(form.ranks) + "_ranks_" + std::to_string(form.count) +
                                  "_offset_" + std::to_string(form.offset) +
                                  (form.inPlace ? "_in_place" : "");
                         });

// Given up amid its tiles a kernel ends when what it had asked for has been copied, and says nothing of who
// did not come, as its threads waited for each other. A rank makes 64 copies: at 30 some are still to come.
TEST(PushedInTilesGivenUp, LeaveNoCopyUnderWay) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (const uint64_t copies : {5, 15, 30}) {
      Turns turns(seed, tiled(false, 2, 131072, 1), 1);
      const Status status = turns.abortAfter(copies);
      EXPECT_EQ(status.code, Code::kAborted) << "seed " << seed << ", after " << copies;
      EXPECT_EQ(status.peer, stretto::cuda::kNobody) << "seed " << seed << ", after " << copies;
    }
  }
}

// Kernels in tiles that were compiled for devices without copy units are empty, on every device.
TEST(PushedInTilesOfOldCode, AreLeftToThreads) {
  setenv("STRETTO_EMULATED_PTX", "80", 1);
  Turns turns(1, tiled(false, 2, 131072, 1), 1);
  unsetenv("STRETTO_EMULATED_PTX");
  EXPECT_EQ(turns.run(), 2u);
  EXPECT_EQ(turns.unitCopies(), 0u);
}

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
