// Ranks in host memory, in a process that has CUDA's driver, given memory of a GPU: it is refused and never
// read. The driver is made up, and its memory cannot be read, so that a rank that did would end this program.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/watch.hpp"
#include "fake_driver.hpp"
#include "harness/watchdog.hpp"
#include "nccl.h"
#include "stretto.h"

namespace stretto {
namespace {

constexpr size_t kPage = 4096;

std::byte* mapped(int protection) {
  void* const memory = mmap(nullptr, kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

FakeDriver& driver() {
  static FakeDriver& fake = [&]() -> FakeDriver& {
    void* const library = dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    auto* const find =
        reinterpret_cast<FakeDriverFunction*>(library == nullptr ? nullptr : dlsym(library, "fakeDriver"));
    if (find == nullptr) abort();
    return *find();
  }();
  return fake;
}

// The first test, before anything loads the driver.
TEST(AHostWithoutCuda, LooksAtNoBuffer) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  EXPECT_FALSE(watch::anybody());
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

class HostMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    driver().initialised = true;
    driver().device = {mapped(PROT_NONE), kPage};
    driver().managed = {mapped(PROT_READ | PROT_WRITE), kPage};
    make();
  }
  void TearDown() override {
    checkWorks();
    for (ncclComm_t comm : comms_) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    munmap(driver().device.begin, kPage);
    munmap(driver().managed.begin, kPage);
  }
  void make() { ASSERT_EQ(ncclCommInitAll(comms_, 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr); }

  // What was refused has harmed no communicator.
  void checkWorks() {
    float values[2] = {1, 2};
    ncclGroupStart();
    for (int rank = 0; rank < 2; ++rank) {
      ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat32, ncclSum, comms_[rank], nullptr);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_EQ(values[0] + values[1], 6);
  }
  static void refused(ncclResult_t result, const char* which) {
    EXPECT_EQ(result, ncclInvalidArgument) << which;
    const std::string words = ncclGetLastError(nullptr);
    EXPECT_NE(words.find(which), std::string::npos) << words;
    EXPECT_NE(words.find("is memory of a GPU"), std::string::npos) << words;
  }
  static void* device() { return driver().device.begin; }

  const testing::Watchdog watchdog_{"memory of GPUs", 60};
  ncclComm_t comms_[2] = {};
  ncclComm_t& comm_ = comms_[0];
  float host_[64] = {};
};

TEST_F(HostMemory, EveryCollectiveRefusesItInEitherPlace) {
  constexpr auto kType = ncclFloat32;
  using Call = std::function<ncclResult_t(const void*, void*)>;
  const std::vector<Call> calls = {
      [&](const void* s, void* r) { return ncclAllReduce(s, r, 1, kType, ncclSum, comm_, nullptr); },
      [&](const void* s, void* r) { return ncclReduce(s, r, 1, kType, ncclSum, 0, comm_, nullptr); },
      [&](const void* s, void* r) { return ncclReduceScatter(s, r, 1, kType, ncclSum, comm_, nullptr); },
      [&](const void* s, void* r) { return ncclAllGather(s, r, 1, kType, comm_, nullptr); },
      [&](const void* s, void* r) { return ncclAlltoAll(s, r, 1, kType, comm_, nullptr); },
      [&](const void* s, void* r) { return ncclBroadcast(s, r, 1, kType, 0, comm_, nullptr); },
  };
  for (const Call& call : calls) {
    refused(call(device(), host_), "send buffer");
    refused(call(host_, device()), "receive buffer");
  }
  refused(ncclSend(device(), 1, kType, 1, comm_, nullptr), "send buffer");
  refused(ncclRecv(device(), 1, kType, 1, comm_, nullptr), "receive buffer");
}

// What a rank neither reads nor writes may be anything, as it may for NCCL.
TEST_F(HostMemory, BuffersThatAreNotUsedAreNotLookedAt) {
  float values[2] = {1, 2};
  ncclGroupStart();
  EXPECT_EQ(ncclReduce(&values[0], &values[0], 1, ncclFloat32, ncclSum, 0, comms_[0], nullptr), ncclSuccess);
  EXPECT_EQ(ncclReduce(&values[1], device(), 1, ncclFloat32, ncclSum, 0, comms_[1], nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(values[0], 3);
}

TEST_F(HostMemory, AScalarOnAGpuIsRefusedWhenItWouldBeRead) {
  ncclRedOp_t op{};
  refused(ncclRedOpCreatePreMulSum(&op, device(), ncclFloat32, ncclScalarHostImmediate, comm_), "scalar");
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, device(), ncclFloat32, ncclScalarDevice, comm_), ncclSuccess);
  refused(ncclAllReduce(host_, host_, 1, ncclFloat32, op, comm_, nullptr), "scalar");
  EXPECT_EQ(ncclRedOpDestroy(op, comm_), ncclSuccess);
}

// Ranks of one process register as a group.
TEST_F(HostMemory, AWindowOfItIsRefusedOnAllRanks) {
  ncclWindow_t windows[2] = {};
  ncclGroupStart();
  for (int rank = 0; rank < 2; ++rank) {
    void* const buffer = rank == 1 ? device() : host_;
    ncclCommWindowRegister(comms_[rank], buffer, sizeof host_, &windows[rank], NCCL_WIN_COLL_SYMMETRIC);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
}

TEST_F(HostMemory, ManagedMemoryIsMemoryOfTheHostToo) {
  auto* const values = static_cast<float*>(driver().managed.begin);
  values[0] = 1;
  values[1] = 2;
  ncclGroupStart();
  for (int rank = 0; rank < 2; ++rank) {
    ncclAllReduce(values + rank, values + rank, 1, ncclFloat32, ncclSum, comms_[rank], nullptr);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(values[1], 3);
}

TEST_F(HostMemory, TheDriverIsAskedOnceForAPage) {
  checkWorks();
  const int asked = driver().asked;
  alignas(kPage) static std::byte other[kPage];
  for (int i = 0; i < 100; ++i) {
    auto* const values = reinterpret_cast<float*>(other);
    ncclGroupStart();
    for (ncclComm_t comm : comms_) ncclBroadcast(values, values, 1, ncclFloat32, 0, comm, nullptr);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  EXPECT_EQ(driver().asked, asked + 1);
}

TEST_F(HostMemory, ADriverThatIsNotInitialisedHasSaidNothing) {
  // The address must be one that nobody has asked for.
  driver().initialised = false;
  alignas(kPage) static std::byte later[kPage];
  auto* const values = reinterpret_cast<float*>(later);
  ncclGroupStart();
  for (ncclComm_t comm : comms_) ncclBroadcast(values, values, 1, ncclFloat32, 0, comm, nullptr);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  driver().initialised = true;
  const auto before = driver().device;
  driver().device = {later, sizeof later};
  refused(ncclBroadcast(values, values, 1, ncclFloat32, 0, comm_, nullptr), "send buffer");
  driver().device = before;
}

}  // namespace
}  // namespace stretto
