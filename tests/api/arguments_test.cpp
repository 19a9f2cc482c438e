// Wrong arguments of operations, each with an error that names what is wrong; and the small questions that
// the library answers.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "api/calls.hpp"
#include "api/handles.hpp"
#include "base/json.hpp"
#include "harness/watchdog.hpp"
#include "nccl.h"
#include "platform/cuda/device.hpp"
#include "stretto.h"

namespace stretto::api {
namespace {

using testing::lastNcclError;

class Arguments : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ncclCommInitAll(comms_, 2, nullptr), ncclSuccess) << lastNcclError(); }
  void TearDown() override {
    // Nothing of what was refused may have harmed the communicators.
    float values[2] = {1, 2};
    ncclGroupStart();
    for (int rank = 0; rank < 2; ++rank) {
      ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat32, ncclSum, comms_[rank], nullptr);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
    EXPECT_EQ(values[0] + values[1], 6);
    for (ncclComm_t comm : comms_) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  static void refused(ncclResult_t result, const std::vector<std::string>& words,
                      ncclResult_t wanted = ncclInvalidArgument) {
    EXPECT_EQ(result, wanted) << lastNcclError();
    for (const std::string& word : words)
      EXPECT_NE(lastNcclError().find(word), std::string::npos) << lastNcclError();
  }

  const stretto::testing::Watchdog watchdog_{"wrong arguments", 60};
  ncclComm_t comms_[2] = {};
  ncclComm_t& comm_ = comms_[0];
  float a_[64] = {}, b_[64] = {};
};

TEST_F(Arguments, UnknownTypes) {
  for (const int number : {-1, 12, 1000}) {
    const auto type = static_cast<ncclDataType_t>(number);
    const std::vector<std::string> words = {std::to_string(number), "data type", "0 to 11"};
    refused(ncclAllReduce(a_, b_, 1, type, ncclSum, comm_, nullptr), words);
    refused(ncclBroadcast(a_, b_, 1, type, 0, comm_, nullptr), words);
    refused(ncclSend(a_, 1, type, 1, comm_, nullptr), words);
  }
}

TEST_F(Arguments, UnknownOperators) {
  for (const int number : {-1, 5, 12345}) {
    const auto op = static_cast<ncclRedOp_t>(number);
    const std::vector<std::string> words = {std::to_string(number), "operator"};
    refused(ncclAllReduce(a_, b_, 1, ncclFloat32, op, comm_, nullptr), words);
    refused(ncclReduce(a_, b_, 1, ncclFloat32, op, 0, comm_, nullptr), words);
    refused(ncclReduceScatter(a_, b_, 1, ncclFloat32, op, comm_, nullptr), words);
  }
}

TEST_F(Arguments, RootsAndPeersOutOfRange) {
  for (const int root : {-1, 2, 99}) {
    const std::vector<std::string> words = {"root " + std::to_string(root), "ranks 0 to 1"};
    refused(ncclBroadcast(a_, b_, 1, ncclFloat32, root, comm_, nullptr), words);
    refused(ncclBcast(a_, 1, ncclFloat32, root, comm_, nullptr), words);
    refused(ncclReduce(a_, b_, 1, ncclFloat32, ncclSum, root, comm_, nullptr), words);
    refused(ncclGather(a_, b_, 1, ncclFloat32, root, comm_, nullptr), words);
    refused(ncclScatter(a_, b_, 1, ncclFloat32, root, comm_, nullptr), words);
    refused(ncclSend(a_, 1, ncclFloat32, root, comm_, nullptr), {"send", "peer " + std::to_string(root)});
    refused(ncclRecv(a_, 1, ncclFloat32, root, comm_, nullptr), {"receive", "peer " + std::to_string(root)});
  }
}

