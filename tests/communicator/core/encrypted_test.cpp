// Communicators between hosts, as NCCL_HOSTID tells them apart, whose connections are encrypted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/scoped_variable.hpp"
#include "harness/encrypted.hpp"
#include "harness/explained.hpp"
#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

void onOneOf(int hosts, const Member& member) {
  ::setenv("NCCL_HOSTID", ("test-host-" + std::to_string(member.rank % hosts)).c_str(), 1);
}

void sumsAndGathers(Member& member) {
  const auto ranks = static_cast<size_t>(member.ranks());
  for (const size_t count : {size_t{1}, size_t{5000}, (size_t{5} << 18) + 3}) {
    std::vector<float> sum(count, static_cast<float>(member.rank)), all(count * ranks, -1);
    if (!member.expect(ncclAllGather(sum.data(), all.data(), count, ncclFloat32, member.comm, nullptr),
                       "gather") ||
        !member.expect(
            ncclAllReduce(sum.data(), sum.data(), count, ncclFloat32, ncclSum, member.comm, nullptr),
            "sum")) {
      return;
    }
    const auto wanted = static_cast<float>(ranks * (ranks - 1) / 2);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<float>(i / count)) return member.complain("element %zu of all", i);
    }
    for (size_t i = 0; i < count; ++i) {
      if (sum[i] != wanted) return member.complain("element %zu of the sum", i);
    }
  }
}

TEST(EncryptedHosts, ReduceAndGather) {
  STRETTO_NEEDS_OPENSSL();
  const ScopedVariable on("STRETTO_TLS", "1");
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "lo");
  for (const int hosts : {2, 4}) {
    asProcesses(4, [hosts](Member& member) {
      onOneOf(hosts, member);
      connected([hosts](Member& rank) {
        sumsAndGathers(rank);
        const std::string text = explained(rank);
        rank.check(text.find("\"hosts\":" + std::to_string(hosts)) != std::string::npos, text.c_str());
      })(member);
    });
  }
}

// Either of two ranks is the one that does not encrypt.
TEST(EncryptedHosts, WhereOneEncryptsAndOneDoesNotAreToldSo) {
  STRETTO_NEEDS_OPENSSL();
  const ScopedVariable quiet("NCCL_DEBUG", "");
  // The host of the rendezvous waits that long for the rank that is turned away.
  const ScopedVariable soon("STRETTO_INIT_TIMEOUT", "20");
  for (const int plain : {0, 1}) {
    asProcesses(2, [plain](Member& member) {
      onOneOf(2, member);
      ::setenv("STRETTO_TLS", member.rank == plain ? "0" : "1", 1);
      ncclUniqueId id;
      if (!member.board.shareId(member.rank, &id)) return;
      member.check(ncclCommInitRank(&member.comm, 2, id, member.rank) != ncclSuccess, "it was connected");
      member.comm = nullptr;
      member.expectError("init",
                         {"encrypts", "sends plain text", "STRETTO_TLS=1", "on all ranks, or on none"});
    });
  }
}

}  // namespace
}  // namespace stretto
