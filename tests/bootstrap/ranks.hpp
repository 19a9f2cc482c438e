// Ranks for the bootstrap tests, as threads of this process; forked.hpp has them as processes. For
// tests/bootstrap only.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/membership.hpp"
#include "bootstrap/service.hpp"
#include "bootstrap/unique_id.hpp"
#include "harness/ranks.hpp"

#if defined(__SANITIZE_THREAD__)
#define STRETTO_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STRETTO_THREAD_SANITIZER 1
#endif
#endif
#ifndef STRETTO_THREAD_SANITIZER
#define STRETTO_THREAD_SANITIZER 0
#endif

namespace stretto::bootstrap::testing {

using stretto::testing::Canary;

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Ends a Membership's waits once `word` is not zero, as ncclCommAbort does.
inline StopCheck stopOn(const std::atomic<uint32_t>& word) {
  return [&word] { return word == 0 ? kOkStatus : fail(Code::kAborted, "the test has aborted"); };
}

inline bool eventually(double seconds, const std::function<bool()>& condition) {
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    if (secondsSince(start) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline UniqueId newId() {
  const Result<UniqueId> id = Service::createSession();
  EXPECT_TRUE(id.ok()) << lastError();
  return id.value();
}

inline std::vector<uint8_t> bytesOf(Contributions::Part part) {
  return {part.begin(), part.end()};
}
inline std::vector<uint8_t> bytesOf(const std::string& text) {
  return {text.begin(), text.end()};
}

// Runs body(rank) on one thread per rank and waits for all.
inline void asThreads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Keeps the background thread of this process from all that it has to do, from when this returns, for so
// long.
class LateThread {
 public:
  explicit LateThread(std::chrono::milliseconds late) {
    const UniqueId id = newId();
    asThreads(2, [&](int rank) {
      JoinOptions options;
      options.onNudged = [this, late](int, std::span<const uint8_t>) {
        isLate_ = true;
        std::this_thread::sleep_for(late);
      };
      both_[rank] = std::move(Membership::join(id, rank, 2, 20, {}, options).value());
    });
    both_[0]->nudge();
    while (!isLate_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> isLate_{false};
  std::unique_ptr<Membership> both_[2];
};

// This process's threads and descriptors, as the kernel counts them.
inline size_t threads() {
  return stretto::testing::threadsNow();
}
inline size_t descriptors() {
  return stretto::testing::descriptorsNow();
}

}  // namespace stretto::bootstrap::testing
