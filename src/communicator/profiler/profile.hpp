// What a communicator tells a profiler plugin, and when: NCCL's events in NCCL's order. Called from submit,
// group and life at their own places; every call is behind a look at watch::anybody() and then at on(), so
// that it costs a load and a branch while nobody listens. See docs/decisions/0008-profiler-host.md.
//
// One call on a communicator, as a plugin hears it:
//
//   GroupApi starts, its state says that the group is open;   CollApi starts and stops;   GroupApi's state
//   says that the group closes;   KernelLaunch starts and stops;   Group starts;   Coll starts;   KernelCh
//   starts and stops (in host memory: the work itself, on the thread that does it);   Coll, Group and
//   GroupApi stop.
//
// On a GPU nothing is done when Coll stops, as in NCCL: the operation is enqueued. KernelCh follows when the
// kernel has ended, by its own stamps, one for each of its first blocks (stamps.hpp); those of a graph's
// replays have no parent, except for plugins of ours, which are told which replay of which call it is.
//
// Of each function's operations every n-th is told, those whose number modulo STRETTO_PROFILE_EVERY is 0. A
// call takes its number whether or not anybody hears of it; one that is not told of has no other part in
// this. See docs/decisions/0013-profiler-sampling.md.
//
// `at` is when an event is told to have happened, by platform::ticks() (observe::profiler::StampedTable):
// callbacks that are made at once one after the other share one reading of the clock, and those around the
// work have the two that the flight recorder takes anyway. 0: when the callback is made.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/watch.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/profiler/far_steps.hpp"
#include "communicator/profiler/stamps.hpp"
#include "communicator/profiler/transfer_steps.hpp"
#include "executors/host/stream.hpp"
#include "executors/host/transfers.hpp"
#include "observe/profiler_host.hpp"
#include "planner/plan.hpp"

namespace stretto::communicator {

// The GroupApi event of one group of calls: an explicit group's, or the one that every call outside of a
// group is. Belongs to one thread. Keeps the plugin loaded while its event is open.
class ProfiledGroup {
 public:
  using Session = observe::profiler::Session;

  ProfiledGroup() = default;
  ~ProfiledGroup() { stop(); }
  ProfiledGroup(const ProfiledGroup&) = delete;
  ProfiledGroup& operator=(const ProfiledGroup&) = delete;

  struct Opening {
    uint32_t mask;
    int depth;
    bool captured;
    uint64_t at;
  };
  // Before each call; starts the event at the first one that is profiled, and then takes the session over.
  void* enter(std::shared_ptr<Session>& session, const Opening& opening);
  // The group is about to run.
  void closes(uint64_t at = 0) const {
    if (session_ != nullptr) [[unlikely]]
      sayClosing(at);
  }
  void stop() {
    if (session_ != nullptr) [[unlikely]]
      end();
  }

 private:
  void sayClosing(uint64_t at) const;
  void end();

  std::shared_ptr<Session> session_;  // null: nothing was started
  void* event_ = nullptr;
};

// One communicator's side. Operations run one at a time, so what belongs to the running one is kept here.
class Profile final : public executors::host::StreamWatch {
 public:
  using Session = observe::profiler::Session;

  // Asks the plugin, if there is one. `onDevice`: operations are enqueued, not run, by the calling thread.
  void open(const observe::profiler::SessionIdentity& identity, bool onDevice);
  // No operation runs any more, and no worker. One may still be called, by a thread that has not seen the
  // communicator end: it keeps the session that it has found.
  void close();
  // Whether a plugin has taken this communicator. To be asked by the operation whose turn it is.
  bool on() const { return session_ != nullptr; }

  // What a call is among those of its kind: collectives are counted by function, as on every other rank,
  // messages by peer and direction, as at their other end. What moves nothing has no number, and what is
  // captured none either: it is always told of.
  struct Counted {
    bool reported = false;  // if anybody listens
    bool captured = false;
    uint64_t number = 0;
  };
  // To be asked once for each call, by the caller.
  Counted count(const Operation& operation) {
    if (!counts_) return {};
    const bool captured = onDevice_ && isCaptured(operation);
    if (captured || isUncounted(operation)) return {captured || every_ == 1, captured};
    return seriesOf(operation).take(every_);
  }
  // These calls were the last ones, and will not be run: the next ones get their numbers.
  void takeBack(std::span<const Operation> operations);

  // The call itself: its GroupApi event, if that is new, and its own. Latches the mask into the operation.
  // Returns when that was told to have happened; 0 if nothing was told.
  uint64_t call(Operation& operation, Counted counted, ProfiledGroup& group, int depth) const;

  // Whether any of these calls was told of.
  static bool anyReported(std::span<const Operation> operations) {
    for (const Operation& operation : operations) {
      if (operation.profiled.mask != 0) return true;
    }
    return false;
  }

