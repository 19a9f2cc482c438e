// Operations in bare lines of several rounds, between two emulated GPUs: each round writes where the one
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
// on. In the last but one, rounds have fewer lines than three for each of the threads that one would have.
constexpr Step kSteps[] = {{35000, 1, false, 0}, {33792, 1, true, 0},  {16896, 1, false, 0},
                           {70001, 2, false, 4}, {9, 1, false, 0},     {50700, 1, true, 0},
                           {4000, 1, false, 0},  {16901, 1, false, 0}, {60000, 1, false, 8}};
constexpr size_t kMost = 70001;

const Dataset& data() {
  static const Dataset made =
      makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), kRanks, kRanks * kMost);
  return made;
}

class Course {
 public:
  Course(Collective collective, uint64_t seed)
      : collective_(collective), machine_({seed, true}), ranks_(machine_, kRanks, 2) {}

  // `count`: other than the step's, on a rank that is wrong.
  void enqueue(const Step& step, int rank, uint64_t number, size_t count) {
    const size_t bytes = count * sizeof(float), sent = bytes * blocks();
    Buffer& result = results_.emplace_back(machine_, bytes, step.offset);
    const Buffer& input = isInPlace(step) ? result : inputs_.emplace_back(machine_, sent, step.offset);
    std::memcpy(input.data(), data().inputs[static_cast<size_t>(rank)].data(), sent);
    Launch launch;
    launch.collective = collective_;
    launch.algorithm = blocks() == 1 ? Algorithm::kOneShot : Algorithm::kPush;
    launch.protocol = Protocol::kBare;
    launch.blocks = step.blocks;
    launch.arguments.send = input.data();
    launch.arguments.receive = result.data();
    launch.arguments.count = count;
    launch.arguments.elementBytes = sizeof(float);
    launch.tag = 0x50 + number;
    launch.sequence = number;
    EXPECT_TRUE(ranks_.engine(rank).launch(launch, ranks_.stream(rank)).ok()) << lastError();
  }
  void check() {
    ASSERT_EQ(ranks_.run(), "");
    for (size_t i = 0; i < results_.size(); ++i) {
      const Step& step = kSteps[i / kRanks];
      const size_t bytes = step.count * sizeof(float), rank = i % kRanks;
      const char* const expected = data().expected.data() + (blocks() == 1 ? 0 : rank * bytes);
      ASSERT_EQ(std::memcmp(results_[i].data(), expected, bytes), 0)
          << step.count << " elements by " << step.blocks << " blocks, rank " << rank;
      ASSERT_TRUE(results_[i].isGuarded());
    }
  }
  Ranks& ranks() { return ranks_; }

 private:
  size_t blocks() const { return collective_ == Collective::kReduceScatter ? kRanks : 1; }
  bool isInPlace(const Step& step) const { return step.inPlace && blocks() == 1; }

  const Collective collective_;
  Machine machine_;
  Ranks ranks_;
  std::deque<Buffer> inputs_, results_;
};

class Rounds : public ::testing::TestWithParam<Collective> {};

TEST_P(Rounds, FollowEachOtherInTheSamePlaces) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    Course course(GetParam(), seed);
    uint64_t number = 0;
    for (const Step& step : kSteps) {
      ++number;
      for (int rank = 0; rank < kRanks; ++rank) course.enqueue(step, rank, number, step.count);
    }
    course.check();
    if (HasFatalFailure()) return;
  }
}

// Of which the other rank, that takes it for a shorter operation, sends nothing.
TEST_P(Rounds, ThatDoNotComeEndTheOperation) {
  Course course(GetParam(), 5);
  const Step& step = kSteps[0];
  course.enqueue(step, 0, 1, step.count);
  course.enqueue(step, 1, 1, step.count / 3);
  ASSERT_EQ(course.ranks().end(), "");
  const auto report = course.ranks().engine(0).report();
  EXPECT_EQ(report.status.code, Code::kTimeout) << nameOf(report.status.code);
  EXPECT_EQ(report.status.peer, 1);
  EXPECT_EQ(report.sequence, 1u);
}

TEST_P(Rounds, EndWithAnAbort) {
  Course course(GetParam(), 6);
  course.enqueue(kSteps[0], 0, 1, kSteps[0].count);
  course.ranks().engine(0).abort(static_cast<uint32_t>(Code::kAborted));
  ASSERT_EQ(course.ranks().end(), "");
  EXPECT_EQ(course.ranks().engine(0).report().status.code, Code::kAborted);
}

// Told by the first round, whatever the others' lengths.
TEST_P(Rounds, OfDifferentOperationsAreNamed) {
  Course course(GetParam(), 7);
  course.enqueue(kSteps[0], 0, 1, kSteps[0].count);
  course.enqueue(kSteps[0], 1, 2, kSteps[0].count);
  ASSERT_EQ(course.ranks().end(), "");
  int named = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto report = course.ranks().engine(rank).report();
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
