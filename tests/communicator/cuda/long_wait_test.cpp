// A kernel that waits for long is told of at WARN, once, with the rank that is late and the operation.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "communicator/cuda/sums.hpp"
#include "harness/captured_log.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

class LongWaitOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
  // More than the emulator takes for what is not late, and less than the pause.
  const ScopedVariable after_{"STRETTO_WARN_AFTER", "1"};
};

// Until rank 0's kernel has waited for long.
void pauseOf(const Member& member) {
  if (member.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
}

TEST_F(LongWaitOnGpus, IsToldOnceWithTheRankAndTheOperation) {
  CapturedWarnings warnings;
  asThreads(2, connected([](Member& member) {
              sumInPlace(member, 100);
              member.device->synchronize();
              pauseOf(member);
              sumInPlace(member, 100);
              member.device->synchronize();
            }));
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "rank 0 has waited"), 1u) << text;
  EXPECT_EQ(timesIn(text, "for rank 1 in #2 all_reduce float32 x 100 sum (not entered by rank 1)"), 1u)
      << text;
  EXPECT_EQ(timesIn(text, "has waited"), 1u) << text;
}

bool transfer(const Member& member) {
  auto* const buffer = reinterpret_cast<float*>(member.device->at(0, nullptr));
  return member.expect(member.rank == 0 ? ncclRecv(buffer, 100, ncclFloat32, 1, member.comm, member.stream())
                                        : ncclSend(buffer, 100, ncclFloat32, 0, member.comm, member.stream()),
                       "the transfer");
}

TEST_F(LongWaitOnGpus, OfATransferIsToldOnce) {
  CapturedWarnings warnings;
  asThreads(2, connected([](Member& member) {
              sumInPlace(member, 100);
              member.device->synchronize();
              pauseOf(member);
              transfer(member);
              member.device->synchronize();
            }));
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "for rank 1 in receive float32 x 100 from rank 1"), 1u) << text;
  EXPECT_EQ(timesIn(text, "has waited"), 1u) << text;
}

TEST_F(LongWaitOnGpus, OfAGraphsTransferIsToldOnceInEachRun) {
  CapturedWarnings warnings;
  asThreads(2, connected([](Member& member) {
              sumInPlace(member, 100);
              member.device->synchronize();
              for (int run = 0; run < 2; ++run) {
                member.device->inGraph([&] { return transfer(member); }, 3,
                                       [&] {
                                         pauseOf(member);
                                         return true;
                                       });
              }
            }));
  const std::string text = warnings.take();
  EXPECT_EQ(timesIn(text, "for rank 1 in an operation of a CUDA graph"), 2u) << text;
  EXPECT_EQ(timesIn(text, "has waited"), 2u) << text;
}

}  // namespace
}  // namespace stretto
