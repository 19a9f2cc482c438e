// Tables of measurements between GPUs: whom an entry serves, and what becomes of a row that cannot run.
#include <gtest/gtest.h>

#include <cstring>

#include "base/json.hpp"
#include "planner/planner_examples.hpp"

namespace stretto::planner {
namespace {

using namespace stretto::testing;

constexpr const char* kLamportRow = R"("chunk_bytes": 0, "blocks": 4, "us": 2.5)";
constexpr const char* kFreeRow = R"("chunk_bytes": 0, "blocks": 0, "us": 3.5)";

Request sumOf(size_t bytes, DataType type = DataType::kBfloat16) {
  Request request = exampleRequest(Collective::kAllReduce, bytes, 2);
  request.type = type;
  return request;
}

Plan planned(const std::string& entries, const Request& request, const Machine& machine = gpuMachine(),
             const Forced& forced = {}) {
  const auto plan = choose(request, machine, tableOf(entries), forced);
  EXPECT_TRUE(plan.ok()) << lastError();
  return plan.ok() ? plan.value() : Plan{};
}

std::string reasonFor(const std::string& entries, const Request& request, const Machine& machine,
                      Algorithm algorithm, Protocol protocol) {
  for (const Candidate& one : explain(request, machine, tableOf(entries), {})) {
    if (one.plan.algorithm == algorithm && one.plan.protocol == protocol) return one.reason;
  }
  return "no such candidate";
}

std::string noteOf(const std::string& entries, const Request& request, const Machine& machine) {
  const auto parsed = json::parse(explainJson(request, machine, tableOf(entries), {}));
  EXPECT_TRUE(parsed.ok()) << lastError();
  const json::Value* note = parsed.value().find("table")->find("note");
  return note->kind() == json::Kind::kNull ? "" : note->text();
}

const std::string kRow = rowText(65536, "one_shot", "lamport", kLamportRow);
const std::string kEntry = gpuEntry(kRow);

TEST(GpuTable, BeatsTheModelAndSaysHowManyBlocks) {
  const Plan plan = planned(kEntry, sumOf(65536));
  EXPECT_EQ(plan.why, Why::kTable);
  EXPECT_EQ(plan.algorithm, Algorithm::kOneShot);
  EXPECT_EQ(plan.protocol, Protocol::kLamport);
  EXPECT_EQ(plan.blocks, 4);
  EXPECT_FLOAT_EQ(plan.predictedMicroseconds, 2.5);
  EXPECT_NE(planned("", sumOf(65536)).blocks, 4) << "or else this test shows nothing";
  EXPECT_EQ(noteOf(kEntry, sumOf(65536), gpuMachine()), "");
}

TEST(GpuTable, LeavesTheNumberOfBlocksToTheModelWhereItSaysSo) {
  const Plan model = planned("", sumOf(65536));
  const std::string row =
      rowText(65536, algorithms::nameOf(model.algorithm), algorithms::nameOf(model.protocol), kFreeRow);
  const Plan plan = planned(gpuEntry(row), sumOf(65536));
  EXPECT_EQ(plan.why, Why::kTable);
  EXPECT_EQ(plan.blocks, model.blocks);
}

TEST(GpuTable, ServesItsOwnCaseOnly) {
  Machine machine = gpuMachine();
  EXPECT_EQ(planned(kEntry, sumOf(65536), gpuMachine("NVIDIA H100 80GB HBM3")).why, Why::kModel);
  EXPECT_EQ(planned(kEntry, sumOf(65536), gpuMachine("")).why, Why::kModel) << "GPUs of several kinds";
  for (const Links links : {Links::kPcie, Links::kUnknown, Links::kSameGpu}) {
    machine.gpus.links = links;
    EXPECT_EQ(planned(kEntry, sumOf(65536), machine).why, Why::kModel) << nameOf(links);
  }
  Request more = sumOf(65536);
  more.ranks = 4;
  EXPECT_EQ(planned(kEntry, more).why, Why::kModel);
  EXPECT_EQ(planned(gpuEntry(kRow, {.version = "0.0.9"}), sumOf(65536)).why, Why::kModel);
}

TEST(GpuTable, IsNotForCpuRanksNorTheirsForGpus) {
  const std::string host = entryText(rowText(65536, "tree", "simple"), "all_reduce",
                                     "\"ranks\": 2, \"cores\": 8, \"same_process\": false, \"reach\": false");
  EXPECT_EQ(planned(host, sumOf(65536)).why, Why::kModel);
  EXPECT_EQ(planned(kEntry, sumOf(65536), exampleMachine()).why, Why::kModel);
  const std::string both = host + "," + kEntry;
  EXPECT_EQ(planned(both, sumOf(65536)).protocol, Protocol::kLamport);
  EXPECT_EQ(planned(both, sumOf(65536), exampleMachine()).algorithm, Algorithm::kTree);
}

TEST(GpuTable, ThreadsAreServedByWhatProcessesMeasuredUnlessTheyHaveTheirOwn) {
  Machine threads = gpuMachine();
  threads.sameProcess = true;
  EXPECT_EQ(planned(kEntry, sumOf(65536), threads).blocks, 4);
  const std::string own =
      gpuEntry(rowText(65536, "one_shot", "lamport", R"("chunk_bytes": 0, "blocks": 7, "us": 2)"),
               {.sameProcess = true});
  EXPECT_EQ(planned(kEntry + "," + own, sumOf(65536), threads).blocks, 7);
  EXPECT_EQ(planned(kEntry + "," + own, sumOf(65536)).blocks, 4);
  EXPECT_EQ(planned(own, sumOf(65536)).blocks, 7);
}

TEST(GpuTable, SumsOfFloatsAndTheRestHaveEntriesOfTheirOwn) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    EXPECT_EQ(planned(kEntry, sumOf(65536, type)).why, Why::kTable);
    Request average = sumOf(65536, type);
    average.op = Operator::kAvg;
    EXPECT_EQ(planned(kEntry, average).why, Why::kTable);
    average.op = Operator::kMax;
    EXPECT_EQ(planned(kEntry, average).why, Why::kModel);
  }
  EXPECT_EQ(planned(kEntry, sumOf(65536, DataType::kInt32)).why, Why::kModel);
  const std::string others =
      gpuEntry(rowText(65536, "one_shot", "ll128", R"("chunk_bytes": 0, "blocks": 9, "us": 4)"),
               {.reduction = "others"});
  const Plan plan = planned(kEntry + "," + others, sumOf(65536, DataType::kInt32));
  EXPECT_EQ(plan.protocol, Protocol::kLL128);
  EXPECT_EQ(plan.blocks, 9);
}

