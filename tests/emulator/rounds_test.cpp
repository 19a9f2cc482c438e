// Operations in Lamport lines of several rounds, between two emulated GPUs: each round writes where the one
// before the last was read, and so does the next operation.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

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
  Collective collective = Collective::kAllReduce;
  Protocol protocol = Protocol::kLamport;

  size_t sends() const { return collective == Collective::kReduceScatter ? kRanks : 1; }
};

// Around what one block takes in two rounds and in three, then little, which comes to the same places, and so
// on. In the last but one, rounds have fewer lines than three for each of the threads that one would have.
constexpr Step kSteps[] = {{35000, 1, false, 0}, {33792, 1, true, 0},  {16896, 1, false, 0},
                           {70001, 2, false, 4}, {9, 1, false, 0},     {50700, 1, true, 0},
                           {4000, 1, false, 0},  {16901, 1, false, 0}, {60000, 1, false, 8}};
constexpr size_t kMost = 70001;
constexpr uint32_t kChunk = 4096;

const Dataset& data() {
  static const Dataset made =
      makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), kRanks, kRanks * kMost);
  return made;
}

class LineCursor {
 public:
  explicit LineCursor(uint64_t seed) : machine_({seed, true}), ranks_(machine_, kRanks, 3) {}

  // `count`: other than the step's, on a rank that is wrong.
  void enqueue(const Step& step, int rank, uint64_t number, size_t count) {
    const size_t bytes = count * sizeof(float), sent = bytes * step.sends();
    Buffer& result = results_.emplace_back(machine_, bytes, step.offset);
    const bool inPlace = step.inPlace && step.sends() == 1;
    const Buffer& input = inPlace ? result : inputs_.emplace_back(machine_, sent, step.offset);
    std::memcpy(input.data(), data().inputs[static_cast<size_t>(rank)].data(), sent);
    Launch launch;
    launch.collective = step.collective;
    launch.algorithm = step.sends() == 1 ? Algorithm::kOneShot : Algorithm::kPush;
    launch.protocol = step.protocol;
    launch.blocks = step.blocks;
    launch.arguments.send = input.data();
    launch.arguments.receive = result.data();
    launch.arguments.count = count;
    launch.arguments.elementBytes = sizeof(float);
    launch.arguments.chunkBytes = kChunk;
    launch.tag = 0x50 + number;
    launch.sequence = number;
    EXPECT_TRUE(ranks_.engine(rank).launch(launch, ranks_.stream(rank)).ok()) << lastError();
  }
  void enqueue(std::vector<Step> steps) {
    steps_ = std::move(steps);
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (int rank = 0; rank < kRanks; ++rank) enqueue(steps_[i], rank, i + 1, steps_[i].count);
    }
  }
  void check() {
    ASSERT_EQ(ranks_.run(), "");
    for (size_t i = 0; i < results_.size(); ++i) {
      const Step& step = steps_[i / kRanks];
      const size_t bytes = step.count * sizeof(float), rank = i % kRanks;
      const char* const expected = data().expected.data() + (step.sends() == 1 ? 0 : rank * bytes);
      ASSERT_EQ(std::memcmp(results_[i].data(), expected, bytes), 0)
          << step.count << " elements by " << step.blocks << " blocks, rank " << rank;
      ASSERT_TRUE(results_[i].isGuarded());
    }
  }
  Ranks& ranks() { return ranks_; }

 private:
  Machine machine_;
  Ranks ranks_;
  std::vector<Step> steps_;
  std::deque<Buffer> inputs_, results_;
};

class Rounds : public ::testing::TestWithParam<Collective> {
 protected:
  static Step first() {
    Step step = kSteps[0];
    step.collective = GetParam();
    return step;
  }
};

TEST_P(Rounds, FollowEachOtherInTheSamePlaces) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<Step> steps(std::begin(kSteps), std::end(kSteps));
    for (Step& step : steps) step.collective = GetParam();
    LineCursor cursor(seed);
    cursor.enqueue(steps);
    cursor.check();
    if (HasFatalFailure()) return;
  }
}

// Of any length, by as many blocks as they like, before and after operations of other protocols, which count
// the same epochs.
TEST(RoundsAmongOthers, FindTheirPlacesAsTheyShouldBe) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto one = [&](auto... of) { return std::array{of...}[random() % sizeof...(of)]; };
    std::vector<Step> steps;
    for (int i = 0; i < 30; ++i) {
      Step step{};
      step.protocol = one(Protocol::kLamport, Protocol::kLamport, Protocol::kLamport, Protocol::kLL,
                          Protocol::kLL128, Protocol::kWarpChunks);
      const bool isLong = step.protocol == Protocol::kLamport && random() % 2 == 0;
      step.count = 1 + random() % (isLong ? kMost : size_t{3000});
      step.blocks = static_cast<int>(1 + random() % 3);
      step.inPlace = random() % 2 == 0;
      step.offset = one(0u, 0u, 4u, 8u);
      step.collective = one(Collective::kAllReduce, Collective::kReduceScatter);
      steps.push_back(step);
    }
    LineCursor cursor(seed);
    cursor.enqueue(steps);
    cursor.check();
    if (HasFatalFailure()) return;
  }
}

// Of which the other rank, that takes it for a shorter operation, sends nothing.
TEST_P(Rounds, ThatDoNotComeEndTheOperation) {
  LineCursor cursor(5);
  const Step step = first();
  cursor.enqueue(step, 0, 1, step.count);
  cursor.enqueue(step, 1, 1, step.count / 3);
  ASSERT_EQ(cursor.ranks().end(), "");
  const auto report = cursor.ranks().engine(0).report();
  EXPECT_EQ(report.status.code, Code::kTimeout) << nameOf(report.status.code);
  EXPECT_EQ(report.status.peer, 1);
  EXPECT_EQ(report.sequence, 1u);
}

TEST_P(Rounds, EndWithAnAbort) {
  LineCursor cursor(6);
  cursor.enqueue(first(), 0, 1, first().count);
  cursor.ranks().engine(0).abort(static_cast<uint32_t>(Code::kAborted));
  ASSERT_EQ(cursor.ranks().end(), "");
  EXPECT_EQ(cursor.ranks().engine(0).report().status.code, Code::kAborted);
}

// Told by the first round, whatever the others' lengths.
TEST_P(Rounds, OfDifferentOperationsAreNamed) {
  LineCursor cursor(7);
  cursor.enqueue(first(), 0, 1, first().count);
  cursor.enqueue(first(), 1, 2, first().count);
  ASSERT_EQ(cursor.ranks().end(), "");
  int named = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto report = cursor.ranks().engine(rank).report();
    if (report.status.code != Code::kInvalidUsage) continue;
    ++named;
    EXPECT_EQ(report.theirTag, 0x50u + static_cast<uint64_t>(2 - rank));
  }
  EXPECT_GT(named, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, Rounds, ::testing::Values(Collective::kAllReduce, Collective::kReduceScatter),
                         [](const auto& suite) {
                           return suite.param == Collective::kAllReduce ? "AllReduce" : "ReduceScatter";
                         });

}  // namespace
}  // namespace stretto
