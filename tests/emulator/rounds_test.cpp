// All-reduces in bare lines of several rounds, between two emulated GPUs: each round writes where the one
// before the last was read, and so does the next operation.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

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

constexpr int kRanks = 2;

struct Step {
  size_t count;
  int blocks;
  bool inPlace;
  size_t offset;  // bytes of both buffers
};

// Around what one block takes in two rounds and in three, then little, which comes to the same places, and so
// on.
constexpr Step kSteps[] = {{35000, 1, false, 0}, {33792, 1, true, 0}, {16896, 1, false, 0},
                           {70001, 2, false, 4}, {9, 1, false, 0},    {50700, 1, true, 0},
                           {4000, 1, false, 0},  {60000, 1, false, 8}};
constexpr size_t kMost = 70001;

const Dataset& data() {
  static const Dataset made =
      makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), kRanks, kMost);
  return made;
}

class Course {
 public:
  explicit Course(uint64_t seed) : machine_({seed, true}), ranks_(machine_, kRanks, 2) {
    for (const Step& step : kSteps) {
      for (int rank = 0; rank < kRanks; ++rank) enqueue(step, rank);
    }
  }
  void check() {
    ASSERT_EQ(ranks_.run(), "");
    for (size_t i = 0; i < results_.size(); ++i) {
      const Step& step = kSteps[i / kRanks];
      ASSERT_EQ(std::memcmp(results_[i].data(), data().expected.data(), step.count * sizeof(float)), 0)
          << step.count << " elements by " << step.blocks << " blocks, rank " << i % kRanks;
      ASSERT_TRUE(results_[i].isGuarded());
    }
  }

 private:
  void enqueue(const Step& step, int rank) {
    const size_t bytes = step.count * sizeof(float);
    Buffer& result = results_.emplace_back(machine_, bytes, step.offset);
    const Buffer& input = step.inPlace ? result : inputs_.emplace_back(machine_, bytes, step.offset);
    std::memcpy(input.data(), data().inputs[static_cast<size_t>(rank)].data(), bytes);
    Launch launch;
    launch.collective = Collective::kAllReduce;
    launch.algorithm = Algorithm::kOneShot;
    launch.protocol = Protocol::kBare;
    launch.blocks = step.blocks;
    launch.arguments.send = input.data();
    launch.arguments.receive = result.data();
    launch.arguments.count = step.count;
    launch.arguments.elementBytes = sizeof(float);
    launch.tag = 0x50 + static_cast<uint64_t>(&step - kSteps);
    launch.sequence = static_cast<uint64_t>(&step - kSteps) + 1;
    EXPECT_TRUE(ranks_.engine(rank).launch(launch, ranks_.stream(rank)).ok()) << lastError();
  }

  Machine machine_;
  Ranks ranks_;
  std::deque<Buffer> inputs_, results_;
};

TEST(Rounds, FollowEachOtherInTheSamePlaces) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Course(seed).check();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace stretto
