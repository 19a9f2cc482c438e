// What nccl.h has gained since 2.28, through the C API: growing a communicator, what it holds and gives back,
// its properties and teams, collectives with a config, settings, encryption.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api/calls.hpp"
#include "api/nccl_device.hpp"
#include "base/scoped_variable.hpp"
#include "harness/captured_log.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "platform/encryption.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

// ---- Grow -------------------------------------------------------------------------------------------------

void run(bool processes, int ranks, const Body& body) {
  const Board board(ranks);
  if (!processes) {
    asThreads(board, body);
  } else if (!STRETTO_TEST_TSAN) {
    asProcesses(board, body);
  }
}

// The first two ranks are a communicator; `grown` is what they become with the others. Rank `root` names it.
struct Grown {
  ncclComm_t before = nullptr;
  ncclComm_t after = nullptr;
};
Grown grow(const Member& member, int root) {
  constexpr int kBefore = 2;
  Grown made;
  ncclUniqueId first{}, second{};
  if (!member.board.shareId(member.rank, &first)) return made;
  if (member.rank < kBefore)
    member.expect(ncclCommInitRank(&made.before, kBefore, first, member.rank), "the first communicator");
  if (member.rank == root) {
    member.expect(ncclCommGetUniqueId(made.before, &second), "the name");
    std::memcpy(member.board.area(root), &second, sizeof second);
  }
  if (!member.board.meet()) return made;
  std::memcpy(&second, member.board.area(root), sizeof second);
  const bool isNew = member.rank >= kBefore;
  member.expect(ncclCommGrow(made.before, member.ranks(), isNew || member.rank == root ? &second : nullptr,
                             isNew ? member.rank : -1, &made.after, nullptr),
                "grow");
  return made;
}

class Growth : public ::testing::TestWithParam<bool> {};