// What moves bytes only has one entry for all types; "reduction" is not read there.
TEST(GpuTable, MovesAreOneEntryForAllTypes) {
  const std::string entry =
      entryText(rowText(65536, "push", "ll128", R"("chunk_bytes": 0, "blocks": 5, "us": 2)"), "all_gather",
                R"("ranks": 2, "same_process": false, "gpu": "NVIDIA H200", "links": "nvlink", )"
                R"("version": "0.1.0")");
  Request request = exampleRequest(Collective::kAllGather, 65536, 2);
  for (const DataType type : {DataType::kInt8, DataType::kBfloat16}) {
    request.type = type;
    EXPECT_EQ(planned(entry, request).blocks, 5);
  }
}

// A hand-made table: Lamport lines for types that they cannot carry.
TEST(GpuTable, ARowForTypesThatItCannotServeGivesWay) {
  const std::string entry = gpuEntry(kRow, {.reduction = "others"});
  const Request request = sumOf(65536, DataType::kInt32);
  const Plan plan = planned(entry, request);
  EXPECT_EQ(plan.why, Why::kModel);
  EXPECT_NE(plan.protocol, Protocol::kLamport);
  EXPECT_EQ(reasonFor(entry, request, gpuMachine(), Algorithm::kOneShot, Protocol::kLamport),
            "measured fastest at 65536 bytes, but it serves sums and averages of float32, float16 and "
            "bfloat16 only");
}

