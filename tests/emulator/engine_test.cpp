// The kernels of this library, as its engine launches them, among emulated GPUs: every algorithm in every
// protocol, by any number of ranks, in courses of events that no GPU takes twice. Several operations follow
// each other without a pause, so that what one leaves behind is what the next one finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "emulator/ranks.hpp"
#include "harness/conformance.hpp"
#include "harness/norm_sum.hpp"
#include "planner/choose.hpp"
#include "planner/cuda_model.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Descriptor;
using algorithms::Protocol;
using emulator::Buffer;
using emulator::Machine;
using emulator::Ranks;
using emulator::rounds;
using executors::cuda::DeviceTransfer;
using executors::cuda::Launch;

// One collective of all ranks, with its buffers and what must be in them afterwards.
struct EngineStep {
  Case one;
  planner::Plan plan;
  std::vector<Buffer> send, receive;

  size_t element() const { return sizeOf(one.data->type); }
  size_t block() const { return one.count * element(); }
};

std::vector<char> expectedOf(const Case& one, int rank) {
  const size_t block = one.count * sizeOf(one.data->type);
  const auto input = [&](int from) { return one.data->inputs[static_cast<size_t>(from)].data(); };
  const size_t mine = static_cast<size_t>(rank) * block;
  std::vector<char> result;
  const auto append = [&](const char* from) { result.insert(result.end(), from, from + block); };
  switch (one.row->collective) {
    case Collective::kReduceScatter:
      append(one.data->expected.data() + mine);
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      for (int from = 0; from < one.data->ranks; ++from) append(input(from));
      break;
    case Collective::kAllToAll:
      for (int from = 0; from < one.data->ranks; ++from) append(input(from) + mine);
      break;
    case Collective::kBroadcast:
      append(input(one.root));
      break;
    case Collective::kScatter:
      append(input(one.root) + mine);
      break;
    default:
      append(one.data->expected.data());
  }
  const bool toRoot =
      one.row->collective == Collective::kReduce || one.row->collective == Collective::kGather;
  return toRoot && rank != one.root ? std::vector<char>{} : result;
}

class EngineCourse {
 public:
  EngineCourse(Machine& machine, Ranks& ranks, const std::vector<Dataset>& data, uint64_t seed)
      : machine_(machine), ranks_(ranks), data_(data), random_(seed) {}

