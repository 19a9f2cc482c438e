// One rank of a communicator: its life (initialise, split, shrink, finalise, abort), and the one way that
// every operation takes (submit.cpp). The API layer holds it behind an ncclComm_t; nothing below this folder
// knows it.
//
// Threads: calls on one communicator are the caller's to serialise, as NCCL has it; abort(), revoke(),
// error() and peerLost() may come from any thread at any time. Operations run in the order of submission,
// on the calling thread when they can, else on the communicator's worker or the user's host stream.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/version.hpp"
#include "bootstrap/membership.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/one_sided.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/core/prepared.hpp"
#include "communicator/core/turns.hpp"
#include "communicator/device/launch_log.hpp"
#include "communicator/device/side.hpp"
#include "communicator/device/together.hpp"
#include "communicator/profiler/profile.hpp"
#include "executors/host/stream.hpp"
#include "executors/host/transfers.hpp"
#include "observe/flight.hpp"
#include "planner/choose.hpp"
#include "planner/table.hpp"
#include "platform/fork.hpp"
#include "primitives/host/host.hpp"

namespace stretto::communicator {

class Foreign;
struct ForeignConfig;

// What ncclConfig_t says that means something here.
struct Config {
  bool blocking = true;
  std::string name;
  int device = kHostDevice;  // the GPU that the rank is on
  int mostBlocks = 0;        // that an operation may take there; 0: as many as STRETTO_LANES says
  // All of what the user wrote, for a communicator that is handed over; may be null.
  std::shared_ptr<const ForeignConfig> given = nullptr;
};

enum class State : uint8_t { kInitialising, kReady, kFinalised, kFailed, kRevoked, kAborted };

// Times of initialisation by phase, and what has been done since.
struct Counters {
  uint64_t initNanoseconds = 0;
  uint64_t bootstrapNanoseconds = 0;
  uint64_t connectNanoseconds = 0;
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t allocations = 0;
};

// A user's scalar for PreMulSum.
struct PreMultiplier {
  DataType type = DataType::kFloat32;
  alignas(8) uint8_t scalar[8] = {};
  const void* place = nullptr;  // where to read it when an operation runs; null: it was copied
  bool alive = false;
};

// The place of one rank in a communicator that is to be made.
struct Seat {
  int rank = 0;
  int ranks = 1;
  bootstrap::UniqueId id;
  std::vector<int> members;  // of a child: the parent's ranks, by rank of the child
  uint64_t seating = 0;      // the exchange that gave it, of a split or a growth
  bool opened = false;       // this process has opened the session of `id` for it
};
// How a child finds its seat, as the first step of its making; may wait for the parent's ranks, until the
// check is not ok.
using FindSeat = std::function<Result<Seat>(const bootstrap::StopCheck&)>;

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int rank, int ranks, const bootstrap::UniqueId& id, Config config);
  // A child of `parent`, whose seat is not known yet.
  Communicator(std::shared_ptr<Communicator> parent, FindSeat findSeat, Config config);
  ~Communicator();

  // Known from the start, but for a child: there once it is seated().
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool seated() const { return seated_.load(std::memory_order_acquire); }
  const Config& config() const { return config_; }
  bool onDevice() const { return config_.device >= 0; }
  // NCCL's half of a communicator that was handed over to it; null for all others.
  Foreign* foreign() const { return foreignNow_.load(); }
  // The same number on all ranks of this communicator, and on no other.
  uint64_t identity() const { return identity_; }
  State state() const { return state_.load(std::memory_order_acquire); }

  // Meets the other ranks and connects; collective. Blocks; bounded by STRETTO_INIT_TIMEOUT.
  Status initialise();
  // Ok when operations may run; else why not.
  Status usable() const;
  // The same for a call that the user makes now: none may follow ncclCommFinalize.
  Status mayCall() const {
    const bool may = isReady() && !finalising_.load(std::memory_order_acquire) &&
                     !suspended_.load(std::memory_order_relaxed);
    return may ? kOkStatus : whyNotCall();
  }
  // In a child of fork() nothing of this communicator may be touched: kInvalidUsage.
  Status mayTouch() const;
  // Adds what was refused to the words of a loss; gives `status` back.
  Status refuse(const Operation& operation, Status status);
  // kOk, kInProgress, or the first error, with its text.
  Status error(std::string* text) const;
  // On a GPU: makes what kernels said when they gave up this communicator's error. Any thread.
  Status poll();

  // Runs or enqueues operations that belong together: transfers first, then collectives in order. `stream` is
  // null for "return when done". Arguments were validated.
  Status start(std::vector<Operation> operations, std::shared_ptr<executors::host::Stream> stream);
  // The same in two halves, for a group that chooses the thread: the turn is taken when the user calls, and
  // used exactly once, on any thread.
  uint64_t takeTurn() { return turns_.take(); }
  Status run(std::span<const Operation> operations, uint64_t turn);
  // The same for one operation at once on this thread: the commonest case, without an allocation.
  Status startNow(const Operation& operation) { return run({&operation, 1}, takeTurn()); }
  // What it would be planned as now; does not touch the cache. The same in words (planner::explainJson).
  Result<planner::Plan> predict(const Operation& operation);
  Result<std::string> explain(const planner::Request& request);
  // planner::Forced::force, in its turn.
  Status force(const char* collective, const char* algorithm, const char* protocol, size_t chunkBytes,
               int blocks);

  // Children. What split() returns has the next turn of this communicator, and must be called once, on any
  // thread; a seat of no ranks is that of a rank without colour. `leave` (sorted) stay out of what is shrunk.
  FindSeat split(int colour, int key);
  // The seat in a communicator of `ranks`, of which the first are this one's. Collective over this one;
  // exactly one rank passes the new one's id.
  FindSeat grow(int ranks, const bootstrap::UniqueId* id);
  Result<FindSeat> shrink(const std::vector<int>& leave);

  // Waits for what was submitted, then lets the others know that this rank leaves in peace. A non-blocking
  // communicator's worker does it: kInProgress.
  Status finalise();
  Status startFinalise();
  // Ends every wait of this rank; peers are told. Returns when nothing runs any more, at most a second later.
  void abort();
  void revoke();

  // ncclCommWindowRegister: collective. `handle` is the user's name for it; `refused` is what this rank tells
  // all others instead of a buffer. Ranks of one host only.
  bool sharesWindows() const { return host_ != nullptr && !isSpread() && (device_ == nullptr || ranks_ > 1); }
  // Some ranks are on other hosts. Of ranks in host memory host_ is then a SpreadHost, those on GPUs have a
  // proxy.
  bool isSpread() const { return isSpread_.load(std::memory_order_relaxed); }
  Status registerWindow(const void* handle, void* buffer, size_t bytes, Status refused);
  void deregisterWindow(const void* handle);
  // Of a peer's buffer there, in this rank's addresses.
  Status windowAddress(const void* handle, int peer, size_t offset, void** out);
  // Validated; one rank's operations of one call.
  Status checkOneSided(const Operation& operation);

  // Gives back what can be had again, once nothing runs; no call may come until resume().
  Status suspend();
  Status resume();
  bool isSuspended() const { return suspended_; }
  // What suspend() would give back; when nothing runs.
  size_t suspendableBytes();

  // The index of the new operator. `immediate`: the scalar is copied now, else read at each submission.
  int addPreMultiplier(DataType type, const void* scalar, bool immediate);
  Status removePreMultiplier(int index);
  std::optional<PreMultiplier> preMultiplier(int index) const;

  // What a profiler plugin hears of this communicator.
  Profile& profile() { return profile_; }

  Counters counters() const;
  WaitCounters waitCounters();
  size_t windowBytes();
  // The worker thread, made at first need. Whoever gives it work keeps it meanwhile: an abort on another
  // thread may let go of the communicator in any moment.
  std::shared_ptr<executors::host::Stream> worker();
  // Lets go of everything but the object itself, once nothing runs: windows, links, connection, worker.
  void release();

 private:
  class Turn;
  class Hold;
  class TurnTicket;

  Status whyNotCall() const;

  Status initialiseSteps();
  void logReady() const;
  Status connected(const char* what) const;
  static uint64_t identityOf(const bootstrap::UniqueId& id);
  Status takeSeat();
  Result<Seat> splitSeat(uint64_t turn, int colour, int key, const bootstrap::StopCheck& stop);
  Result<Seat> growSeat(uint64_t turn, int ranks, const bootstrap::UniqueId* id,
                        const bootstrap::StopCheck& stop);
  using MakeWish = std::function<std::vector<uint8_t>()>;
  Result<bootstrap::Membership::Parts> exchangeWishes(Turn& turn, const char* what, const MakeWish& wish,
                                                      const bootstrap::StopCheck& stop);
  Status join();
  Status mayWait() const;
  Status parentHolds() const;
  Status reasonOfParent(Status status) const;
  Status lossAmong(const std::vector<int>& members) const;
  using FindInTurn = std::function<Result<Seat>(Communicator&, uint64_t turn, const bootstrap::StopCheck&)>;
  FindSeat seatByExchange(FindInTurn find);
  Status givenUpAmong(const std::vector<int>& members, uint64_t seating, uint64_t child) const;
  void giveUpSeating(uint64_t seating);
  void giveUpChild(uint64_t child);
  Status makeHost();
  Status makeDevice();
  Status handOver();
  Status runForeign(std::span<const Operation> operations);
  Status pollForeign();
  Status openFlight();
  Status openProfile();
  Status runTurn(std::span<const Operation> operations);
  Status runProfiled(std::span<const Operation> operations);
  Status runCollective(const Operation& operation);
  uint64_t enter(const Operation& operation, const Prepared& prepared);
  uint64_t placedTag(const Operation& operation, const Prepared& prepared, uint64_t& place);
  bool isReady() const { return forkGeneration_ == platform::forkGeneration() && state() == State::kReady; }
  Status runTogether(std::span<const Operation> operations);
  uint64_t layOut(std::span<const Operation> operations);
  bool joins(const Operation& operation, const Together::Placed& placed);
  void beginWatched(const Operation& operation, const planner::Plan& plan, uint64_t ticks);
  void endWatched(uint64_t ticks);
  Status refusePlan(const Operation& operation, Status status);
  Status runTransfers(std::span<const Operation> operations);
  Status runOneSided(std::span<const Operation> operations, bool waits);
  Status mayPutTo(int peer) const;
  Status launchOneSided(const Operation& operation);
  // The same on a GPU (device/submit.cpp).
  Status mayLaunch(std::span<const Operation> operations);
  Status launchOnDevice(const Operation& operation, const planner::Plan& plan, const Arguments& arguments,
                        uint64_t tag);
  Status launchTogether();
  void reportLaunched(const Operation& operation, const planner::Plan& plan,
                      const executors::cuda::Engine::Launched& launched);
  std::pair<uint64_t, uint64_t> placesOf(const Operation& operation, const planner::Plan& plan) const;
  Status reachWindows(int peer);  // that an operation needs, or DeviceSide::kEverybody
  void followKernels();
  Status launchTransfers(const Operation& first, std::span<const Operation> operations);
  Status concludeLaunch(const Operation& operation, LaunchLog::Entry entry, Status status);
  int reapLaunches(bool all);
  Status lookAtKernels();
  int absentee(uint64_t sequence) const;
  uint64_t gone() const;
  bool noteAbsence(int gone);
  bool watch();
  bool noteDisagreement();
  void askOtherHosts();
  bool noteBrokenLink();
  void warnOfLateLaunch();
  std::string lateCallInWords(const LateLaunch::Found& late);
  bool failDisagreeing(int peer, const std::string& words);
  bool reportWaits(uint32_t launch, WaitingLaunch& what);
  void nudgePeers();
  void notifyPeers(const char* what);
  bool finishLaunches();
  Status verifyReads() const;
  bool noteReport();
  std::string wordsOf(const executors::cuda::Report& report) const;
  void letGoOfDevice();
  void recordCall(const CallRecord& kind, const CallInstance& call);
  void waits(WaitStage stage, int peer);
  Status conclude(const Operation& operation, Status status);
  Status explainFailure(const Operation& operation, Status status);
  void peerLost(const bootstrap::PeerLoss& loss);
  std::string disagreementBehind(int lost) const;
  void nudged();
  void heard(int rank, std::span<const uint8_t> message);
  void show(uint64_t asks);
  void showNow(uint64_t asks);
  std::vector<uint8_t> viewOf(const WindowHeader& header, uint64_t asks) const;
  void answer();
  void markBroken(Status why, State state, const std::string& text);
  void raiseAbort(Status why);
  void stopOperations(uint32_t word);
  std::string nameOperation(const std::string& words);
  std::string farewell(const char* what) const;
  planner::Request requestFor(const Operation& operation) const;
  Status prepare(const Operation& operation, Prepared*& prepared);
  Status prepareFirst(const Operation& operation, Signature signature, Prepared*& prepared);
  Prepared preparedAs(const Operation& operation, const planner::Plan& plan) const;
  bool advance(State to);
  void endWorker();
  void completeTurn(uint64_t number) {
    if (turns_.complete(number)) [[unlikely]]
      releaseIfDue();
  }
  void releaseIfDue();
  const void* scaledInput(const Operation& operation);

  // Of a child, until it is made.
  struct Origin {
    std::shared_ptr<Communicator> parent;
    FindSeat findSeat;
    Seat seat;  // once it is found
  };

  int rank_;
  int ranks_;
  bootstrap::UniqueId id_;
  uint64_t identity_;
  std::atomic<bool> seated_;  // the four above do not change any more
  Origin origin_;             // for the thread that makes the communicator
  const uint32_t forkGeneration_;
  const Config config_;

  std::atomic<State> state_{State::kInitialising};
  std::atomic<uint32_t> abort_{0};  // the same word as in the window's header, from before there is one
  mutable std::mutex errorMutex_;
  Code errorCode_ = Code::kOk;
  int16_t errorPeer_ = -1;
  std::string errorText_;
  bool errorNamesOperation_ = false;
  std::map<int, std::string> lost_;  // ranks, and what befell them; by errorMutex_

  Connections connections_;
  std::atomic<bool> isSpread_{false};  // of connections_, for other threads
  std::atomic<WindowHeader*> header_{
      nullptr};  // of the own window, for other threads; null before there is one
  BufferImporter importer_;
  std::unique_ptr<Host> host_;
  std::mutex deviceMutex_;  // held while device_ is set or let go, and by poll()
  std::unique_ptr<DeviceSide> device_;
  std::atomic<DeviceSide*> abortable_{nullptr};  // device_, for whoever ends its waits
  std::atomic<bool> nudged_{false};              // a peer waits for this rank's device window, or has left
  std::unique_ptr<Foreign> foreign_;             // stays to the end, for calls on their way out
  std::atomic<Foreign*> foreignNow_{nullptr};
  std::mutex launchMutex_;
  LaunchLog launches_;                     // that were not seen to be done, by launchMutex_
  std::atomic<bool> somebodyLeft_{false};  // so that somebody must look after launches
  std::atomic<bool> readsPeers_{false};    // kernels were launched that read peers' registered windows
  uint64_t lookedTicks_ = 0;               // when that was last looked at
  uint64_t askedTicks_ = 0;                // when ranks of other hosts were last asked how they are
  planner::Machine machine_;
  planner::Table table_;
  planner::Forced forced_;
  PreparedCache prepared_;
  observe::FlightRecorder flight_;
  uint64_t recorded_ = 0;  // the running operation's place in it
  bool watched_ = false;   // whether somebody was told that it began

  Profile profile_;  // outlives the worker, which it watches

  uint64_t sequence_ = 0;                        // collectives so far
  uint64_t history_ = 0;                         // their tags, mixed
  uint64_t children_ = 0;                        // split so far
  std::atomic<uint64_t> seatings_{0};            // splits and growths called so far
  std::mutex shrunkMutex_;                       // held while shrunk_ is used
  std::map<std::vector<int>, uint64_t> shrunk_;  // so far, by the ranks that stayed
  uint64_t childrenGivenUp_ = 0;                 // so far, by membershipMutex_
  Shown shown_;                                  // to ranks of other hosts, by membershipMutex_
  Counters counters_;
  std::vector<std::byte> scaled_;  // PreMulSum's input
  std::vector<executors::host::HostTransfer> transfers_;
  OneSided oneSided_;         // of ranks in host memory
  Together together_;         // of the group that runs
  uint64_t groupLayout_ = 0;  // of its channels, until the first of its calls has it in its tag, or it ends
  mutable std::mutex multipliersMutex_;  // held while preMultipliers_ is used
  std::vector<PreMultiplier> preMultipliers_;

  Turns turns_;
  std::atomic<bool> finalising_{false};
  std::atomic<bool> suspended_{false};
  std::atomic<bool> releaseDue_{false};  // nobody will use the communicator any more
  std::mutex lifeMutex_;                 // held while the communicator is made, finalised, or lets go
  std::mutex workerMutex_;
  std::shared_ptr<executors::host::Stream> worker_;
  mutable std::mutex membershipMutex_;                 // held while membership_ is set, and by abort()
  std::unique_ptr<bootstrap::Membership> membership_;  // last: its callback uses the members above
};

// What the planner would be told about `ranks` processes of this host, without making a communicator.
Result<planner::Machine> machineOfThisHost(int ranks);

// One-sided operations of one call, alike.
Status submitOneSided(Communicator& communicator, std::vector<Operation> operations,
                      const std::shared_ptr<executors::host::Stream>& stream);

// Validates, and runs or, inside a group, remembers: what every API entry point ends in.
Status submit(Communicator& communicator, const Operation& operation,
              const std::shared_ptr<executors::host::Stream>& stream);

}  // namespace stretto::communicator
