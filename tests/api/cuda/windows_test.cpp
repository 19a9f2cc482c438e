// Collectives by copy engines between registered windows of GPUs, through nccl.h: ranks as threads and as
// processes, each with a GPU of its own.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "api/cuda/sides.hpp"
#include "base/scoped_variable.hpp"
#include "harness/conformance.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

class Windows : public AmongGpus {};

void append(std::vector<char>& to, const std::vector<char>& from, size_t begin, size_t bytes) {
  const auto first = from.begin() + static_cast<ptrdiff_t>(begin);
  to.insert(to.end(), first, first + static_cast<ptrdiff_t>(bytes));
}

// One call and its result; some twice, so that one finds what another left.
bool gather(const Member& member, const Side& side, size_t bytes, size_t offset, bool inPlace) {
  const auto mine = bytesOf(member.rank, bytes, offset);
  char* const to = side.results(offset);
  char* const from = inPlace ? to + static_cast<size_t>(member.rank) * bytes : side.input();
  side.upload(from, mine);
  std::vector<char> wanted;
  for (int rank = 0; rank < member.ranks(); ++rank) append(wanted, bytesOf(rank, bytes, offset), 0, bytes);
  return member.expect(ncclAllGather(from, to, bytes, ncclUint8, member.comm, member.stream()),
                       "all-gather") &&
         side.holds(to, wanted, "all-gather");
}

bool exchange(const Member& member, const Side& side, size_t bytes, size_t offset) {
  const size_t all = bytes * static_cast<size_t>(member.ranks());
  side.upload(side.input(), bytesOf(member.rank, all, offset));
  std::vector<char> wanted;
  for (int rank = 0; rank < member.ranks(); ++rank) {
    append(wanted, bytesOf(rank, all, offset), static_cast<size_t>(member.rank) * bytes, bytes);
  }
  char* const to = side.results(offset);
  return member.expect(ncclAlltoAll(side.input(), to, bytes, ncclUint8, member.comm, member.stream()),
                       "all-to-all") &&
         side.holds(to, wanted, "all-to-all");
}

bool broadcast(const Member& member, const Side& side, size_t bytes, size_t offset, int root, bool inPlace) {
  char* const to = side.results(offset);
  const char* const from = inPlace ? to : side.input();
  if (member.rank == root) side.upload(const_cast<char*>(from), bytesOf(root, bytes, offset));
  return member.expect(ncclBroadcast(from, to, bytes, ncclUint8, root, member.comm, member.stream()),
                       "broadcast") &&
         side.holds(to, bytesOf(root, bytes, offset), "broadcast");
}

ncclResult_t sum(const Member& member, const Side& side, size_t count, size_t offset) {
  return ncclAllReduce(side.input(), side.results(offset), count, ncclFloat, ncclSum, member.comm,
                       member.stream());
}

constexpr size_t kSizes[] = {1, 3, 64, 1000, 4096, 300001};
constexpr size_t kOffsets[] = {0, 4096, 3};

TEST_P(Windows, AllGatherIsRight) {
  run([](Member& member) {
    const Side side(member);
    if (!force(member, "all_gather", "copy")) return;
    for (const size_t bytes : kSizes) {
      for (const size_t offset : kOffsets) {
        for (const bool inPlace : {false, true}) {
          if (!gather(member, side, bytes, offset, inPlace)) return;
        }
      }
    }
    member.expect(ncclAllGather(nullptr, nullptr, 0, ncclUint8, member.comm, member.stream()), "nothing");
  });
}

TEST_P(Windows, AllToAllIsRight) {
  run([](Member& member) {
    const Side side(member);
    if (!force(member, "all_to_all", "copy")) return;
    for (const size_t bytes : kSizes) {
      for (const size_t offset : kOffsets) {
        if (!exchange(member, side, bytes, offset)) return;
      }
    }
  });
}

TEST_P(Windows, BroadcastIsRight) {
  run([](Member& member) {
    const Side side(member);
    if (!force(member, "broadcast", "copy")) return;
    for (const size_t bytes : kSizes) {
      for (int root = 0; root < member.ranks(); ++root) {
        for (const bool inPlace : {false, true}) {
          if (!broadcast(member, side, bytes, kOffsets[bytes % 3], root, inPlace)) return;
        }
      }
    }
  });
}