TEST_P(Growth, KeepsTheRanksAndAddsNewOnesBehindThem) {
  for (const int root : {0, 1}) {
    run(GetParam(), 4, [root](Member& member) {
      const Grown made = grow(member, root);
      if (made.after == nullptr) return;
      int rank = -1, count = 0;
      member.expect(ncclCommUserRank(made.after, &rank), "rank");
      member.expect(ncclCommCount(made.after, &count), "count");
      member.check(rank == member.rank && count == 4, "another place than was given");
      member.check(sumOfOnes(member, made.after, "sum of all") == 4, "a wrong sum of all");
      if (made.before != nullptr) {
        member.check(sumOfOnes(member, made.before, "sum of the first") == 2,
                     "the parent does not work any more");
        member.expect(ncclCommDestroy(made.before), "destroy the parent");
      }
      member.check(sumOfOnes(member, made.after, "sum after that") == 4, "a wrong sum without the parent");
      member.expect(ncclCommDestroy(made.after), "destroy");
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Among, Growth, ::testing::Bool(),
                         [](const auto& suite) { return suite.param ? "Processes" : "Threads"; });

TEST(Grow, WrongCallsAreRefusedInWords) {
  asThreads(2, connected([](Member& member) {
              ncclComm_t grown = nullptr;
              ncclUniqueId id{};
              member.expect(ncclCommGetUniqueId(nullptr, &id), "no communicator", ncclInvalidArgument);
              member.expect(ncclCommGetUniqueId(member.comm, nullptr), "no place", ncclInvalidArgument);
              member.expect(ncclCommGrow(member.comm, 2, nullptr, -1, &grown, nullptr), "as many",
                            ncclInvalidArgument);
              member.expectError("as many", {"from 2 ranks to 2"});
              member.expect(ncclCommGrow(member.comm, 3, nullptr, 0, &grown, nullptr), "a number",
                            ncclInvalidArgument);
              member.expectError("a number", {"passes -1"});
              member.expect(ncclCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr), "no name",
                            ncclInvalidArgument);
              member.expect(ncclCommGrow(nullptr, 3, &id, 3, &grown, nullptr), "behind the last",
                            ncclInvalidArgument);
              member.expectError("behind the last", {"ncclCommGrow: rank 3 is not one of 0 to 2"});
              member.expect(ncclCommGrow(member.comm, 3, nullptr, -1, nullptr, nullptr), "no place",
                            ncclInvalidArgument);
              member.expect(ncclCommGrow(member.comm, 3, nullptr, -1, &grown, nullptr), "nobody's name",
                            ncclInvalidUsage);
              member.expectError("nobody's name", {"0 ranks", "ncclCommGetUniqueId"});
              const int wanted = 3 + member.rank;
              member.expect(ncclCommGrow(member.comm, wanted, nullptr, -1, &grown, nullptr), "disagree",
                            ncclInvalidUsage);
              member.expectError("disagree", {"ranks disagree", "3", "4"});
              member.check(grown == nullptr, "a handle of a communicator that is none");
              member.check(sumOfOnes(member, member.comm, "after it") == 2, "a wrong sum");
            }));
}

// Why the ranks of the communicator that was to grow do not come.
enum class Absent { kOneIsLost, kItsNamerAborts, kItsNamerDestroys };

// Rank 2 joins, before or after that; ranks 0 and 1 are the communicator, and rank 0 names what it grows to.
void joinsInVain(Member& member, Absent why, bool late) {
  ncclUniqueId first{}, second{};
  if (!member.board.shareId(member.rank, &first)) return;
  ncclComm_t before = nullptr, grown = nullptr;
  if (member.rank < 2)
    member.expect(ncclCommInitRank(&before, 2, first, member.rank), "the first communicator");
  if (member.rank == 0) {
    member.expect(ncclCommGetUniqueId(before, &second), "the name");
    std::memcpy(member.board.area(0), &second, sizeof second);
  }
  if (!member.board.meet()) return;
  if (member.rank == 2) {
    std::memcpy(&second, member.board.area(0), sizeof second);
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const Canary canary;
    const double began = secondsNow();
    member.expect(ncclCommGrow(nullptr, 3, &second, 2, &grown, nullptr), "who joins", ncclRemoteError);
    member.expectError("who joins", {"rank 0", why == Absent::kOneIsLost ? "rank 1" : ""});
    if (secondsNow() - began > canary.limit(1.2)) member.complain("told late");
    return;
  }
  if (!late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (member.rank == (why == Absent::kOneIsLost ? 1 : 0)) {
    member.expect(why == Absent::kItsNamerDestroys ? ncclCommDestroy(before) : ncclCommAbort(before),
                  "its end");
    return;
  }
  member.expect(ncclCommGrow(before, 3, member.rank == 0 ? &second : nullptr, -1, &grown, nullptr),
                "who is left", ncclRemoteError);
  member.expect(ncclCommAbort(before), "abort");
}

TEST(Grow, EndsForWhoJoinsWhenTheOthersWillNotCome) {
  const ScopedVariable timeout("STRETTO_INIT_TIMEOUT", "10");
  for (const Absent why : {Absent::kOneIsLost, Absent::kItsNamerAborts, Absent::kItsNamerDestroys}) {
    for (const bool late : {false, true}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(why)) + (late ? ", late" : ""));
      asThreads(3, [&](Member& member) { joinsInVain(member, why, late); });
    }
  }
}

// Who was to join does not come.
TEST(Grow, HasADeadline) {
  ScopedVariable timeout("STRETTO_INIT_TIMEOUT", "20");  // for the two that are there to meet
  asThreads(2, connected([&](Member& member) {
              ncclComm_t grown = nullptr;
              ncclUniqueId id{};
              member.board.meet();
              if (member.rank == 0) timeout.set("0.5");
              member.board.meet();
              if (member.rank == 0) member.expect(ncclCommGetUniqueId(member.comm, &id), "the name");
              const ncclResult_t result =
                  ncclCommGrow(member.comm, 3, member.rank == 0 ? &id : nullptr, -1, &grown, nullptr);
              member.expect(result, "grow", ncclRemoteError);
              member.check(grown == nullptr, "a handle of a communicator that is none");
              member.check(sumOfOnes(member, member.comm, "after it") == 2, "a wrong sum");
            }));
}

// ---- What a communicator holds ----------------------------------------------------------------------------

uint64_t statOf(const Member& member, ncclCommMemStat_t stat) {
  uint64_t value = ~uint64_t{0};
  member.expect(ncclCommMemStats(member.comm, stat, &value), "memory");
  return value;
}

TEST(Memory, IsGivenBackAndHadAgain) {
  asThreads(2, connected([](Member& member) {
              // A scaled input needs memory of the communicator's own.
              std::vector<float> data(100000, 1.0F);
              float three = 3;
              ncclRedOp_t scaled{};
              member.expect(
                  ncclRedOpCreatePreMulSum(&scaled, &three, ncclFloat, ncclScalarHostImmediate, member.comm),
                  "operator");
              const auto reduce = [&](ncclResult_t wanted) {
                std::fill(data.begin(), data.end(), 1.0F);
                member.expect(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, scaled,
                                            member.comm, nullptr),
                              "all-reduce", wanted);
              };
              reduce(ncclSuccess);
              member.board.meet();
              const uint64_t persistent = statOf(member, ncclStatGpuMemPersist);
              const uint64_t suspendable = statOf(member, ncclStatGpuMemSuspend);
              member.check(persistent > 0, "nothing stays");
              member.check(suspendable >= 4 * data.size(), "nothing can be given back");
              member.check(statOf(member, ncclStatGpuMemTotal) == persistent + suspendable, "a wrong total");
              member.check(statOf(member, ncclStatGpuMemSuspended) == 0, "suspended");

              member.expect(ncclCommSuspend(member.comm, 2), "flags", ncclInvalidArgument);
              member.expect(ncclCommResume(member.comm), "resume", ncclInvalidUsage);
              member.expectError("resume", {"not suspended"});
              member.expect(ncclCommSuspend(member.comm, NCCL_SUSPEND_MEM), "suspend");
              member.check(statOf(member, ncclStatGpuMemSuspended) == 1, "not suspended");
              member.check(statOf(member, ncclStatGpuMemSuspend) == 0, "nothing was given back");
              reduce(ncclInvalidUsage);
              member.expectError("all-reduce", {"suspended", "ncclCommResume"});
              member.expect(ncclCommSuspend(member.comm, NCCL_SUSPEND_MEM), "twice", ncclInvalidUsage);
              member.expect(ncclCommResume(member.comm), "resume");
              reduce(ncclSuccess);
              member.check(data[0] == 6 && data.back() == 6, "a wrong sum");
              uint64_t value = 0;
              member.expect(ncclCommMemStats(member.comm, static_cast<ncclCommMemStat_t>(9), &value),
                            "no such number", ncclInvalidArgument);
              member.expect(ncclCommMemStats(member.comm, ncclStatGpuMemTotal, nullptr), "no place",
                            ncclInvalidArgument);
              member.expect(ncclCommSuspend(member.comm, NCCL_SUSPEND_MEM), "suspend");  // and is destroyed
            }));
}

