// Groups of small collectives on GPUs, which share launches: through nccl.h, eager and captured.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "api/cuda/sides.hpp"
#include "base/scoped_variable.hpp"
#include "harness/conformance.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

// One all-reduce of a group, in places of its own.
struct Call {
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  const Dataset* data;
};

constexpr size_t kElements = 3000;
constexpr size_t kSpacing = kElements * 8 + 256;  // bytes from one call's buffer to the next one's

const Dataset& dataset(DataType type, Operator op, int ranks) {
  static std::map<std::tuple<DataType, Operator, int>, Dataset> all;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto [found, isNew] = all.try_emplace({type, op, ranks});
  if (isNew) found->second = makeDataset(type, static_cast<int>(op), ranks, kElements);
  return found->second;
}

// Runs of calls that one kernel serves, and then others; sizes go up and down.
std::vector<Call> mixedCalls(size_t many, int ranks) {
  struct Kind {
    DataType type;
    Operator op;
  };
  constexpr Kind kKinds[] = {{DataType::kFloat32, Operator::kSum}, {DataType::kFloat32, Operator::kAvg},
                             {DataType::kFloat32, Operator::kSum}, {DataType::kInt32, Operator::kMax},
                             {DataType::kInt8, Operator::kSum},    {DataType::kBfloat16, Operator::kSum},
                             {DataType::kBfloat16, Operator::kSum}};
  constexpr size_t kCounts[] = {1, 100, 129, 1000, 7, kElements, 33, 64};
  std::vector<Call> calls;
  for (size_t i = 0; i < many; ++i) {
    const auto [type, op] = kKinds[i % std::size(kKinds)];
    calls.push_back({kCounts[i % std::size(kCounts)], static_cast<ncclDataType_t>(type),
                     static_cast<ncclRedOp_t>(op), &dataset(type, op, ranks)});
  }
  return calls;
}
std::vector<Call> equalCalls(size_t many, int ranks) {
  return std::vector<Call>(many,
                           {500, ncclFloat, ncclSum, &dataset(DataType::kFloat32, Operator::kSum, ranks)});
}

// A rank with so many calls to make; every second one is in place, if any is.
class Caller {
 public:
  Caller(Member& member, std::vector<Call> calls, bool inPlace = true)
      : member_(member), calls_(std::move(calls)), inPlace_(inPlace) {
    fill();
  }

  // Inputs are there, and nothing of results.
  void fill() const {
    for (size_t i = 0; i < calls_.size(); ++i) {
      const Call& one = calls_[i];
      const auto& input = one.data->inputs[static_cast<size_t>(member_.rank)];
      const size_t bytes = bytesOf(one);
      member_.device->upload(inputOf(i), input.data(), bytes);
      const std::vector<char> nothing(bytes, 0x5a);
      member_.device->upload(resultOf(i), nothing.data(), bytes);
    }
  }
  bool callAll(bool inGroup) const {
    if (inGroup) ncclGroupStart();
    bool fine = true;
    for (size_t i = 0; i < calls_.size(); ++i) fine = call(i) && fine;
    return inGroup ? member_.expect(ncclGroupEnd(), "the group") && fine : fine;
  }
  bool call(size_t i) const {
    const Call& one = calls_[i];
    const void* const from = inputOf(i);
    void* const to = isInPlace(i) ? inputOf(i) : resultOf(i);
    return member_.expect(
        ncclAllReduce(from, to, one.count, one.type, one.op, member_.comm, member_.stream()), "all-reduce");
  }
  void expectResults(const char* when) const {
    member_.device->synchronize();
    ncclResult_t later = ncclSuccess;
    member_.expect(ncclCommGetAsyncError(member_.comm, &later), "ncclCommGetAsyncError");
    member_.expect(later, "an asynchronous error");
    for (size_t i = 0; i < calls_.size(); ++i) {
      std::vector<char> got(bytesOf(calls_[i]));
      member_.device->download(got.data(), isInPlace(i) ? inputOf(i) : resultOf(i), got.size());
      if (std::equal(got.begin(), got.end(), calls_[i].data->expected.begin())) continue;
      return member_.complain("%s: call %zu of %zu (%zu elements) is wrong", when, i, calls_.size(),
                              calls_[i].count);
    }
  }

