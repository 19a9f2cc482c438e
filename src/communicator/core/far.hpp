// Ranks of other hosts, whose windows nobody here can map. In the place of such a window is a stand-in: the
// header alone, in memory of this rank, with what the far rank was last heard to say there. So whatever looks
// at the headers of peers, to find out why a wait does not end, need not know where these are. Stand-ins are
// brought up to date by views, which travel through the bootstrap when somebody asks. For communicator/ only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rank_set.hpp"
#include "bootstrap/membership.hpp"
#include "communicator/device/operation_log.hpp"
#include "links/endpoint.hpp"
#include "links/net/far_links.hpp"
#include "net/net.hpp"
#include "platform/encryption.hpp"
#include "platform/shared_memory.hpp"
#include "primitives/window.hpp"

namespace stretto::communicator {

// The net between hosts, as NCCL_NET_PLUGIN and NCCL_NET have it (net/open.hpp), encrypted as a session is.
// Tests may give another one.
Result<std::shared_ptr<net::Net>> netBetweenHosts(const Encryption& encryption);
void useBetweenHosts(std::shared_ptr<net::Net> net);

// Listens for far ranks and learns where they listen: so often as all ranks want it, once at least. Those of
// the same index are connected. Collective, where any rank has a far one.
inline constexpr int kMostFarLinks = 4;
using FarLinks = std::vector<std::shared_ptr<links::net::FarLinks>>;
Result<FarLinks> connectFar(bootstrap::Membership& membership, links::net::FarLinks::Config config,
                            std::span<const links::Endpoint> endpoints, int wanted, double timeoutSeconds);
// Whether these two ranks can reach each other over the net alone. `forced` is STRETTO_LINK: "net" makes
// every pair far, another link none.
bool isFar(const links::Endpoint& mine, const links::Endpoint& theirs, const std::string& forced);

// A far rank's header as far as it is known: of a rank that has said nothing. In a region of `bytes`, zeroed
// from `behind` on, in which nothing else takes memory.
links::Link standIn(const WindowHeader& like, int rank, size_t bytes = sizeof(WindowHeader),
                    size_t behind = sizeof(WindowHeader));

// The stand-ins of a rank in host memory. It reads nothing of far ranks but their headers, so these are all
// that there is. A header is zero, and takes no memory, until a view of its rank arrives: zero is the header
// of a rank that has called nothing.
class StandIns {
 public:
  StandIns() = default;
  static Result<StandIns> create(int ranks);
  links::Link of(int rank) const;

  // By rank: not 0 once there is anything to be seen of it. Empty where there are no stand-ins.
  std::span<uint8_t> heard() const {
    auto* const begin = reinterpret_cast<uint8_t*>(memory_ != nullptr ? memory_->data() : nullptr);
    return {begin, static_cast<size_t>(ranks_)};
  }
  // Of a rank on this host before anybody waits; of a far one before its header is written.
  void hear(int rank) const {
    if (ranks_ > 0) std::atomic_ref(heard()[static_cast<size_t>(rank)]).store(1, std::memory_order_release);
  }

 private:
  int ranks_ = 0;
  std::shared_ptr<platform::SharedMemory> memory_;  // a byte for each rank, then headers
};

// What of its header a rank tells the others.
class FarView {
 public:
  // `asks`: these ranks are to send their own. `log`: of a rank on a GPU, where its calls are.
  static std::vector<uint8_t> of(const WindowHeader& header, const RankSet& asks,
                                 const OperationLog* log = nullptr);
  // Into the stand-in of who has sent it; false if it is none. Whoever waits for that is woken.
  static bool apply(std::span<const uint8_t> view, WindowHeader& standIn, RankSet& asks,
                    OperationLog* log = nullptr);
};

// The view that a rank has shown last. It goes to all ranks, so one answers many who ask: N ranks that wait
// cost N squared messages and not N cubed.
class Shown {
 public:
  static constexpr uint64_t kNanoseconds = 100'000'000;

  void note(std::span<const uint8_t> view, uint64_t nanoseconds);
  // Whether who asks now is to be told: the view says another thing than the last one, or that was long ago.
  bool isOld(std::span<const uint8_t> view, uint64_t nanoseconds) const;

 private:
  std::vector<uint8_t> view_;
  uint64_t nanoseconds_ = 0;
};

}  // namespace stretto::communicator