TEST_F(Arguments, NullBuffers) {
  refused(ncclAllReduce(nullptr, b_, 3, ncclFloat32, ncclSum, comm_, nullptr),
          {"all_reduce", "send", "null"});
  refused(ncclAllReduce(a_, nullptr, 3, ncclFloat32, ncclSum, comm_, nullptr),
          {"all_reduce", "receive", "null"});
  refused(ncclReduceScatter(a_, nullptr, 3, ncclFloat32, ncclSum, comm_, nullptr),
          {"reduce_scatter", "null"});
  refused(ncclAllGather(nullptr, b_, 3, ncclFloat32, comm_, nullptr), {"all_gather", "send", "null"});
  refused(ncclAlltoAll(a_, nullptr, 3, ncclFloat32, comm_, nullptr), {"all_to_all", "receive", "null"});
  refused(ncclBroadcast(nullptr, b_, 3, ncclFloat32, 0, comm_, nullptr), {"broadcast", "send", "null"});
  refused(ncclReduce(a_, nullptr, 3, ncclFloat32, ncclSum, 0, comm_, nullptr), {"reduce", "receive", "null"});
  refused(ncclGather(a_, nullptr, 3, ncclFloat32, 0, comm_, nullptr), {"gather", "receive", "null"});
  refused(ncclScatter(nullptr, b_, 3, ncclFloat32, 0, comm_, nullptr), {"scatter", "send", "null"});
  refused(ncclSend(nullptr, 3, ncclFloat32, 1, comm_, nullptr), {"send", "null"});
  refused(ncclRecv(nullptr, 3, ncclFloat32, 1, comm_, nullptr), {"receive", "null"});
}

TEST_F(Arguments, CountsThatDoNotFit) {
  const size_t half = SIZE_MAX / 2;
  const std::vector<std::string> words = {"do not fit", "float64"};
  refused(ncclAllReduce(a_, b_, half, ncclFloat64, ncclSum, comm_, nullptr), words);
  refused(ncclAllGather(a_, b_, SIZE_MAX / 16 + 1, ncclFloat64, comm_, nullptr), words);
  refused(ncclSend(a_, SIZE_MAX, ncclFloat64, 1, comm_, nullptr), words);
}

TEST_F(Arguments, BuffersThatOverlap) {
  const std::vector<std::string> words = {"overlap"};
  refused(ncclAllReduce(a_, a_ + 1, 8, ncclFloat32, ncclSum, comm_, nullptr), words);
  refused(ncclBroadcast(a_ + 7, a_, 8, ncclFloat32, 0, comm_, nullptr), words);
  refused(ncclReduce(a_, a_ + 1, 8, ncclFloat32, ncclSum, 0, comm_, nullptr), words);
  // In place for another rank than the caller's, or for another root.
  refused(ncclReduceScatter(a_, a_ + 8, 8, ncclFloat32, ncclSum, comms_[0], nullptr), words);
  refused(ncclReduceScatter(a_, a_, 8, ncclFloat32, ncclSum, comms_[1], nullptr), words);
  refused(ncclAllGather(a_ + 8, a_, 8, ncclFloat32, comms_[0], nullptr), words);
  refused(ncclAllGather(a_, a_, 8, ncclFloat32, comms_[1], nullptr), words);
  refused(ncclGather(a_ + 8, a_, 8, ncclFloat32, 0, comm_, nullptr), words);
  refused(ncclScatter(a_, a_ + 8, 8, ncclFloat32, 0, comm_, nullptr), words);
  refused(ncclAlltoAll(a_, a_, 8, ncclFloat32, comm_, nullptr), {"overlap", "no in-place form"});
}

TEST_F(Arguments, CommunicatorsThatAreNone) {
  refused(ncclAllReduce(a_, b_, 1, ncclFloat32, ncclSum, nullptr, nullptr), {"ncclAllReduce", "null"});
  refused(ncclSend(a_, 1, ncclFloat32, 0, nullptr, nullptr), {"ncclSend", "null"});
  int number = 0;
  refused(ncclCommCount(nullptr, &number), {"ncclCommCount", "null"});
  refused(ncclCommCount(comm_, nullptr), {"ncclCommCount"});
  refused(ncclCommUserRank(comm_, nullptr), {"ncclCommUserRank"});
  refused(ncclCommCuDevice(comm_, nullptr), {"ncclCommCuDevice"});
  refused(strettoCommDevice(comm_, nullptr), {"strettoCommDevice"});
  refused(strettoCommDevice(nullptr, &number), {"strettoCommDevice", "null"});
  refused(ncclCommGetAsyncError(comm_, nullptr), {"ncclCommGetAsyncError"});
  ncclComm_t child = nullptr;
  refused(ncclCommSplit(nullptr, 0, 0, &child, nullptr), {"ncclCommSplit", "null"});
  refused(ncclCommSplit(comm_, 0, 0, nullptr, nullptr), {"newcomm"});
  refused(ncclCommSplit(comm_, -5, 0, &child, nullptr), {"color"});
  refused(ncclCommRevoke(comm_, 1), {"NCCL_REVOKE_DEFAULT"});
}