  // So many steps of one row; what is drawn and does not suit it is drawn again.
  void add(const Descriptor& row, size_t steps) {
    const size_t wanted = steps_.size() + steps;
    for (int draws = 0; steps_.size() < wanted && draws < 100; ++draws) {
      EngineStep step;
      if (!draw(row, step)) continue;
      for (int rank = 0; rank < ranks_.size(); ++rank) prepare(step, rank);
      for (int rank = 0; rank < ranks_.size(); ++rank) launch(step, rank);
      steps_.push_back(std::move(step));
    }
    EXPECT_EQ(steps_.size(), wanted);
  }
  void check() {
    const std::string wrong = ranks_.run();
    ASSERT_TRUE(wrong.empty()) << wrong << "\n" << lastOf();
    for (const EngineStep& step : steps_) {
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        const auto place = static_cast<size_t>(rank);
        const auto expected = expectedOf(step.one, rank);
        const std::string what = step.one.describe() + ", rank " + std::to_string(rank);
        const auto* const got = reinterpret_cast<const char*>(step.receive[place].data());
        const auto differs = std::mismatch(expected.begin(), expected.end(), got);
        ASSERT_TRUE(differs.first == expected.end())
            << what << ", " << static_cast<int>(step.plan.blocks) << " blocks: byte " << differs.second - got
            << " of " << expected.size();
        ASSERT_TRUE(step.send[place].isGuarded() && step.receive[place].isGuarded()) << what;
      }
    }
  }

 private:
  template <typename T>
  T one(std::initializer_list<T> of) {
    return std::data(of)[random_() % of.size()];
  }
  // Sizes around what a line, a run, a slot or a pass holds.
  bool draw(const Descriptor& row, EngineStep& step) {
    Case& asked = step.one;
    asked.row = &row;
    // Sums of floats in another order have other bits: those of integers have not.
    do {
      asked.data = &data_[random_() % data_.size()];
    } while (!row.rankOrder && isReduction(row.collective) && isFloating(asked.data->type));
    const size_t element = sizeOf(asked.data->type);
    planner::Request request{row.collective, asked.data->type, static_cast<Operator>(asked.data->op), 0,
                             ranks_.size()};
    const size_t most = asked.data->elements / static_cast<size_t>(ranks_.size());
    planner::Machine machine = ranks_.planned();
    machine.rings = one<uint8_t>({1, 1, 2, 4});
    machine.directions = one({algorithms::Directions::kOneWay, algorithms::Directions::kBothWays});
    const auto around = one<size_t>({1, 3, 17, 64, 129, 500, 1024, 2047, 6000, 20000});
    asked.count = std::min<size_t>(most, around + random_() % 7);
    if (row.collective == Collective::kAllReduceAddRmsNorm) {
      if (asked.count > 64) asked.count -= asked.count % 64;  // tokens of one element are many
      request.tokenBytes = hiddenOf(asked.count) * element;
    }
    if (row.protocol == Protocol::kCopy && isReduction(row.collective)) {
      asked.count -= asked.count % (16 / element * static_cast<size_t>(ranks_.size()));
    }
    request.bytes = asked.count * element;
    request.windowed = row.protocol == Protocol::kCopy;
    request.pullsOnce = request.pullsTwice = algorithms::isPull(row.protocol);
    if (asked.count == 0 || planner::obstacleTo(row, request, machine) != planner::Obstacle::kNone)
      return false;
    planner::Forced forced;
    const bool copies = row.protocol == Protocol::kCopy;
    const bool many = row.protocol != Protocol::kLamport && (!copies || isReduction(row.collective));
    const int blocks = many ? one<int>({0, 1, 2, 3}) : 0;
    const bool links = planner::wayOf(row) == planner::Way::kLinks;
    const size_t chunk = links            ? one<size_t>({0, 0, 256, 1024})
                         : copies && many ? one<size_t>({0, 2048, 4096})
                                          : 0;
    EXPECT_TRUE(forced
                    .force(nameOf(row.collective), algorithms::nameOf(row.algorithm),
                           algorithms::nameOf(row.protocol), chunk, blocks)
                    .ok());
    const auto plan = planner::choose(request, machine, planner::Table(), forced);
    if (!plan.ok()) return false;
    step.plan = plan.value();
    asked.root = static_cast<int>(random_() % static_cast<uint64_t>(ranks_.size()));
    asked.sendOffset = one<size_t>({0, 0, 16, 8, 4}) / element * element;
    asked.receiveOffset = one<size_t>({0, 0, 16, 8, 4}) / element * element;
    const bool keepsInputs =
        copies || (algorithms::isPull(row.protocol) && row.algorithm == algorithms::Algorithm::kOneShot);
    asked.inPlace = row.collective == Collective::kAllReduce && !keepsInputs && random_() % 3 == 0;
    return true;
  }
  void prepare(EngineStep& step, int rank) {
    const size_t sends = sendBlocks(step.one.row->collective, ranks_.size()) * step.block();
    step.receive.emplace_back(machine_, receiveBlocks(step.one.row->collective, ranks_.size()) * step.block(),
                              step.one.receiveOffset);
    step.send.emplace_back(machine_, sends, step.one.sendOffset);
    const auto& to = step.one.inPlace ? step.receive.back() : step.send.back();
    std::memcpy(to.data(), step.one.data->inputs[static_cast<size_t>(rank)].data(), sends);
  }
  void launch(const EngineStep& step, int rank) {
    const auto place = static_cast<size_t>(rank);
    Launch launch;
    launch.collective = step.one.row->collective;
    launch.algorithm = step.plan.algorithm;
    launch.protocol = step.plan.protocol;
    launch.blocks = step.plan.blocks;
    launch.tag = 0x1000 + steps_.size();
    launch.sequence = steps_.size() + 1;
    Arguments& arguments = launch.arguments;
    arguments.receive = step.receive[place].data();
    arguments.send = step.one.inPlace ? arguments.receive : step.send[place].data();
    arguments.count = step.one.count;
    arguments.elementBytes = step.element();
    arguments.reduce = {step.one.data->type, static_cast<Operator>(step.one.data->op),
                        static_cast<uint32_t>(ranks_.size())};
    arguments.root = step.one.root;
    arguments.chunkBytes = step.plan.chunkBytes;
    arguments.rings = step.plan.rings;
    arguments.directions = static_cast<int>(step.plan.directions);
    std::vector<std::byte*> sends, receives;
    for (const Buffer& each : step.one.inPlace ? step.receive : step.send) sends.push_back(each.data());
    for (const Buffer& each : step.receive) receives.push_back(each.data());
    launch.sends = sends.data();
    launch.receives = receives.data();
    const NormArguments norm = sumAlone(arguments);
    if (launch.collective == Collective::kAllReduceAddRmsNorm) arguments.norm = &norm;
    ASSERT_TRUE(ranks_.engine(rank).launch(launch, ranks_.stream(rank)).ok()) << lastError();
  }
  std::string lastOf() const {
    std::string all;
    for (const EngineStep& step : steps_) all += step.one.describe() + "\n";
    return all;
  }

  Machine& machine_;
  Ranks& ranks_;
  const std::vector<Dataset>& data_;
  Random random_;
  std::vector<EngineStep> steps_;
};

