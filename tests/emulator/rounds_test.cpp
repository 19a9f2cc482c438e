// Operations in Lamport lines of several rounds, among two, four and eight emulated GPUs: each round writes
// where the one before the last was read, and so does the next operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <random>
#include <string>
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

struct RoundForm {
  int ranks;
  Collective collective;
  Algorithm algorithm;

  size_t sends() const { return collective == Collective::kReduceScatter ? static_cast<size_t>(ranks) : 1; }
  size_t receives() const { return collective == Collective::kAllGather ? static_cast<size_t>(ranks) : 1; }
  std::string name() const {
    return std::string(collective == Collective::kAllReduce ? "AllReduce" : "ReduceScatter") +
           (algorithm == Algorithm::kTwoShot ? "TwoShot" : "") + "Among" + std::to_string(ranks);
  }
};
constexpr RoundForm kAllReduce = {2, Collective::kAllReduce, Algorithm::kOneShot};
constexpr RoundForm kForms[] = {kAllReduce,
                                {2, Collective::kReduceScatter, Algorithm::kPush},
                                {4, Collective::kAllReduce, Algorithm::kOneShot},
                                {4, Collective::kAllReduce, Algorithm::kTwoShot},
                                {4, Collective::kReduceScatter, Algorithm::kPush},
                                {8, Collective::kAllReduce, Algorithm::kOneShot},
                                {8, Collective::kAllReduce, Algorithm::kTwoShot},
                                {8, Collective::kReduceScatter, Algorithm::kPush}};

struct RoundStep {
  size_t count;
  int blocks;
  bool inPlace;
  size_t offset;  // bytes of both buffers
  RoundForm form = kAllReduce;
  Protocol protocol = Protocol::kLamport;
};

// Of two ranks: around what one block takes in two rounds and in three, then little, which comes to the same
// places, and so on. In the last but one, rounds have fewer lines than three for each of the threads that one
// would have. Among several ranks the other forms have as many rounds or more of as much, and two-shots of
// `ranks` / 2 times as much.
constexpr RoundStep kSteps[] = {{35000, 1, false, 0}, {33792, 1, true, 0},  {16896, 1, false, 0},
                                {70001, 2, false, 4}, {9, 1, false, 0},     {50700, 1, true, 0},
                                {4000, 1, false, 0},  {16901, 1, false, 0}, {60000, 1, false, 8}};
constexpr size_t kMostElements = 70001;
constexpr uint32_t kChunk = 4096;

const Dataset& dataOf(int ranks) {
  static std::map<int, Dataset> made;
  const auto [found, isNew] = made.try_emplace(ranks);
  if (isNew) {
    found->second = makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), ranks,
                                static_cast<size_t>(ranks) * kMostElements);
  }
  return found->second;
}

class RoundCourse {
 public:
  explicit RoundCourse(uint64_t seed, int ranks) : machine_({seed, true}), ranks_(machine_, ranks, 3) {}

  // `count`: other than the step's, on a rank that is wrong.
  void enqueue(const RoundStep& step, int rank, uint64_t number, size_t count) {
    const size_t bytes = count * sizeof(float), sent = bytes * step.form.sends();
    Buffer& result = results_.emplace_back(machine_, bytes * step.form.receives(), step.offset);
    const bool inPlace = step.inPlace && step.form.sends() == 1 && step.form.receives() == 1;
    const Buffer& input = inPlace ? result : inputs_.emplace_back(machine_, sent, step.offset);
    std::memcpy(input.data(), dataOf(ranks_.size()).inputs[static_cast<size_t>(rank)].data(), sent);
    Launch launch;
    launch.collective = step.form.collective;
    launch.algorithm = step.form.algorithm;
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
  void enqueue(std::vector<RoundStep> steps) {
    steps_ = std::move(steps);
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (int rank = 0; rank < ranks_.size(); ++rank) enqueue(steps_[i], rank, i + 1, steps_[i].count);
    }
  }
  void check() {
    ASSERT_EQ(ranks_.run(), "");
    for (size_t i = 0; i < results_.size(); ++i) {
      const auto ranks = static_cast<size_t>(ranks_.size());
      const RoundStep& step = steps_[i / ranks];
      const size_t bytes = step.count * sizeof(float), rank = i % ranks;
      const Dataset& data = dataOf(ranks_.size());
      for (size_t part = 0; part < step.form.receives(); ++part) {
        const char* const expected = step.form.receives() > 1
                                         ? data.inputs[part].data()
                                         : data.expected.data() + (step.form.sends() == 1 ? 0 : rank * bytes);
        ASSERT_EQ(std::memcmp(results_[i].data() + part * bytes, expected, bytes), 0)
            << step.count << " elements by " << step.blocks << " blocks, rank " << rank;
      }
      ASSERT_TRUE(results_[i].isGuarded());
    }
  }
  Ranks& ranks() { return ranks_; }

 private:
  Machine machine_;
  Ranks ranks_;
  std::vector<RoundStep> steps_;
  std::deque<Buffer> inputs_, results_;
};

class Rounds : public ::testing::TestWithParam<RoundForm> {
 protected:
  static int ranks() { return GetParam().ranks; }
  static RoundStep first() {
    RoundStep step = kSteps[0];
    step.form = GetParam();
    return step;
  }
};

TEST_P(Rounds, FollowEachOtherInTheSamePlaces) {
  for (uint64_t seed = 1; seed <= 8 / static_cast<uint64_t>(ranks()); ++seed) {
    SCOPED_TRACE(seed);
    std::vector<RoundStep> steps(std::begin(kSteps), std::end(kSteps));
    for (RoundStep& step : steps) {
      step.form = GetParam();
      if (step.form.algorithm == Algorithm::kTwoShot) step.count *= static_cast<size_t>(ranks()) / 2;
    }
    RoundCourse course(seed, ranks());
    course.enqueue(steps);
    course.check();
    if (HasFatalFailure()) return;
  }
}