TEST_F(Arguments, StreamsThatAreNone) {
  refused(ncclAllReduce(a_, b_, 1, ncclFloat32, ncclSum, comm_, reinterpret_cast<cudaStream_t>(a_)),
          {"ncclAllReduce", "strettoStreamCreate"});
  refused(strettoStreamCreate(nullptr), {"strettoStreamCreate"});
  refused(strettoStreamSynchronize(nullptr), {"strettoStreamSynchronize"});
  refused(strettoStreamQuery(reinterpret_cast<cudaStream_t>(a_)), {"strettoStreamQuery"});
  refused(strettoStreamDestroy(reinterpret_cast<cudaStream_t>(a_)), {"strettoStreamDestroy"});
}

TEST_F(Arguments, OperatorsOfOnesOwn) {
  ncclRedOp_t op = ncclSum;
  float scalar = 2;
  const auto create = [&](ncclRedOp_t* at, void* from, int type, int residence) {
    return ncclRedOpCreatePreMulSum(at, from, static_cast<ncclDataType_t>(type),
                                    static_cast<ncclScalarResidence_t>(residence), comm_);
  };
  refused(create(nullptr, &scalar, ncclFloat32, 1), {"ncclRedOpCreatePreMulSum"});
  refused(create(&op, nullptr, ncclFloat32, 1), {"scalar"});
  refused(create(&op, &scalar, 77, 1), {"data type 77"});
  refused(create(&op, &scalar, ncclFloat32, 9), {"residence 9"});
  refused(ncclRedOpDestroy(ncclSum, comm_), {"PreMulSum"});
  ASSERT_EQ(create(&op, &scalar, ncclFloat32, ncclScalarDevice), ncclSuccess) << lastNcclError();
  EXPECT_GE(static_cast<int>(op), static_cast<int>(ncclNumOps));
  refused(ncclAllReduce(a_, b_, 1, ncclInt32, op, comm_, nullptr), {"float32", "int32"});
  refused(ncclAllReduce(a_, b_, 1, ncclFloat32, op, comms_[1], nullptr), {"operator"});
  EXPECT_EQ(ncclRedOpDestroy(op, comm_), ncclSuccess);
  refused(ncclRedOpDestroy(op, comm_), {"PreMulSum"});
  refused(ncclAllReduce(a_, b_, 1, ncclFloat32, op, comm_, nullptr), {"operator"});
}

// A scalar that lives with the caller is read at each call.
TEST_F(Arguments, ADeviceScalarIsReadLate) {
  ncclRedOp_t ops[2] = {};
  float scalars[2] = {2, 3};
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(
        ncclRedOpCreatePreMulSum(&ops[rank], &scalars[rank], ncclFloat32, ncclScalarDevice, comms_[rank]),
        ncclSuccess);
  }
  scalars[0] = 10;
  float values[2] = {1, 1};
  ncclGroupStart();
  for (int rank = 0; rank < 2; ++rank) {
    ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat32, ops[rank], comms_[rank], nullptr);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  EXPECT_EQ(values[0], 13);
  EXPECT_EQ(values[1], 13);
}