TEST(Properties, SayWhoAndWhat) {
  asThreads(
      3, connected([](Member& member) {
        ncclCommProperties_t known{};
        std::memset(&known, 0xee, sizeof known);
        known.size = sizeof known;
        known.magic = NCCL_API_MAGIC;
        known.version = NCCL_VERSION_CODE;
        if (!member.expect(ncclCommQueryProperties(member.comm, &known), "properties")) return;
        member.check(known.rank == member.rank && known.nRanks == 3 && known.cudaDev == 0, "who");
        member.check(!known.deviceApiSupport && !known.multimemSupport && !known.cftSupport, "what is not");
        member.check(known.hostRmaSupport && known.nLsaTeams == 1, "what is");
        member.check(known.ginType == NCCL_GIN_TYPE_NONE && !known.ginSupport[2], "no GIN");
        auto& hashes = *reinterpret_cast<uint64_t*>(member.board.area(member.rank));
        hashes = known.commHash;
        member.board.meet();
        const auto first = *reinterpret_cast<const uint64_t*>(member.board.area(0));
        member.check(first == known.commHash && first != 0, "not the same number on all ranks");
        // A program of a release whose struct was shorter.
        ncclCommProperties_t shorter{};
        std::memset(&shorter, 0xee, sizeof shorter);
        shorter.size = offsetof(ncclCommProperties_t, hostRmaSupport);
        shorter.magic = NCCL_API_MAGIC;
        member.expect(ncclCommQueryProperties(member.comm, &shorter), "a shorter struct");
        member.check(shorter.nLsaTeams == 1 && shorter.commHash == 0xeeeeeeeeeeeeeeee, "beyond its end");
        shorter.magic = 0;
        member.expect(ncclCommQueryProperties(member.comm, &shorter), "no magic", ncclInvalidArgument);

        const ncclTeam_t world = ncclTeamWorld(member.comm), near = ncclTeamLsa(member.comm);
        member.check(world.nRanks == 3 && world.rank == member.rank && world.stride == 1, "world");
        member.check(std::memcmp(&world, &near, sizeof near) == 0, "all reach each other");
        const ncclTeam_t rail = ncclTeamRail(member.comm);
        member.check(rail.nRanks == 1 && rail.rank == 0, "a rail on one host");
        member.check(ncclTeamRankToWorld(member.comm, rail, 0) == member.rank, "the rail's rank");
        member.check(ncclTeamRankToLsa(member.comm, world, 2) == 2, "the world's rank");
      }));
}

