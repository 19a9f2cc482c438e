// Puts, signals and waits for signals between ranks in host memory, through the C API: what arrives, in which
// order, what a wrong call is told, and what a rank that waits learns of one that does not come.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "api/nccl_device.hpp"
#include "base/scoped_variable.hpp"
#include "harness/ranks.hpp"
#include "harness/temporary_folder.hpp"
#include "harness/watchdog.hpp"
#include "observe/flight_reader.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kWindowBytes = size_t{9} << 20;  // more than two of the pieces that a put is made of

// A window of every rank, of memory that peers can map or of memory that they cannot.
class Window {
 public:
  Window(const Member& member, bool shared) : member_(member), shared_(shared) {
    if (shared_) {
      member.expect(ncclMemAlloc(&memory_, kWindowBytes), "allocate");
    } else {
      own_.resize(kWindowBytes);
      memory_ = own_.data();
    }
    std::memset(memory_, 0, kWindowBytes);
    member.expect(
        ncclCommWindowRegister(member.comm, memory_, kWindowBytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
        "register");
  }
  // Peers may still write until all have come here.
  ~Window() {
    if (member_.comm != nullptr) {
      member_.board.meet();
      member_.expect(ncclCommWindowDeregister(member_.comm, window_), "deregister");
    }
    if (shared_) ncclMemFree(memory_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  ncclWindow_t handle() const { return window_; }
  uint32_t* words() const { return static_cast<uint32_t*>(memory_); }

 private:
  const Member& member_;
  const bool shared_;
  void* memory_ = nullptr;
  std::vector<std::byte> own_;
  ncclWindow_t window_ = nullptr;
};

bool waitFor(const Member& member, int peer, int count, int index = 0, int context = 0,
             cudaStream_t stream = nullptr) {
  ncclWaitSignalDesc_t wanted{count, peer, index, context};
  return member.expect(ncclWaitSignal(1, &wanted, member.comm, stream), "wait");
}

struct Kind {
  bool processes;
  bool shared;
};

class Puts : public ::testing::TestWithParam<Kind> {
 protected:
  static void run(int ranks, const Body& body) {
    if (!GetParam().processes) {
      asThreads(ranks, connected(body));
    } else if (!STRETTO_TEST_TSAN) {
      asProcesses(ranks, connected(body));
    }
  }
};

TEST_P(Puts, ArriveBeforeTheirSignals) {
  run(3, [shared = GetParam().shared](Member& member) {
    const Window window(member, shared);
    const int next = (member.rank + 1) % 3, last = (member.rank + 2) % 3;
    for (const size_t count : {size_t{1}, size_t{1000}, (kWindowBytes - 64) / 4}) {
      std::vector<uint32_t> data(count);
      std::iota(data.begin(), data.end(), static_cast<uint32_t>(1000 * member.rank) + 1);
      if (!member.expect(ncclPutSignal(data.data(), count, ncclUint32, next, window.handle(), 64, 0, 0, 0,
                                       member.comm, nullptr),
                         "put") ||
          !waitFor(member, last, 1)) {
        return;
      }
      const uint32_t* const came = window.words() + 16;
      for (size_t i = 0; i < count; ++i) {
        const uint32_t wanted = static_cast<uint32_t>(1000 * last) + 1 + static_cast<uint32_t>(i);
        if (came[i] == wanted) continue;
        member.complain("element %zu of %zu is %u, not %u", i, count, came[i], wanted);
        break;
      }
      // Nobody puts again before all have looked.
      for (const int peer : {next, last})
        member.expect(ncclSignal(peer, 1, 0, 0, member.comm, nullptr), "signal");
      if (!waitFor(member, next, 1, 1) || !waitFor(member, last, 1, 1)) return;
    }
  });
}

// A rank that only puts runs ahead of one that waits late.
TEST_P(Puts, AreCountedForWhoWaitsLate) {
  run(2, [shared = GetParam().shared](Member& member) {
    const Window window(member, shared);
    constexpr int kPuts = 100;
    if (member.rank == 0) {
      for (uint32_t i = 0; i < kPuts; ++i) {
        const uint32_t value = i + 7;
        member.expect(
            ncclPutSignal(&value, 1, ncclUint32, 1, window.handle(), 4 * i, 3, 2, 0, member.comm, nullptr),
            "put");
      }
      return;
    }
    if (!waitFor(member, 0, kPuts / 2, 3, 2) || !waitFor(member, 0, kPuts / 2, 3, 2)) return;
    for (uint32_t i = 0; i < kPuts; ++i) member.check(window.words()[i] == i + 7, "a wrong element");
  });
}

TEST_P(Puts, GoBetweenCollectivesOfTheSameRanks) {
  run(3, [shared = GetParam().shared](Member& member) {
    const Window window(member, shared);
    for (int round = 0; round < 20; ++round) {
      const uint32_t mine = static_cast<uint32_t>(100 * round + member.rank);
      for (int peer = 0; peer < 3; ++peer) {
        member.expect(ncclPutSignal(&mine, 1, ncclUint32, peer, window.handle(),
                                    4 * static_cast<size_t>(member.rank), 0, 0, 0, member.comm, nullptr),
                      "put");
      }
      ncclWaitSignalDesc_t all[] = {{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 2, 0, 0}};
      if (!member.expect(ncclWaitSignal(3, all, member.comm, nullptr), "wait")) return;
      int sum = 0;
      for (int peer = 0; peer < 3; ++peer) {
        sum += static_cast<int>(window.words()[peer]);
        if (window.words()[peer] != static_cast<uint32_t>(100 * round + peer))
          member.complain("a wrong word");
      }
      int total = 0;
      if (!member.expect(ncclAllReduce(&sum, &total, 1, ncclInt, ncclSum, member.comm, nullptr),
                         "all-reduce"))
        return;
      member.check(total == 3 * (300 * round + 3), "a wrong sum");
    }
  });
}

// In a group the puts come first and the waits last, so that the order of the calls does not matter.
TEST_P(Puts, OfAGroupNeedNoOrder) {
  run(2, [shared = GetParam().shared](Member& member) {
    const Window window(member, shared);
    const int other = 1 - member.rank;
    const uint64_t value = 17 + static_cast<uint64_t>(member.rank);
    ncclWaitSignalDesc_t wanted{1, other, 0, 0};
    member.expect(ncclGroupStart(), "start");
    member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait");
    member.expect(
        ncclPutSignal(&value, 1, ncclUint64, other, window.handle(), 8, 0, 0, 0, member.comm, nullptr),
        "put");
    member.expect(ncclGroupEnd(), "end");
    uint64_t came = 0;
    std::memcpy(&came, window.words() + 2, sizeof came);
    member.check(came == 17 + static_cast<uint64_t>(other), "a wrong value");
  });
}

TEST_P(Puts, RunInTheOrderOfAStream) {
  run(2, [shared = GetParam().shared](Member& member) {
    const Window window(member, shared);
    cudaStream_t stream = nullptr;
    if (!member.expect(strettoStreamCreate(&stream), "stream")) return;
    uint32_t value = 5;
    if (member.rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      member.expect(ncclPutSignal(&value, 1, ncclUint32, 1, window.handle(), 0, 0, 0, 0, member.comm, stream),
                    "put");
    } else {
      waitFor(member, 0, 1, 0, 0, stream);
    }
    member.expect(ncclAllReduce(window.words(), window.words(), 1, ncclUint32, ncclSum, member.comm, stream),
                  "reduce");
    member.expect(strettoStreamSynchronize(stream), "synchronize");
    member.check(window.words()[0] == 5, "a wrong sum");
    member.expect(strettoStreamDestroy(stream), "destroy the stream");
  });
}

INSTANTIATE_TEST_SUITE_P(Among, Puts,
                         ::testing::Values(Kind{false, true}, Kind{false, false}, Kind{true, true},
                                           Kind{true, false}),
                         [](const auto& suite) {
                           return std::string(suite.param.processes ? "Processes" : "Threads") +
                                  (suite.param.shared ? "OfSharedMemory" : "OfAnyMemory");
                         });

TEST_P(Puts, GoWherePeersPointersPoint) {
  run(2, [shared = GetParam().shared, processes = GetParam().processes](Member& member) {
    const Window window(member, shared);
    const int other = 1 - member.rank;
    void* mine = nullptr;
    member.expect(ncclWinGetUserPtr(member.comm, window.handle(), &mine), "own pointer");
    member.check(mine == window.words(), "not the pointer that was registered");
    void *own = nullptr, *theirs = &mine, *lsa = nullptr;
    member.expect(ncclGetPeerDevicePointer(window.handle(), 8, member.rank, &own), "own, by rank");
    member.check(own == window.words() + 2, "not where the own buffer is");
    if (processes && !shared) {
      member.expect(ncclGetPeerDevicePointer(window.handle(), 0, other, &theirs), "theirs", ncclInvalidUsage);
      member.expectError("theirs", {"ncclMemAlloc"});
      member.check(theirs == nullptr, "a pointer that is none");
      return;
    }
    if (!member.expect(ncclGetPeerDevicePointer(window.handle(), 16, other, &theirs), "theirs")) return;
    member.expect(ncclGetLsaDevicePointer(window.handle(), 16, other, &lsa), "theirs, by its team");
    member.check(lsa == theirs, "two answers");
    member.expect(ncclGetPeerDevicePointer(window.handle(), 0, 2, &own), "rank 2", ncclInvalidArgument);
    member.expect(ncclGetPeerDevicePointer(nullptr, 0, 0, &own), "no window", ncclInvalidArgument);
    *static_cast<uint32_t*>(theirs) = static_cast<uint32_t>(70 + member.rank);
    member.board.meet();
    member.check(window.words()[4] == static_cast<uint32_t>(70 + other), "not what the peer has written");
  });
}

// ---- Wrong calls ------------------------------------------------------------------------------------------

// What a rank has called is in its flight recorder, and stays where the job has died.
TEST(OneSided, OperationsAreRecorded) {
  const testing::TemporaryFolder folder("one-sided");
  {
    const ScopedVariable directory("STRETTO_FLIGHT_DIR", folder.path().string().c_str());
    asThreads(2, connected([](Member& member) {
                const Window window(member, true);
                const uint32_t value = 7;
                const int peer = 1 - member.rank;
                member.expect(ncclPutSignal(&value, 1, ncclUint32, peer, window.handle(), 0, 0, 0, 0,
                                            member.comm, nullptr),
                              "put");
                member.expect(ncclSignal(peer, 0, 0, 0, member.comm, nullptr), "signal");
                waitFor(member, peer, 2);
              }));
  }
  const auto reading = observe::readDirectory(folder.path().string());
  ASSERT_TRUE(reading.ok()) << lastError();
  ASSERT_EQ(reading.value().snapshots.size(), 2u);
  for (const observe::FlightSnapshot& rank : reading.value().snapshots) {
    std::string words;
    for (const observe::FlightOperation& operation : rank.operations) {
      words += std::string(nameOf(operation.function)) + " x " + std::to_string(operation.count) + " " +
               nameOf(operation.state) + ", ";
      EXPECT_EQ(operation.peer, 1 - rank.rank);
      EXPECT_EQ(operation.sequence, 0u);
    }
    EXPECT_EQ(words, "put_signal x 1 done, signal x 0 done, wait_signal x 2 done, ");
    EXPECT_EQ(rank.unreadable, 0u);
  }
}

TEST(OneSided, WrongCallsAreRefusedInWords) {
  asThreads(2, connected([](Member& member) {
              const Window window(member, true);
              uint32_t value = 0;
              const auto put = [&](int peer, ncclWindow_t where, size_t offset, int index, int context,
                                   unsigned flags) {
                return ncclPutSignal(&value, 1, ncclUint32, peer, where, offset, index, context, flags,
                                     member.comm, nullptr);
              };
              const auto other = window.handle();
              member.expect(put(2, other, 0, 0, 0, 0), "peer", ncclInvalidArgument);
              member.expectError("peer", {"peer 2", "ranks 0 to 1"});
              member.expect(put(1, other, kWindowBytes - 3, 0, 0, 0), "offset", ncclInvalidArgument);
              member.expectError("offset", {"do not fit", std::to_string(kWindowBytes)});
              member.expect(put(1, other, SIZE_MAX, 0, 0, 0), "far offset", ncclInvalidArgument);
              member.expect(put(1, nullptr, 0, 0, 0, 0), "window", ncclInvalidArgument);
              member.expectError("window", {"NCCL_WIN_COLL_SYMMETRIC"});
              member.expect(put(1, other, 0, 64, 0, 0), "index", ncclInvalidArgument);
              member.expect(put(1, other, 0, 0, -1, 0), "context", ncclInvalidArgument);
              member.expect(put(1, other, 0, 0, 0, 1), "flags", ncclInvalidArgument);
              member.expectError("flags", {"flags must be 0"});
              member.expect(ncclPutSignal(nullptr, 1, ncclUint32, 1, other, 0, 0, 0, 0, member.comm, nullptr),
                            "null", ncclInvalidArgument);
              member.expect(ncclSignal(-1, 0, 0, 0, member.comm, nullptr), "peer", ncclInvalidArgument);
              ncclWaitSignalDesc_t none{0, 1, 0, 0}, alone{1, member.rank, 0, 0};
              member.expect(ncclWaitSignal(1, &none, member.comm, nullptr), "none", ncclInvalidArgument);
              member.expect(ncclWaitSignal(0, &none, member.comm, nullptr), "empty", ncclInvalidArgument);
              member.expect(ncclWaitSignal(1, nullptr, member.comm, nullptr), "null", ncclInvalidArgument);
              // Nothing of it has broken the communicator.
              member.expect(ncclSignal(1 - member.rank, 0, 0, 0, member.comm, nullptr), "signal");
              waitFor(member, 1 - member.rank, 1);
              member.expect(ncclWaitSignal(1, &alone, member.comm, nullptr), "alone", ncclInvalidUsage);
              member.expectError("alone", {"signals of its own"});
            }));
}

TEST(OneSided, WindowsOfDifferentSizesAreRefusedOnAllRanks) {
  asThreads(3, connected([](Member& member) {
              std::vector<std::byte> memory(8192);
              ncclWindow_t window = nullptr;
              const size_t bytes = member.rank == 1 ? 4096 : 8192;
              member.expect(
                  ncclCommWindowRegister(member.comm, memory.data(), bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
                  "register", ncclInvalidUsage);
              member.expectError("register", {"4096", "8192"});
              member.check(window == nullptr, "a handle of a window that is none");
              // A null buffer on one rank is told to all.
              void* const buffer = member.rank == 2 ? nullptr : memory.data();
              member.expect(
                  ncclCommWindowRegister(member.comm, buffer, 4096, &window, NCCL_WIN_COLL_SYMMETRIC), "null",
                  ncclInvalidArgument);
              int one = 1;
              member.expect(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, member.comm, nullptr), "after it");
              member.check(one == 3, "a wrong sum");
            }));
}

TEST(OneSided, WindowsOfNetworksAndMulticastAreRefused) {
  asThreads(1, connected([](Member& member) {
              std::byte memory[64];
              ncclWindow_t window = nullptr;
              for (const int flags : {NCCL_WIN_GIN_ONLY, NCCL_WIN_CFT_COUNTED | NCCL_WIN_COLL_SYMMETRIC}) {
                member.expect(ncclCommWindowRegister(member.comm, memory, sizeof memory, &window, flags),
                              "register", ncclInvalidUsage);
                member.expectError("register", {"cannot be had"});
              }
              member.expect(ncclCommWindowRegister(member.comm, memory, sizeof memory, &window,
                                                   NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING),
                            "ordered");
              member.expect(ncclCommWindowDeregister(member.comm, window), "deregister");
            }));
}

// ---- Faults -----------------------------------------------------------------------------------------------

// Kills rank 1 a moment after it has set the board's first word. The others must end within two seconds.
void expectTheOthersEndWithRankOne(const Board& board, Processes& processes) {
  ASSERT_TRUE(eventually(20, [&] { return board.word(0).load() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Canary canary;
  const double began = secondsNow();
  processes.kill(1);
  processes.finish(1);
  EXPECT_LT(secondsNow() - began, canary.limit(2));
}

TEST(OneSided, AWaitEndsWithThePeersDeath) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const Board board(2);
  Processes processes(board, connected([](Member& member) {
                        if (member.rank == 1) {
                          member.board.word(0).store(1);
                          pause();
                        }
                        ncclWaitSignalDesc_t wanted{1, 1, 0, 0};
                        member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait",
                                      ncclRemoteError);
                        member.expectError("wait", {"rank 1", "wait_signal"});
                        const Canary canary;
                        const double began = secondsNow();
                        member.expect(ncclCommAbort(member.comm), "abort");
                        member.check(secondsNow() - began < canary.limit(1), "a slow abort");
                        member.comm = nullptr;
                      }));
  expectTheOthersEndWithRankOne(board, processes);
}

// One that only puts waits for nobody, and learns of the death all the same.
void putUntilThePeerDies(bool shared) {
  const Board board(2);
  Processes processes(board, connected([shared](Member& member) {
                        auto* const window = new Window(member, shared);  // the peer never meets again
                        if (member.rank == 1) {
                          member.board.word(0).store(1);
                          pause();
                        }
                        const std::vector<std::byte> data(kWindowBytes);
                        ncclResult_t result = ncclSuccess;
                        const double began = secondsNow();
                        while (result == ncclSuccess && secondsNow() - began < 30) {
                          result = ncclPutSignal(data.data(), data.size(), ncclInt8, 1, window->handle(), 0,
                                                 0, 0, 0, member.comm, nullptr);
                        }
                        member.expect(result, "put", ncclRemoteError);
                        member.expectError("put", {"rank 1"});
                        member.expect(ncclCommAbort(member.comm), "abort");
                        member.comm = nullptr;
                      }));
  expectTheOthersEndWithRankOne(board, processes);
}

TEST(OneSided, PutsIntoSharedMemoryEndWithThePeersDeath) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  putUntilThePeerDies(true);
}

TEST(OneSided, PutsIntoOrdinaryMemoryEndWithThePeersDeath) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  putUntilThePeerDies(false);
}

TEST(OneSided, ARegistrationEndsWithThePeersDeath) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const Board board(3);
  Processes processes(
      board, connected([](Member& member) {
        if (member.rank == 1) {
          member.board.word(0).store(1);
          pause();
        }
        void* memory = nullptr;
        ncclWindow_t window = nullptr;
        member.expect(ncclMemAlloc(&memory, 4096), "allocate");
        member.expect(ncclCommWindowRegister(member.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC),
                      "register", ncclRemoteError);
        member.expectError("register", {"rank 1"});
        member.check(window == nullptr, "a handle of a window that is none");
      }));
  expectTheOthersEndWithRankOne(board, processes);
}

// A call that is one-sided, of one element in the peer's window or of none.
ncclResult_t oneSided(const Member& member, const char* call, ncclWindow_t window) {
  const int value = 1;
  if (std::strcmp(call, "signal") == 0) return ncclSignal(1, 0, 0, 0, member.comm, nullptr);
  const size_t count = std::strcmp(call, "put") == 0 ? 1 : 0;
  return ncclPutSignal(&value, count, ncclInt, 1, window, 0, 0, 0, 0, member.comm, nullptr);
}

// In processes of their own: a put under way may write a little longer than its peer's communicator lives.
void expectToldOf(const char* call, const std::function<void(Member&)>& goes, const char* words) {
  asProcesses(2, connected([=](Member& member) {
                void* memory = nullptr;
                ncclWindow_t window = nullptr;
                member.expect(ncclMemAlloc(&memory, 4096), "allocate");
                member.expect(
                    ncclCommWindowRegister(member.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC),
                    "register");
                if (member.rank == 1) goes(member);
                member.board.meet();
                if (member.rank == 0) {
                  member.expect(oneSided(member, call, window), call, ncclRemoteError);
                  member.expectError(call, {"rank 1", words});
                }
                member.board.meet();
              }));
}

constexpr const char* kOneSidedCalls[] = {"put", "put of nothing", "signal"};

TEST(OneSided, CallsToARankThatHasLeftSaySo) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const auto leaves = [](Member& member) {
    member.expect(ncclCommDestroy(member.comm), "destroy");
    member.comm = nullptr;
  };
  for (const char* const call : kOneSidedCalls) expectToldOf(call, leaves, "has finalised its communicator");
}