 private:
  bool isInPlace(size_t i) const { return inPlace_ && i % 2 == 1; }
  static size_t bytesOf(const Call& one) { return one.count * sizeOf(one.data->type); }
  char* inputOf(size_t i) const { return member_.device->at(0, nullptr) + i * kSpacing; }
  char* resultOf(size_t i) const { return member_.device->at(1, nullptr) + i * kSpacing; }

  Member& member_;
  const std::vector<Call> calls_;
  const bool inPlace_;
};

// Kernels that a capture of `work` holds.
size_t launchesOf(Member& member, const std::function<bool()>& work) {
  cudaGraph_t graph = nullptr;
  size_t nodes = 0;
  bool fine = cudaStreamBeginCapture(member.stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess;
  fine = work() && fine;
  fine = cudaStreamEndCapture(member.stream(), &graph) == cudaSuccess && fine;
  fine = fine && cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess;
  member.check(fine, "a capture");
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  return nodes;
}
void expectLaunches(Member& member, size_t got, size_t wanted, const char* what) {
  if (got != wanted) member.complain("%s: %zu launches, not %zu", what, got, wanted);
}

class Fused : public AmongGpus {};

TEST_P(Fused, GroupsOfMixedCallsGiveTheirResults) {
  run([](Member& member) {
    for (const size_t many : {2, 3, 8, 40}) {
      const Caller caller(member, mixedCalls(many, member.ranks()));
      if (!caller.callAll(true)) return;
      caller.expectResults("a group");
    }
  });
}

// They would wait in different channels.
TEST_P(Fused, GroupsThatDifferAreTold) {
  run([](Member& member) {
    const Caller caller(member, equalCalls(3, member.ranks()));
    const bool called = member.rank == 0 ? caller.call(0) : caller.callAll(true);
    if (!called) return;
    expectDisagreement(member, {"ranks disagree", "#1", "groups"}, {});
    abort(member);
  });
}

TEST_P(Fused, GraphsOfGroupsAreReplayed) {
  run([](Member& member) {
    const Caller caller(member, mixedCalls(11, member.ranks()), false);
    caller.callAll(true);
    caller.expectResults("before the graph");
    const auto meet = [&] { return member.board.meet(); };
    for (const bool inGroup : {true, false}) {
      caller.fill();
      if (!member.check(member.device->inGraph([&] { return caller.callAll(inGroup); }, 8, meet), "a graph"))
        return;
      caller.expectResults("the last replay");
    }
  });
}

std::vector<Among> amongEight() {
  auto all = threadsAndProcesses();
  all.push_back({true, 8});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ranks, Fused, ::testing::ValuesIn(amongEight()), nameOfAmong);

// ---- Launches ---------------------------------------------------------------------------------------------

class Launches : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devicesThere() < 2) GTEST_SKIP() << "there is no GPU for every rank";
  }
};

TEST_F(Launches, AreOneForAGroup) {
  asThreads(
      2, connected([](Member& member) {
        using Counts = std::pair<size_t, size_t>;
        for (const auto& [calls, launches] : {Counts(1, 1), Counts(2, 1), Counts(32, 1), Counts(40, 2)}) {
          const Caller caller(member, equalCalls(calls, 2));
          const auto group = [&] { return caller.callAll(true); };
          const auto alone = [&] { return caller.callAll(false); };
          expectLaunches(member, launchesOf(member, group), launches, "a group");
          expectLaunches(member, launchesOf(member, alone), calls, "no group");
        }
      }));
}

