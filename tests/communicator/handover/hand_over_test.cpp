// Communicators that are handed over to NCCL, on GPUs that are made up (fake_devices.cpp) and to an NCCL that
// is (fake_nccl.cpp): who is handed over, to whom, with what, and that every call arrives there.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/scoped_variable.hpp"
#include "communicator/handover/foreign_library.hpp"
#include "harness/encrypted.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "platform/loaded_files.hpp"
#include "stretto.h"

void fakeSetDevice(int device);

namespace stretto {
namespace {

using namespace stretto::testing;

// The harness keeps ranks in host memory where there is no real GPU.
class MadeUpGpus : public ::testing::Environment {
 public:
  void SetUp() override { setenv("STRETTO_DEVICE", "cuda", 1); }
};
const auto* const kGpus = ::testing::AddGlobalTestEnvironment(new MadeUpGpus);

std::string take(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return "(not loaded)";
  const auto calls = reinterpret_cast<const char* (*)()>(dlsym(handle, "fakeCalls"));
  dlclose(handle);
  return calls == nullptr ? "(not ours)" : calls();
}
std::string calls() {
  return take(FAKE_NCCL);
}

void set(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);
}

// The rank's own process: on a host of its own, with the made-up NCCL.
void settle(const Member& member, const char* library = FAKE_NCCL) {
  set("NCCL_HOSTID", "host" + std::to_string(member.rank));
  set("STRETTO_REAL_NCCL", library);
  fakeSetDevice(member.rank % 2);
}

// A communicator of ranks on hosts of their own, around `body`.
Body apart(Body body, const char* library = FAKE_NCCL) {
  return [body = connected(std::move(body)), library](Member& member) {
    settle(member, library);
    body(member);
  };
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
void expectCalls(const Member& member, const std::string& wanted) {
  const std::string got = calls();
  if (got != wanted) member.complain("called \"%s\", not \"%s\"", got.c_str(), wanted.c_str());
}

// What ncclCommInitRank says to each of two ranks on hosts of their own, in processes.
void expectRefusal(const std::string& library, ncclResult_t wanted, const std::vector<std::string>& parts) {
  asProcesses(2, [&](Member& member) {
    settle(member, library.c_str());
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", wanted);
    member.check(member.comm == nullptr, "there is a handle");
    member.expectError("init", parts);
  });
}

// ---- Who is handed over -----------------------------------------------------------------------------------

TEST(HandOver, RanksOnDifferentHostsInProcesses) {
  asProcesses(2, apart([](Member& member) {
                const std::string made = calls();
                const std::string device = std::to_string(member.rank % 2);
                const std::string call =
                    "CommInitRankConfig(2," + std::to_string(member.rank) + "," + device + ",1,-2147483648) ";
                member.check(has(made, call), made.c_str());
                member.check(has(made, "GetUniqueId") == (member.rank == 0), "who asks for the unique id");
                // All have the id that rank 0's process got from NCCL.
                const size_t at = made.find("id:FAKE of ");
                member.board.word(member.rank).store(std::strtoull(made.c_str() + at + 11, nullptr, 10));
                member.check(at != std::string::npos && member.board.meet(), "no id of NCCL's");
                member.check(member.board.word(0).load() == member.board.word(1).load(), "ids differ");
                int ranks = 0, rank = -1, at2 = -1;
                member.expect(ncclCommCount(member.comm, &ranks), "count");
                member.expect(ncclCommUserRank(member.comm, &rank), "rank");
                member.expect(ncclCommCuDevice(member.comm, &at2), "device");
                member.check(ranks == 2 && rank == member.rank && at2 == member.rank % 2, "wrong answers");
              }));
}

// NVIDIA's NCCL would send plain text.
TEST(HandOver, RanksThatAreToBeEncryptedAreRefused) {
  STRETTO_NEEDS_OPENSSL();
  const ScopedVariable on("STRETTO_TLS", "1");
  expectRefusal(FAKE_NCCL, ncclInvalidUsage,
                {"ranks 0 and 1 are on different hosts", "plain text", "STRETTO_TLS=1", "STRETTO_HOSTS=own"});
}

TEST(HandOver, RanksOnOneHostInProcessesAreNot) {
  asProcesses(2, [](Member& member) {
    set("NCCL_HOSTID", "together");
    set("STRETTO_REAL_NCCL", FAKE_NCCL);
    fakeSetDevice(member.rank);
    connected([](Member& inside) { inside.check(calls() == "(not loaded)", "NCCL was loaded"); })(member);
  });
}

// Both ranks in one thread of one process.
void makeAndDestroyBoth(const Member& member, std::string* made, std::string* ended) {
  set("STRETTO_REAL_NCCL", FAKE_NCCL);
  const Watchdog watchdog("two ranks in one process", 60);
  ncclComm_t comms[2] = {};
  if (!member.expect(ncclCommInitAll(comms, 2, nullptr), "init")) return;
  *made = calls();
  for (ncclComm_t comm : comms) member.expect(ncclCommDestroy(comm), "destroy");
  *ended = calls();
}

TEST(HandOver, GpusOutOfEachOthersReachInOneProcess) {
  asProcesses(1, [](Member& member) {
    set("FAKE_REACH", "0");
    std::string made, ended;
    makeAndDestroyBoth(member, &made, &ended);
    member.check(has(made, "CommInitRankConfig(2,0,0,1,") && has(made, "CommInitRankConfig(2,1,1,1,"),
                 made.c_str());
    member.check(ended == "CommDestroy() CommDestroy() ", ended.c_str());
  });
}

TEST(HandOver, GpusWithinReachInOneProcessAreNot) {
  asProcesses(1, [](Member& member) {
    std::string made, ended;
    makeAndDestroyBoth(member, &made, &ended);
    member.check(made == "(not loaded)", made.c_str());
  });
}

TEST(HandOver, MoreRanksThanThisLibraryServesInOneProcess) {
  const Board board(65);
  const Body body = connected([](Member& member) {
    char text[4096];
    size_t needed = 0;
    strettoQuestion_t question{};
    question.collective = "all_reduce";
    member.expect(strettoExplain(member.comm, &question, text, sizeof text, &needed), "explain",
                  ncclInvalidUsage);
    member.expectError("explain", {"65 ranks are more than this library serves (64)", "handed over"});
  });
  const ScopedVariable library("STRETTO_REAL_NCCL", FAKE_NCCL);
  Processes(board, body, 60, board.ranks()).finish();
}

// Ranks in host memory reach other hosts by themselves, and NCCL is not looked for.
TEST(HandOver, RanksInHostMemoryAreNot) {
  asProcesses(2, [](Member& member) {
    settle(member);
    set("STRETTO_DEVICE", "cpu");
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    if (!member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init")) return;
    float value = 1;
    member.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr), "all-reduce");
    member.check(value == 2, "a wrong sum");
    member.expect(ncclCommDestroy(member.comm), "destroy");
    member.check(calls() == "(not loaded)", "NCCL was loaded");
  });
}

TEST(HandOver, AHostRankAmongGpuRanksIsNamed) {
  asProcesses(2, [](Member& member) {
    settle(member);
    if (member.rank == 1) set("STRETTO_DEVICE", "cpu");
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclInvalidUsage);
    member.check(calls() == "(not loaded)", "NCCL was loaded");
  });
}