// Ranks that speak as those of several hosts do are each on a host of their own.
TEST(Properties, TellHostsApart) {
  const ScopedVariable net("STRETTO_LINK", "net");
  asThreads(3, connected([](Member& member) {
              ncclCommProperties_t known{};
              known.size = sizeof known;
              known.magic = NCCL_API_MAGIC;
              known.version = NCCL_VERSION_CODE;
              if (!member.expect(ncclCommQueryProperties(member.comm, &known), "properties")) return;
              member.check(!known.hostRmaSupport && known.nLsaTeams == 3, "three teams without windows");
              const ncclTeam_t near = ncclTeamLsa(member.comm), rail = ncclTeamRail(member.comm);
              member.check(near.nRanks == 1 && near.rank == 0, "nobody is near");
              member.check(rail.nRanks == 3 && rail.rank == member.rank && rail.stride == 1, "all are far");
              member.check(ncclTeamRankToWorld(member.comm, rail, 2) == 2, "the rail's rank");
              member.check(ncclTeamRankToLsa(member.comm, near, 0) == 0, "the team's rank");
            }));
}

// ---- Collectives with a config ----------------------------------------------------------------------------

TEST(Configured, CollectivesDoWhatThePlainOnesDo) {
  asThreads(
      2, connected([](Member& member) {
        ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
        ncclConfigExt_t other{};
        config.ext = &other;
        config.maxCTAs = 4;
        config.userProfilerTag = 12;
        const ncclComm_t comm = member.comm;
        const int mine = 10 + member.rank;
        const int both[] = {mine, mine + 100};
        int out[2] = {};
        const auto is = [&](const char* what, int first, int second) {
          if (out[0] != first || out[1] != second) member.complain("%s: %d, %d", what, out[0], out[1]);
          out[0] = out[1] = 0;
        };
        const int rank = member.rank;
        member.expect(ncclAllReduceConfig(both, out, 2, ncclInt, ncclSum, comm, nullptr, &config), "ar");
        is("all-reduce", 21, 221);
        member.expect(ncclBroadcastConfig(both, out, 2, ncclInt, 1, comm, nullptr, &config), "bc");
        is("broadcast", 11, 111);
        member.expect(ncclReduceConfig(both, out, 2, ncclInt, ncclMax, 0, comm, nullptr, &config), "r");
        is("reduce", rank == 0 ? 11 : 0, rank == 0 ? 111 : 0);
        member.expect(ncclAllGatherConfig(&mine, out, 1, ncclInt, comm, nullptr, &config), "ag");
        is("all-gather", 10, 11);
        member.expect(ncclReduceScatterConfig(both, out, 1, ncclInt, ncclSum, comm, nullptr, &config), "rs");
        is("reduce-scatter", rank == 0 ? 21 : 221, 0);
        member.expect(ncclAlltoAllConfig(both, out, 1, ncclInt, comm, nullptr, &config), "a2a");
        is("all-to-all", 10 + 100 * rank, 11 + 100 * rank);
        member.expect(ncclGatherConfig(&mine, out, 1, ncclInt, 1, comm, nullptr, nullptr), "g");
        is("gather", rank == 1 ? 10 : 0, rank == 1 ? 11 : 0);
        member.expect(ncclScatterConfig(both, out, 1, ncclInt, 0, comm, nullptr, &config), "s");
        is("scatter", 10 + 100 * rank, 0);
      }));
}

TEST(Configured, WhatCannotBeHonouredIsRefused) {
  asThreads(1, connected([](Member& member) {
              int value = 1;
              const auto call = [&](const ncclCollConfig_t& config) {
                return ncclAllReduceConfig(&value, &value, 1, ncclInt, ncclSum, member.comm, nullptr,
                                           &config);
              };
              const ncclCollConfig_t fresh = NCCL_COLLCONFIG_INITIALIZER;
              ncclCollConfig_t config = fresh;
              config.magic = 1;
              member.expect(call(config), "magic", ncclInvalidArgument);
              member.expectError("magic", {"NCCL_COLLCONFIG_INITIALIZER"});
              config = fresh;
              config.maxCTAs = 0;
              member.expect(call(config), "range", ncclInvalidArgument);
              member.expectError("range", {"maxCTAs"});
              config = fresh;
              config.minCTAs = 8;
              config.maxCTAs = 4;
              member.expect(call(config), "bounds", ncclInvalidArgument);
              config = fresh;
              config.algSelection = "ring";
              member.expect(call(config), "algorithm", ncclInvalidUsage);
              member.expectError("algorithm", {"ring", "STRETTO_ALGO"});
              config.forceAlgSelection = 0;
              member.expect(call(config), "a wish");
              config = fresh;
              config.launchCompletionEvent = reinterpret_cast<cudaEvent_t>(&value);
              member.expect(call(config), "event", ncclInvalidUsage);
              config = fresh;
              config.size = offsetof(ncclCollConfig_t, algSelection);  // of a release that knew no more
              config.algSelection = "beyond the end";
              member.expect(call(config), "a shorter struct");
            }));
}

