// A large operation that reads peers' buffers in place, between processes, when one of three ranks is lost in
// the middle: a rank that is told uses its buffers for something else at once, as it may, and a rank that
// still reads them then must not report success. tests/algorithms/direct_fault_test.cpp has the same for each
// single read, among threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr int kRanks = 3;
constexpr int kReader = 0;  // is stopped while it reads
constexpr int kLost = 1;
constexpr int kOwner = 2;
constexpr size_t kCount = size_t{8} << 20;  // words of one rank
constexpr uint32_t kReused = 0x5eadbeef;

enum Word { kEntered, kLostNow, kReusedNow, kReaderSays, kOwnerSays };
constexpr uint64_t kSays = 100;  // added to a result, so that none is 0

enum class Loss { kKill, kAbort };

struct Form {
  const char* name;
  Loss loss;
};

uint32_t valueOf(int rank, size_t index) {
  return static_cast<uint32_t>(rank + 1) * 0x01000193u + static_cast<uint32_t>(index);
}

ncclResult_t call(const Member& member, const std::string& name, const uint32_t* from, uint32_t* to) {
  if (name == "all_gather") return ncclAllGather(from, to, kCount, ncclUint32, member.comm, nullptr);
  if (name == "all_to_all") return ncclAlltoAll(from, to, kCount / kRanks, ncclUint32, member.comm, nullptr);
  return ncclBroadcast(from, to, kCount, ncclUint32, kOwner, member.comm, nullptr);
}

// How many elements of a result are wrong.
size_t wrongIn(const std::vector<uint32_t>& result, const std::string& name, int rank) {
  constexpr size_t kPart = kCount / kRanks;
  size_t wrong = 0;
  for (size_t i = 0; i < (name == "all_gather" ? kRanks * kCount : kCount); ++i) {
    uint32_t wanted = valueOf(kOwner, i);
    if (name == "all_gather") wanted = valueOf(static_cast<int>(i / kCount), i % kCount);
    if (name == "all_to_all") {
      if (i >= kPart * kRanks) break;
      wanted = valueOf(static_cast<int>(i / kPart), static_cast<size_t>(rank) * kPart + i % kPart);
    }
    wrong += result[i] != wanted;
  }
  return wrong;
}

void runRank(Member& member, const Form& form) {
  std::vector<uint32_t> from(kCount), to(kCount * (std::string(form.name) == "all_gather" ? kRanks : 1));
  for (size_t i = 0; i < from.size(); ++i) from[i] = valueOf(member.rank, i);
  member.expect(strettoCommForce(member.comm, form.name, "direct", nullptr, 0, 0), "force");
  if (!member.board.meet()) return;
  std::thread aborter;
  if (member.rank == kLost && form.loss == Loss::kAbort) {
    aborter = std::thread([&] {
      member.check(eventually(20, [&] { return member.board.word(kLostNow) != 0; }), "nobody was to be lost");
      member.expect(ncclCommAbort(member.comm), "abort");
    });
  }
  ++member.board.word(kEntered);
  const ncclResult_t result = call(member, form.name, from.data(), to.data());
  if (member.rank == kOwner) {
    std::fill(from.begin(), from.end(), kReused);
    if (result != ncclSuccess) std::fill(to.begin(), to.end(), kReused);
    member.board.word(kReusedNow) = 1;
    member.board.word(kOwnerSays) = kSays + result;
  }
  if (member.rank == kReader) member.board.word(kReaderSays) = kSays + result;
  if (member.rank != kLost && result == ncclSuccess) {
    const size_t wrong = wrongIn(to, form.name, member.rank);
    if (wrong > 0) member.complain("%s succeeded with %zu wrong elements", form.name, wrong);
  }
  if (member.rank == kLost && form.loss == Loss::kKill) {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (aborter.joinable()) {
    aborter.join();
  } else {
    member.expect(ncclCommAbort(member.comm), "abort");
  }
  member.comm = nullptr;
}

// One try: the reader is stopped so long after all have begun. Whether a rank was lost while the reader was
// in the operation, so that the owner was told.
bool strikes(const Form& form, std::chrono::microseconds after) {
  const Board board(kRanks);
  Processes processes(board, connected([&](Member& member) { runRank(member, form); }));
  EXPECT_TRUE(eventually(30, [&] { return board.word(kEntered) == kRanks; }));
  std::this_thread::sleep_for(after);
  ::kill(processes.pid(kReader), SIGSTOP);
  // The others read on, and signal that they have read all.
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  board.word(kLostNow) = 1;
  if (form.loss == Loss::kKill) processes.kill(kLost);
  EXPECT_TRUE(eventually(20, [&] { return board.word(kReusedNow) != 0; })) << "the owner was never told";
  ::kill(processes.pid(kReader), SIGCONT);
  processes.finish(form.loss == Loss::kKill ? kLost : Processes::kNone);
  const bool struck = board.word(kOwnerSays) != kSays + ncclSuccess;
  if (struck) {
    EXPECT_EQ(board.word(kOwnerSays), kSays + ncclRemoteError);
  }
  return struck;
}

class DirectLoss : public ::testing::TestWithParam<Form> {};

TEST_P(DirectLoss, NoSuccessOverBuffersThatTheirOwnerUsesAgain) {
  constexpr int kTries = 8, kEnough = 4;
  int struck = 0;
  for (int i = 0; i < kTries && struck < kEnough; ++i) {
    struck += strikes(GetParam(), std::chrono::microseconds(500 + 2500 * (i % kEnough)));
    if (HasFailure()) return;
  }
  EXPECT_GT(struck, 0) << "no rank was lost while another one read";
}

INSTANTIATE_TEST_SUITE_P(Forms, DirectLoss,
                         ::testing::Values(Form{"all_gather", Loss::kKill}, Form{"all_gather", Loss::kAbort},
                                           Form{"all_to_all", Loss::kKill}, Form{"all_to_all", Loss::kAbort},
                                           Form{"broadcast", Loss::kKill}, Form{"broadcast", Loss::kAbort}),
                         [](const auto& one) {
                           return std::string(one.param.name) +
                                  (one.param.loss == Loss::kKill ? "_kill" : "_abort");
                         });

}  // namespace
}  // namespace stretto