// Four blocks of Lamport lines too short for rounds carry about 65,000 bytes: the row is the nearest to
// 180,000 and cannot serve them.
TEST(GpuTable, ARowCarriesOnlyWhatItsBlocksCan) {
  Machine machine = gpuMachine();
  machine.lamportBytes = 16384;
  const size_t most = (machine.lamportBytes - 128) * 4;
  EXPECT_EQ(planned(kEntry, sumOf(most), machine).why, Why::kTable);
  EXPECT_EQ(planned(kEntry, sumOf(most + 1), machine).why, Why::kModel);
  const std::string two = gpuEntry(kRow + "," + rowText(size_t{1} << 20, "one_shot", "ll128", kFreeRow));
  const Plan plan = planned(two, sumOf(180000), machine);
  EXPECT_EQ(plan.why, Why::kTable);
  EXPECT_EQ(plan.protocol, Protocol::kLL128) << "the next row";
  EXPECT_EQ(reasonFor(two, sumOf(180000), machine, Algorithm::kOneShot, Protocol::kLamport),
            "measured fastest at 65536 bytes, but it carries at most " + std::to_string(most) + " bytes");
  const size_t inAll = (machine.lamportBytes - 128) * static_cast<size_t>(machine.channels);
  EXPECT_EQ(reasonFor("", sumOf(inAll + 1), machine, Algorithm::kOneShot, Protocol::kLamport),
            "it carries at most " + std::to_string(inAll) + " bytes");
  EXPECT_EQ(planned(kEntry, sumOf(180000)).why, Why::kTable) << "rounds carry any number of bytes";
}

TEST(GpuTable, BlocksBeyondTheChannelsGiveWayWithAReason) {
  const std::string entry =
      gpuEntry(rowText(65536, "one_shot", "ll128", R"("chunk_bytes": 0, "blocks": 96, "us": 2)"));
  EXPECT_EQ(planned(entry, sumOf(65536)).blocks, 96);
  Machine few = gpuMachine();
  few.channels = few.warpChunkChannels = few.deepChannels = 64;
  EXPECT_EQ(planned(entry, sumOf(65536), few).why, Why::kModel);
  EXPECT_EQ(
      reasonFor(entry, sumOf(65536), few, Algorithm::kOneShot, Protocol::kLL128),
      "measured fastest at 65536 bytes, but it was measured with 96 blocks, and at most 64 can take part "
      "here");
  // Chunks have fewer channels than lines.
  const std::string deep =
      gpuEntry(rowText(65536, "ring", "simple", R"("chunk_bytes": 0, "blocks": 65, "us": 2)"));
  EXPECT_EQ(planned(deep, sumOf(65536)).why, Why::kModel);
}

// What was measured with all blocks says nothing of few, where as many as there are would be taken.
TEST(GpuTable, IsNotForFewerBlocksThanWereMeasured) {
  const std::string entry = gpuEntry(
      rowText(size_t{1} << 26, "one_shot", "warp_chunks", R"("chunk_bytes": 0, "blocks": 0, "us": 2)") + "," +
      rowText(1024, "one_shot", "lamport", R"("chunk_bytes": 0, "blocks": 0, "us": 2)"));
  Machine few = gpuMachine();
  few.channels = few.warpChunkChannels = few.deepChannels = 16;
  few.fewBlocks = true;
  EXPECT_EQ(planned(entry, sumOf(size_t{1} << 26)).why, Why::kTable);
  EXPECT_EQ(planned(entry, sumOf(size_t{1} << 26), few).why, Why::kModel);
  EXPECT_EQ(planned(entry, sumOf(1024), few).why, Why::kTable);
  // Registered inputs are pulled, as few blocks do that best.
  Request windowed = sumOf(size_t{1} << 26);
  windowed.pullsOnce = true;
  EXPECT_EQ(planned(entry, windowed, few).protocol, Protocol::kPull);
  EXPECT_EQ(planned(entry, windowed).protocol, Protocol::kWarpChunks);
}

