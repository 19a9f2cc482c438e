// Several collectives in one launch, among emulated GPUs: ranks that cut the same operations, in the same
// channels, into launches in different ways get what they would have got from one launch each, and nothing
// goes on after a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "communicator/device/together.hpp"
#include "emulator/ranks.hpp"
#include "harness/conformance.hpp"
#include "planner/choose.hpp"
#include "planner/cuda_model.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Algorithm;
using algorithms::Protocol;
using emulator::Buffer;
using emulator::Machine;
using emulator::Ranks;
using emulator::rounds;
using executors::cuda::KernelStamp;
using executors::cuda::Launch;

constexpr size_t kMostInLaunch = 32;  // operations that share a launch

struct FusedForm {
  int ranks;
  Collective collective;
  Algorithm algorithm;
  Protocol protocol;
};

std::string nameOfForm(const FusedForm& form) {
  return std::to_string(form.ranks) + "_" + nameOf(form.collective) + "_" +
         algorithms::nameOf(form.algorithm) + "_" + algorithms::nameOf(form.protocol);
}

// One operation of all ranks, its buffers, and each rank's launch.
struct FusedStep {
  const Dataset* data;
  size_t count;
  bool narrows;  // where channels are short, to as few blocks as the kernel for several takes it in
  std::vector<Buffer> send, receive;
  std::vector<Launch> launches;
};

// Operations of one form, of types and sizes that are drawn.
class Steps {
 public:
  Steps(Machine& machine, Ranks& ranks, const FusedForm& form, uint64_t seed)
      : machine_(machine), ranks_(ranks), form_(form), random_(seed) {
    for (const DataType type : {DataType::kFloat32, DataType::kInt32, DataType::kInt8}) {
      const auto op = type == DataType::kInt8 ? Operator::kMax : Operator::kSum;
      if (form.protocol == Protocol::kLamport && type != DataType::kFloat32) continue;
      data_.push_back(
          makeDataset(type, static_cast<int>(op), form.ranks, kElements * static_cast<size_t>(form.ranks)));
    }
  }

  // Those of one kernel are of float32, or none is.
  void add(size_t many, bool floats) {
    for (size_t i = 0; i < many; ++i) {
      FusedStep step;
      step.data = floats ? &data_.front() : &data_[1 + random_() % (data_.size() - 1)];
      constexpr size_t kCounts[] = {1, 7, 64, 257, 1000, kElements};
      step.count = kCounts[random_() % std::size(kCounts)];
      step.narrows = steps_.size() % 2 == 0;
      const uint64_t offset = random_();
      for (int rank = 0; rank < form_.ranks; ++rank) prepare(step, rank, offset);
      steps_.push_back(std::move(step));
    }
  }
  size_t size() const { return steps_.size(); }
  Launch& launch(size_t step, int rank) { return steps_[step].launches[static_cast<size_t>(rank)]; }

