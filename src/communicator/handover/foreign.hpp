// A rank of a communicator that was handed over whole to NVIDIA's NCCL, because its GPUs are on several hosts
// or cannot reach each other's memory. Such a communicator keeps its handle, its control plane and its
// children; its operations, registrations and operators are NCCL's. The Communicator owns it, a Group
// brackets several; api/ asks it through call().
//
// Threads: as NCCL has it: one call at a time; abort() and error() from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "bootstrap/membership.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/handover/foreign_library.hpp"
#include "platform/cuda/device.hpp"

namespace stretto::communicator {

// What the user's ncclConfig_t said, to be said again.
struct ForeignConfig {
  ncclConfig_t values = NCCL_CONFIG_INITIALIZER;
  std::string network;  // netName's text
  std::string name;     // commName's text
};

// Stands for NCCL's own communicator among the arguments of call().
struct Theirs {};
inline constexpr Theirs kTheirs;

class Foreign {
 public:
  struct Seat {
    int rank = 0;
    int ranks = 1;
    int device = 0;
    double timeoutSeconds = 0;
    std::shared_ptr<const ForeignConfig> config;  // may be null
    std::string why;                              // it is handed over
  };

  // Collective over the membership: finds NCCL on every rank, gets a unique id of NCCL's from rank 0, makes
  // NCCL's communicator. Ranks that cannot go on say why, and then none does. Returns at the deadline or when
  // `abort` becomes non-zero, whatever NCCL does.
  static Result<std::unique_ptr<Foreign>> create(bootstrap::Membership& membership, const Seat& seat,
                                                 const std::atomic<uint32_t>& abort);
  ~Foreign() { abort(); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  const ForeignLibrary& library() const { return library_; }
  // Why it was handed over, and to which library.
  std::string words() const;

  // Enqueues them, together when there are several.
  Status run(std::span<const Operation> operations);
  // What NCCL says of the communicator's health.
  Status error() const;
  Status finalise();
  // Both end NCCL's communicator, once; the first waits for its work.
  Status destroy();
  void abort();

  // A function of NCCL's on this communicator, which kTheirs stands for, with the rank's device current.
  template <typename Function, typename... Arguments>
  Status call(const char* name, Function ForeignLibrary::*member, Arguments... arguments) const {
    const ncclComm_t theirs = theirs_.load();
    STRETTO_TRY(callable(name, theirs != nullptr, library_.*member != nullptr));
    const platform::cuda::ScopedDevice current(seat_.device);
    STRETTO_TRY(current.status());
    return said(name, (library_.*member)(orTheirs(arguments, theirs)...));
  }

 private:
  Foreign(const ForeignLibrary& library, const Seat& seat) : library_(library), seat_(seat) {}

  template <typename T>
  static auto orTheirs(T argument, ncclComm_t theirs) {
    if constexpr (std::is_same_v<T, Theirs>) {
      return theirs;
    } else {
      return argument;
    }
  }
  Status start(const ncclUniqueId& id, const std::atomic<uint32_t>& abort);
  Status callable(const char* name, bool alive, bool known) const;
  Status said(const char* name, ncclResult_t result) const;
  ncclResult_t issue(const Operation& operation, ncclComm_t theirs) const;
  ncclResult_t issuePairs(const Operation& operation, ncclComm_t theirs) const;

  const ForeignLibrary& library_;
  const Seat seat_;
  std::atomic<ncclComm_t> theirs_{nullptr};
};

// NCCL's group, open while it lives.
class ForeignGroup {
 public:
  explicit ForeignGroup(const ForeignLibrary& library);
  ~ForeignGroup();
  ForeignGroup(const ForeignGroup&) = delete;
  ForeignGroup& operator=(const ForeignGroup&) = delete;

  // Submits what was called inside; the first failure of `inside` and of the end itself.
  Status end(Status inside);
  // Forgets it instead; the predicted microseconds.
  Result<double> simulate();

 private:
  const ForeignLibrary& library_;
  ncclResult_t started_;
};

}  // namespace stretto::communicator