// ---- What arrives there -----------------------------------------------------------------------------------

void callEverything(const Member& member, float* buffer) {
  ncclComm_t comm = member.comm;
  member.expect(ncclAllReduce(buffer, buffer, 4, ncclFloat32, ncclMax, comm, nullptr), "all-reduce");
  member.expect(ncclReduce(buffer, buffer, 4, ncclFloat32, ncclSum, 1, comm, nullptr), "reduce");
  member.expect(ncclReduceScatter(buffer, buffer + 8, 2, ncclFloat32, ncclAvg, comm, nullptr), "scatter");
  member.expect(ncclAllGather(buffer, buffer + 8, 2, ncclBfloat16, comm, nullptr), "all-gather");
  member.expect(ncclAlltoAll(buffer, buffer + 8, 2, ncclFloat32, comm, nullptr), "all-to-all");
  member.expect(ncclBroadcast(buffer, buffer, 3, ncclFloat32, 1, comm, nullptr), "broadcast");
  member.expect(ncclBcast(buffer, 5, ncclFloat32, 0, comm, nullptr), "bcast");
  member.expect(ncclGather(buffer, buffer + 8, 2, ncclFloat32, 0, comm, nullptr), "gather");
  member.expect(ncclScatter(buffer, buffer + 8, 2, ncclFloat32, 1, comm, nullptr), "scatter");
}

