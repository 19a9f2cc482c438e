// Ranks that do not make the same calls: each is told, in bounded time, with both calls named.
#include <gtest/gtest.h>

#include <functional>

#include "base/scoped_variable.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

ncclResult_t sumOne(const Member& member, float* value) {
  return ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, member.comm, nullptr);
}

struct Disagreement {
  const char* name;
  size_t count;
  std::function<ncclResult_t(const Member&, float*, size_t, bool odd)> call;
  std::vector<std::string> both;  // what an error about it says
};

std::vector<Disagreement> disagreements() {
  const auto reduce = [](const Member& m, float* b, size_t count, ncclDataType_t type, ncclRedOp_t op) {
    return ncclAllReduce(b, b, count, type, op, m.comm, nullptr);
  };
  std::vector<Disagreement> all;
  for (const size_t count : {size_t{8}, size_t{200000}}) {
    all.push_back({"count",
                   count,
                   [=](const Member& m, float* b, size_t c, bool odd) {
                     return reduce(m, b, odd ? c + 1 : c, ncclFloat32, ncclSum);
                   },
                   {"float32 x " + std::to_string(count), "float32 x " + std::to_string(count + 1)}});
    all.push_back({"half_the_count",
                   count,
                   [=](const Member& m, float* b, size_t c, bool odd) {
                     return reduce(m, b, odd ? c / 2 : c, ncclFloat32, ncclSum);
                   },
                   {"float32 x " + std::to_string(count), "float32 x " + std::to_string(count / 2)}});
    all.push_back({"nothing",
                   count,
                   [=](const Member& m, float* b, size_t c, bool odd) {
                     return reduce(m, b, odd ? 0 : c, ncclFloat32, ncclSum);
                   },
                   {"float32 x " + std::to_string(count), "float32 x 0"}});
    all.push_back({"type",
                   count,
                   [=](const Member& m, float* b, size_t c, bool odd) {
                     return reduce(m, b, c, odd ? ncclInt32 : ncclFloat32, ncclSum);
                   },
                   {"float32 x", "int32 x"}});
    all.push_back({"operator",
                   count,
                   [=](const Member& m, float* b, size_t c, bool odd) {
                     return reduce(m, b, c, ncclFloat32, odd ? ncclMax : ncclSum);
                   },
                   {" sum", " max"}});
    all.push_back({"root",
                   count,
                   [](const Member& m, float* b, size_t c, bool odd) {
                     return ncclBroadcast(b, b, c, ncclFloat32, odd ? 1 : 2, m.comm, nullptr);
                   },
                   {"root 1", "root 2"}});
    all.push_back({"collective",
                   count,
                   [=](const Member& m, float* b, size_t c, bool odd) {
                     return odd ? ncclAllGather(b, b + 3 * c, c, ncclFloat32, m.comm, nullptr)
                                : reduce(m, b, c, ncclFloat32, ncclSum);
                   },
                   {"all_gather", "all_reduce"}});
    all.push_back({"order",
                   count,
                   [=](const Member& m, float* b, size_t c, bool odd) {
                     const auto other = [&] {
                       return ncclReduceScatter(b, b + 3 * c, c, ncclFloat32, ncclSum, m.comm, nullptr);
                     };
                     const auto first = odd ? other() : reduce(m, b, c, ncclFloat32, ncclSum);
                     if (first != ncclSuccess) return first;
                     return odd ? reduce(m, b, c, ncclFloat32, ncclSum) : other();
                   },
                   {"reduce_scatter", "all_reduce"}});
  }
  return all;
}

class EveryDisagreement : public ::testing::TestWithParam<Disagreement> {};

void disagree(Member& member, const Disagreement& how) {
  std::vector<float> buffer(6 * (how.count + 1), 1.0f);
  member.expect(sumOne(member, buffer.data()), "together");
  const double start = secondsNow();
  ncclResult_t result = how.call(member, buffer.data(), how.count, member.rank == 1);
  // Who needed nothing of the others may only learn it at the next operation.
  if (result == ncclSuccess) result = sumOne(member, buffer.data());
  const double took = secondsNow() - start;
  if (took > 5) member.complain("took %.3f s", took);
  member.expect(result, "the result", ncclInvalidUsage);
  member.expectError("the disagreement", {"rank 1", "ranks disagree"});
  member.expectError("the disagreement", how.both);
  member.board.meet();
}

TEST_P(EveryDisagreement, AmongThreads) {
  asThreads(3, connected([](Member& member) { disagree(member, GetParam()); }), 30);
}

