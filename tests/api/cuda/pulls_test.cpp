// All-reduces that read peers' inputs in registered windows of GPUs, through nccl.h: ranks as threads and as
// processes, each with a GPU of its own.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <cstring>
#include <vector>

#include "api/cuda/sides.hpp"
#include "base/scoped_variable.hpp"
#include "harness/conformance.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

class PullWindows : public AmongGpus {};

struct Form {
  const char* algorithm;
  const char* protocol;
  bool inPlace;
};
constexpr Form kForms[] = {{"one_shot", "pull", false},        {"two_shot", "pull", false},
                           {"two_shot", "pull", true},         {"one_shot", "pull_nosync", false},
                           {"two_shot", "pull_nosync", false}, {"two_shot", "pull_nosync", true},
                           {"two_shot", "pull_push", false},   {"two_shot", "pull_push", true}};

bool forceAllReduce(const Member& member, const char* algorithm, const char* protocol, int blocks = 0) {
  return member.expect(strettoCommForce(member.comm, "all_reduce", algorithm, protocol, 0, blocks), protocol);
}

ncclResult_t sum(const Member& member, const char* from, char* to, size_t count) {
  return ncclAllReduce(from, to, count, ncclFloat, ncclSum, member.comm, member.stream());
}

std::vector<char> manyOf(float value, size_t count) {
  std::vector<char> all(count * sizeof value);
  for (size_t i = 0; i < count; ++i) std::memcpy(&all[i * sizeof value], &value, sizeof value);
  return all;
}

// To the bit, as every form in rank order gives it. Ranks meet before they write an input, as nobody else
// says when a form without a barrier has been read.
bool reduces(const Member& member, const Side& side, const Form& form, const Dataset& data, size_t offset) {
  char* const to = side.results(offset);
  char* const from = form.inPlace ? to : side.input() + offset;
  member.device->synchronize();
  if (!member.check(member.board.meet(), "the others")) return false;
  side.upload(from, data.inputs[static_cast<size_t>(member.rank)]);
  return member.expect(ncclAllReduce(from, to, data.elements, static_cast<ncclDataType_t>(data.type),
                                     static_cast<ncclRedOp_t>(data.op), member.comm, member.stream()),
                       nameOf(data.type)) &&
         side.holds(to, data.expected, nameOf(data.type));
}

TEST_P(PullWindows, AllReduceIsRight) {
  run([](Member& member) {
    const Side side(member, true);
    const std::pair<DataType, Operator> kinds[] = {
        {DataType::kFloat32, Operator::kSum}, {DataType::kBfloat16, Operator::kAvg},
        {DataType::kFloat16, Operator::kSum}, {DataType::kFloat64, Operator::kProd},
        {DataType::kInt8, Operator::kMax},    {DataType::kFloat8e5m2, Operator::kSum}};
    for (const auto& [type, op] : kinds) {
      for (const size_t count : {1, 3, 500, 10007}) {
        const Dataset data = makeDataset(type, static_cast<int>(op), member.ranks(), count);
        for (const Form& form : kForms) {
          if (!forceAllReduce(member, form.algorithm, form.protocol, count == 500 ? 3 : 0)) return;
          if (!reduces(member, side, form, data, (count % 3) * 4 * sizeOf(type))) return;
        }
      }
    }
    member.expect(sum(member, nullptr, nullptr, 0), "nothing");
  });
}

// Nothing tells a rank that a peer has revoked, whose caller may then write to what kernels here still read:
// who asks whether they have read right is told so.
TEST_P(PullWindows, AReaderIsToldThatItsPeerHasGivenUp) {
  run([](Member& member) {
    const Side side(member, true);
    constexpr size_t kCount = 10007;
    if (!forceAllReduce(member, "two_shot", "pull")) return;
    const Dataset data =
        makeDataset(DataType::kFloat32, static_cast<int>(Operator::kSum), member.ranks(), kCount);
    if (!reduces(member, side, {"two_shot", "pull", false}, data, 0)) return;
    if (!member.check(member.board.meet(), "the others")) return;
    if (member.rank == 1) member.expect(ncclCommRevoke(member.comm, NCCL_REVOKE_DEFAULT), "revoke");
    if (!member.check(member.board.meet(), "the others")) return;
    if (member.rank != 1) {
      ncclResult_t state = ncclSuccess;
      member.expect(ncclCommGetAsyncError(member.comm, &state), "asking");
      member.expect(state, "the reader's state", ncclRemoteError);
      member.expectError("the error", {"rank 1", "given up"});
    }
    member.board.meet();
  });
}