// Of any length, by as many blocks as they like, before and after operations of other protocols, which count
// the same epochs.
class RoundsAmongOthers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, RoundsAmongOthers, ::testing::Values(2, 4, 8));

TEST_P(RoundsAmongOthers, FindTheirPlacesAsTheyShouldBe) {
  std::vector<RoundForm> forms;
  std::copy_if(std::begin(kForms), std::end(kForms), std::back_inserter(forms),
               [](const RoundForm& form) { return form.ranks == GetParam(); });
  for (uint64_t seed = 1; seed <= 16 / static_cast<uint64_t>(GetParam()); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto one = [&](auto... of) { return std::array{of...}[random() % sizeof...(of)]; };
    std::vector<RoundStep> steps;
    for (int i = 0; i < 30; ++i) {
      RoundStep step{};
      step.protocol = one(Protocol::kLamport, Protocol::kLamport, Protocol::kLamport, Protocol::kLL,
                          Protocol::kLL128, Protocol::kWarpChunks);
      const bool isLong = step.protocol == Protocol::kLamport && random() % 2 == 0;
      step.count = 1 + random() % (isLong ? kMostElements : size_t{3000});
      step.blocks = static_cast<int>(1 + random() % 3);
      step.inPlace = random() % 2 == 0;
      step.offset = one(0u, 0u, 4u, 8u);
      step.form = forms[random() % forms.size()];
      if (isLong && step.form.algorithm == Algorithm::kTwoShot) {
        step.count *= static_cast<size_t>(GetParam()) / 2;
      }
      steps.push_back(step);
    }
    RoundCourse course(seed, GetParam());
    course.enqueue(steps);
    course.check();
    if (HasFatalFailure()) return;
  }
}

// An all-gather between two ranks has a kernel for exactly two; a sum of floats in warp chunks, which only a
// user or a table of the user's asks for, has the one for any number. Both walk the same rings, several times
// round.
TEST(WarpChunksBetweenTwo, GoRoundTheSameRingsInEitherKernel) {
  constexpr RoundForm kAllGather = {2, Collective::kAllGather, Algorithm::kPush};
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<RoundStep> steps;
    for (int i = 0; i < 6; ++i)
      steps.push_back(
          {kMostElements, 1, false, 0, i % 2 == 0 ? kAllGather : kAllReduce, Protocol::kWarpChunks});
    RoundCourse course(seed, 2);
    course.enqueue(steps);
    course.check();
    if (HasFatalFailure()) return;
  }
}

// Of which the last rank, that takes it for a shorter operation, sends nothing.
TEST_P(Rounds, ThatDoNotComeEndTheOperation) {
  RoundCourse course(5, ranks());
  const RoundStep step = first();
  const int last = ranks() - 1;
  for (int rank = 0; rank < last; ++rank) course.enqueue(step, rank, 1, step.count);
  course.enqueue(step, last, 1, step.count / 3);
  ASSERT_EQ(course.ranks().end(), "");
  const auto report = course.ranks().engine(0).report();
  EXPECT_EQ(report.status.code, Code::kTimeout) << nameOf(report.status.code);
  EXPECT_EQ(report.status.peer, last);
  EXPECT_EQ(report.sequence, 1u);
}

TEST_P(Rounds, EndWithAnAbort) {
  RoundCourse course(6, ranks());
  course.enqueue(first(), 0, 1, first().count);
  course.ranks().engine(0).abort(static_cast<uint32_t>(Code::kAborted));
  ASSERT_EQ(course.ranks().end(), "");
  EXPECT_EQ(course.ranks().engine(0).report().status.code, Code::kAborted);
}

// Told by the first round, whatever the others' lengths.
TEST_P(Rounds, OfDifferentOperationsAreNamed) {
  RoundCourse course(7, ranks());
  course.enqueue(first(), 0, 1, first().count);
  for (int rank = 1; rank < ranks(); ++rank) course.enqueue(first(), rank, 2, first().count);
  ASSERT_EQ(course.ranks().end(), "");
  int named = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto report = course.ranks().engine(rank).report();
    if (report.status.code != Code::kInvalidUsage) continue;
    ++named;
    EXPECT_EQ(report.status.peer == 0, rank != 0);
    EXPECT_EQ(report.theirTag, rank == 0 ? 0x52u : 0x51u);
  }
  EXPECT_GT(named, 0);
}

// Also where the first block has fewer lines than there are peers, so that some have no line to look beside.
TEST_P(Rounds, OfDifferentOperationsAreToldByEveryRankThatDiffersFromOne) {
  for (const size_t count : {1, 4, 40}) {
    SCOPED_TRACE(count);
    RoundCourse course(8, ranks());
    RoundStep step = first();
    step.count = count;
    const int last = ranks() - 1;
    for (int rank = 0; rank < last; ++rank) course.enqueue(step, rank, 1, count);
    course.enqueue(step, last, 2, count);
    ASSERT_EQ(course.ranks().end(), "");
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto report = course.ranks().engine(rank).report();
      EXPECT_EQ(report.status.code, Code::kInvalidUsage) << "rank " << rank;
      EXPECT_EQ(report.theirTag, rank == last ? 0x51u : 0x52u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Rounds, ::testing::ValuesIn(kForms),
                         [](const auto& suite) { return suite.param.name(); });

}  // namespace
}  // namespace stretto