const std::vector<Dataset>& datasets(int ranks) {
  static std::map<int, std::vector<Dataset>> all;
  auto& data = all[ranks];
  if (!data.empty()) return data;
  const size_t elements = (ranks > 8 ? 600 : 6000) * static_cast<size_t>(ranks);
  const auto op = [](Operator each) { return static_cast<int>(each); };
  data.push_back(makeDataset(DataType::kFloat32, op(Operator::kSum), ranks, elements));
  data.push_back(makeDataset(DataType::kBfloat16, op(Operator::kAvg), ranks, elements));
  data.push_back(makeDataset(DataType::kFloat16, op(Operator::kSum), ranks, elements));
  data.push_back(makeDataset(DataType::kInt8, op(Operator::kMax), ranks, elements));
  data.push_back(makeDataset(DataType::kInt64, op(Operator::kProd), ranks, elements));
  return data;
}

// Between two ranks a two-shot saves nothing; one that pulls is there for comparison.
bool isForPairs(const Descriptor& row) {
  return row.algorithm != algorithms::Algorithm::kTwoShot || algorithms::isPull(row.protocol);
}
bool hasKernel(const Descriptor& row) {
  const bool isMessage = row.collective == Collective::kSend || row.collective == Collective::kReceive;
  return !isMessage && row.algorithm != algorithms::Algorithm::kLocal;
}

// ---- Collectives ------------------------------------------------------------------------------------------

struct EngineForm {
  int ranks;
  Protocol protocol;
};

class EngineAmong : public ::testing::TestWithParam<EngineForm> {};