// To the bit, as every form gives it.
TEST_P(Windows, AllReduceIsRight) {
  run([](Member& member) {
    const Side side(member);
    const std::pair<DataType, Operator> kinds[] = {
        {DataType::kFloat32, Operator::kSum},   {DataType::kBfloat16, Operator::kAvg},
        {DataType::kFloat16, Operator::kSum},   {DataType::kFloat64, Operator::kProd},
        {DataType::kInt8, Operator::kMax},      {DataType::kUint64, Operator::kMin},
        {DataType::kFloat8e5m2, Operator::kSum}};
    const auto shards = static_cast<size_t>(16 * member.ranks());
    for (const auto& [type, op] : kinds) {
      for (const size_t count : {shards, 100 * shards, 2500 * shards}) {
        const size_t chunk = count == shards ? 0 : count == 100 * shards ? 640 : 32768;
        const Dataset data = makeDataset(type, static_cast<int>(op), member.ranks(), count);
        if (!force(member, "all_reduce", "copy", chunk)) return;
        side.upload(side.input(), data.inputs[static_cast<size_t>(member.rank)]);
        char* const to = side.results(count);
        if (!member.expect(ncclAllReduce(side.input(), to, count, static_cast<ncclDataType_t>(type),
                                         static_cast<ncclRedOp_t>(op), member.comm, member.stream()),
                           nameOf(type)) ||
            !side.holds(to, data.expected, nameOf(type))) {
          return;
        }
      }
    }
  });
}

// Operations of every form after each other, on two streams, without a pause between them.
TEST_P(Windows, CopiesAndKernelsFollowEachOther) {
  run([](Member& member) {
    const Side side(member);
    constexpr size_t kCount = 48000;
    const float one = 1;
    std::vector<char> ones(kCount * sizeof one);
    for (size_t i = 0; i < kCount; ++i) std::memcpy(&ones[i * sizeof one], &one, sizeof one);
    side.upload(side.input(), ones);
    char* const gathered = side.results(size_t{4} << 20);
    for (int turn = 0; turn < 12; ++turn) {
      const bool copies = turn % 3 != 1;
      if (!force(member, "all_reduce", copies ? "copy" : "lines", copies ? 65536 : 0) ||
          !force(member, "all_gather", turn % 4 == 2 ? "lines" : "copy")) {
        return;
      }
      const cudaStream_t stream = turn % 2 == 0 ? member.device->stream() : member.device->secondStream();
      const cudaStream_t other = turn % 4 < 2 ? stream : member.device->stream();
      member.expect(
          ncclAllReduce(side.input(), side.results(0), kCount, ncclFloat, ncclSum, member.comm, stream),
          "all-reduce");
      member.expect(ncclAllGather(side.results(0), gathered, kCount, ncclFloat, member.comm, other),
                    "all-gather");
    }
    const auto total = static_cast<float>(member.ranks());
    std::vector<char> wanted(kCount * sizeof total * static_cast<size_t>(member.ranks()));
    for (size_t at = 0; at < wanted.size(); at += sizeof total) {
      std::memcpy(&wanted[at], &total, sizeof total);
    }
    side.holds(gathered, wanted, "the last result");
  });
}

// Results are taken out of the window by the stream alone, late on one rank or another: what comes next must
// not come before, and what is taken must have come.
TEST_P(Windows, ResultsStayUntilTheStreamHasReadThem) {
  run([](Member& member) {
    const Side side(member);
    constexpr size_t kBytes = 20000, kTurns = 16, kLate = size_t{6} << 20;
    const auto ranks = static_cast<size_t>(member.ranks());
    for (const char* const collective : {"all_gather", "all_to_all"}) {
      if (!force(member, collective, "copy")) return;
      const bool gathers = strcmp(collective, "all_gather") == 0;
      const size_t sent = gathers ? kBytes : kBytes * ranks;
      const auto inputOf = [&](int rank, size_t turn) { return bytesOf(rank, sent, turn); };
      for (size_t turn = 0; turn < kTurns; ++turn) {
        side.upload(side.input() + turn * sent, inputOf(member.rank, turn));
      }
      char* const taken = side.results(kWindowBytes);
      const auto copy = [&](char* to, const char* from, size_t bytes) {
        member.check(
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, member.stream()) == cudaSuccess,
            "a copy");
      };
      for (size_t turn = 0; turn < kTurns; ++turn) {
        const char* const from = side.input() + turn * sent;
        member.expect(
            gathers ? ncclAllGather(from, side.results(0), kBytes, ncclUint8, member.comm, member.stream())
                    : ncclAlltoAll(from, side.results(0), kBytes, ncclUint8, member.comm, member.stream()),
            collective);
        if (turn % ranks == static_cast<size_t>(member.rank)) {
          copy(taken + 2 * kLate, taken + kLate, kLate);
        }
        copy(taken + turn * kBytes * ranks, side.results(0), kBytes * ranks);
      }
      std::vector<char> wanted;
      for (size_t turn = 0; turn < kTurns; ++turn) {
        for (int rank = 0; rank < member.ranks(); ++rank) {
          append(wanted, inputOf(rank, turn), gathers ? 0 : static_cast<size_t>(member.rank) * kBytes,
                 kBytes);
        }
      }
      if (!side.holds(taken, wanted, collective)) return;
    }
  });
}