TEST(HandOver, EveryOperationArrivesInProcesses) {
  asProcesses(2, apart([](Member& member) {
                float buffer[32] = {1, 2, 3, 4};
                (void)calls();
                callEverything(member, buffer);
                expectCalls(member,
                            "AllReduce(4,2) Reduce(4,0,1) ReduceScatter(2,4) AllGather(2,9) AlltoAll(2) "
                            "Broadcast(3,1) Broadcast(5,0) Gather(2,0) Scatter(2,1) ");
                member.check(buffer[0] == 2 && buffer[3] == 8, "the data was not touched");
              }));
}

TEST(HandOver, OldReleasesGetWhatTheyLackFromPairsInProcesses) {
  asProcesses(2, apart(
                     [](Member& member) {
                       float buffer[32] = {};
                       ncclComm_t comm = member.comm;
                       (void)take(FAKE_NCCL_219);
                       member.expect(ncclAlltoAll(buffer, buffer + 8, 2, ncclFloat32, comm, nullptr), "a");
                       member.expect(ncclGather(buffer, buffer + 8, 2, ncclFloat32, 0, comm, nullptr), "g");
                       member.expect(ncclScatter(buffer, buffer + 8, 2, ncclFloat32, 0, comm, nullptr), "s");
                       const std::string got = take(FAKE_NCCL_219);
                       const std::string wanted =
                           std::string("GroupStart() Send(2,0) Recv(2,0) Send(2,1) Recv(2,1) GroupEnd() ") +
                           (member.rank == 0 ? "GroupStart() Send(2,0) Recv(2,0) Recv(2,1) GroupEnd() "
                                               "GroupStart() Send(2,0) Recv(2,0) Send(2,1) GroupEnd() "
                                             : "GroupStart() Send(2,0) GroupEnd() "
                                               "GroupStart() Recv(2,0) GroupEnd() ");
                       if (got != wanted) member.complain("called %s", got.c_str());
                       ncclWindow_t window = nullptr;
                       member.expect(ncclCommWindowRegister(comm, buffer, 64, &window, 0), "window",
                                     ncclInvalidUsage);
                       member.expectError("window", {"NCCL 2.19.3", "has no ncclCommWindowRegister"});
                       member.expect(ncclCommResume(comm), "resume", ncclInvalidUsage);
                       member.expectError("resume", {"NCCL 2.19.3", "has no ncclCommResume"});
                     },
                     FAKE_NCCL_219));
}

TEST(HandOver, MemoryIsTheirsInProcesses) {
  asProcesses(2, apart([](Member& member) {
                (void)calls();
                uint64_t bytes = 0;
                member.expect(ncclCommMemStats(member.comm, ncclStatGpuMemTotal, &bytes), "memory");
                member.check(bytes == 4096, "not their number");
                member.expect(ncclCommSuspend(member.comm, 0), "no flags", ncclInvalidArgument);
                member.expect(ncclCommSuspend(member.comm, NCCL_SUSPEND_MEM), "suspend");
                member.expect(ncclCommResume(member.comm), "resume");
                const std::string wanted = "CommMemStats(" + std::to_string(ncclStatGpuMemTotal) +
                                           ") CommSuspend(" + std::to_string(NCCL_SUSPEND_MEM) +
                                           ") CommResume() ";
                expectCalls(member, wanted.c_str());
              }));
}

TEST(HandOver, RegistrationsAndOperatorsAreTheirsInProcesses) {
  asProcesses(2, apart([](Member& member) {
                float buffer[32] = {};
                ncclComm_t comm = member.comm;
                (void)calls();
                void* handle = nullptr;
                member.expect(ncclCommRegister(comm, buffer, 64, &handle), "register");
                member.expect(ncclCommDeregister(comm, handle), "deregister");
                ncclWindow_t window = nullptr;
                member.expect(ncclCommWindowRegister(comm, buffer, 64, &window, NCCL_WIN_COLL_SYMMETRIC),
                              "win");
                member.expect(ncclCommWindowDeregister(comm, window), "no win");
                ncclRedOp_t op = ncclSum;
                float scalar = 0.5f;
                member.expect(
                    ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm), "op");
                member.expect(ncclAllReduce(buffer, buffer, 1, ncclFloat32, op, comm, nullptr), "all-reduce");
                member.expect(ncclRedOpDestroy(op, comm), "no op");
                expectCalls(member,
                            "CommRegister(64) CommDeregister() CommWindowRegister(64,1) "
                            "CommWindowDeregister() RedOpCreatePreMulSum() AllReduce(1,4711) "
                            "RedOpDestroy(4711) ");
                void* memory = nullptr;
                member.expect(ncclMemAlloc(&memory, 100), "alloc");
                member.expect(ncclMemFree(memory), "free");
                expectCalls(member, "MemAlloc(100) MemFree() ");
              }));
}