  // While it lives, operations are being handed over to whoever runs them: the KernelLaunch event.
  class HandOver {
   public:
    HandOver(const Profile& profile, std::span<Operation> operations) {
      if (watch::anybody()) [[unlikely]]
        begin(profile, operations);
    }
    ~HandOver() {
      if (event_ != nullptr) [[unlikely]]
        session_->stop(event_, 0);
    }
    HandOver(const HandOver&) = delete;
    HandOver& operator=(const HandOver&) = delete;

   private:
    void begin(const Profile& profile, std::span<Operation> operations);

    std::shared_ptr<Session> session_;
    void* event_ = nullptr;
  };

  // Around what one turn runs or enqueues, if any of it was told of: the Group event.
  void beginTurn(std::span<const Operation> operations);
  void endTurn();

  // In host memory, around the work.
  void beginCollective(const Operation& operation, const planner::Plan& plan, uint64_t at);
  // Null if nobody wants to hear of the chunks that the collective sends to other hosts. Until endWork().
  links::net::ChunkWatch* beginChunks(const Operation& operation, const FarSteps::Ways& ways);
  // Null if nobody wants to hear of transfers' chunks. `transfers` belong to the sends and receives among
  // `operations`, in the same order.
  executors::host::TransferWatch* beginTransfers(std::span<const Operation> operations,
                                                 std::span<const executors::host::HostTransfer> transfers,
                                                 size_t chunkBytes);
  // The collective, or the transfers, that began; nothing if none did.
  void endWork(uint64_t at);

  // On a GPU, after each was enqueued to run (not captured): told to the plugin at the end of the turn.
  void enqueued(const Operation& operation, const planner::Plan& plan,
                const executors::cuda::Engine::Launched& launched);
  // The same for one that was captured.
  void captured(const Operation& operation, const executors::cuda::Engine::Launched& launched);
  // Whether the kernels' own spans are wanted, and nobody collects them yet.
  bool wantsKernels(const Operation& operation) const {
    return (operation.profiled.mask & observe::profiler::bit(observe::profiler::Type::kKernelCh)) != 0 &&
           follower_ == nullptr && !withoutKernels_;
  }
  // Collects them from now on, until letGoOfKernels(): to be called before what `take` needs goes.
  Status followKernels(StampFollower::Take take);
  // They cannot be had: they are wanted no more.
  void doWithoutKernels() { withoutKernels_ = true; }
  void letGoOfKernels() { follower_.reset(); }

  // The worker's rests, as ProxyCtrl events.
  bool wanted() const override;
  void rests() override;
  void wakes() override;
  void takes() override;

 private:
  // Calls of one kind.
  struct Series {
    uint64_t next = 0;  // the number of the next one
    uint64_t due = 0;   // that of the next one to be told of

    Counted take(uint64_t every) {
      const uint64_t number = next++;
      if (number != due) return {false, false, number};
      due += every;
      return {true, false, number};
    }
    void giveBack(uint64_t every) {
      if (--next + every == due) due = next;
    }
  };
  struct Enqueued {
    Operation operation;
    planner::Plan plan;
    executors::cuda::Engine::Launched launched;
  };
  static bool isCaptured(const Operation& operation);
  static bool isUncounted(const Operation& operation) {
    return operation.isOneSided() || (operation.count == 0 && !operation.isTransfer());
  }
  Series& seriesOf(const Operation& operation) {
    if (!operation.isTransfer()) return collectives_[static_cast<size_t>(operation.collective)];
    return messages_[2 * static_cast<size_t>(operation.root) + (operation.collective == Collective::kSend)];
  }
  void startGroup(uint64_t at);
  void* startCollective(const Operation& operation, const planner::Plan& plan, uint8_t channels,
                        uint64_t at) const;
  void* startP2p(const Operation& operation, uint8_t channels, uint64_t at) const;
  std::shared_ptr<Session> found() const;
  static void* startLaunch(const Session& session, const Operation& operation, uint64_t at);
  void reportEnqueued(uint64_t at);
  void reportKernel(const StampMatcher::Matched& matched) const;
  void expectKernel(const Enqueued& enqueued, void* event) const;

  mutable std::mutex mutex_;          // of session_, where it is not this operation's turn
  std::shared_ptr<Session> session_;  // changed when no operation runs
  bool onDevice_ = false;
  // By the caller of operations. Set once, before the first one.
  bool counts_ = false;
  uint64_t every_ = 1;
  std::array<Series, kCollectives> collectives_{};
  std::vector<Series> messages_;  // two for each peer
  // Of the turn that runs.
  void* group_ = nullptr;
  void* launch_ = nullptr;
  uint64_t ended_ = 0;  // when the last work did
  bool groupWanted_ = false;
  void* collective_ = nullptr;
  void* channel_ = nullptr;
  TransferSteps transferSteps_;
  FarSteps farSteps_;
  std::vector<Enqueued> enqueued_;
  std::unique_ptr<StampFollower> follower_;
  bool withoutKernels_ = false;
  void* resting_ = nullptr;  // the worker's
};

}  // namespace stretto::communicator