  // A rank's launches of the steps from `first` to `last`: `draws` decides before each whether it begins
  // another one. Returns how many there were.
  size_t launchAll(int rank, size_t first, size_t last, const std::function<bool()>& draws) {
    size_t launches = 0;
    std::vector<Launch> together;
    const auto flush = [&] {
      if (together.empty()) return;
      ++launches;
      EXPECT_TRUE(ranks_.engine(rank).launchTogether(together, ranks_.stream(rank)).ok()) << lastError();
      EXPECT_EQ(ranks_.engine(rank).lastLaunch().number,
                ranks_.engine(rank).lastOf(together.size() - 1).number);
      together.clear();
    };
    layOut(rank);
    for (size_t step = first; step < last; ++step) {
      EXPECT_TRUE(ranks_.engine(rank).mayShare(launch(step, rank)));
      if (draws() || !ranks_.engine(rank).joins(together, launch(step, rank))) flush();
      together.push_back(launch(step, rank));
    }
    flush();
    return launches;
  }
  void expectResults() {
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (int rank = 0; rank < form_.ranks; ++rank) {
        const FusedStep& step = steps_[i];
        const auto wanted = expectedOf(step, rank);
        const auto& receive = step.receive[static_cast<size_t>(rank)];
        ASSERT_EQ(std::memcmp(receive.data(), wanted.data(), wanted.size()), 0)
            << "operation " << i << " of " << step.count << ", rank " << rank;
        ASSERT_TRUE(receive.isGuarded() && step.send[static_cast<size_t>(rank)].isGuarded());
      }
    }
  }

 private:
  static constexpr size_t kElements = 3000;

  // As a communicator does it of a group, but that some keep their blocks: channels are few here, and all
  // would have one or two.
  void layOut(int rank) {
    std::vector<communicator::ChannelShare> channels;
    for (size_t step = 0; step < size(); ++step) channels.push_back({true, launch(step, rank).blocks});
    communicator::giveChannels(channels, ranks_.shape().channels, [&](size_t step) {
      Launch one = launch(step, rank);
      if (!steps_[step].narrows) return one.blocks;
      return communicator::leastBlocks(one.blocks, [&](int blocks) {
        one.blocks = blocks;
        return ranks_.engine(rank).mayShare(one);
      });
    });
    for (size_t step = 0; step < size(); ++step) {
      launch(step, rank).firstChannel = channels[step].first;
      launch(step, rank).blocks = channels[step].blocks;
    }
  }
  std::vector<char> expectedOf(const FusedStep& step, int rank) const {
    const size_t block = step.count * sizeOf(step.data->type);
    std::vector<char> wanted;
    const auto append = [&](const char* from) { wanted.insert(wanted.end(), from, from + block); };
    if (form_.collective == Collective::kAllGather) {
      for (const auto& input : step.data->inputs) append(input.data());
    } else {
      const bool scatters = form_.collective == Collective::kReduceScatter;
      append(step.data->expected.data() + (scatters ? static_cast<size_t>(rank) * block : 0));
    }
    return wanted;
  }
  planner::Plan planFor(const FusedStep& step) {
    planner::Forced forced;
    EXPECT_TRUE(forced
                    .force(nameOf(form_.collective), algorithms::nameOf(form_.algorithm),
                           algorithms::nameOf(form_.protocol), 0,
                           form_.protocol == Protocol::kLamport ? 0 : static_cast<int>(random_() % 4))
                    .ok());
    const planner::Request request{form_.collective, step.data->type, static_cast<Operator>(step.data->op),
                                   step.count * sizeOf(step.data->type), form_.ranks};
    const auto plan = planner::choose(request, ranks_.planned(), planner::Table(), forced);
    EXPECT_TRUE(plan.ok()) << lastError();
    return plan.ok() ? plan.value() : planner::Plan{};
  }
  void prepare(FusedStep& step, int rank, uint64_t offset) {
    const size_t element = sizeOf(step.data->type);
    const size_t block = step.count * element;
    const size_t sends = sendBlocks(form_.collective, form_.ranks) * block;
    step.send.emplace_back(machine_, sends, offset % 4 * element);
    step.receive.emplace_back(machine_, receiveBlocks(form_.collective, form_.ranks) * block,
                              offset / 4 % 4 * element);
    Launch launch = rank == 0 ? Launch{} : step.launches.front();
    if (rank == 0) {
      const planner::Plan plan = planFor(step);
      launch.collective = form_.collective;
      launch.algorithm = plan.algorithm;
      launch.protocol = plan.protocol;
      launch.blocks = plan.blocks;
      launch.arguments.chunkBytes = plan.chunkBytes;
      launch.arguments.count = step.count;
      launch.arguments.elementBytes = element;
      launch.arguments.reduce = {step.data->type, static_cast<Operator>(step.data->op),
                                 static_cast<uint32_t>(form_.ranks)};
      launch.sequence = steps_.size() + 1;
      launch.tag = 0x1000 + steps_.size();
    }
    const bool inPlace = form_.collective == Collective::kAllReduce && offset % 3 == 0;
    launch.arguments.receive = step.receive.back().data();
    launch.arguments.send = inPlace ? step.receive.back().data() : step.send.back().data();
    std::memcpy(inPlace ? step.receive.back().data() : step.send.back().data(),
                step.data->inputs[static_cast<size_t>(rank)].data(), sends);
    step.launches.push_back(launch);
  }

  Machine& machine_;
  Ranks& ranks_;
  const FusedForm form_;
  Random random_;
  std::vector<Dataset> data_;
  std::vector<FusedStep> steps_;
};

const auto kNever = [] { return false; };

// ---- Results ----------------------------------------------------------------------------------------------

class Fused : public ::testing::TestWithParam<FusedForm> {};