TEST(HandOver, AGroupIsOneGroupOfTheirsInProcesses) {
  asProcesses(2, apart([](Member& member) {
                float buffer[8] = {};
                ncclComm_t comm = member.comm;
                (void)calls();
                ncclGroupStart();
                ncclGroupStart();
                member.expect(ncclSend(buffer, 1, ncclFloat32, 1 - member.rank, comm, nullptr), "send");
                ncclGroupEnd();
                member.expect(ncclRecv(buffer, 1, ncclFloat32, 1 - member.rank, comm, nullptr), "recv");
                expectCalls(member, "");  // nothing before the end
                member.expect(ncclGroupEnd(), "group");
                const std::string peer = std::to_string(1 - member.rank);
                expectCalls(member, "GroupStart() GroupStart() Send(1," + peer + ") Recv(1," + peer +
                                        ") GroupEnd() GroupEnd() ");
                ncclGroupStart();
                member.expect(ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, comm, nullptr), "all");
                ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
                member.expect(ncclGroupSimulateEnd(&info), "simulate");
                member.check(info.estimatedTime == 42, "not their estimate");
              }));
}

// One group with operations of a communicator that is theirs and of one that is ours.
TEST(HandOver, AGroupMaySpanBothInProcesses) {
  asProcesses(2, [](Member& member) {
    set("STRETTO_REAL_NCCL", FAKE_NCCL);
    fakeSetDevice(member.rank);
    ncclUniqueId id;
    ncclComm_t own = nullptr;
    if (!member.board.shareId(member.rank, &id)) return;
    if (!member.expect(ncclCommInitRank(&own, 2, id, member.rank), "own")) return;
    settle(member);
    connected([own](Member& inside) {
      float buffer[8] = {1};
      (void)calls();
      ncclGroupStart();
      inside.expect(ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, own, nullptr), "ours");
      inside.expect(ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, inside.comm, nullptr), "theirs");
      inside.expect(ncclGroupEnd(), "group");
      expectCalls(inside, "GroupStart() AllReduce(1,0) GroupEnd() ");
      strettoCounters_t counters{};
      counters.size = sizeof counters;
      inside.expect(strettoCommCounters(own, &counters), "counters");
      inside.check(counters.operations == 1, "ours did not run here");
    })(member);
    member.expect(ncclCommDestroy(own), "destroy");
  });
}

TEST(HandOver, TheConfigurationGoesAlongInProcesses) {
  asProcesses(2, [](Member& member) {
    settle(member);
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    {
      std::string network = "Socket", name = "layers";
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      config.maxCTAs = 7;
      config.netName = network.c_str();
      config.commName = name.c_str();
      member.expect(ncclCommInitRankConfig(&member.comm, 2, id, member.rank, &config), "init",
                    ncclInProgress);
      network = name = "gone";  // the caller may free them
    }
    ncclResult_t state = ncclInProgress;
    member.check(eventually(20,
                            [&] {
                              return ncclCommGetAsyncError(member.comm, &state) != ncclSuccess ||
                                     state != ncclInProgress;
                            }),
                 "not ready");
    member.expect(state, "state");
    const std::string made = calls();
    member.check(has(made, " net:Socket name:layers ") && has(made, ",1,7)"), made.c_str());
    member.expect(ncclCommDestroy(member.comm), "destroy");
  });
}

// ---- Children ---------------------------------------------------------------------------------------------

// Four ranks on two hosts: the halves are on one host each and stay here, the pairs across are theirs.
TEST(HandOver, AChildIsHandedOverOnlyIfItMustInProcesses) {
  asProcesses(4, [](Member& member) {
    set("NCCL_HOSTID", member.rank < 2 ? "left" : "right");
    set("STRETTO_REAL_NCCL", FAKE_NCCL);
    fakeSetDevice(member.rank % 2);
    connected([](Member& inside) {
      (void)calls();
      ncclComm_t half = nullptr, across = nullptr;
      inside.expect(ncclCommSplit(inside.comm, inside.rank / 2, 0, &half, nullptr), "half");
      expectCalls(inside, "");
      inside.expect(ncclCommSplit(inside.comm, inside.rank % 2, 0, &across, nullptr), "across");
      inside.check(has(calls(), "CommInitRankConfig(2," + std::to_string(inside.rank / 2)),
                   "not handed over");
      inside.expect(ncclCommDestroy(half), "destroy half");
      inside.expect(ncclCommDestroy(across), "destroy across");
      (void)calls();
      ncclComm_t fewer = nullptr;
      int gone = 3;
      if (inside.rank != gone) {
        inside.expect(ncclCommShrink(inside.comm, &gone, 1, &fewer, nullptr, NCCL_SHRINK_ABORT), "shrink");
        const std::string made = calls();
        inside.check(has(made, "CommAbort()") && has(made, "CommInitRankConfig(3,"), made.c_str());
        inside.expect(ncclCommDestroy(fewer), "destroy shrunk");
        inside.expect(ncclCommDestroy(inside.comm), "destroy");
      } else {
        inside.expect(ncclCommAbort(inside.comm), "abort");
      }
      inside.comm = nullptr;
    })(member);
  });
}

