// One rank of a communicator: its life, from its first word with the others to its end. The API layer holds
// it behind an ncclComm_t; nothing below this folder knows it. What else there is to a communicator is in its
// parts, each a class of its own (docs/decisions/0033-communicator-rooms.md says which).
//
// Invariant: an operation runs only in its turn, and only while the rank is ready; the parts let go of what
// operations use when no turn is under way any more.
//
// Threads: calls on one communicator are the caller's to serialise, as NCCL has it; abort(), revoke() and
// error() may come from any thread at any time. Operations run in the order of submission, on the calling
// thread when they can, else on the communicator's worker or the user's host stream.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/version.hpp"
#include "communicator/core/children.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/operators.hpp"
#include "communicator/core/peer_events.hpp"
#include "communicator/core/queue.hpp"
#include "communicator/core/resources.hpp"
#include "communicator/core/submission.hpp"
#include "communicator/core/windows.hpp"
#include "communicator/handover/handed_over.hpp"

namespace stretto::communicator {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int rank, int ranks, const bootstrap::UniqueId& id, Config config);
  // A child of `parent`, whose seat is not known yet.
  Communicator(std::shared_ptr<Communicator> parent, FindSeat findSeat, Config config);
  ~Communicator();

  // Meets the other ranks and connects; collective. Blocks; bounded by STRETTO_INIT_TIMEOUT.
  Status initialise();
  // Waits for what was submitted, then lets the others know that this rank leaves in peace. A non-blocking
  // communicator's worker does it: kInProgress.
  Status startFinalise();
  Status finalise();
  // Ends every wait of this rank; peers are told. Returns when nothing runs any more, at most a second later.
  void abort();
  void revoke();
  // Lets go of everything but the object itself, once nothing runs: windows, links, connection, worker.
  void release();

  // Ok when the user may call now: none may follow ncclCommFinalize.
  Status mayCall() const {
    const bool may = health_.isReady() && !queue_.takesNoCalls() && !resources_.isSuspended();
    return may ? kOkStatus : whyNotCall();
  }
  // kOk, kInProgress, or the first error, with its text.
  Status error(std::string* text) const;
  // On a GPU: makes what kernels said when they gave up this communicator's error. Any thread.
  Status poll();

  // Runs or enqueues operations that belong together. `stream` is null for "return when done". Arguments were
  // validated.
  Status start(std::vector<Operation> operations, std::shared_ptr<executors::host::Stream> stream);
  // The second half of that, for who chooses the thread: `turn` was taken of the queue when the user called,
  // and is used exactly once, on any thread.
  Status run(std::span<const Operation> operations, uint64_t turn);

  const Identity& self() const { return self_; }
  Health& health() { return health_; }
  Queue& queue() { return queue_; }
  Children& children() { return children_; }
  Submission& submission() { return submission_; }
  SharedWindows& windows() { return windows_; }
  Resources& resources() { return resources_; }
  Operators& operators() { return operators_; }
  // NCCL's half of a communicator that was handed over to it; null for all others.
  Foreign* foreign() const { return handedOver_.get(); }

 private:
  Communicator(int rank, int ranks, const bootstrap::UniqueId* id, Origin origin, Config config);

  Status whyNotCall() const;
  Status connectAll();

  Identity self_;
  Connections connections_;
  ControlPlane plane_;
  Submission submission_;
  Health health_;
  Queue queue_;
  HandedOver handedOver_;
  PeerEvents events_;
  Origin origin_;  // of a child, until it is made; for the thread that makes it
  Children children_;
  SharedWindows windows_;
  Resources resources_;
  Operators operators_;
  std::mutex lifeMutex_;  // held while the communicator is made, finalised, or lets go
};

// One-sided operations of one call, alike.
Status submitOneSided(Communicator& communicator, std::vector<Operation> operations,
                      const std::shared_ptr<executors::host::Stream>& stream);

// Validates, and runs or, inside a group, remembers: what every API entry point ends in.
Status submit(Communicator& communicator, const Operation& operation,
              const std::shared_ptr<executors::host::Stream>& stream);

}  // namespace stretto::communicator
