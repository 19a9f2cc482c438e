// Sleeping on a word that two processes have.
#include <gtest/gtest.h>

#include "futex_word.hpp"
#include "harness/ranks.hpp"

namespace stretto::platform {
namespace {

using namespace stretto::testing;

// What two processes have is a segment: the board's.
TEST(FutexOfProcesses, Wakes) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  asProcesses(2, [](Member& member) {
    auto& word = *reinterpret_cast<uint32_t*>(member.board.area(0));
    member.board.meet();
    for (uint32_t turn = 0; turn < 1000; turn += 2) {
      if (member.rank == 0) change(word);
      sleepUntil(word, turn + (member.rank == 0 ? 2 : 1));
      if (member.rank == 1) change(word);
    }
    member.board.meet();
    member.check(load(word) == 1000, "every turn came");
  });
}

// Whoever sleeps may be killed: the others are woken all the same.
TEST(FutexOfProcesses, OutlivesASleeperThatIsKilled) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  const Board board(2);
  Processes ranks(board, [](Member& member) {
    auto& word = *reinterpret_cast<uint32_t*>(member.board.area(0));
    member.board.word(member.rank).store(1);
    sleepUntil(word, member.rank == 1 ? 1 : ~0u);
  });
  EXPECT_TRUE(eventually(60, [&] { return board.word(0) == 1 && board.word(1) == 1; }));
  ranks.kill(0);
  change(*reinterpret_cast<uint32_t*>(board.area(0)));
  ranks.finish(0);
}

}  // namespace
}  // namespace stretto::platform