// ---- The end ----------------------------------------------------------------------------------------------

TEST(HandOver, EachEndIsTheirsOnceInProcesses) {
  asProcesses(2, apart([](Member& member) {
                (void)calls();
                member.expect(ncclCommFinalize(member.comm), "finalise");
                expectCalls(member, "CommFinalize() ");
                member.expect(ncclCommDestroy(member.comm), "destroy");
                expectCalls(member, "CommDestroy() ");
                member.comm = nullptr;
              }));
  asProcesses(2, apart([](Member& member) {
                member.board.meet();  // nobody ends before all are there
                (void)calls();
                member.expect(ncclCommRevoke(member.comm, NCCL_REVOKE_DEFAULT), "revoke");
                expectCalls(member, "CommAbort() ");
                float buffer = 0;
                member.expect(ncclBcast(&buffer, 1, ncclFloat32, 0, member.comm, nullptr), "after",
                              ncclInvalidUsage);
                member.expect(ncclCommAbort(member.comm), "abort");
                expectCalls(member, "");
                member.comm = nullptr;
              }));
}

TEST(HandOver, AnAbortFreesACallOfAnotherThreadInProcesses) {
  asProcesses(2, apart([](Member& member) {
                member.board.meet();
                set("FAKE_NCCL", "stuck");
                float buffer = 0;
                std::thread caller([&] {
                  (void)ncclAllReduce(&buffer, &buffer, 1, ncclFloat32, ncclSum, member.comm, nullptr);
                });
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                const Canary canary;
                const double began = secondsNow();
                member.expect(ncclCommAbort(member.comm), "abort");
                caller.join();
                member.check(secondsNow() - began < canary.limit(1), "slow");
                member.comm = nullptr;
              }));
}

TEST(HandOver, TheirErrorsAreThisCommunicatorsInProcesses) {
  asProcesses(
      2, apart([](Member& member) {
        float buffer = 0;
        set("FAKE_NCCL", "fail:Broadcast");
        member.expect(ncclBcast(&buffer, 1, ncclFloat32, 0, member.comm, nullptr), "bcast", ncclRemoteError);
        member.expectError("bcast", {"NCCL 2.28.9", FAKE_NCCL, "a made-up error", "made up: Broadcast"});
        set("FAKE_NCCL", "async");
        ncclResult_t state = ncclSuccess;
        member.expect(ncclCommGetAsyncError(member.comm, &state), "ask");
        member.expect(state, "state", ncclRemoteError);
        member.check(has(ncclGetLastError(member.comm), "a made-up error"), "no words");
        member.board.meet();
        member.expect(ncclCommAbort(member.comm), "abort");
        member.comm = nullptr;
      }));
}

// ---- No NCCL, or not the right one ------------------------------------------------------------------------

TEST(HandOver, ForbiddenInProcesses) {
  expectRefusal("none", ncclInvalidUsage,
                {"are on different hosts", "as host1", "STRETTO_REAL_NCCL=none forbids"});
}

TEST(HandOver, NoNcclInProcesses) {
  for (const std::string& path : communicator::foreignCandidates({}, platform::librarySearchPath())) {
    if (platform::isFile(path)) GTEST_SKIP() << "this machine has " << path;
  }
  expectRefusal("", ncclSystemError,
                {"are on different hosts", "no libnccl.so.2", "set STRETTO_REAL_NCCL to its absolute path"});
}

TEST(HandOver, NotWhatItShouldBeInProcesses) {
  expectRefusal("libnccl.so.2", ncclInvalidUsage, {"write the absolute path"});
  expectRefusal("/nowhere/libnccl.so.2", ncclInvalidUsage, {"cannot load /nowhere/libnccl.so.2"});
  expectRefusal(FAKE_NCCL_OLD, ncclInvalidUsage, {"is NCCL 2.18.5", "2.19 and later"});
  expectRefusal(OWN_NCCL, ncclInvalidUsage, {"is this library, not NVIDIA's"});
}

