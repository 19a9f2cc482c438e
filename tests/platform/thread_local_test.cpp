// A thread's own objects are whole while their destructors run, whatever the compiler keeps them in.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

namespace stretto {
namespace {

std::atomic<int> gEnded{0};
std::atomic<int> gBroken{0};

struct Kept {
  uint64_t words[12];
  Kept() { std::fill(std::begin(words), std::end(words), 7); }
  ~Kept() {
    ++gEnded;
    if (!std::all_of(std::begin(words), std::end(words), [](uint64_t word) { return word == 7; })) ++gBroken;
  }
};

// Ends before Kept, which was made before it, and takes whatever memory is free by then.
struct Taker {
  std::vector<void*> taken;
  Taker() { taken.reserve(1000); }
  ~Taker() {
    for (size_t bytes = 64; bytes < 192; bytes += 8) {
      for (int i = 0; i < 50; ++i) {
        taken.push_back(std::malloc(bytes));
        std::memset(taken.back(), 0xff, bytes);
      }
    }
    for (void* const memory : taken) std::free(memory);
  }
};

TEST(ThreadLocal, ObjectsAreWholeUntilTheyEnd) {
  constexpr int kThreads = 20;
  for (int i = 0; i < kThreads; ++i) {
    std::thread([] {
      static thread_local Kept kept;
      static thread_local Taker taker;
      EXPECT_EQ(kept.words[0], 7u);
      EXPECT_TRUE(taker.taken.empty());
    }).join();
  }
  EXPECT_EQ(gEnded, kThreads);
  EXPECT_EQ(gBroken, 0);
}

}  // namespace
}  // namespace stretto
