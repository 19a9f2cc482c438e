// A program that has nothing of the library but nccl.h, stretto.h and stretto.dll.
#include <gtest/gtest.h>
#include <process.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"
#include "stretto.h"

namespace {

constexpr int kRanks = 2;

void sumOnRank(const ncclUniqueId& id, int rank) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, kRanks, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{1000000}}) {
    std::vector<float> from(count), to(count);
    std::iota(from.begin(), from.end(), static_cast<float>(rank));
    ASSERT_EQ(ncclAllReduce(from.data(), to.data(), count, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess)
        << ncclGetLastError(comm);
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(to[i], static_cast<float>(2 * i + 1)) << i << " of " << count;
  }
  EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(Program, SumsByTheLibrary) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(sumOnRank, id, rank);
  for (std::thread& rank : ranks) rank.join();
}

TEST(Program, GetsASentenceWhereItIsWrong) {
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 7), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)), "");
}

// What does not run on Windows says so, and what to do instead (docs/windows.md).
TEST(Program, HearsWhyThereIsNoDoctorAndNoTop) {
  char json[4096] = "";
  size_t needed = 0;
  const std::string self = std::to_string(_getpid());
  EXPECT_EQ(strettoDoctor(self.c_str(), json, sizeof json, &needed), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("are not read on Windows; copy the files"),
            std::string::npos)
      << ncclGetLastError(nullptr);
  strettoWatch_t watch = nullptr;
  EXPECT_EQ(strettoWatchOpen(self.c_str(), &watch), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("are not read on Windows; copy the files"),
            std::string::npos)
      << ncclGetLastError(nullptr);
}

}  // namespace