// The stream alone writes the next input: without a barrier two buffers take turns, in each replay of a graph
// and from one to the next.
TEST_P(PullWindows, GraphsHoldTwoBuffersThatTakeTurns) {
  run([](Member& member) {
    const Side side(member, true);
    constexpr size_t kCount = 8001, kBytes = kCount * sizeof(float), kTurns = 4;
    const char* const ones = side.input() + kWindowBytes;
    side.upload(side.input() + kWindowBytes, manyOf(1, kCount));
    for (const Form& form : kForms) {
      if (!forceAllReduce(member, form.algorithm, form.protocol)) return;
      const auto work = [&] {
        const char* last = ones;
        for (size_t turn = 0; turn < kTurns; ++turn) {
          const size_t offset = turn % 2 * (size_t{4} << 20);
          char* const to = side.results(offset);
          char* const from = form.inPlace ? to : side.input() + offset;
          const bool copied =
              cudaMemcpyAsync(from, last, kBytes, cudaMemcpyDeviceToDevice, member.stream()) == cudaSuccess;
          if (!member.check(copied, "a copy") ||
              !member.expect(sum(member, from, to, kCount), form.protocol)) {
            return false;
          }
          last = to;
        }
        return true;
      };
      if (!member.check(member.device->inGraph(work, 4, [&] { return member.board.meet(); }), "a graph"))
        return;
      float total = 1;
      for (size_t turn = 0; turn < kTurns; ++turn) total *= static_cast<float>(member.ranks());
      if (!side.holds(side.results(size_t{4} << 20), manyOf(total, kCount), form.protocol)) return;
    }
  });
}

// What needs windows, and has none, is refused when it is forced, and else goes as it always did.
TEST_P(PullWindows, WithoutWindowsTheyAreRefused) {
  run([](Member& member) {
    const Side side(member);
    constexpr size_t kCount = 1000;
    const auto refused = [&](const char* algorithm, const char* from, const char* what) {
      member.expect(sum(member, from, side.results(0), kCount), what, ncclInvalidUsage);
      member.expectError(what, {std::string(algorithm) + "/pull", "ncclCommWindowRegister"});
    };
    if (!forceAllReduce(member, "one_shot", "pull")) return;
    refused("one_shot", side.input(), "an ordinary input");
    refused("one_shot", side.results(0), "results where the input is");
    if (!forceAllReduce(member, "two_shot", "pull")) return;
    refused("two_shot", side.input(), "an ordinary input");
    if (!forceAllReduce(member, nullptr, nullptr)) return;
    side.upload(side.input(), manyOf(1, kCount));
    member.expect(sum(member, side.input(), side.results(0), kCount), "as always");
    side.holds(side.results(0), manyOf(static_cast<float>(member.ranks()), kCount), "as always");
  });
}

// ---- What goes wrong --------------------------------------------------------------------------------------

TEST_P(PullWindows, OtherPlacesAreNamed) {
  run([](Member& member) {
    const Side side(member, true);
    if (!forceAllReduce(member, "one_shot", "pull")) return;
    const size_t offset = member.rank == 0 ? 0 : 4096;
    member.expect(sum(member, side.input() + offset, side.results(0), 1000), "all-reduce");
    expectDisagreement(member, {"ranks disagree", "all_reduce"},
                       {"in window 2 at byte 0", "in window 2 at byte 4096"});
    abort(member);
  });
}

TEST_P(PullWindows, AWaitHasADeadline) {
  const ScopedVariable timeout("STRETTO_TIMEOUT", "1");
  for (const char* const algorithm : {"one_shot", "two_shot"}) {
    run([&](Member& member) {
      const Side side(member, true);
      if (!forceAllReduce(member, algorithm, "pull")) return;
      if (member.rank == 0) {
        member.expect(sum(member, side.input(), side.results(0), 5000), algorithm);
        member.check(streamEnds(member, 20), "a wait went on after its deadline");
        member.check(eventually(1, [&] { return errorOf(member) != ncclSuccess; }), "no error");
        member.expectError("the deadline", {"STRETTO_TIMEOUT"});
      }
      abort(member);
    });
  }
}

TEST_P(PullWindows, AnAbortEndsWaits) {
  run([](Member& member) {
    const Side side(member, true);
    if (!forceAllReduce(member, "two_shot", "pull_nosync")) return;
    if (member.rank == 0) member.expect(sum(member, side.input(), side.results(0), 480000), "all-reduce");
    expectAbortEnds(member);
  });
}

INSTANTIATE_TEST_SUITE_P(Among, PullWindows, ::testing::ValuesIn(threadsAndProcesses()), nameOfAmong);

}  // namespace
}  // namespace stretto