TEST(OneSided, CallsToARankThatHasGivenUpSaySo) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const auto revokes = [](Member& member) {
    member.expect(ncclCommRevoke(member.comm, NCCL_REVOKE_DEFAULT), "revoke");
  };
  for (const char* const call : kOneSidedCalls) expectToldOf(call, revokes, "given up");
}

TEST(OneSided, AWaitEndsWithAnAbortOfTheSameRank) {
  asThreads(2, connected([](Member& member) {
              if (member.rank == 1) {
                member.board.meet();
                return;
              }
              std::thread aborts([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                member.expect(ncclCommAbort(member.comm), "abort");
              });
              ncclWaitSignalDesc_t wanted{1, 1, 0, 0};
              const ncclResult_t result = ncclWaitSignal(1, &wanted, member.comm, nullptr);
              member.check(result != ncclSuccess, "a wait for nothing succeeded");
              aborts.join();
              member.comm = nullptr;
              member.board.meet();
            }));
}

TEST(OneSided, AWaitHasADeadline) {
  const ScopedVariable timeout("STRETTO_TIMEOUT", "0.3");
  asThreads(2, connected([](Member& member) {
              if (member.rank == 0) {
                ncclWaitSignalDesc_t wanted{2, 1, 5, 0};
                member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait", ncclRemoteError);
                member.expectError("wait", {"rank 0 waited 0.3 s for rank 1", "wait for 2 signals of rank 1",
                                            "STRETTO_TIMEOUT"});
              }
              member.board.meet();
            }));
}