TEST_P(Fused, OperationsGiveWhatLaunchesOfTheirOwnGive) {
  const FusedForm form = GetParam();
  constexpr size_t kSteps = 9;
  for (uint64_t seed = 1; seed <= 3 * static_cast<uint64_t>(rounds()); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine machine({seed * 100 + static_cast<uint64_t>(form.ranks), true});
    Ranks ranks(machine, form.ranks, 4);
    Steps steps(machine, ranks, form, seed);
    steps.add(kSteps, form.protocol == Protocol::kLamport || seed % 2 == 0);
    Random random(seed);
    // One rank has all of them in one launch, the last one none with another, the rest any.
    for (int rank = 0; rank < form.ranks; ++rank) {
      const bool isLast = rank + 1 == form.ranks;
      const size_t launches =
          steps.launchAll(rank, 0, kSteps, [&] { return isLast || (rank > 0 && random() % 3 == 0); });
      EXPECT_TRUE(rank != 0 || launches == 1) << launches;
      EXPECT_TRUE(!isLast || launches == kSteps) << launches;
      EXPECT_EQ(ranks.stream(rank)->launched, launches);
      EXPECT_EQ(ranks.engine(rank).lastLaunch().number, kSteps);
    }
    ASSERT_EQ(ranks.run(), "");
    steps.expectResults();
    if (HasFatalFailure()) return;
    for (int rank = 0; rank < form.ranks; ++rank)
      EXPECT_EQ(ranks.engine(rank).finished().collectives, kSteps);
  }
}

std::vector<FusedForm> forms() {
  std::vector<FusedForm> all;
  for (const int ranks : {2, 3, 4, 8}) {
    for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128, Protocol::kLamport}) {
      all.push_back({ranks, Collective::kAllReduce, Algorithm::kOneShot, protocol});
      all.push_back({ranks, Collective::kReduceScatter, Algorithm::kPush, protocol});
      const bool fourLamport =
          ranks == 4 && protocol == Protocol::kLamport;  // a kernel for four that stays alone
      if (ranks > 2 && !fourLamport)
        all.push_back({ranks, Collective::kAllReduce, Algorithm::kTwoShot, protocol});
      const bool gathers = protocol == Protocol::kLL || (protocol == Protocol::kLL128 && ranks > 2);
      if (gathers) all.push_back({ranks, Collective::kAllGather, Algorithm::kPush, protocol});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, Fused, ::testing::ValuesIn(forms()),
                         [](const auto& suite) { return nameOfForm(suite.param); });

const FusedForm kPairs{2, Collective::kAllReduce, Algorithm::kOneShot, Protocol::kLL};

// More than one launch holds, at once and without a pause.
TEST(FusedLaunches, HoldSoManyAtMost) {
  Machine machine({5, true});
  Ranks ranks(machine, 2, 4);
  Steps steps(machine, ranks, kPairs, 5);
  steps.add(2 * kMostInLaunch + 3, true);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(steps.launchAll(rank, 0, steps.size(), kNever), 3u);
  ASSERT_EQ(ranks.run(), "");
  steps.expectResults();
}

// Each operation has its own launch number, stamps of its own blocks, and the number that its replays would
// have.
TEST(FusedLaunches, LeaveStampsForEachOperation) {
  constexpr size_t kSteps = 5;
  Machine machine({6});
  Ranks ranks(machine, 2, 4);
  Steps steps(machine, ranks, kPairs, 6);
  steps.add(kSteps, true);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(ranks.engine(rank).wantStamps().ok());
    for (size_t i = 0; i < kSteps; ++i) steps.launch(i, rank).blocks = 1 + static_cast<int>(i) % 3;
    ASSERT_EQ(steps.launchAll(rank, 0, kSteps, kNever), 1u);
  }
  ASSERT_EQ(ranks.run(), "");
  steps.expectResults();
  for (int rank = 0; rank < 2; ++rank) {
    std::array<KernelStamp, 64> stamps;
    uint64_t lost = 0;
    const size_t taken = ranks.engine(rank).takeStamps(stamps, lost);
    EXPECT_EQ(lost, 0u);
    size_t wanted = 0;
    for (size_t i = 0; i < kSteps; ++i) {
      const auto launched = ranks.engine(rank).lastOf(i);
      EXPECT_EQ(launched.number, i + 1);
      EXPECT_EQ(launched.stamps, steps.launch(i, rank).blocks);
      wanted += static_cast<size_t>(launched.stamps);
      const auto of = [&](const KernelStamp& stamp) { return stamp.launch == launched.number; };
      EXPECT_EQ(std::count_if(stamps.begin(), stamps.begin() + static_cast<ptrdiff_t>(taken), of),
                launched.stamps);
      for (size_t at = 0; at < taken; ++at) {
        EXPECT_TRUE(!of(stamps[at]) || stamps[at].block != 0 || stamps[at].operation == i + 1);
        EXPECT_LE(stamps[at].start, stamps[at].stop);
      }
    }
    EXPECT_EQ(taken, wanted);
  }
}