TEST(GpuTable, WhoInsistsOnBlocksIsNotOverruled) {
  const std::string entry =
      gpuEntry(rowText(65536, "one_shot", "ll128", R"("chunk_bytes": 0, "blocks": 4, "us": 2)"));
  Machine machine = gpuMachine();
  machine.blocks = 32;
  EXPECT_EQ(planned(entry, sumOf(65536), machine).why, Why::kModel);
  EXPECT_EQ(planned(entry, sumOf(65536), machine).blocks, 32);
  EXPECT_EQ(reasonFor(entry, sumOf(65536), machine, Algorithm::kOneShot, Protocol::kLL128),
            "measured fastest at 65536 bytes, but it was measured with 4 blocks, and 32 are insisted on");
  machine.blocks = 4;
  EXPECT_EQ(planned(entry, sumOf(65536), machine).why, Why::kTable);
}

TEST(GpuTable, BlocksCanBeForcedForOneCollective) {
  Forced forced;
  ASSERT_TRUE(forced.force("all_reduce", "one_shot", "ll128", 0, 17).ok()) << lastError();
  EXPECT_EQ(planned(kEntry, sumOf(65536), gpuMachine(), forced).blocks, 17);
  EXPECT_EQ(planned(kEntry, sumOf(65536), gpuMachine(), forced).why, Why::kForced);
  const Request other = exampleRequest(Collective::kAllGather, 65536, 2);
  EXPECT_EQ(planned("", other, gpuMachine(), forced), planned("", other));

  ASSERT_TRUE(forced.force("all_reduce", "one_shot", "ll128", 0, 129).ok());
  EXPECT_FALSE(choose(sumOf(65536), gpuMachine(), tableOf(""), forced).ok());
  EXPECT_NE(lastError().find("one_shot/ll128: at most 128 blocks can take part here"), std::string::npos)
      << lastError();
  ASSERT_TRUE(forced.force("all_reduce", "ring", "", 0, 65).ok());
  EXPECT_FALSE(choose(sumOf(65536), gpuMachine(), tableOf(""), forced).ok()) << "64 channels have chunks";
  ASSERT_TRUE(forced.force("all_reduce", "ring", "", 0, 2).ok());
  EXPECT_FALSE(choose(sumOf(65536), exampleMachine(), tableOf(""), forced).ok()) << "the host has no blocks";
  EXPECT_FALSE(forced.force("all_reduce", "ring", "", 0, 256).ok());
  EXPECT_FALSE(forced.force("all_reduce", "ring", "", 0, -1).ok());
}

TEST(GpuTable, TheExplanationSaysWhyTheTableIsSilent) {
  const std::string note = noteOf(kEntry, sumOf(65536), gpuMachine("NVIDIA H100 80GB HBM3"));
  EXPECT_EQ(note,
            "nobody has measured all_reduce (float_sums) between 2 x NVIDIA H100 80GB HBM3, links nvlink, "
            "version " +
                std::string(kLibraryVersion) +
                "; there is all_reduce (float_sums) between 2 x NVIDIA H200, links nvlink, version " +
                kLibraryVersion);
  EXPECT_NE(noteOf(kEntry, sumOf(size_t{1} << 30), gpuMachine()).find("from 65536 to 65536 bytes only"),
            std::string::npos);
  EXPECT_NE(noteOf(gpuEntry(kRow, {.version = "0.0.9"}), sumOf(65536), gpuMachine()).find("version 0.0.9"),
            std::string::npos);
  EXPECT_NE(noteOf(kEntry, sumOf(65536), gpuMachine("")).find("several kinds"), std::string::npos);
  EXPECT_NE(noteOf(kEntry, sumOf(65536), exampleMachine()).find("between 2 processes on 2 cores"),
            std::string::npos);
}

