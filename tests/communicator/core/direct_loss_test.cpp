// A large operation that reads peers' buffers in place, between processes, when one of three ranks is lost in
// the middle: a rank that is told uses its buffers for something else at once, as it may, and a rank that
// still reads them then must not report success. tests/algorithms/direct_fault_test.cpp has the same for each
// single read, among threads.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
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

constexpr int kDirectRanks = 3;
constexpr int kReader = 0;  // is stopped while it reads
constexpr int kLost = 1;
constexpr int kOwner = 2;
constexpr size_t kRankWords = size_t{8} << 20;  // words of one rank
constexpr uint32_t kReused = 0x5eadbeef;

enum LossWord { kEntered, kLostNow, kReusedNow, kReaderEnded, kOwnerSays };
constexpr uint64_t kSays = 100;  // added to a result, so that none is 0

enum class Loss { kKill, kAbort };

struct LossForm {
  const char* name;
  Loss loss;
};

uint32_t wordOf(int rank, size_t index) {
  return static_cast<uint32_t>(rank + 1) * 0x01000193u + static_cast<uint32_t>(index);
}

ncclResult_t call(const Member& member, const std::string& name, const uint32_t* from, uint32_t* to) {
  if (name == "all_gather") return ncclAllGather(from, to, kRankWords, ncclUint32, member.comm, nullptr);
  if (name == "all_to_all")
    return ncclAlltoAll(from, to, kRankWords / kDirectRanks, ncclUint32, member.comm, nullptr);
  return ncclBroadcast(from, to, kRankWords, ncclUint32, kOwner, member.comm, nullptr);
}

// How many elements of a result come from each rank; of a broadcast all from one.
size_t partOf(const std::string& name) {
  return name == "all_to_all" ? kRankWords / kDirectRanks : kRankWords;
}
size_t elementsOf(const std::string& name) {
  return partOf(name) * (name == "broadcast" ? 1 : kDirectRanks);
}

// What a rank gets is in memory of this test, which sees how far the rank has come: the reader takes the part
// of the rank that is to be lost first, and the owner's last.
class ReadResult {
 public:
  explicit ReadResult(const std::string& name)
      : part_(partOf(name)),
        count_(elementsOf(name)),
        words_(static_cast<uint32_t*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~ReadResult() { ::munmap(words_, kBytes); }
  ReadResult(const ReadResult&) = delete;
  ReadResult& operator=(const ReadResult&) = delete;

  uint32_t* words() const { return words_; }
  bool hasBegunTheOwners() const { return at(count_ - part_) != 0; }
  bool hasAll() const {
    for (size_t end = part_; end <= count_; end += part_) {
      if (at(end - 1) == 0) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kBytes = kDirectRanks * kRankWords * sizeof(uint32_t);

  uint32_t at(size_t index) const { return std::atomic_ref(words_[index]).load(std::memory_order_relaxed); }

  const size_t part_, count_;
  uint32_t* const words_;
};

// How many elements of a result are wrong.
size_t wrongIn(const uint32_t* result, const std::string& name, int rank) {
  const size_t part = partOf(name);
  size_t wrong = 0;
  for (size_t i = 0; i < elementsOf(name); ++i) {
    uint32_t wanted = wordOf(kOwner, i);
    if (name == "all_gather") wanted = wordOf(static_cast<int>(i / part), i % part);
    if (name == "all_to_all")
      wanted = wordOf(static_cast<int>(i / part), static_cast<size_t>(rank) * part + i % part);
    wrong += result[i] != wanted;
  }
  return wrong;
}

void runRank(Member& member, const LossForm& form, const ReadResult& result) {
  std::vector<uint32_t> from(kRankWords);
  uint32_t* const to = result.words();
  for (size_t i = 0; i < from.size(); ++i) from[i] = wordOf(member.rank, i);
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
  const ncclResult_t ended = call(member, form.name, from.data(), to);
  if (member.rank == kOwner) {
    std::fill(from.begin(), from.end(), kReused);
    if (ended != ncclSuccess) std::fill(to, to + elementsOf(form.name), kReused);
    member.board.word(kOwnerSays) = kSays + ended;
    member.board.word(kReusedNow) = 1;
    // It uses its buffers again, and does not give them back.
    member.check(eventually(30, [&] { return member.board.word(kReaderEnded) != 0; }),
                 "the reader does not end");
  }
  if (member.rank == kReader) member.board.word(kReaderEnded) = 1;
  if (member.rank != kLost && ended == ncclSuccess) {
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

// One try. Whether a rank was lost while the reader read the owner's buffer, so that the owner was told.
bool strikes(const LossForm& form) {
  const Board board(kDirectRanks);
  const ReadResult results[kDirectRanks] = {ReadResult(form.name), ReadResult(form.name),
                                            ReadResult(form.name)};
  Processes processes(board, connected([&](Member& member) { runRank(member, form, results[member.rank]); }),
                      200);
  EXPECT_TRUE(eventually(50, [&] { return board.word(kEntered) == kDirectRanks; }));
  for (const double began = secondsNow();
       !results[kReader].hasBegunTheOwners() && secondsNow() < began + 50;) {
  }
  ::kill(processes.pid(kReader), SIGSTOP);
  const bool inTheMiddle = results[kReader].hasBegunTheOwners() && !results[kReader].hasAll();
  // The others read on. A moment after they have read all they have signalled it.
  EXPECT_TRUE(eventually(50, [&] { return results[kLost].hasAll(); })) << "the others do not get on";
  const bool ownerGets = std::string(form.name) != "broadcast";
  EXPECT_TRUE(eventually(50, [&] { return !ownerGets || results[kOwner].hasAll(); })) << "nor does the owner";
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  board.word(kLostNow) = 1;
  if (form.loss == Loss::kKill) processes.kill(kLost);
  EXPECT_TRUE(eventually(50, [&] { return board.word(kReusedNow) != 0; })) << "the owner was never told";
  ::kill(processes.pid(kReader), SIGCONT);
  processes.finish(form.loss == Loss::kKill ? kLost : Processes::kNone);
  const bool struck = board.word(kOwnerSays) != kSays + ncclSuccess;
  if (struck) {
    EXPECT_EQ(board.word(kOwnerSays), kSays + ncclRemoteError);
  }
  return struck && inTheMiddle;
}

class DirectLoss : public ::testing::TestWithParam<LossForm> {};

TEST_P(DirectLoss, NoSuccessOverBuffersThatTheirOwnerUsesAgain) {
  constexpr int kTries = 10, kEnough = 3;
  constexpr double kMostSeconds = 60;
  const double began = secondsNow();
  int struck = 0;
  for (int i = 0; struck < kEnough && (i < kTries || struck == 0); ++i) {
    struck += strikes(GetParam());
    if (HasFailure()) return;
    if (struck == 0 && secondsNow() > began + kMostSeconds)
      GTEST_SKIP() << "in " << i + 1
                   << " tries no rank was lost while another one read: this machine has no core "
                   << "for the process that looks for the moment";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, DirectLoss,
    ::testing::Values(LossForm{"all_gather", Loss::kKill}, LossForm{"all_gather", Loss::kAbort},
                      LossForm{"all_to_all", Loss::kKill}, LossForm{"all_to_all", Loss::kAbort},
                      LossForm{"broadcast", Loss::kKill}, LossForm{"broadcast", Loss::kAbort}),
    [](const auto& one) {
      return std::string(one.param.name) + (one.param.loss == Loss::kKill ? "_kill" : "_abort");
    });

}  // namespace
}  // namespace stretto
