// Handles: how many there are, and how long what is behind them stays.
#include "api/handles.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "api/calls.hpp"
#include "nccl.h"

namespace stretto::api {
namespace {

using testing::lastNcclError;
using Watched = std::weak_ptr<communicator::Communicator>;

TEST(Handles, GivesManyHandles) {
  std::vector<ncclComm_t> comms(600);
  for (ncclComm_t& comm : comms)
    ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << lastNcclError();
  EXPECT_EQ(std::set<ncclComm_t>(comms.begin(), comms.end()).size(), comms.size());
  for (ncclComm_t comm : comms) {
    int count = 0;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST(Handles, RefusesMoreHandlesThanItHas) {
  std::set<ncclComm_t> all;
  auto handle = api::makeHandle(nullptr);
  for (; handle.ok(); handle = api::makeHandle(nullptr)) {
    ASSERT_TRUE(all.insert(handle.value()).second) << "given out twice";
    ASSERT_TRUE(api::owns(handle.value()));
  }
  EXPECT_GT(all.size(), api::kMostHandles - 1000);
  EXPECT_LE(all.size(), api::kMostHandles);
  EXPECT_EQ(handle.status().code, Code::kSystem);
  EXPECT_NE(lastNcclError().find("communicators live in this process"), std::string::npos) << lastNcclError();
  for (ncclComm_t each : all) EXPECT_FALSE(api::endHandle(each));
  EXPECT_TRUE(api::makeHandle(nullptr).ok()) << "a dead one is given out again when no other is left";
}

Watched makeWatched(ncclComm_t& comm) {
  EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << lastNcclError();
  return api::InUse(comm, "makeWatched")->weak_from_this();
}

TEST(EndedCommunicator, IsFreedAtOnce) {
  ncclComm_t comm = nullptr;
  const Watched watched = makeWatched(comm);
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_TRUE(watched.expired());
  const Watched aborted = makeWatched(comm);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_TRUE(aborted.expired());
  EXPECT_EQ(api::InUse(comm, "late"), nullptr);
}

void endOne() {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << lastNcclError();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// A call of another thread, and so many within it about another communicator, are under way while both end.
void staysWhileCallsUseIt(int within, bool isOperation) {
  ncclComm_t comm = nullptr, beside = nullptr;
  const Watched watched = makeWatched(comm), watchedBeside = makeWatched(beside);
  std::latch isInside(1), hasEnded(1), isOuter(1), hasLooked(1), hasLeft(1);
  std::thread user([&] {
    {
      const api::InUse call(comm, "call", isOperation);
      const auto nest = [&](const auto& deeper, int left) -> void {
        // The innermost one makes the thread the owner, while others are counted already.
        const api::InUse ofAnother(beside, "a call within", isOperation && left == 1);
        if (left > 1) {
          deeper(deeper, left - 1);
        } else {
          isInside.count_down();
          hasEnded.wait();
        }
        EXPECT_EQ(ofAnother->self().ranks(), 1);
      };
      nest(nest, within);
      isOuter.count_down();
      EXPECT_EQ(call->self().ranks(), 1);
      hasLooked.wait();
    }
    hasLeft.count_down();
  });
  isInside.wait();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(beside), ncclSuccess);
  EXPECT_FALSE(watched.expired());
  EXPECT_FALSE(watchedBeside.expired());
  hasEnded.count_down();
  isOuter.wait();
  endOne();
  EXPECT_TRUE(watchedBeside.expired()) << "freed with the next one that ends";
  EXPECT_FALSE(watched.expired());
  hasLooked.count_down();
  hasLeft.wait();
  endOne();
  EXPECT_TRUE(watched.expired());
  user.join();
}

TEST(EndedCommunicator, StaysWhileCallsUseIt) {
  for (const bool isOperation : {false, true}) {
    for (const int within : {1, 6}) staysWhileCallsUseIt(within, isOperation);
  }
}

// Threads that ask, and one that runs operations, while the communicators end: the thread sanitizer watches,
// and the address sanitizer.
TEST(EndedCommunicator, AnswersOrIsRefusedWhileItEnds) {
  constexpr int kRounds = 200, kThreads = 3;
  constexpr auto kMost = std::chrono::seconds(20);
  std::atomic<ncclComm_t> current{nullptr};
  std::atomic<bool> isOver{false};
  std::atomic<long> answers{0}, refusals{0}, sums{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!isOver) {
      const float from = 3;
      float to = 0;
      const ncclComm_t comm = current;
      if (comm == nullptr) continue;
      const ncclResult_t result = ncclAllReduce(&from, &to, 1, ncclFloat, ncclSum, comm, nullptr);
      EXPECT_TRUE(result != ncclSuccess || to == from);
      if (result == ncclSuccess) ++sums;
    }
  });
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      while (!isOver) {
        int ranks = 0;
        const ncclComm_t comm = current;
        if (comm == nullptr) continue;
        const ncclResult_t result = ncclCommCount(comm, &ranks);
        EXPECT_TRUE((result == ncclSuccess && ranks == 1) || result == ncclInvalidArgument);
        EXPECT_NE(ncclGetLastError(comm), nullptr);
        ++(result == ncclSuccess ? answers : refusals);
      }
    });
  }
  const auto began = std::chrono::steady_clock::now();
  const auto missesSome = [&] { return answers == 0 || refusals == 0 || sums == 0; };
  for (int round = 0; round < kRounds || (missesSome() && std::chrono::steady_clock::now() < began + kMost);
       ++round) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << lastNcclError();
    current = comm;
    if (missesSome())
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // for threads without a core
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
  isOver = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(answers, 0);
  EXPECT_GT(refusals, 0);
  EXPECT_GT(sums, 0);
}

// A thread that begins may have the name of one that ended, and be the owner of handles then.
TEST(EndedCommunicator, IsFreedAfterThreadsThatUsedItEnded) {
  ncclComm_t comm = nullptr;
  const Watched watched = makeWatched(comm);
  for (int i = 0; i < 3; ++i) {
    std::thread([comm] {
      float value = 1;
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
    }).join();
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_TRUE(watched.expired());
}

// A pointer to a handle that was never given out is refused, and leaves nothing that counts later.
TEST(Handles, OnesThatWereNeverGivenOutAreRefused) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << lastNcclError();
  int count = 0;
  for (int ahead = 1; ahead < 50; ++ahead)
    EXPECT_EQ(ncclCommCount(comm + ahead, &count), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace stretto::api
