// How warps go through lines in rounds: by every line once, with as many lines and fences in each round as
// the proof in cuda_turns.cuh asks for.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "primitives/cuda/line_cursor.cuh"

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
  LineCursor cursor(lines, most, thread, threads);
  if (!cursor.begins()) return rounds;
  rounds.emplace_back();
  size_t ofRound = 0;
  bool goesOn = true;
  while (goesOn) {
    if (cursor.isToFence()) rounds.back().fences.push_back(ofRound);
    if (cursor.isInside()) {
      rounds.back().lines.push_back(cursor.line());
      rounds.back().farthest = cursor.at();
    }
    ++ofRound;
    goesOn = cursor.next([&] {
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

TEST(LineCursor, VisitsEveryLineOnce) {
  std::mt19937_64 random(7);
  for (const uint32_t most : {256u, 2048u, 4224u, 8448u}) {
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

// ---- Who may write where --------------------------------------------------------------------------------

// What all ranks' threads have erased in one place of a channel: line `index` of that thread of operation
// `operation`, or its result. A thread reads, and erases, a line before it puts line index + 2, and a result
// before it puts line index + 3.
struct Erased {
  size_t operation;
  uint32_t thread;
  size_t index;
};
struct Place {
  uint32_t parity;
  uint32_t position;
  bool ofResult;
  auto operator<=>(const Place&) const = default;
};
struct Way {
  std::vector<std::pair<uint32_t, uint32_t>> places;  // of its lines, in their order: parity and position
  std::vector<size_t> fences;                         // before which of them
};

Way wayOf(uint32_t lines, uint32_t most, uint32_t thread, uint32_t threads, uint32_t epoch) {
  Way way;
  LineCursor cursor(lines, most, thread, threads);
  bool goesOn = cursor.begins();
  while (goesOn) {
    if (cursor.isToFence()) way.fences.push_back(way.places.size());
    if (cursor.isInside()) way.places.emplace_back(epoch % 2, cursor.at() / sizeof(Pack));
    goesOn = cursor.next([&] { ++epoch; });
  }
  return way;
}

struct Operation {
  uint32_t lines;
  uint32_t threads;
  bool gathers = false;
};

// Of all ranks, as they do the same. A put must come after the erasing of what lay there, by an order that
// stores keep however late they are: a fence of that thread after it, or the end of its kernel, then a line
// that the writer has. It has line put - 2 when it puts a line, and line `put` when it puts that one's
// result.
void checkOrder(const std::vector<Operation>& operations, uint32_t most) {
  std::map<Place, Erased> places;
  std::vector<std::vector<Way>> ways;
  uint32_t epoch = 0;
  const auto isFenced = [&](const Erased& erased, size_t before, bool ofResult) {
    const auto& fences = ways[erased.operation][erased.thread].fences;
    const size_t first = erased.index + (ofResult ? 3 : 2);
    return std::any_of(fences.begin(), fences.end(),
                       [&](size_t fence) { return fence >= first && fence <= before; });
  };
  // Of this operation the writer has `has` lines; of the one before, all.
  const auto write = [&](const Place& place, size_t number, uint32_t thread, size_t put, size_t has) {
    const auto found = places.find(place);
    if (found != places.end()) {
      const Erased& erased = found->second;
      const bool inThis = erased.operation == number;
      ASSERT_TRUE(!inThis || erased.thread == thread);
      const size_t lines = inThis ? has : ways[erased.operation][erased.thread].places.size();
      const bool hasEnded = erased.operation + 1 < number || (erased.operation + 1 == number && has > 0);
      ASSERT_TRUE(hasEnded || (lines > 0 && isFenced(erased, lines - 1, place.ofResult)))
          << "operation " << number << ", thread " << thread << ", line " << put
          << (place.ofResult ? ", its result" : "");
    }
    places[place] = {number, thread, put};
  };
  for (size_t number = 0; number < operations.size(); ++number) {
    const auto [lines, threads, gathers] = operations[number];
    ways.emplace_back();
    for (uint32_t thread = 0; thread < threads; ++thread)
      ways.back().push_back(wayOf(lines, most, thread, threads, epoch));
    for (uint32_t thread = 0; thread < threads; ++thread) {
      const auto& mine = ways.back()[thread].places;
      for (size_t put = 0; put < mine.size(); ++put) {
        const auto [parity, position] = mine[put];
        write({parity, position, false}, number, thread, put, put < 2 ? 0 : put - 1);
        if (gathers) write({parity, position, true}, number, thread, put, put + 1);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    epoch += (lines + most - 1) / most;
  }
}

TEST(LineCursor, WritesWhereErasingIsKnownToBeOver) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 60; ++i) {
    const auto most = static_cast<uint32_t>(2048 + random() % 3000);
    std::vector<Operation> operations(1 + random() % 5);
    for (Operation& one : operations) {
      const uint64_t atMost = random() % 3 == 0 ? most : 7 * most;
      one = {static_cast<uint32_t>(1 + random() % atMost), static_cast<uint32_t>(32 * (1 + random() % 32)),
             random() % 2 == 0};
    }
    SCOPED_TRACE(testing::Message() << "course " << i << ", " << most << " lines in a round");
    checkOrder(operations, most);
    if (HasFatalFailure()) return;
  }
  checkOrder({{12288, 1024}}, 4224);  // where a fence before a round's last line is too late
}

}  // namespace
}  // namespace stretto::cuda