TEST(OneSided, AWaitForARankThatHasLeftSaysSo) {
  asThreads(2, connected([](Member& member) {
              if (member.rank == 1) return;
              ncclWaitSignalDesc_t wanted{1, 1, 0, 0};
              member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait", ncclRemoteError);
              member.expectError("wait", {"signals of rank 1", "finalised", "without sending them"});
            }));
}

TEST(OneSided, AWaitForARankThatHasGivenUpSaysSo) {
  asThreads(2, connected([](Member& member) {
              if (member.rank == 1) {
                member.expect(ncclCommRevoke(member.comm, NCCL_REVOKE_DEFAULT), "revoke");
              } else {
                ncclWaitSignalDesc_t wanted{1, 1, 0, 0};
                member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait", ncclRemoteError);
                member.expectError("wait", {"rank 1", "given up"});
              }
              member.board.meet();
            }));
}

// Rank 1 has sent one signal of two, and waits for one itself.
TEST(OneSided, WaitsForMoreSignalsThanComeAreToldSo) {
  asThreads(2, connected([](Member& member) {
              const int peer = 1 - member.rank;
              ncclWaitSignalDesc_t wanted{member.rank == 0 ? 2 : 1, peer, 0, 0};
              if (member.rank == 1) {
                member.expect(ncclSignal(peer, 0, 0, 0, member.comm, nullptr), "signal");
              }
              member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait", ncclInvalidUsage);
              member.expectError("wait", {"wait for 2 signals of rank 1", "wait for 1 signals of rank 0"});
              member.board.meet();
            }));
}

// One waits for a signal that the other sends after a collective, which waits for the first.
TEST(OneSided, WaitsThatNeedEachOtherAreToldSo) {
  asThreads(2, connected([](Member& member) {
              if (member.rank == 0) {
                ncclWaitSignalDesc_t wanted{1, 1, 0, 0};
                member.expect(ncclWaitSignal(1, &wanted, member.comm, nullptr), "wait", ncclInvalidUsage);
              } else {
                int one = 1;
                member.expect(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, member.comm, nullptr), "reduce",
                              ncclInvalidUsage);
              }
              member.expectError("both", {"ranks disagree", "wait for 1 signals of rank 1", "all_reduce"});
              member.board.meet();
            }));
}

}  // namespace
}  // namespace stretto