TEST_P(EveryDisagreement, AmongProcesses) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  asProcesses(3, connected([](Member& member) { disagree(member, GetParam()); }), 30);
}

INSTANTIATE_TEST_SUITE_P(About, EveryDisagreement, ::testing::ValuesIn(disagreements()),
                         [](const auto& suite) {
                           return std::string(suite.param.name) + "_" + std::to_string(suite.param.count);
                         });

// The root has waited for nobody when the other finds out, and gives up; it may be some calls ahead.
void tellTheRoot(Member& member, int more, bool revokes) {
  float values[4] = {};
  const bool isRoot = member.rank == 0;
  const auto broadcast = [&](size_t count) {
    return ncclBroadcast(values, values, count, ncclFloat32, 0, member.comm, nullptr);
  };
  member.expect(broadcast(isRoot ? 3 : 4), "the broadcast", isRoot ? ncclSuccess : ncclInvalidUsage);
  if (isRoot) {
    for (int i = 0; i < more; ++i) (void)broadcast(3);
    const auto asked = [&] {
      ncclResult_t state = ncclSuccess;
      member.expect(ncclCommGetAsyncError(member.comm, &state), "asking");
      return state;
    };
    member.check(eventually(10, [&] { return asked() != ncclSuccess; }), "nobody told the root");
    member.expect(asked(), "what the root was told", ncclInvalidUsage);
    member.expect(sumOne(member, values), "the next operation", ncclInvalidUsage);
  }
  member.expectError("the disagreement",
                     {"ranks disagree", "#1 broadcast float32 x 3", "#1 broadcast float32 x 4"});
  if (revokes) member.expect(ncclCommRevoke(member.comm, NCCL_REVOKE_DEFAULT), "revoke");
  member.expect(ncclCommAbort(member.comm), "abort");
  member.comm = nullptr;
}

TEST(Disagreement, WhoIsToldOfItHearsBothCalls) {
  for (const int more : {0, 6}) {
    for (const bool revokes : {false, true}) {
      SCOPED_TRACE(std::to_string(more) + (revokes ? " revoked" : " aborted"));
      asThreads(2, connected([&](Member& member) { tellTheRoot(member, more, revokes); }));
    }
  }
}

// The root finds that rank 1 differs, and ends at once: its last words may be all that the others hear of it.
void gatherApart(Member& member) {
  float values[12] = {};
  member.board.meet();
  ncclResult_t told =
      ncclGather(values, values, member.rank == 1 ? 4 : 3, ncclFloat32, 0, member.comm, nullptr);
  if (member.rank != 0) {  // it waits for nobody
    const auto isTold = [&] {
      return told != ncclSuccess || ncclCommGetAsyncError(member.comm, &told) != ncclSuccess;
    };
    member.check(eventually(10, isTold), "never told");
    if (member.expect(told, "what it is told", ncclInvalidUsage)) {
      told = ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, member.comm, nullptr);
    }
  }
  member.expect(told, "the result", ncclInvalidUsage);
  member.expectError("the disagreement",
                     {"ranks disagree", "rank 1", "gather float32 x 3", "gather float32 x 4"});
  member.expect(ncclCommAbort(member.comm), "abort");
  member.comm = nullptr;
}

TEST(Disagreement, IsToldBetweenHostsByOneThatAborts) {
  const ScopedVariable link("STRETTO_LINK", "net");
  for (int round = 0; round < 10; ++round) asThreads(3, connected(gatherApart));
}

// ---- Transfers that meet something else -------------------------------------------------------------------

struct Parting {
  const char* name;
  std::function<ncclResult_t(const Member& member, float* values)> call;
  std::vector<std::string> words[3];  // what each rank must hear, besides who differs
};
constexpr size_t kLarge = 1 << 20;  // more than a link holds: its sender waits

