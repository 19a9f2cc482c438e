// Every algorithm on a backend that delays and reorders whatever the verbs do not promise, one operation
// after another without a pause: the results must be right all the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/chaos.hpp"
#include "harness/conformance.hpp"
#include "harness/every_algorithm.hpp"
#include "harness/norm_sum.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

static_assert(Backend<Chaos>);

constexpr uint32_t kSlotBytes = 8192;
constexpr uint32_t kLinkChunk = 4096;
constexpr size_t kMostCount = 3001;
constexpr size_t kCounts[] = {1, 2, 7, 64, 65, 500, kMostCount};
constexpr size_t kChunks[] = {64, 1024, 4096, 65536};

struct Step {
  Case one;
  Algorithm<Chaos> algorithm;
};

// Every algorithm several times, in an order without order.
std::vector<Step> drawSteps(const std::vector<Dataset>& datasets, int rounds) {
  std::vector<Step> steps;
  Random random(17);
  for (int round = 0; round < rounds; ++round) {
    for (const Algorithm<Chaos>& algorithm : everyAlgorithm<Chaos>()) {
      const bool norms = algorithm.row->collective == Collective::kAllReduceAddRmsNorm;
      const Dataset& data = datasets[norms ? 0 : random() % datasets.size()];
      Step step{{}, algorithm};
      step.one.row = algorithm.row;
      step.one.data = &data;
      step.one.count = kCounts[random() % std::size(kCounts)];
      if (algorithm.row->mostBytes != 0) {
        step.one.count = std::min(step.one.count, algorithm.row->mostBytes / sizeOf(data.type));
      }
      step.one.chunkBytes = kChunks[random() % std::size(kChunks)];
      if (step.one.count * sizeOf(data.type) / step.one.chunkBytes > 100) step.one.chunkBytes = 1024;
      step.one.inPlace = algorithm.row->collective != Collective::kAllToAll && random() % 2 == 0;
      step.one.sendOffset = random() % 64;
      step.one.receiveOffset = random() % 64;
      step.one.root = static_cast<int>(random() % static_cast<uint64_t>(data.ranks));
      steps.push_back(step);
    }
  }
  std::shuffle(steps.begin(), steps.end(), random);
  return steps;
}

Arguments argumentsOf(const Step& step, const void* send, void* receive) {
  const Case& one = step.one;
  Arguments arguments;
  arguments.send = static_cast<const std::byte*>(send);
  arguments.receive = static_cast<std::byte*>(receive);
  arguments.count = one.count;
  arguments.elementBytes = sizeOf(one.data->type);
  arguments.reduce = {one.data->type, static_cast<Operator>(one.data->op),
                      static_cast<uint32_t>(one.data->ranks)};
  arguments.root = one.root;
  arguments.chunkBytes = one.chunkBytes;
  arguments.rings = step.algorithm.rings;
  arguments.directions = static_cast<int>(step.algorithm.directions);
  return arguments;
}

void runSteps(Member& member, Job& job, const std::vector<Step>& steps) {
  Host& host = job.host(member.rank);
  Chaos chaos(host, static_cast<uint64_t>(member.rank) + 100);
  uint64_t tag = 0;
  for (const Step& step : steps) {
    host.begin(++tag, 0);
    std::vector<char> result;
    const Calling call = [&](const void* send, void* receive) {
      Arguments arguments = argumentsOf(step, send, receive);
      const NormArguments norm = sumAlone(arguments);
      arguments.norm = &norm;
      const Status status = step.algorithm.run(chaos, arguments);
      chaos.finish();
      if (!status.ok()) member.complain("%s: %s", step.one.describe().c_str(), nameOf(status.code));
      return status.ok();
    };
    if (!checkCall(member, step.one, call, &result)) return;
  }
}

class ChaosAmong : public ::testing::TestWithParam<std::tuple<int, PeerAccess>> {};

TEST_P(ChaosAmong, ResultsAreRight) {
  const auto [ranks, reach] = GetParam();
  std::vector<Dataset> datasets;
  const size_t elements = kMostCount * static_cast<size_t>(ranks);
  datasets.push_back(makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), ranks, elements));
  datasets.push_back(makeDataset(DataType::kBfloat16, static_cast<int>(Operator::kAvg), ranks, elements));
  datasets.push_back(makeDataset(DataType::kInt8, static_cast<int>(Operator::kProd), ranks, elements));
  const std::vector<Step> steps = drawSteps(datasets, STRETTO_TEST_TSAN ? 3 : 10);
  Job job(ranks, kSlotBytes, kLinkChunk, reach);
  asThreads(
      ranks, [&](Member& member) { runSteps(member, job, steps); }, 120);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ChaosAmong,
                         ::testing::Combine(::testing::Values(2, 3, 4, 5, 8),
                                            ::testing::Values(PeerAccess::kAddress, PeerAccess::kCopy)),
                         [](const auto& suite) {
                           const bool copies = std::get<1>(suite.param) == PeerAccess::kCopy;
                           return std::to_string(std::get<0>(suite.param)) +
                                  (copies ? "_copying" : "_addressing");
                         });

// The chaos must be able to show a broken algorithm: this one signals before it has put everything.
Status broadcastTooEarly(Chaos& b, const Arguments& a) {
  b.nextEpoch();
  if (b.rank() != a.root) {
    STRETTO_TRY(b.wait(b.coop(), a.root, b.mailboxFrom(a.root, Phase::kScatter), b.epoch()));
    b.copy(b.coop(), a.receive, b.slotFrom(a.root, Phase::kScatter), a.bytes(), false);
    return kOkStatus;
  }
  const size_t half = a.bytes() / 2;
  for (int peer = 0; peer < b.ranks(); ++peer) {
    if (peer == b.rank()) continue;
    b.put(b.coop(), peer, b.slotAt(peer, Phase::kScatter), a.send, half);
    b.signal(b.coop(), peer, b.mailboxAt(peer, Phase::kScatter), b.epoch());
    b.put(b.coop(), peer, b.slotAt(peer, Phase::kScatter) + half, a.send + half, a.bytes() - half);
  }
  b.copy(b.coop(), a.receive, a.send, a.bytes(), false);
  return kOkStatus;
}

TEST(ChaosItself, FindsASignalThatComesTooEarly) {
  if (STRETTO_TEST_TSAN)
    GTEST_SKIP() << "the test is a data race on purpose, which ThreadSanitizer would end";
  Job job(2, kSlotBytes, kLinkChunk, PeerAccess::kAddress);
  std::atomic<int> wrong{0};
  asThreads(2, [&](Member& member) {
    Host& host = job.host(member.rank);
    Chaos chaos(host, static_cast<uint64_t>(member.rank));
    // Until it is found: how soon depends on when threads run.
    for (int round = 0; round < 20000; ++round) {
      std::vector<int> in(1000, round + 1), out(1000, 0);
      Arguments arguments;
      arguments.send = reinterpret_cast<const std::byte*>(in.data());
      arguments.receive = reinterpret_cast<std::byte*>(out.data());
      arguments.count = in.size();
      arguments.elementBytes = sizeof(int);
      host.begin(static_cast<uint64_t>(round) + 1, 0);
      if (!broadcastTooEarly(chaos, arguments).ok()) ++wrong;
      chaos.finish();
      if (out != in) ++wrong;
      if (!member.check(member.board.meet(), "left alone")) return;
      const bool found = wrong > 0;
      if (!member.check(member.board.meet(), "left alone") || found) return;
    }
  });
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace stretto
