// Looks that a rank's process has counted are new enough in every order of events, and what goes wrong with
// fewer of them.
#include "model/kernel_waits.hpp"

#include <gtest/gtest.h>

#include <string>

#include "model/search.hpp"

namespace stretto::model {
namespace {

constexpr const char* kWronglySaid = "is said to wait for ever, and goes on";

KernelWaitsSetting of(int threads, int fewer = 0) {
  KernelWaitsSetting setting;
  setting.threads = threads;
  setting.looks -= fewer;
  return setting;
}

TEST(KernelWaits, AVerdictIsRightAndComes) {
  for (int threads = 1; threads <= KernelWaitsModel::kMostThreads; ++threads) {
    KernelWaitsSetting setting = of(threads);
    expectRight(std::to_string(threads) + " threads, whose word comes", KernelWaitsModel(setting));
    setting.wordComes = false;
    expectRight(std::to_string(threads) + " threads, whose word never comes", KernelWaitsModel(setting));
  }
}

TEST(KernelWaits, BrokenWithOneLookFewer) {
  expectWrong("one look fewer", KernelWaitsModel(of(3, 1)), kWronglySaid);
}

// One thread alone would need two looks fewer.
TEST(KernelWaits, BrokenWithThreeLooksFewerForOneThread) {
  expectRight("one thread, two looks fewer", KernelWaitsModel(of(1, 2)));
  expectWrong("one thread, three looks fewer", KernelWaitsModel(of(1, 3)), kWronglySaid);
}

TEST(KernelWaits, BrokenWhereTheGpuRunsForLessThanALookTakes) {
  KernelWaitsSetting setting = of(KernelWaitsModel::kMostThreads);
  setting.wholeSlices = false;
  expectWrong("a GPU that runs for less than a look takes", KernelWaitsModel(setting), kWronglySaid);
}

}  // namespace
}  // namespace stretto::model