// ---- What may share a launch ------------------------------------------------------------------------------

class FusedJoins : public ::testing::Test {
 protected:
  FusedJoins() : machine_({7}), ranks_(machine_, 2, 4), memory_(machine_.allocate(size_t{4} << 20)) {}

  // `count` float32 from one place to another, in bytes of a buffer.
  Launch sum(size_t from, size_t to, size_t count, Collective collective = Collective::kAllReduce) {
    Launch launch;
    launch.collective = collective;
    launch.algorithm = collective == Collective::kAllReduce ? Algorithm::kOneShot : Algorithm::kPush;
    launch.protocol = Protocol::kLL;
    launch.arguments.send = memory_ + from;
    launch.arguments.receive = memory_ + to;
    launch.arguments.count = count;
    launch.arguments.elementBytes = sizeof(float);
    return launch;
  }
  bool joins(const Launch& before, const Launch& next) { return ranks_.engine(0).joins({&before, 1}, next); }
  bool isAlone(const Launch& launch) { return !ranks_.engine(0).mayShare(launch); }

  Machine machine_;
  Ranks ranks_;
  std::byte* memory_;
};

TEST_F(FusedJoins, WhatIsApart) {
  EXPECT_TRUE(joins(sum(0, 0, 100), sum(400, 400, 100)));
  EXPECT_TRUE(joins(sum(0, 1000, 100), sum(0, 1400, 100)));  // both read the same
  EXPECT_TRUE(joins(sum(400, 1000, 100), sum(0, 1400, 150)));
}

TEST_F(FusedJoins, NotWhatAnotherWrites) {
  EXPECT_FALSE(joins(sum(0, 1000, 100), sum(1396, 2000, 100)));  // reads a result
  EXPECT_FALSE(joins(sum(0, 1000, 100), sum(2000, 399, 100)));   // overwrites an input
  EXPECT_FALSE(joins(sum(0, 1000, 100), sum(2000, 604, 100)));   // and a result
  EXPECT_FALSE(joins(sum(0, 0, 100), sum(0, 0, 100)));
  // Blocks of all ranks count where there are some.
  const auto gather = [&](size_t to) { return sum(0, to, 100, Collective::kAllGather); };
  EXPECT_TRUE(joins(gather(1000), gather(1800)));
  EXPECT_FALSE(joins(gather(1000), gather(1796)));
  const auto scatter = [&](size_t from, size_t to) { return sum(from, to, 100, Collective::kReduceScatter); };
  EXPECT_TRUE(joins(scatter(1000, 0), scatter(1000, 1800)));
  EXPECT_FALSE(joins(scatter(1000, 0), scatter(1000, 1796)));
}

TEST_F(FusedJoins, OnlyWhatRunsInTheSameKernel) {
  const Launch first = sum(0, 0, 100);
  Launch other = sum(1000, 1000, 100);
  other.protocol = Protocol::kLL128;
  EXPECT_FALSE(joins(first, other));
  other = sum(1000, 1000, 100);
  other.arguments.reduce.op = Operator::kMax;
  EXPECT_FALSE(joins(first, other));
  other.arguments.reduce.op = Operator::kAvg;  // one kernel serves sums and averages
  EXPECT_TRUE(joins(first, other));
  EXPECT_FALSE(joins(first, sum(1000, 2000, 100, Collective::kReduceScatter)));
}

TEST_F(FusedJoins, OnlyWhatIsSmall) {
  constexpr size_t kLimit = (size_t{256} << 10) / sizeof(float);
  EXPECT_FALSE(isAlone(sum(0, 0, kLimit)));
  EXPECT_TRUE(isAlone(sum(0, 0, kLimit + 1)));
  EXPECT_TRUE(isAlone(sum(0, size_t{1} << 20, kLimit / 2 + 1, Collective::kAllGather)));
  EXPECT_TRUE(isAlone(sum(0, 0, 0)));
  Launch scaled = sum(0, 0, 10);
  scaled.scaled = true;
  EXPECT_TRUE(isAlone(scaled));
  Launch runs = sum(0, 0, 10);
  runs.protocol = Protocol::kWarpChunks;
  EXPECT_TRUE(isAlone(runs));
}