// Another kernel, stream or kind of call in between, or a large one, begins another launch.
TEST_F(Launches, AreNotSharedByWhatDiffers) {
  asThreads(2, connected([](Member& member) {
              auto* const data = reinterpret_cast<float*>(member.device->at(0, nullptr));
              const auto sum = [&](size_t place, size_t count, ncclDataType_t type = ncclFloat) {
                float* const at = data + place * 1000;
                return member.expect(
                    ncclAllReduce(at, at, count, type, ncclSum, member.comm, member.stream()), "all-reduce");
              };
              const auto group = [&](const std::function<bool()>& calls) {
                return launchesOf(member, [&] {
                  ncclGroupStart();
                  const bool fine = calls();
                  return member.expect(ncclGroupEnd(), "a group") && fine;
                });
              };
              expectLaunches(member, group([&] { return sum(0, 10) && sum(1, 10, ncclInt32) && sum(2, 10); }),
                             3, "types");
              expectLaunches(member, group([&] { return sum(0, 10) && sum(1, 200000) && sum(300, 10); }), 3,
                             "a large one");
              expectLaunches(member, group([&] { return sum(0, 10) && sum(1, 0) && sum(2, 10); }), 2, "none");
              expectLaunches(member, group([&] { return sum(0, 10) && sum(1, 10) && sum(0, 10); }), 2,
                             "the same place again");
              expectLaunches(member, group([&] {
                               return sum(0, 10) && sum(1, 10) &&
                                      member.expect(ncclBroadcast(data, data, 10, ncclFloat, 0, member.comm,
                                                                  member.stream()),
                                                    "broadcast") &&
                                      sum(2, 10) && sum(3, 10);
                             }),
                             3, "a broadcast between");
            }));
}

// Each call of a group takes the result of the one before.
TEST_F(Launches, KeepTheOrderOfADependentChain) {
  constexpr int kCalls = 7;
  constexpr size_t kCount = 700;
  asThreads(2, connected([](Member& member) {
              auto* const input = reinterpret_cast<float*>(member.device->at(0, nullptr));
              auto* const output = reinterpret_cast<float*>(member.device->at(1, nullptr));
              const std::vector<float> ones(kCount, 1);
              member.device->upload(reinterpret_cast<char*>(input),
                                    reinterpret_cast<const char*>(ones.data()), kCount * sizeof(float));
              ncclGroupStart();
              for (int i = 0; i < kCalls; ++i) {
                float* const from = i % 2 == 0 ? input : output;
                ncclAllReduce(from, i % 2 == 0 ? output : input, kCount, ncclFloat, ncclSum, member.comm,
                              member.stream());
              }
              member.expect(ncclGroupEnd(), "a chain");
              member.device->synchronize();
              std::vector<float> got(kCount);
              member.device->download(reinterpret_cast<char*>(got.data()), reinterpret_cast<char*>(output),
                                      kCount * sizeof(float));
              member.check(got == std::vector<float>(kCount, 1 << kCalls), "the chain's result is wrong");
            }));
}

// ---- Failures ---------------------------------------------------------------------------------------------

TEST_F(Launches, EndWhenARankIsMissing) {
  const ScopedVariable timeout("STRETTO_TIMEOUT", "1");
  asThreads(2, connected([](Member& member) {
              const Caller caller(member, equalCalls(3, 2));
              caller.callAll(true);
              if (member.rank == 0) {
                caller.callAll(true);
                member.check(streamEnds(member, 20), "a wait went on after its deadline");
                member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
                member.expectError("the deadline", {"STRETTO_TIMEOUT", "rank 1"});
              }
              abort(member);
            }));
}

TEST_F(Launches, EndAtAnAbort) {
  asThreads(2, connected([](Member& member) {
              const Caller caller(member, equalCalls(3, 2));
              caller.callAll(true);
              if (member.rank == 0) caller.callAll(true);
              if (member.board.meet()) expectAbortEnds(member);
            }));
}

TEST_F(Launches, NameTheCallThatDiffers) {
  asThreads(2, connected([](Member& member) {
              auto* const data = reinterpret_cast<float*>(member.device->at(0, nullptr));
              ncclGroupStart();
              for (size_t i = 0; i < 5; ++i) {
                const size_t count = i == 2 && member.rank == 1 ? 22 : 21;
                float* const at = data + i * 1000;
                ncclAllReduce(at, at, count, ncclFloat, ncclSum, member.comm, member.stream());
              }
              member.expect(ncclGroupEnd(), "a group");
              expectDisagreement(member, {"ranks disagree", "#3"}, {"x 21", "x 22"});
              abort(member);
            }));
}

}  // namespace
}  // namespace stretto