TEST_P(Windows, GraphsHoldCopies) {
  run([](Member& member) {
    const Side side(member);
    constexpr size_t kBytes = 96000;
    const auto ranks = static_cast<size_t>(member.ranks());
    if (!force(member, "all_gather", "copy") || !force(member, "all_reduce", "copy", 1024) ||
        !force(member, "broadcast", "copy")) {
      return;
    }
    const Dataset data = makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), member.ranks(),
                                     kBytes / sizeof(float));
    side.upload(side.input(), data.inputs[static_cast<size_t>(member.rank)]);
    char* const gathered = side.results(size_t{1} << 20);
    char* const last = side.results(size_t{4} << 20);
    const auto work = [&] {
      return member.expect(sum(member, side, kBytes / sizeof(float), 0), "all-reduce") &&
             member.expect(
                 ncclAllGather(side.results(0), gathered, kBytes, ncclUint8, member.comm, member.stream()),
                 "all-gather") &&
             member.expect(
                 ncclBroadcast(gathered, last, kBytes * ranks, ncclUint8, 1, member.comm, member.stream()),
                 "broadcast");
    };
    if (!member.check(member.device->inGraph(work, 5, [&] { return member.board.meet(); }), "a graph"))
      return;
    std::vector<char> wanted;
    for (size_t rank = 0; rank < ranks; ++rank) append(wanted, data.expected, 0, kBytes);
    side.holds(last, wanted, "the graph's result");
  });
}

// A stream that was joined to a capture is in it until its end.
TEST_P(Windows, EagerCallsAmidACaptureAndOnTheDefaultStreamWork) {
  run([](Member& member) {
    const Side side(member);
    constexpr size_t kBytes = 4096;
    if (!force(member, "all_gather", "copy")) return;
    side.upload(side.input(), bytesOf(member.rank, kBytes, 0));
    const auto gatherOn = [&](size_t place, cudaStream_t stream) {
      return member.expect(
          ncclAllGather(side.input(), side.results(place), kBytes, ncclUint8, member.comm, stream),
          "all-gather");
    };
    constexpr size_t kCaptured = 0, kEager = size_t{1} << 20, kDefault = size_t{2} << 20,
                     kLast = size_t{3} << 20;
    const auto work = [&] {
      return gatherOn(kCaptured, member.stream()) && gatherOn(kEager, member.device->secondStream());
    };
    if (!member.check(member.device->inGraph(work, 2, [&] { return member.board.meet(); }), "a graph"))
      return;
    // The last one comes after those on other streams.
    if (!gatherOn(kDefault, nullptr) || !gatherOn(kLast, member.stream())) return;
    std::vector<char> wanted;
    for (int rank = 0; rank < member.ranks(); ++rank) append(wanted, bytesOf(rank, kBytes, 0), 0, kBytes);
    for (const size_t place : {kCaptured, kEager, kDefault, kLast}) {
      side.holds(side.results(place), wanted, "an all-gather");
    }
  });
}

// What needs a window, and is not there, is refused when it is forced, and else goes as it always did.
void expectNoCopies(const Member& member, const Side& side, size_t offset, const char* what) {
  if (!force(member, "all_gather", "copy")) return;
  constexpr size_t kBytes = 4096;
  member.expect(
      ncclAllGather(side.input(), side.results(offset), kBytes, ncclUint8, member.comm, member.stream()),
      what, ncclInvalidUsage);
  member.expectError(what, {"push/copy", "ncclCommWindowRegister"});
  if (force(member, "all_gather", nullptr)) gather(member, side, kBytes, offset, false);
}

TEST_P(Windows, WithoutAWindowOperationsGoAsBefore) {
  run([](Member& member) {
    Side side(member);
    expectNoCopies(member, side, kWindowBytes - 4096, "beyond the end of the window");
    side.deregister();
    expectNoCopies(member, side, 0, "after its end");
    const Side again(member);
    if (force(member, "all_gather", "copy")) gather(member, again, 4096, 0, false);
  });
}

