// Who a rank is: its place in its communicator, that communicator's number, the process that it belongs to,
// and what its user asked for. All parts of a communicator know it; it does not change once the rank is
// seated.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "bootstrap/membership.hpp"
#include "platform/fork.hpp"

namespace stretto::communicator {

struct ForeignConfig;

// The device of a rank in host memory.
inline constexpr int kHostDevice = -1;

// What ncclConfig_t says that means something here.
struct Config {
  bool blocking = true;
  std::string name;
  int device = kHostDevice;  // the GPU that the rank is on
  int mostBlocks = 0;        // that an operation may take there; 0: as many as STRETTO_LANES says
  int kernelsAtOnce = 0;     // on that GPU, the parent's number of them; 0: no parent
  // All of what the user wrote, for a communicator that is handed over; may be null.
  std::shared_ptr<const ForeignConfig> given = nullptr;
};

// The place of one rank in a communicator that is to be made.
struct Seat {
  int rank = 0;
  int ranks = 1;
  bootstrap::UniqueId id;
  std::vector<int> members;  // of a child: the parent's ranks, by rank of the child
  uint64_t seating = 0;      // the exchange that gave it, of a split or a growth
  bool opened = false;       // this process has opened the session of `id` for it
  bool named = false;        // this rank has given the id, of a growth
};
// How a child finds its seat, as the first step of its making; may wait for the parent's ranks, until the
// check is not ok.
using FindSeat = std::function<Result<Seat>(const bootstrap::StopCheck&)>;

class Identity {
 public:
  // `id`: of the communicator; null for a child, which has no seat yet.
  Identity(int rank, int ranks, const bootstrap::UniqueId* id, Config config)
      : config_(std::move(config)), rank_(rank), ranks_(ranks) {
    if (id == nullptr) return;
    id_ = *id;
    number_ = numberOf(id_);
    seated_ = true;
  }

  // There once it is seated().
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const bootstrap::UniqueId& id() const { return id_; }
  // The same on all ranks of this communicator, and on no other.
  uint64_t number() const { return number_; }
  bool seated() const { return seated_.load(std::memory_order_acquire); }
  void take(const Seat& seat) {
    rank_ = seat.rank;
    ranks_ = seat.ranks;
    id_ = seat.id;
    number_ = numberOf(id_);
    seated_.store(true, std::memory_order_release);
  }

  const Config& config() const { return config_; }
  bool onDevice() const { return config_.device >= 0; }

  // False in a child of fork(), where nothing of the communicator may be touched.
  bool isOfThisProcess() const { return forkGeneration_ == platform::forkGeneration(); }
  // The same as a status: kInvalidUsage there.
  Status mayTouch() const {
    if (isOfThisProcess()) [[likely]]
      return kOkStatus;
    return fail(Code::kInvalidUsage,
                "rank %d: this communicator belongs to the process that forked this one, which alone may use "
                "and end it; make a new one here",
                rank_);
  }

 private:
  static uint64_t numberOf(const bootstrap::UniqueId& id) {
    Hash hash;
    hash.add(id.bytes, sizeof id.bytes);
    return hash.value();
  }

  const Config config_;
  const uint32_t forkGeneration_ = platform::forkGeneration();
  int rank_;
  int ranks_;
  bootstrap::UniqueId id_{};
  uint64_t number_ = 0;
  std::atomic<bool> seated_{false};  // the four above do not change any more
};

}  // namespace stretto::communicator