TEST_F(Arguments, Registrations) {
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(comm_, a_, sizeof a_, &handle), ncclSuccess);
  EXPECT_NE(handle, nullptr);
  refused(ncclCommDeregister(comms_[1], handle), {"ncclCommDeregister", "registration"});
  EXPECT_EQ(ncclCommDeregister(comm_, handle), ncclSuccess);
  refused(ncclCommDeregister(comm_, handle), {"registration"});
  EXPECT_EQ(ncclCommDeregister(comm_, nullptr), ncclSuccess);
  refused(ncclCommRegister(comm_, nullptr, 4, &handle), {"ncclCommRegister"});
  refused(ncclCommRegister(comm_, a_, 0, &handle), {"ncclCommRegister", "0 bytes"});
  refused(ncclCommRegister(comm_, a_, 4, nullptr), {"ncclCommRegister"});
  ncclWindow_t window = nullptr, windows[2] = {};
  EXPECT_EQ(ncclCommWindowRegister(comm_, a_, sizeof a_, &window, NCCL_WIN_DEFAULT), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comm_, window), ncclSuccess);
  refused(ncclCommWindowDeregister(comm_, window), {"ncclCommWindowDeregister"});
  ncclGroupStart();  // all ranks do that together
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ncclCommWindowRegister(comms_[rank], rank == 0 ? a_ : b_, sizeof a_, &windows[rank],
                                     NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  refused(ncclCommWindowDeregister(comms_[1], windows[0]), {"ncclCommWindowDeregister"});
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(ncclCommWindowDeregister(comms_[rank], windows[rank]), ncclSuccess);
  refused(ncclCommWindowRegister(comm_, a_, sizeof a_, &window, 64), {"0x40"});
}

TEST_F(Arguments, WhatIsForcedMustExist) {
  const auto force = [&](const char* what, const char* algorithm, const char* protocol, size_t chunk) {
    return strettoCommForce(comm_, what, algorithm, protocol, chunk, 0);
  };
  refused(force("all_reduce", "quantum", nullptr, 0), {"quantum", "two_shot"}, ncclInvalidUsage);
  refused(force("all_reduced", "ring", nullptr, 0), {"all_reduced", "all_reduce"}, ncclInvalidUsage);
  refused(force("all_reduce", "ring", "ll", 0), {"ring", "ll"}, ncclInvalidUsage);
  refused(force("all_reduce", "ring", nullptr, 65), {"65", "multiple of 64"}, ncclInvalidUsage);
  refused(force(nullptr, "ring", nullptr, 0), {"collective is null"});
  EXPECT_EQ(force("all_reduce", "one_shot", "ll", 0), ncclSuccess);
  std::vector<float> many(100000, 1.0f);
  refused(ncclAllReduce(many.data(), many.data(), many.size(), ncclFloat32, ncclSum, comm_, nullptr),
          {"one_shot", "4096", "Possible here"}, ncclInvalidUsage);
  EXPECT_EQ(force("all_reduce", nullptr, nullptr, 0), ncclSuccess);
}

TEST_F(Arguments, ZeroElementsNeedNoBuffers) {
  for (ncclComm_t comm : comms_) {
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess)
        << lastNcclError();
    EXPECT_EQ(ncclAllGather(nullptr, nullptr, 0, ncclFloat32, comm, nullptr), ncclSuccess) << lastNcclError();
    EXPECT_EQ(ncclBroadcast(nullptr, nullptr, 0, ncclFloat32, 1, comm, nullptr), ncclSuccess)
        << lastNcclError();
  }
}

