// A page on which ranks that are processes write what they have heard, for the parent to read. For
// tests/bootstrap only.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/forked.hpp"
#include "bootstrap/membership.hpp"

namespace stretto::bootstrap::testing {

constexpr int kMostRanks = 8;

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What one rank has heard.
struct Heard {
  std::atomic<int> losses{0};
  int ranks[kMostRanks] = {};
  uint32_t pids[kMostRanks] = {};
  double when[kMostRanks] = {};
  char reasons[kMostRanks][160] = {};
  char hosts[kMostRanks][72] = {};

  void note(const PeerLoss& loss) {
    const int at = losses.load();
    if (at >= kMostRanks) return;
    ranks[at] = loss.rank;
    pids[at] = loss.pid;
    when[at] = now();
    snprintf(reasons[at], sizeof reasons[at], "%s", loss.reason.c_str());
    snprintf(hosts[at], sizeof hosts[at], "%s", loss.host.c_str());
    losses.store(at + 1);
  }
  // Where in the list `rank` is; -1 when nothing was heard of it.
  int indexOf(int rank) const {
    const int count = losses.load();
    for (int at = 0; at < count; ++at) {
      if (ranks[at] == rank) return at;
    }
    return -1;
  }
};

struct Page {
  PostedId id;
  std::atomic<int> joined{0};
  std::atomic<int> go{0};
  std::atomic<int> done{0};
  double seconds[kMostRanks] = {};
  Heard heard[kMostRanks];
};

inline void waitFor(const std::atomic<int>& flag, int value) {
  while (flag.load() < value) ::usleep(500);
}

// The rank's Membership, with its losses written to the page; null after printing why not.
inline std::unique_ptr<Membership> joinPage(Page& page, int rank, int ranks, StopCheck stop = {}) {
  JoinOptions options;
  options.onPeerLost = [&page, rank](const PeerLoss& loss) { page.heard[rank].note(loss); };
  Result<std::unique_ptr<Membership>> made =
      Membership::join(page.id.wait(), rank, ranks, 20, std::move(stop), options);
  if (!made.ok()) {
    fprintf(stderr, "rank %d: %s\n", rank, lastError().c_str());
    return nullptr;
  }
  page.joined.fetch_add(1);
  return std::move(made.value());
}

// For processes of which the last is no rank: it makes the id, and stays until it is ended.
inline std::unique_ptr<Membership> joinOrMakeId(Page& page, int slot, int ranks) {
  if (slot == ranks) {
    page.id.post(newId());
    ::pause();
  }
  return joinPage(page, slot, ranks);
}

// `canary`: of the parent, made once all ranks are forked.
inline void expectLoss(const Heard& heard, int index, int rank, pid_t pid, double killedAt,
                       const Canary& canary) {
  ASSERT_GE(index, 0);
  ASSERT_GT(heard.losses.load(), index);
  EXPECT_EQ(heard.ranks[index], rank);
  EXPECT_EQ(heard.pids[index], static_cast<uint32_t>(pid));
  char host[72] = "";
  ::gethostname(host, sizeof host - 1);
  EXPECT_STREQ(heard.hosts[index], host);
  EXPECT_LT(heard.when[index] - killedAt, canary.limit(1));
}

}  // namespace stretto::bootstrap::testing