TEST(HandOver, OneThatIsLoadedAlreadyIsFoundInProcesses) {
  asProcesses(2, [](Member& member) {
    settle(member);
    unsetenv("STRETTO_REAL_NCCL");
    // Ours too, and first: it must not be taken.
    member.check(dlopen(OWN_NCCL, RTLD_NOW | RTLD_LOCAL) != nullptr, "no library of ours");
    member.check(dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL) != nullptr, "no made-up library");
    connected([](Member& inside) { inside.check(has(calls(), "CommInitRankConfig(2,"), "not found"); })(
        member);
  });
}

TEST(HandOver, ReleasesMustAgreeInProcesses) {
  asProcesses(2, [](Member& member) {
    settle(member);
    if (member.rank == 1) set("FAKE_NCCL", "version");
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclInvalidUsage);
    member.expectError("init", {"different releases", "22809", "22807", "STRETTO_REAL_NCCL"});
  });
}

TEST(HandOver, OneRankWithoutNcclIsNamedInProcesses) {
  asProcesses(2, [](Member& member) {
    settle(member, member.rank == 1 ? "/nowhere/libnccl.so.2" : FAKE_NCCL);
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclInvalidUsage);
    member.expectError("init", {"rank 1", "/nowhere/libnccl.so.2"});
  });
}

TEST(HandOver, TheirInitialisationFailsInProcesses) {
  asProcesses(2, [](Member& member) {
    settle(member);
    set("FAKE_NCCL", "fail:CommInitRankConfig");
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclRemoteError);
  });
}

// NCCL may take as long as it likes: whoever waits is back at the deadline.
TEST(HandOver, TheirInitialisationHangsInProcesses) {
  asProcesses(2, [](Member& member) {
    settle(member);
    set("FAKE_NCCL", "hang");
    set("STRETTO_INIT_TIMEOUT", "1");
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    const double began = secondsNow();
    const ncclResult_t result = ncclCommInitRank(&member.comm, 2, id, member.rank);
    member.expect(result, "init", ncclRemoteError);
    member.check(secondsNow() - began < 4, "late");
  });
}

// NVIDIA's own library where the checkout has one: every function is found, and the version is read. Needs no
// GPU.
TEST(ForeignLibrary, OfNvidiaInOneProcess) {
  if (!platform::isFile(REAL_NCCL)) GTEST_SKIP() << "there is no " << REAL_NCCL;
  asProcesses(1, [](Member& member) {
    set("STRETTO_REAL_NCCL", REAL_NCCL);
    const auto library = communicator::foreignLibrary();
    if (!member.check(library.ok(), lastError().c_str())) return;
    member.check(library.value()->version >= 22809, library.value()->versionText().c_str());
    member.check(library.value()->ncclAlltoAll != nullptr, "no all-to-all");
    member.check(library.value()->ncclCommWindowRegister != nullptr, "no windows");
    member.check(library.value()->ncclGroupSimulateEnd != nullptr, "no estimate");
  });
}

// ---- Where it is looked for -------------------------------------------------------------------------------

TEST(ForeignCandidates, LoadedOnesThenSearchPathsThenPackages) {
  const auto all = communicator::foreignCandidates(
      {"/opt/a b/libnccl.so.2.30.3", "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
       "/usr/lib/libnccl-net.so"},
      {"/venv/lib/python3.11/site-packages/torch/lib", "/lib64"});
  const std::vector<std::string> first(all.begin(), all.begin() + 4);
  const std::vector<std::string> wanted = {
      "/opt/a b/libnccl.so.2.30.3", "/venv/lib/python3.11/site-packages/torch/lib/libnccl.so.2",
      "/lib64/libnccl.so.2", "/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"};
  EXPECT_EQ(first, wanted);
}

TEST(ForeignCandidates, SearchPathsAreThoseOfTheLoader) {
  const auto folders = platform::librarySearchPath();
  EXPECT_FALSE(folders.empty());
  for (const std::string& folder : folders) EXPECT_EQ(folder.front(), '/') << folder;
  const auto mapped = platform::mappedFiles();
  bool self = false;
  for (const std::string& file : mapped) self = self || platform::sameFile(file, platform::ownFile());
  EXPECT_TRUE(self);
}

}  // namespace
}  // namespace stretto