TEST(GpuTable, HashSeesEveryDifference) {
  std::vector<uint64_t> hashes = {tableOf("").hash(), tableOf(kEntry).hash()};
  for (const GpuCase& other :
       {GpuCase{.gpu = "NVIDIA H100"}, GpuCase{.links = "pcie"}, GpuCase{.ranks = 4},
        GpuCase{.sameProcess = true}, GpuCase{.reduction = "others"}, GpuCase{.version = "0.0.9"}}) {
    hashes.push_back(tableOf(gpuEntry(kRow, other)).hash());
  }
  for (const char* rest : {R"("chunk_bytes": 0, "blocks": 5, "us": 2.5)", kFreeRow}) {
    hashes.push_back(tableOf(gpuEntry(rowText(65536, "one_shot", "lamport", rest))).hash());
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

TEST(GpuTable, RefusesWhatIsNotOfTheSchema) {
  const auto refusal = [](const std::string& entries) {
    EXPECT_FALSE(Table::parse(tableText(entries)).ok()) << entries;
    return lastError();
  };
  EXPECT_NE(refusal(gpuEntry(kRow, {.links = "string"})).find("not one of nvlink, pcie, unknown, same_gpu"),
            std::string::npos);
  EXPECT_NE(refusal(gpuEntry(kRow, {.reduction = "none"})).find("float_sums or others"), std::string::npos);
  refusal(gpuEntry(kRow, {.gpu = ""}));
  refusal(gpuEntry(kRow, {.version = "0.1.0-with-a-long-tail"}));
  refusal(gpuEntry(rowText(64, "one_shot", "ll")));  // no blocks
  refusal(gpuEntry(rowText(64, "one_shot", "ll", R"("chunk_bytes": 0, "blocks": 256, "us": 1)")));
  refusal(gpuEntry(rowText(64, "direct", "simple", kFreeRow)));  // the host's alone
  refusal(entryText(rowText(64, "one_shot", "ll128")));          // the GPUs' alone
  refusal(kEntry + "," + kEntry);
  // Another version may know what this one does not.
  const std::string unknown = rowText(64, "seven_shot", "ll", kFreeRow);
  EXPECT_NE(refusal(gpuEntry(unknown)).find("seven_shot"), std::string::npos);
  EXPECT_TRUE(Table::parse(tableText(gpuEntry(unknown, {.version = "9.9"}))).ok()) << lastError();
}

// Whatever a table says, what is planned can run.
TEST(GpuTable, NeverChoosesWhatCannotRun) {
  for (const Descriptor& row : algorithms::descriptors(algorithms::Device::kCuda)) {
    if (row.algorithm == Algorithm::kLocal || row.collective == Collective::kReceive) continue;
    for (const int blocks : {0, 1, 64, 128, 255}) {
      const std::string rest = R"("chunk_bytes": 64, "blocks": )" + std::to_string(blocks) + R"(, "us": 1)";
      std::string rows;
      for (const unsigned long long bytes : {64ull, 65536ull, 1ull << 26}) {
        append(rows, rowText(bytes, algorithms::nameOf(row.algorithm), algorithms::nameOf(row.protocol),
                             rest.c_str()));
      }
      const std::string entries =
          gpuEntry(rows, {}, nameOf(row.collective)) +
          (reduces(row.collective) ? "," + gpuEntry(rows, {.reduction = "others"}, nameOf(row.collective))
                                   : "");
      for (const DataType type : {DataType::kBfloat16, DataType::kInt64}) {
        if (type == DataType::kInt64 && row.collective == Collective::kAllReduceAddRmsNorm) continue;
        for (size_t bytes = 8; bytes <= size_t{1} << 28; bytes *= 3) {
          for (const int channels : {1, 40, 128}) {
            Machine machine = gpuMachine();
            machine.channels = machine.warpChunkChannels = channels;
            machine.deepChannels = std::min(channels, 64);
            Request request = exampleRequest(row.collective, bytes, 2);
            request.type = type;
            const Plan plan = planned(entries, request, machine);
            const bool deep = algorithms::isDeep(plan.protocol);
            ASSERT_LE(plan.blocks, deep ? machine.deepChannels : channels);
            ASSERT_GE(plan.blocks, 1);
            Machine with = machine;
            with.blocks = plan.blocks;
            for (const Descriptor& chosen : algorithms::descriptors(algorithms::Device::kCuda)) {
              if (chosen.collective != row.collective || chosen.algorithm != plan.algorithm ||
                  chosen.protocol != plan.protocol)
                continue;
              ASSERT_EQ(obstacleTo(chosen, request, with), Obstacle::kNone) << bytes;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace stretto::planner