TEST_F(Arguments, CountersCount) {
  strettoCounters_t before{}, after{};
  before.size = after.size = sizeof before;
  ASSERT_EQ(strettoCommCounters(comm_, &before), ncclSuccess);
  EXPECT_GT(before.initNanoseconds, before.initBootstrapNanoseconds);
  EXPECT_GT(before.windowBytes, 65536u);
  EXPECT_EQ(before.operations, 0u);
  ncclGroupStart();
  for (ncclComm_t comm : comms_) {
    float* const at = comm == comm_ ? a_ : b_;
    ncclAllReduce(at, at, 64, ncclFloat32, ncclSum, comm, nullptr);
    ncclAllReduce(at, at, 16, ncclFloat32, ncclSum, comm, nullptr);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << lastNcclError();
  ASSERT_EQ(strettoCommCounters(comm_, &after), ncclSuccess);
  EXPECT_EQ(after.operations, 2u);
  EXPECT_EQ(after.bytes, 320u);

  // An older caller's struct is not written beyond its end, a newer one's rest becomes 0.
  struct {
    strettoCounters_t known;
    uint64_t rest[2];
  } larger;
  std::memset(&larger, 0xff, sizeof larger);
  larger.known.size = sizeof larger;
  ASSERT_EQ(strettoCommCounters(comm_, &larger.known), ncclSuccess);
  EXPECT_EQ(larger.rest[0], 0u);
  EXPECT_EQ(larger.rest[1], 0u);
  std::memset(&after, 0xff, sizeof after);
  after.size = offsetof(strettoCounters_t, operations);
  ASSERT_EQ(strettoCommCounters(comm_, &after), ncclSuccess);
  EXPECT_EQ(after.operations, UINT64_MAX);
  after.size = 4;
  refused(strettoCommCounters(comm_, &after), {"size"});
  refused(strettoCommCounters(comm_, nullptr), {"strettoCommCounters"});
}

TEST_F(Arguments, ALookForAMessageNamesAnotherRank) {
  int arrived = 7;
  EXPECT_EQ(strettoCommProbe(comm_, 1, &arrived), ncclSuccess) << lastNcclError();
  EXPECT_EQ(arrived, 0);
  refused(strettoCommProbe(comm_, 0, &arrived), {"rank 0 of 2"});
  refused(strettoCommProbe(comm_, 2, &arrived), {"rank 2"});
  refused(strettoCommProbe(comm_, -1, &arrived), {"rank -1"});
  refused(strettoCommProbe(comm_, 1, nullptr), {"strettoCommProbe"});
}

// Pointers that this library did not give out are not even looked at.
TEST(Library, HandlesThatAreNoneAreRefused) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << lastNcclError();
  auto* const inside = reinterpret_cast<ncclComm_t>(reinterpret_cast<char*>(comm) + 8);
  int count = 0;
  for (ncclComm_t wrong : {reinterpret_cast<ncclComm_t>(uintptr_t{16}), inside}) {
    EXPECT_EQ(ncclCommCount(wrong, &count), ncclInvalidArgument);
    EXPECT_NE(lastNcclError().find("not one, or was destroyed"), std::string::npos) << lastNcclError();
    EXPECT_EQ(ncclCommDestroy(wrong), ncclInvalidArgument);
    EXPECT_NE(ncclGetLastError(wrong), nullptr);
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
}

TEST(Library, AnswersForItself) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  std::vector<std::string> texts;
  for (int result = -1; result <= ncclNumResults; ++result) {
    const char* text = ncclGetErrorString(static_cast<ncclResult_t>(result));
    ASSERT_NE(text, nullptr);
    EXPECT_GT(std::strlen(text), 3u);
    texts.push_back(text);
  }
  EXPECT_NE(texts[1], texts[2]);
  EXPECT_STRNE(strettoVersion(), "");
}

TEST(Library, SaysHowItWasBuilt) {
  size_t needed = 0;
  ASSERT_EQ(strettoBuild(nullptr, 0, &needed), ncclSuccess);
  std::string text(needed, 0);
  ASSERT_EQ(strettoBuild(text.data(), text.size(), &needed), ncclSuccess);
  text.pop_back();
  const auto build = json::parse(text);
  ASSERT_TRUE(build.ok()) << text;
  const auto& facts = build.value();
  EXPECT_EQ(facts.find("schema")->text(), "stretto.build/1");
  EXPECT_EQ(facts.find("version")->text(), strettoVersion());
  EXPECT_FALSE(facts.find("compiler")->text().empty());
  EXPECT_EQ(facts.find("cuda")->boolean(), platform::cuda::isBuiltIn());
  EXPECT_EQ(facts.find("kernels")->items().empty(), !platform::cuda::isBuiltIn());
}

TEST(Library, GivesMemory) {
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 100001), ncclSuccess) << lastNcclError();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  const char* bytes = static_cast<const char*>(memory);
  for (size_t i = 0; i < 100001; ++i) ASSERT_EQ(bytes[i], 0);
  std::memset(memory, 1, 100001);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  EXPECT_NE(lastNcclError().find("ncclMemAlloc"), std::string::npos);
  EXPECT_EQ(ncclMemFree(nullptr), ncclSuccess);
  EXPECT_EQ(ncclMemAlloc(nullptr, 1), ncclInvalidArgument);
  EXPECT_NE(ncclMemAlloc(&memory, SIZE_MAX), ncclSuccess);
  EXPECT_EQ(memory, nullptr);
  ASSERT_EQ(ncclMemAlloc(&memory, 0), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

}  // namespace
}  // namespace stretto::api