// Where one rank's buffer cannot be used, nobody's is.
TEST_P(Windows, ThatSomeCannotReachAreRegisteredButNotUsed) {
  run([](Member& member) {
    void* pinned = nullptr;
    if (cudaHostAlloc(&pinned, kWindowBytes, cudaHostAllocMapped) != cudaSuccess) {
      return member.complain("no pinned memory");
    }
    const bool mine = member.rank == 1;
    char* const buffer = mine ? static_cast<char*>(pinned) : member.device->at(1, nullptr);
    ncclWindow_t window = nullptr;
    member.expect(ncclCommWindowRegister(member.comm, buffer, kWindowBytes, &window, NCCL_WIN_COLL_SYMMETRIC),
                  "register");
    member.check(window != nullptr, "a handle");
    if (force(member, "all_gather", "copy")) {
      member.expect(
          ncclAllGather(member.device->at(0, nullptr), buffer, 4096, ncclUint8, member.comm, member.stream()),
          "forced copies", ncclInvalidUsage);
    }
    member.expect(ncclCommWindowDeregister(member.comm, window), "deregister");
    member.board.meet();
    cudaFreeHost(pinned);
  });
}

TEST_P(Windows, RegistrationsAreChecked) {
  run([](Member& member) {
    ncclWindow_t window = nullptr;
    const auto size = member.rank == 0 ? kWindowBytes : size_t{0};
    member.expect(ncclCommWindowRegister(member.comm, member.device->at(1, nullptr), size, &window,
                                         NCCL_WIN_COLL_SYMMETRIC),
                  "one rank passes no bytes", ncclInvalidArgument);
    member.check(window == nullptr, "no handle is left");
    member.expect(ncclCommWindowDeregister(member.comm, reinterpret_cast<ncclWindow_t>(uintptr_t{77777})),
                  "no window", ncclInvalidArgument);
    constexpr int kMost = 256;
    std::vector<ncclWindow_t> windows(kMost);
    for (ncclWindow_t& each : windows) {
      if (!member.expect(ncclCommWindowRegister(member.comm, member.device->at(1, nullptr), 4096, &each,
                                                NCCL_WIN_COLL_SYMMETRIC),
                         "one of many")) {
        return;
      }
    }
    member.expect(ncclCommWindowRegister(member.comm, member.device->at(1, nullptr), 4096, &window,
                                         NCCL_WIN_COLL_SYMMETRIC),
                  "one too many", ncclInvalidUsage);
    for (const ncclWindow_t each : windows) {
      member.expect(ncclCommWindowDeregister(member.comm, each), "deregister");
    }
    const Side side(member);
    if (force(member, "all_gather", "copy")) gather(member, side, 4096, 0, false);
  });
}

// ---- What goes wrong --------------------------------------------------------------------------------------

TEST_P(Windows, OtherPlacesAreNamed) {
  run([](Member& member) {
    const Side side(member);
    if (!force(member, "all_gather", "copy")) return;
    const size_t offset = member.rank == 0 ? 0 : 4096;
    member.expect(
        ncclAllGather(side.input(), side.results(offset), 1000, ncclUint8, member.comm, member.stream()),
        "all-gather");
    expectDisagreement(member, {"ranks disagree", "all_gather"},
                       {"into window 1 at byte 0", "into window 1 at byte 4096"});
    abort(member);
  });
}

TEST_P(Windows, AnOrdinaryBufferOfOneRankIsNamed) {
  const ScopedVariable timeout("STRETTO_TIMEOUT", "1");
  run([](Member& member) {
    const Side side(member);
    if (member.rank == 0 && !force(member, "all_gather", "copy")) return;
    const size_t offset = member.rank == 0 ? 0 : kWindowBytes;
    member.expect(
        ncclAllGather(side.input(), side.results(offset), 1000, ncclUint8, member.comm, member.stream()),
        "all-gather");
    member.check(streamEnds(member, 20), "a disagreement hangs");
    member.check(eventually(5, [&] { return errorOf(member) != ncclSuccess; }), "no error");
    if (member.rank == 0 && errorOf(member) == ncclRemoteError) {
      member.expectError("the place", {"into window 1 at byte 0"});
    }
    abort(member);
  });
}