// ---- Settings ---------------------------------------------------------------------------------------------

TEST(Settings, AreReadByNameAndByHandle) {
  const ScopedVariable channels("STRETTO_LANES", "300");
  ncclParamHandle_t handle = nullptr;
  ASSERT_EQ(ncclParamBind(&handle, "STRETTO_LANES"), ncclSuccess);
  int8_t small = 0;
  uint8_t byte = 0;
  int16_t half = 0;
  uint64_t wide = 0;
  EXPECT_EQ(ncclParamGetI16(handle, &half), ncclSuccess);
  EXPECT_EQ(half, 300);
  EXPECT_EQ(ncclParamGetU64(handle, &wide), ncclSuccess);
  EXPECT_EQ(wide, 300U);
  EXPECT_EQ(ncclParamGetI8(handle, &small), ncclInvalidUsage);
  EXPECT_EQ(ncclParamGetU8(handle, &byte), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("STRETTO_LANES=300"), std::string::npos);
  const char* text = nullptr;
  EXPECT_EQ(ncclParamGetStr(handle, &text), ncclSuccess);
  EXPECT_STREQ(text, "300");
  char room[2] = {};
  int length = 0;
  EXPECT_EQ(ncclParamGet(handle, room, sizeof room, &length), ncclSuccess);
  EXPECT_EQ(std::string(room, 2) + std::to_string(length), "303");
  EXPECT_EQ(ncclParamGetParameter("STRETTO_TIMEOUT", &text, &length), ncclSuccess);
  EXPECT_EQ(std::string(text, static_cast<size_t>(length)), "1800");
}

TEST(Settings, AreListed) {
  const char** table = nullptr;
  int length = 0;
  ASSERT_EQ(ncclParamGetAllParameterKeys(&table, &length), ncclSuccess);
  const std::set<std::string> keys(table, table + length);
  EXPECT_EQ(keys.size(), static_cast<size_t>(length));
  EXPECT_TRUE(keys.contains("STRETTO_TIMEOUT") && keys.contains("NCCL_MAX_CTAS"));
  ncclParamDumpAll();
}

TEST(Settings, UnknownOnesAreRefused) {
  ncclParamHandle_t handle = nullptr;
  const char* text = nullptr;
  int length = 0;
  int32_t number = 0;
  EXPECT_EQ(ncclParamBind(&handle, "NCCL_NO_SUCH_THING"), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("NCCL_NO_SUCH_THING"), std::string::npos);
  EXPECT_EQ(ncclParamBind(&handle, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclParamBind(nullptr, "STRETTO_TIMEOUT"), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetParameter("", &text, &length), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetI32(nullptr, &number), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetI32(reinterpret_cast<ncclParamHandle_t>(&number), &number), ncclInvalidArgument);
}

// What came too late for a communicator says so.
TEST(Encryption, WarnsOfCommunicatorsThatAreOlder) {
  ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  CapturedWarnings warnings;
  EXPECT_EQ(ncclSetEncryption(&config), ncclSuccess);
  const std::string text = warnings.take();
  EXPECT_NE(text.find("communicators of this process are older and keep"), std::string::npos) << text;
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(Encryption, IsAskedForUntilItIsTakenBack) {
  ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  EXPECT_EQ(ncclSetEncryption(&config), ncclSuccess);
  EXPECT_FALSE(encryptionOfProcess().value().on);
  config.mode = NCCL_ENCRYPTION_MODE_PSK;
  config.psk = "known to all";
  const ncclResult_t asked = ncclSetEncryption(&config);
  const Result<Encryption> now = encryptionOfProcess();
  if (asked == ncclSuccess) {
    EXPECT_EQ(now.value(), (Encryption{true, "known to all"}));
  } else {
    EXPECT_EQ(asked, ncclSystemError) << "there is no OpenSSL 3 here";
    EXPECT_FALSE(now.ok()) << "nothing may be connected";
  }
  config.psk = nullptr;
  EXPECT_EQ(ncclSetEncryption(&config), asked);
  config.mode = NCCL_ENCRYPTION_MODE_NONE;
  EXPECT_EQ(ncclSetEncryption(&config), ncclSuccess);
  EXPECT_FALSE(encryptionOfProcess().value().on);
  config.mode = 7;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  config.magic = 0;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  EXPECT_EQ(ncclSetEncryption(nullptr), ncclInvalidArgument);
}

}  // namespace
}  // namespace stretto