std::vector<Parting> partings() {
  const auto receive = [](const Member& m, float* to, size_t count, int from) {
    return ncclRecv(to, count, ncclFloat32, from, m.comm, nullptr);
  };
  const auto sumAll = [](const Member& m, float* values) {
    return ncclAllReduce(values, values, 50, ncclFloat32, ncclSum, m.comm, nullptr);
  };
  return {
      {"ReceiveAndCollective",
       [=](const Member& m, float* values) {
         return m.rank == 0 ? receive(m, values, 5, 1) : sumAll(m, values);
       },
       {{"receive float32 x 5 from rank 1", "all_reduce float32 x 50"},
        {"receive float32 x 5 from rank 1", "all_reduce float32 x 50"},
        {"receive float32 x 5 from rank 1", "all_reduce float32 x 50"}}},
      {"LargeSendAndCollective",
       [=](const Member& m, float* values) {
         return m.rank == 2 ? ncclSend(values, kLarge, ncclFloat32, 1, m.comm, nullptr) : sumAll(m, values);
       },
       {{"send float32 x 1048576 to rank 1", "all_reduce float32 x 50"},
        {"send float32 x 1048576 to rank 1", "all_reduce float32 x 50"},
        {"send float32 x 1048576 to rank 1", "all_reduce float32 x 50"}}},
      {"ReceivesInACircle",
       [=](const Member& m, float* values) { return receive(m, values, 7, (m.rank + 1) % 3); },
       {{"receive float32 x 7 from rank 1"},
        {"receive float32 x 7 from rank 2"},
        {"receive float32 x 7 from rank 0"}}},
      {"LargeSendsInACircle",
       [=](const Member& m, float* values) {
         return ncclSend(values, kLarge, ncclFloat32, (m.rank + 1) % 3, m.comm, nullptr);
       },
       {{"send float32 x 1048576 to rank 1"},
        {"send float32 x 1048576 to rank 2"},
        {"send float32 x 1048576 to rank 0"}}},
  };
}

void part(Member& member, const Parting& parting) {
  std::vector<float> values(kLarge, 1.0f);
  member.expect(sumOne(member, values.data()), "together");
  const double start = secondsNow();
  member.expect(parting.call(member, values.data()), "the result", ncclInvalidUsage);
  const double took = secondsNow() - start;
  if (took > 5) member.complain("took %.3f s", took);
  member.expectError("the error", parting.words[member.rank]);
  member.board.meet();
}

class EveryParting : public ::testing::TestWithParam<Parting> {};

TEST_P(EveryParting, AmongThreads) {
  asThreads(3, connected([](Member& member) { part(member, GetParam()); }), 30);
}

TEST_P(EveryParting, AmongProcesses) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  asProcesses(3, connected([](Member& member) { part(member, GetParam()); }), 30);
}

INSTANTIATE_TEST_SUITE_P(Of, EveryParting, ::testing::ValuesIn(partings()),
                         [](const auto& suite) { return std::string(suite.param.name); });

// Ranks that wait long for one that comes in the end do not stand still.
TEST(Disagreement, IsNotSeenInALateRank) {
  asThreads(3, connected([](Member& member) {
              std::vector<float> values(kLarge, 1.0f);
              for (int late = 0; late < 3; ++late) {
                if (member.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(250));
                const int next = (member.rank + 1) % 3;
                const int previous = (member.rank + 2) % 3;
                // Rank 0 begins; each other one passes on what it has received.
                if (member.rank != 0)
                  member.expect(ncclRecv(values.data(), kLarge, ncclFloat32, previous, member.comm, nullptr),
                                "receive");
                member.expect(ncclSend(values.data(), kLarge, ncclFloat32, next, member.comm, nullptr),
                              "send");
                if (member.rank == 0)
                  member.expect(ncclRecv(values.data(), kLarge, ncclFloat32, previous, member.comm, nullptr),
                                "receive");
                member.expect(sumOne(member, values.data()), "sum");
              }
            }));
}

TEST(Disagreement, ASendAndItsReceiveDifferInCount) {
  asThreads(2, connected([](Member& member) {
              float values[4] = {};
              if (member.rank == 0) {
                member.expect(ncclSend(values, 3, ncclFloat32, 1, member.comm, nullptr), "send");
              } else {
                member.expect(ncclRecv(values, 4, ncclFloat32, 0, member.comm, nullptr), "receive",
                              ncclInvalidUsage);
                member.expectError("the error", {"rank 1", "16 bytes", "rank 0", "12 bytes"});
              }
              member.board.meet();
            }));
}

TEST(Disagreement, ASendAndItsReceiveDifferInType) {
  asThreads(2, connected([](Member& member) {
              float values[4] = {};
              if (member.rank == 0) {
                member.expect(ncclSend(values, 3, ncclFloat32, 1, member.comm, nullptr), "send");
              } else {
                member.expect(ncclRecv(values, 3, ncclInt32, 0, member.comm, nullptr), "receive",
                              ncclInvalidUsage);
                member.expectError("the error", {"rank 1", "rank 0", "type"});
              }
              member.board.meet();
            }));
}

}  // namespace
}  // namespace stretto