// ---- What goes wrong --------------------------------------------------------------------------------------

constexpr size_t kFailing = 2;  // of these steps
constexpr size_t kStepsOfAll = 6;

std::vector<FusedForm> failing() {
  return {{2, Collective::kAllReduce, Algorithm::kOneShot, Protocol::kLL},
          {2, Collective::kAllReduce, Algorithm::kOneShot, Protocol::kLL128},
          {2, Collective::kAllReduce, Algorithm::kOneShot, Protocol::kLamport},
          {2, Collective::kAllGather, Algorithm::kPush, Protocol::kLL},
          {3, Collective::kAllReduce, Algorithm::kOneShot, Protocol::kLamport},
          {3, Collective::kAllReduce, Algorithm::kTwoShot, Protocol::kLL},
          {3, Collective::kAllReduce, Algorithm::kTwoShot, Protocol::kLL128},
          {3, Collective::kReduceScatter, Algorithm::kPush, Protocol::kLamport}};
}

// All ranks but the last have so many steps in one launch, the last has the first few only. Returns the time
// that it took, by the machine's clock.
uint64_t runWithoutLast(const FusedForm& form, size_t steps, bool aborts, Code expected) {
  Machine machine({21});
  Ranks ranks(machine, form.ranks, 4);
  Steps all(machine, ranks, form, 21);
  all.add(steps, true);
  for (int rank = 0; rank < form.ranks; ++rank) {
    const bool leaves = rank + 1 == form.ranks;
    EXPECT_EQ(all.launchAll(rank, 0, leaves ? kFailing : steps, kNever), 1u);
    if (aborts && !leaves) ranks.engine(rank).abort(static_cast<uint32_t>(Code::kAborted));
  }
  EXPECT_EQ(ranks.end(), "");
  for (int rank = 0; rank + 1 < form.ranks; ++rank) {
    const auto report = ranks.engine(rank).report();
    EXPECT_EQ(report.status.code, expected);
    EXPECT_TRUE(aborts || report.sequence > kFailing) << report.sequence;
    EXPECT_EQ(ranks.engine(rank).finished().collectives, steps);
  }
  return machine.nanoseconds();
}

// One of those that are given up is named; in a channel those after it count as ended, and take no time: four
// in a row would take four times as long.
TEST(FusedFailure, ARankThatIsMissingInTheMiddleEndsTheRest) {
  for (const FusedForm& form : failing()) {
    SCOPED_TRACE(nameOfForm(form));
    const uint64_t one = runWithoutLast(form, kFailing + 1, false, Code::kTimeout);
    EXPECT_LT(runWithoutLast(form, kStepsOfAll, false, Code::kTimeout), 3 * one);
  }
}

TEST(FusedFailure, AnAbortEndsTheRest) {
  for (const FusedForm& form : failing()) {
    SCOPED_TRACE(nameOfForm(form));
    const uint64_t one = runWithoutLast(form, kFailing + 1, true, Code::kAborted);
    EXPECT_LT(runWithoutLast(form, kStepsOfAll, true, Code::kAborted), 3 * one);
  }
}

TEST(FusedFailure, ADisagreementInTheMiddleIsNamed) {
  for (const FusedForm& form : failing()) {
    SCOPED_TRACE(nameOfForm(form));
    Machine machine({23});
    Ranks ranks(machine, form.ranks, 4);
    Steps steps(machine, ranks, form, 23);
    steps.add(kStepsOfAll, true);
    steps.launch(kFailing, form.ranks - 1).tag = 0xbad;
    for (int rank = 0; rank < form.ranks; ++rank) steps.launchAll(rank, 0, kStepsOfAll, kNever);
    ASSERT_EQ(ranks.end(), "");
    int named = 0;
    for (int rank = 0; rank < form.ranks; ++rank) {
      const auto report = ranks.engine(rank).report();
      if (report.status.code == Code::kInvalidUsage) {
        ++named;
        EXPECT_EQ(report.sequence, kFailing + 1);
      }
      EXPECT_EQ(ranks.engine(rank).finished().collectives, kStepsOfAll);
    }
    EXPECT_GT(named, 0);
  }
}

}  // namespace
}  // namespace stretto
