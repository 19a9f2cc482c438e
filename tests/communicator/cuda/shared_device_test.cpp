// Communicators that share a GPU: kernels of all of them have room on it at once. A kernel that waits for a
// peer keeps its multiprocessors, so that a peer whose kernel finds none left would never come.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "base/scoped_variable.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr int kRanks = 4;  // in pairs: 0 and 2, 1 and 3
constexpr size_t kBroadcastCount = size_t{5} << 20;

class SharedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
  const ScopedVariable timeout_{"STRETTO_TIMEOUT", kEmulated ? "60" : "5"};
};

// Of the pair's first rank to its second, whose kernel has long begun; those of both pairs at the same time.
void broadcastInPair(const Member& member, ncclComm_t pair) {
  const int place = member.rank / 2;
  void* buffer = nullptr;
  member.expect(ncclMemAlloc(&buffer, kBroadcastCount), "ncclMemAlloc");
  std::vector<char> bytes(kBroadcastCount);
  for (size_t i = 0; place == 0 && i < kBroadcastCount; ++i)
    bytes[i] = static_cast<char>(i % 251 + member.rank);
  member.device->upload(static_cast<char*>(buffer), bytes.data(), kBroadcastCount);
  // The first operation connects the pair.
  member.expect(ncclBroadcast(buffer, buffer, 1, ncclInt8, 0, pair, member.stream()), "the first broadcast");
  member.device->synchronize();
  member.board.meet();
  if (place == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  member.expect(ncclBroadcast(buffer, buffer, kBroadcastCount, ncclInt8, 0, pair, member.stream()),
                "the broadcast");
  member.device->synchronize();
  ncclResult_t error = ncclSuccess;
  ncclCommGetAsyncError(pair, &error);
  member.expect(error, "the broadcast's end");
  member.device->download(bytes.data(), static_cast<char*>(buffer), kBroadcastCount);
  size_t wrong = 0;
  for (size_t i = 0; i < kBroadcastCount; ++i)
    wrong += bytes[i] != static_cast<char>(i % 251 + member.rank % 2);
  member.check(wrong == 0, "the broadcast's bytes");
  member.board.meet();
  member.expect(ncclCommDestroy(pair), "destroy the pair");
  member.board.meet();
  member.expect(ncclMemFree(buffer), "ncclMemFree");
}

// The thread blocks that an operation of the communicator may have at most; -1: it does not say.
int channelsOf(const Member& member, ncclComm_t communicator) {
  const strettoQuestion_t question = {"broadcast", kBroadcastCount, ncclInt8, ncclSum, 0, 0, 0};
  std::vector<char> json(1 << 16);
  size_t needed = 0;
  member.expect(strettoExplain(communicator, &question, json.data(), json.size(), &needed), "explain");
  const char* const found = std::strstr(json.data(), "\"lanes\":");
  int channels = -1;
  return found != nullptr && std::sscanf(found, "\"lanes\":%d", &channels) == 1 ? channels : -1;
}

TEST_F(SharedDevice, HasRoomForTheKernelsOfAllChildrenOfASplit) {
  // As many as a child has ranks: what it knows of the others comes from its parent.
  const ScopedVariable shared("STRETTO_SHARED_DEVICE", "2");
  asThreads(kRanks, [](Member& member) {
    member.device = OnDevice::make(0);
    ncclUniqueId id;
    if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
    if (!member.expect(ncclCommInitRank(&member.comm, kRanks, id, member.rank), "init")) return;
    ncclComm_t pair = nullptr;
    member.expect(ncclCommSplit(member.comm, member.rank % 2, member.rank, &pair, nullptr), "split");
    const int parents = channelsOf(member, member.comm), childs = channelsOf(member, pair);
    if (childs < 1 || childs > parents)
      member.complain("%d channels of a child, %d of its parent", childs, parents);
    broadcastInPair(member, pair);
    member.expect(ncclCommDestroy(member.comm), "destroy");
  });
}

// As PyTorch makes its groups: they know nothing of each other.
TEST_F(SharedDevice, HasRoomForTheKernelsOfCommunicatorsOfIdsOfTheirOwn) {
  const ScopedVariable shared("STRETTO_SHARED_DEVICE", "1");
  asThreads(kRanks, [](Member& member) {
    member.device = OnDevice::make(0);
    const int place = member.rank / 2;
    ncclUniqueId id{};
    std::byte* const ofPair = member.board.area(member.rank % 2);
    if (place == 0) {
      member.expect(ncclGetUniqueId(&id), "an id");
      std::memcpy(ofPair, &id, sizeof id);
    }
    member.board.meet();
    std::memcpy(&id, ofPair, sizeof id);
    ncclComm_t pair = nullptr;
    if (!member.expect(ncclCommInitRank(&pair, 2, id, place), "init")) return;
    cudaDeviceProp device{};
    cudaGetDeviceProperties(&device, 0);
    const int channels = channelsOf(member, pair), share = std::max(1, device.multiProcessorCount / 8);
    if (channels != share) member.complain("%d channels where an eighth is %d", channels, share);
    broadcastInPair(member, pair);
  });
}

}  // namespace
}  // namespace stretto
