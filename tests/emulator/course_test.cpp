// How warps go through lines in rounds: by every line once, with as many lines and fences in each round as
// the proof in cuda_pairs.cuh asks for.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "primitives/cuda/course.cuh"

namespace stretto::cuda {
namespace {

// What one thread does of a round.
struct Part {
  std::vector<uint32_t> lines;
  std::vector<size_t> fences;  // before which of its warp's lines of the round
  uint32_t farthest = 0;       // byte of the place
};

std::vector<Part> follow(uint32_t lines, uint32_t most, uint32_t thread, uint32_t threads) {
  std::vector<Part> rounds;
  Course course(lines, most, thread, threads);
  if (!course.begins()) return rounds;
  rounds.emplace_back();
  size_t ofRound = 0;
  bool goesOn = true;
  while (goesOn) {
    if (course.isToFence()) rounds.back().fences.push_back(ofRound);
    if (course.isInside()) {
      rounds.back().lines.push_back(course.line());
      rounds.back().farthest = course.at();
    }
    ++ofRound;
    goesOn = course.next([&] {
      rounds.emplace_back();
      ofRound = 0;
    });
  }
  return rounds;
}

void check(uint32_t lines, uint32_t most, uint32_t threads) {
  const uint32_t count = (lines + most - 1) / most;
  std::vector<int> visits(lines);
  std::vector<uint32_t> lengths(count);
  for (uint32_t thread = 0; thread < threads; ++thread) {
    const auto rounds = follow(lines, most, thread, threads);
    if (rounds.empty()) continue;
    ASSERT_EQ(rounds.size(), count);
    for (size_t round = 0; round < count; ++round) {
      const Part& part = rounds[round];
      for (const uint32_t line : part.lines) ++visits[line];
      lengths[round] += static_cast<uint32_t>(part.lines.size());
      ASSERT_LE(part.farthest / sizeof(Pack) + 1, most);
      if (count == 1) {
        ASSERT_TRUE(part.fences.empty());
        continue;
      }
      ASSERT_GE(part.lines.size(), 3u) << "thread " << thread << ", round " << round;
      ASSERT_EQ(part.fences.size(), round == 0 ? 0u : 1u);
      // Before the last line it would be too late for the first of the round after the next.
      if (round > 0) {
        ASSERT_TRUE(part.fences[0] >= 1 && part.fences[0] + 2 <= part.lines.size());
      }
    }
  }
  for (const int times : visits) ASSERT_EQ(times, 1);
  for (const uint32_t length : lengths) {
    ASSERT_TRUE(length == lines / count || length == lines / count + 1);
    ASSERT_LE(length, most);
  }
}

TEST(Course, VisitsEveryLineOnce) {
  std::mt19937_64 random(7);
  for (const uint32_t most : {2048u, 4224u, 8448u}) {
    for (const uint32_t lines :
         {1u, 31u, 32u, 33u, most - 1, most, most + 1, 2 * most, 2 * most + 1, 3 * most - 1}) {
      for (const uint32_t threads : {32u, 96u, 512u, 1024u}) {
        SCOPED_TRACE(testing::Message()
                     << lines << " lines, " << most << " in a round, " << threads << " threads");
        check(lines, most, threads);
        if (HasFatalFailure()) return;
      }
    }
    for (int i = 0; i < 40; ++i) {
      const auto lines = static_cast<uint32_t>(1 + random() % (20 * most));
      const auto threads = static_cast<uint32_t>(32 * (1 + random() % 32));
      SCOPED_TRACE(testing::Message()
                   << lines << " lines, " << most << " in a round, " << threads << " threads");
      check(lines, most, threads);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace stretto::cuda
