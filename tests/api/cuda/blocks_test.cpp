// How many blocks an operation may take: the least that any rank allows, in its configuration or by
// NCCL_MAX_CTAS.
#include <gtest/gtest.h>
#include <stretto.h>

#include <string>
#include <vector>

#include "base/scoped_variable.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr size_t kAskedCount = 100000;

std::string answerFor(Member& member) {
  strettoQuestion_t question = {"all_reduce", kAskedCount * sizeof(float), ncclFloat, ncclSum, 0, 0, 0};
  std::vector<char> json(1 << 16);
  size_t needed = 0;
  member.expect(strettoExplain(member.comm, &question, json.data(), json.size(), &needed), "explain");
  return json.data();
}

// Of three ranks the last says `most` in its configuration; a communicator that may take `channels` is made
// and used.
void expectChannels(int most, int channels) {
  asThreads(3, [=](Member& member) {
    ncclUniqueId id;
    member.device = OnDevice::make(member.rank);
    if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (member.rank == 2) config.maxCTAs = most;
    if (!member.expect(ncclCommInitRankConfig(&member.comm, 3, id, member.rank, &config), "init")) return;
    const std::string answer = answerFor(member);
    const bool fits = answer.find("\"lanes\":" + std::to_string(channels) + ",") != std::string::npos;
    if (!fits) member.complain("%d channels were allowed: %.300s", channels, answer.c_str());

    const std::vector<float> input(kAskedCount, static_cast<float>(member.rank + 1));
    std::vector<float> output(kAskedCount);
    auto* const data = reinterpret_cast<float*>(member.device->at(0, nullptr));
    member.device->upload(member.device->at(0, nullptr), reinterpret_cast<const char*>(input.data()),
                          kAskedCount * sizeof(float));
    member.expect(ncclAllReduce(data, data, kAskedCount, ncclFloat, ncclSum, member.comm, member.stream()),
                  "all-reduce");
    member.device->synchronize();
    member.device->download(reinterpret_cast<char*>(output.data()), member.device->at(0, nullptr),
                            kAskedCount * sizeof(float));
    member.check(output == std::vector<float>(kAskedCount, 6), "the sum is wrong");
    member.expect(ncclCommDestroy(member.comm), "destroy");
  });
}

class Blocks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(Blocks, AreAsManyAsEveryRankAllows) {
  expectChannels(2, 2);
}

TEST_F(Blocks, OfTheEnvironmentGoBeforeThoseOfTheConfiguration) {
  const ScopedVariable most("NCCL_MAX_CTAS", "3");
  expectChannels(1, 3);
}

TEST_F(Blocks, CannotBeNone) {
  const ScopedVariable most("NCCL_MAX_CTAS", "0");
  asThreads(1, [](Member& member) {
    ncclUniqueId id;
    member.device = OnDevice::make(member.rank);
    member.expect(ncclGetUniqueId(&id), "id");
    member.check(ncclCommInitRank(&member.comm, 1, id, 0) != ncclSuccess, "no blocks were allowed");
    member.expectError("the refusal", {"NCCL_MAX_CTAS"});
    member.comm = nullptr;
  });
}

}  // namespace
}  // namespace stretto