TEST_P(Windows, AWaitHasADeadline) {
  const ScopedVariable timeout("STRETTO_TIMEOUT", "1");
  for (const char* const collective : {"all_gather", "all_reduce"}) {
    run([&](Member& member) {
      const Side side(member);
      if (!force(member, collective, "copy")) return;
      const bool reduces = strcmp(collective, "all_reduce") == 0;
      if (member.rank == 0) {
        member.expect(reduces ? sum(member, side, 4800, 0)
                              : ncclAllGather(side.input(), side.results(0), 1000, ncclUint8, member.comm,
                                              member.stream()),
                      collective);
        member.check(streamEnds(member, 20), "a wait went on after its deadline");
        member.check(eventually(1, [&] { return errorOf(member) != ncclSuccess; }), "no error");
        member.expectError("the deadline", {"STRETTO_TIMEOUT"});
      }
      abort(member);
    });
  }
}

TEST_P(Windows, AnAbortEndsWaits) {
  run([](Member& member) {
    const Side side(member);
    if (!force(member, "all_reduce", "copy", size_t{1} << 18)) return;
    if (member.rank == 0) member.expect(sum(member, side, 480000, 0), "all-reduce");
    expectAbortEnds(member);
  });
}

INSTANTIATE_TEST_SUITE_P(Among, Windows, ::testing::ValuesIn(threadsAndProcesses()), nameOfAmong);

// ---- One thread, several ranks ----------------------------------------------------------------------------

// As nccl-tests do with -g: windows of several ranks and buffers in one group.
TEST(WindowsOfAGroup, AreRegisteredTogether) {
  constexpr int kRanks = 2;
  if (devicesThere() < kRanks) GTEST_SKIP() << "there is no GPU for every rank";
  asThreads(1, [](Member& member) {
    constexpr size_t kBytes = size_t{1} << 20;
    constexpr size_t kCount = kBytes / kRanks;
    member.device = OnDevice::make(0);
    const int devices[kRanks] = {0, 1};
    ncclComm_t comms[kRanks] = {};
    if (!member.expect(ncclCommInitAll(comms, kRanks, devices), "ncclCommInitAll")) return;
    void* buffers[kRanks][2] = {};
    ncclWindow_t windows[kRanks][2] = {};
    cudaStream_t streams[kRanks] = {};
    ncclGroupStart();
    for (int rank = 0; rank < kRanks; ++rank) {
      cudaSetDevice(rank);
      cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking);
      for (int which = 0; which < 2; ++which) {
        member.expect(ncclMemAlloc(&buffers[rank][which], kBytes), "memory");
        member.expect(ncclCommWindowRegister(comms[rank], buffers[rank][which], kBytes, &windows[rank][which],
                                             NCCL_WIN_COLL_SYMMETRIC),
                      "register");
      }
      const auto mine = bytesOf(rank, kCount, 0);
      cudaMemcpyAsync(buffers[rank][0], mine.data(), kCount, cudaMemcpyHostToDevice, streams[rank]);
      cudaStreamSynchronize(streams[rank]);
    }
    if (!member.expect(ncclGroupEnd(), "a group of registrations")) return;
    ncclGroupStart();
    for (int rank = 0; rank < kRanks; ++rank) {
      member.check(windows[rank][0] != nullptr && windows[rank][1] != nullptr, "handles");
      member.expect(strettoCommForce(comms[rank], "all_gather", "push", "copy", 0, 0), "force");
      member.expect(
          ncclAllGather(buffers[rank][0], buffers[rank][1], kCount, ncclUint8, comms[rank], streams[rank]),
          "all-gather");
    }
    member.expect(ncclGroupEnd(), "a group");
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<char> got(kBytes), wanted;
      for (int from = 0; from < kRanks; ++from) append(wanted, bytesOf(from, kCount, 0), 0, kCount);
      cudaSetDevice(rank);
      cudaMemcpyAsync(got.data(), buffers[rank][1], kBytes, cudaMemcpyDeviceToHost, streams[rank]);
      cudaStreamSynchronize(streams[rank]);
      member.check(got == wanted, "what was gathered");
      for (const ncclWindow_t window : windows[rank]) {
        member.expect(ncclCommWindowDeregister(comms[rank], window), "deregister");
      }
    }
    for (int rank = 0; rank < kRanks; ++rank) member.expect(ncclCommDestroy(comms[rank]), "destroy");
    for (int rank = 0; rank < kRanks; ++rank) {
      for (void* const buffer : buffers[rank]) member.expect(ncclMemFree(buffer), "free");
      cudaSetDevice(rank);
      cudaStreamDestroy(streams[rank]);
    }
  });
}

}  // namespace
}  // namespace stretto