TEST_P(EngineAmong, EveryAlgorithmIsRight) {
  const auto [count, protocol] = GetParam();
  for (int round = 0; round < rounds(); ++round) {
    const auto seed = static_cast<uint64_t>(round + 1) * 1000 + static_cast<uint64_t>(count);
    for (const Descriptor& row : algorithms::descriptors(algorithms::Device::kCuda)) {
      if (!hasKernel(row) || row.protocol != protocol) continue;
      SCOPED_TRACE("seed " + std::to_string(seed));
      Machine machine({seed, true});
      Ranks ranks(machine, count, 4);
      EngineCourse course(machine, ranks, datasets(count), seed);
      course.add(row, isForPairs(row) || count > 2 ? 4 : 0);
      course.check();
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<EngineForm> engineForms() {
  std::vector<EngineForm> all;
  for (const int ranks : {2, 3, 4, 5, 8}) {
    for (int protocol = 0; protocol < algorithms::kProtocols; ++protocol) {
      all.push_back({ranks, static_cast<Protocol>(protocol)});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineAmong, ::testing::ValuesIn(engineForms()), [](const auto& suite) {
  return std::to_string(suite.param.ranks) + "_" + algorithms::nameOf(suite.param.protocol);
});

// ---- Messages ---------------------------------------------------------------------------------------------

struct Message {
  int from;
  int to;
  Buffer sent;
  Buffer received;
  size_t bytes;
};

constexpr int kGroups = 3;

// Groups of messages between ranks that are drawn, so many of each rank; `resident` blocks of each fit on its
// GPU. The launches of all ranks together.
void exchange(int count, int resident, int each, uint64_t seed, uint64_t& launches) {
  SCOPED_TRACE(std::to_string(count) + " ranks, seed " + std::to_string(seed));
  Machine machine({seed, true});
  Ranks ranks(machine, count, std::min(8, resident), resident);
  Random random(seed);
  std::vector<Message> messages;
  for (int group = 0; group < kGroups; ++group) {
    const size_t before = messages.size();
    for (int i = 0; i < each * count; ++i) {
      const auto from = static_cast<int>(random() % static_cast<uint64_t>(count));
      const auto to = static_cast<int>(random() % static_cast<uint64_t>(count));
      constexpr size_t kBytes[] = {0, 1, 100, 2048, 5000, 40000, 120000};
      const size_t bytes = kBytes[random() % std::size(kBytes)] + random() % 3;
      messages.push_back({from, to, {machine, bytes, random() % 16}, {machine, bytes, random() % 16}, bytes});
      for (size_t at = 0; at < bytes; ++at)
        messages.back().sent.data()[at] = static_cast<std::byte>(random());
    }
    for (int rank = 0; rank < count; ++rank) {
      std::vector<DeviceTransfer> transfers;
      for (size_t i = before; i < messages.size(); ++i) {
        const Message& one = messages[i];
        const uint64_t tag = 77 + one.bytes;
        if (one.from == rank) transfers.push_back({true, one.to, one.sent.data(), one.bytes, tag});
        if (one.to == rank) transfers.push_back({false, one.from, one.received.data(), one.bytes, tag});
      }
      const auto status =
          ranks.engine(rank).launchTransfers(transfers, static_cast<uint64_t>(group) + 1, ranks.stream(rank));
      ASSERT_TRUE(status.ok()) << lastError();
    }
  }
  const std::string wrong = ranks.run();
  ASSERT_TRUE(wrong.empty()) << wrong;
  for (int rank = 0; rank < count; ++rank) launches += ranks.engine(rank).lastLaunch().number;
  for (const Message& one : messages) {
    ASSERT_EQ(std::memcmp(one.sent.data(), one.received.data(), one.bytes), 0)
        << one.bytes << " bytes from " << one.from << " to " << one.to;
    ASSERT_TRUE(one.received.isGuarded());
  }
}

TEST(EngineMessages, ArriveInGroups) {
  for (int round = 0; round < rounds(); ++round) {
    for (const int count : {2, 3, 4, 6}) {
      uint64_t launches = 0;
      exchange(count, 132, 3, static_cast<uint64_t>(100 * round + count), launches);
      EXPECT_LE(launches, static_cast<uint64_t>(count * kGroups));
    }
  }
}

// Three times what the one channel's ring holds, with a message before so that it begins in the middle.
TEST(EngineMessages, GoRoundTheRingOfTwoRanksSeveralTimes) {
  Machine machine({11, true});
  Ranks ranks(machine, 2, 1, 1);
  const WindowLayout layout = communicator::deviceShape(2, 1).layout;
  const size_t ring = size_t{layout.linkWarpChunks} * layout.linkChunk;
  std::vector<Message> messages;
  for (const size_t bytes : {size_t{50001}, 3 * ring + 5}) {
    messages.push_back({0, 1, {machine, bytes, 3}, {machine, bytes, 5}, bytes});
    for (size_t at = 0; at < bytes; ++at)
      messages.back().sent.data()[at] = static_cast<std::byte>(at * 7 + at / 4096);
  }
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<DeviceTransfer> transfers;
    for (const Message& one : messages) {
      transfers.push_back(
          {rank == 0, 1 - rank, rank == 0 ? one.sent.data() : one.received.data(), one.bytes, 8});
    }
    ASSERT_TRUE(ranks.engine(rank).launchTransfers(transfers, 1, ranks.stream(rank)).ok()) << lastError();
  }
  ASSERT_EQ(ranks.run(), "");
  for (const Message& one : messages) {
    EXPECT_EQ(std::memcmp(one.sent.data(), one.received.data(), one.bytes), 0) << one.bytes << " bytes";
    EXPECT_TRUE(one.received.isGuarded());
  }
}

// Sixteen ranks on a GPU of 132 multiprocessors have 8 blocks each, for up to 30 queues.
TEST(EngineMessages, OfManyRanksThatShareAGpuGoInSeveralLaunches) {
  uint64_t launches = 0;
  exchange(16, 8, 8, 3, launches);
  EXPECT_GT(launches, uint64_t{16 * kGroups});
  exchange(7, 2, 3, 4, launches);
}

// Whose queues fit has one launch for all of them: these messages wait for each other in a circle.
TEST(EngineMessages, OfAFewStepsGoTogether) {
  Machine machine({5, true});
  Ranks ranks(machine, 16, 8, 8);
  constexpr size_t kBytes = 200000;  // more than is under way
  const auto launch = [&](int rank, std::initializer_list<std::pair<int, bool>> peers) {
    std::vector<DeviceTransfer> transfers;
    for (const auto& [peer, isSend] : peers) {
      transfers.push_back({isSend, peer, machine.allocate(kBytes), kBytes, 9});
    }
    ASSERT_TRUE(ranks.engine(rank).launchTransfers(transfers, 1, ranks.stream(rank)).ok());
  };
  launch(0, {{5, true}, {15, false}});
  launch(5, {{0, false}});
  launch(5, {{15, true}});
  launch(15, {{5, false}});
  launch(15, {{0, true}});
  EXPECT_EQ(ranks.run(), "");
}

// ---- What goes wrong --------------------------------------------------------------------------------------

Launch launchOf(const Descriptor& row, const planner::Plan& plan, std::byte* send, std::byte* receive,
                size_t count, uint64_t tag) {
  Launch launch;
  launch.collective = row.collective;
  launch.algorithm = row.algorithm;
  launch.protocol = row.protocol;
  launch.blocks = plan.blocks;
  launch.tag = tag;
  launch.sequence = 1;
  launch.arguments.send = send;
  launch.arguments.receive = receive;
  launch.arguments.count = count;
  launch.arguments.elementBytes = sizeof(float);
  launch.arguments.chunkBytes = plan.chunkBytes;
  launch.arguments.rings = plan.rings;
  launch.arguments.directions = static_cast<int>(plan.directions);
  return launch;
}

// Launches it on the first `present` ranks; the last of them with a tag of its own if `tags` differ.
void launchSome(Ranks& ranks, Machine& machine, const Descriptor& row, int present, bool differs) {
  constexpr size_t kCount = 720;
  const bool copies = row.protocol == Protocol::kCopy;
  const bool pulls = algorithms::isPull(row.protocol);
  planner::Request request{row.collective, DataType::kFloat32, Operator::kSum, kCount * sizeof(float),
                           ranks.size()};
  request.windowed = copies;
  request.pullsOnce = request.pullsTwice = pulls;
  planner::Forced forced;
  ASSERT_TRUE(forced
                  .force(nameOf(row.collective), algorithms::nameOf(row.algorithm),
                         algorithms::nameOf(row.protocol), 0, 0)
                  .ok());
  const auto plan = planner::choose(request, ranks.planned(), planner::Table(), forced);
  ASSERT_TRUE(plan.ok()) << lastError();
  const size_t bytes = kCount * sizeof(float) * static_cast<size_t>(ranks.size());
  std::vector<std::byte*> sends, receives;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    sends.push_back(machine.allocate(bytes));
    receives.push_back(machine.allocate(bytes));
  }
  for (int rank = 0; rank < present; ++rank) {
    const uint64_t tag = differs && rank + 1 == present ? 0xbad : 0x600d;
    const auto place = static_cast<size_t>(rank);
    Launch launch = launchOf(row, plan.value(), sends[place], receives[place], kCount, tag);
    launch.sends = sends.data();
    launch.receives = receives.data();
    const NormArguments norm = sumAlone(launch.arguments);
    if (launch.collective == Collective::kAllReduceAddRmsNorm) launch.arguments.norm = &norm;
    ASSERT_TRUE(ranks.engine(rank).launch(launch, ranks.stream(rank)).ok());
  }
}

std::vector<Descriptor> rowsWithKernels(int ranks) {
  std::vector<Descriptor> rows;
  for (const Descriptor& row : algorithms::descriptors(algorithms::Device::kCuda)) {
    if (hasKernel(row) && (ranks > 2 || isForPairs(row))) rows.push_back(row);
  }
  return rows;
}

std::string nameOfRow(const Descriptor& row) {
  return std::string(nameOf(row.collective)) + " by " + algorithms::nameOf(row.algorithm) + " with " +
         algorithms::nameOf(row.protocol);
}

// What waits for the root alone need not wait for one that is missing.
bool isFromRoot(const Descriptor& row) {
  return row.collective == Collective::kBroadcast || row.collective == Collective::kScatter;
}

// Whoever waits says so when the time is over, and every kernel ends.
TEST(EngineFailure, ARankThatDoesNotComeEndsEveryAlgorithm) {
  for (const int count : {2, 3}) {
    for (const Descriptor& row : rowsWithKernels(count)) {
      SCOPED_TRACE(nameOfRow(row));
      Machine machine({11});
      Ranks ranks(machine, count, 2);
      launchSome(ranks, machine, row, count - 1, false);
      ASSERT_EQ(ranks.end(), "");
      int timeouts = 0;
      for (int rank = 0; rank + 1 < count; ++rank) {
        const auto status = ranks.engine(rank).report().status;
        if (status.code == Code::kTimeout) ++timeouts;
        EXPECT_TRUE(status.ok() || status.code == Code::kTimeout) << nameOf(status.code);
      }
      EXPECT_TRUE(timeouts > 0 || isFromRoot(row));
    }
  }
}

TEST(EngineFailure, AnAbortEndsEveryAlgorithm) {
  for (const Descriptor& row : rowsWithKernels(3)) {
    SCOPED_TRACE(nameOfRow(row));
    Machine machine({12});
    Ranks ranks(machine, 3, 2);
    launchSome(ranks, machine, row, 2, false);
    for (int rank = 0; rank < 2; ++rank) {
      ranks.engine(rank).abort(static_cast<uint32_t>(Code::kAborted));
    }
    ASSERT_EQ(ranks.end(), "");
    int aborted = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const auto status = ranks.engine(rank).report().status;
      if (status.code == Code::kAborted) ++aborted;
      EXPECT_TRUE(status.ok() || status.code == Code::kAborted) << nameOf(status.code);
    }
    EXPECT_TRUE(aborted > 0 || isFromRoot(row));
  }
}

// Ranks that call different operations hear of each other's.
TEST(EngineFailure, OtherTagsAreNamed) {
  for (const Descriptor& row : rowsWithKernels(2)) {
    SCOPED_TRACE(nameOfRow(row));
    Machine machine({13});
    Ranks ranks(machine, 2, 2);
    launchSome(ranks, machine, row, 2, true);
    ASSERT_EQ(ranks.end(), "");
    int named = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const auto report = ranks.engine(rank).report();
      if (report.status.code != Code::kInvalidUsage) continue;
      ++named;
      EXPECT_EQ(report.status.peer, 1 - rank);
      EXPECT_EQ(report.theirTag & 0xfffff, rank == 0 ? 0xbadu : 0x600du);
    }
    EXPECT_GT(named, 0);
  }
}

// More ranks than a warp has threads.
TEST(EngineAmongMany, LamportLinesAndWarpChunksWork) {
  for (const Descriptor& row : rowsWithKernels(40)) {
    if (row.collective != Collective::kAllReduce) continue;
    if (row.protocol == Protocol::kSimple) continue;  // 256 threads each: minutes
    if (algorithms::isPull(row.protocol)) continue;   // for fewer ranks
    SCOPED_TRACE(nameOfRow(row));
    Machine machine({14});
    Ranks ranks(machine, 40, 1);
    EngineCourse course(machine, ranks, datasets(40), 14);
    course.add(row, 2);
    course.check();
  }
}

}  // namespace
}  // namespace stretto
