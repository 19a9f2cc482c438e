#include "communicator/handover/foreign.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "communicator/core/gather.hpp"
#include "platform/own_thread.hpp"

namespace stretto::communicator {
namespace {

// What each rank tells the others before anything of NCCL's is made.
struct Offer {
  uint8_t code = 0;
  uint8_t reserved[3] = {};
  int32_t version = 0;
  ncclUniqueId id{};  // rank 0's
  char text[500] = {};
};

// Made on a thread of its own, which may outlive the wait for it.
struct Attempt {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool abandoned = false;
  ncclResult_t result = ncclSuccess;
  ncclComm_t made = nullptr;
  std::string words;
};

Code codeOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return Code::kOk;
    case ncclInProgress:
      return Code::kInProgress;
    case ncclInvalidArgument:
      return Code::kInvalidArgument;
    case ncclInvalidUsage:
      return Code::kInvalidUsage;
    case ncclInternalError:
      return Code::kInternal;
    case ncclRemoteError:
      return Code::kRemote;
    default:
      return Code::kSystem;
  }
}

// "unhandled system error: socket ... refused", of the calling thread's last failure.
std::string wordsOf(const ForeignLibrary& library, ncclResult_t result) {
  const char* const meaning = library.ncclGetErrorString(result);
  const char* const last = library.ncclGetLastError(nullptr);
  std::string words = meaning == nullptr ? "unknown result" : meaning;
  if (last != nullptr && *last != 0) words += std::string(": ") + last;
  return words;
}

Status fillOffer(int rank, Offer& offer) {
  const auto library = foreignLibrary();
  if (!library.ok()) return library.status();
  offer.version = library.value()->version;
  if (rank != 0) return kOkStatus;
  const ncclResult_t result = library.value()->ncclGetUniqueId(&offer.id);
  if (result == ncclSuccess) return kOkStatus;
  return fail(codeOf(result), "ncclGetUniqueId of %s: %s", library.value()->path.c_str(),
              wordsOf(*library.value(), result).c_str());
}

Status agree(const PerRank<Offer>& offers, const Foreign::Seat& seat) {
  const Offer own = offers[static_cast<size_t>(seat.rank)];
  if (own.code != 0) {
    return fail(static_cast<Code>(own.code), "rank %d: %s, and %s", seat.rank, seat.why.c_str(), own.text);
  }
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer theirs = offers[rank];
    const int peer = static_cast<int>(rank);
    if (theirs.code != 0) {
      return failAbout(peer, static_cast<Code>(theirs.code), "%s, and rank %d cannot go on: %.*s",
                       seat.why.c_str(), peer, static_cast<int>(sizeof theirs.text) - 1, theirs.text);
    }
    if (theirs.version != own.version) {
      return failAbout(
          peer, Code::kInvalidUsage,
          "%s, and its ranks found different releases of NCCL: %d on rank %d, %d on rank %d. Set "
          "STRETTO_REAL_NCCL to the same release everywhere",
          seat.why.c_str(), own.version, seat.rank, theirs.version, peer);
    }
  }
  return kOkStatus;
}

// On its own thread.
void make(const ForeignLibrary& library, const Foreign::Seat& seat, const ncclUniqueId& id,
          Attempt& attempt) {
  const Status current = platform::cuda::stayOn(seat.device);
  ForeignConfig config = seat.config == nullptr ? ForeignConfig{} : *seat.config;
  // Who asked for a communicator that does not block waits for none of this: it is made on a worker.
  config.values.blocking = 1;
  config.values.netName = config.network.empty() ? nullptr : config.network.c_str();
  config.values.commName = config.name.empty() ? nullptr : config.name.c_str();
  ncclComm_t made = nullptr;
  const ncclResult_t result =
      current.ok() ? library.ncclCommInitRankConfig(&made, seat.ranks, id, seat.rank, &config.values)
                   : ncclUnhandledCudaError;
  std::lock_guard lock(attempt.mutex);
  if (result != ncclSuccess) {
    attempt.words = current.ok() ? wordsOf(library, result) : lastError();
  } else if (attempt.abandoned) {
    (void)library.ncclCommAbort(made);
  }
  attempt.result = result;
  attempt.made = made;
  attempt.done = true;
  attempt.changed.notify_all();
}

}  // namespace

Result<std::unique_ptr<Foreign>> Foreign::create(bootstrap::Membership& membership, const Seat& seat,
                                                 const std::atomic<uint32_t>& abort) {
  Offer mine;
  if (const Status status = fillOffer(seat.rank, mine); !status.ok()) {
    mine.code = static_cast<uint8_t>(status.code);
    snprintf(mine.text, sizeof mine.text, "%s", lastError().c_str());
  }
  const auto offers = gather(membership, "hand-over", mine, seat.timeoutSeconds);
  if (!offers.ok()) return offers.status();
  STRETTO_TRY(agree(offers.value(), seat));
  std::unique_ptr<Foreign> foreign(new Foreign(*foreignLibraryIfLoaded(), seat));
  STRETTO_TRY(foreign->start(offers.value()[0].id, abort));
  return foreign;
}

Status Foreign::start(const ncclUniqueId& id, const std::atomic<uint32_t>& abort) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seat_.timeoutSeconds);
  auto attempt = std::make_shared<Attempt>();
  const bool begun = platform::startAlone(
      [library = &library_, seat = seat_, id, attempt] { make(*library, seat, id, *attempt); });
  if (!begun)
    return fail(Code::kSystem, "there is no thread here to connect NCCL on: %s", platform::kNoThread);
  std::unique_lock lock(attempt->mutex);
  while (!attempt->done && abort.load() == 0 && Clock::now() < deadline) {
    attempt->changed.wait_for(lock, std::chrono::milliseconds(20));
  }
  if (!attempt->done) {
    attempt->abandoned = true;
    if (abort.load() != 0) {
      return fail(Code::kAborted, "rank %d: aborted while NCCL was connecting the ranks", seat_.rank);
    }
    return fail(Code::kTimeout,
                "rank %d: NCCL %s has not connected the %d ranks within %g s (STRETTO_INIT_TIMEOUT); "
                "NCCL_DEBUG=INFO shows what it waits for",
                seat_.rank, library_.versionText().c_str(), seat_.ranks, seat_.timeoutSeconds);
  }
  if (attempt->result != ncclSuccess) {
    return fail(codeOf(attempt->result), "rank %d: %s; there ncclCommInitRankConfig failed: %s", seat_.rank,
                words().c_str(), attempt->words.c_str());
  }
  theirs_.store(attempt->made);
  return kOkStatus;
}

std::string Foreign::words() const {
  return seat_.why + ", so it is handed over to NCCL " + library_.versionText() + " (" + library_.path + ")";
}

Status Foreign::callable(const char* name, bool alive, bool known) const {
  if (!alive) {
    return fail(Code::kAborted, "rank %d: %s: NCCL's communicator was ended", seat_.rank, name);
  }
  if (known) return kOkStatus;
  return fail(Code::kInvalidUsage, "rank %d: NCCL %s (%s), which serves this communicator, has no %s",
              seat_.rank, library_.versionText().c_str(), library_.path.c_str(), name);
}

Status Foreign::said(const char* name, ncclResult_t result) const {
  if (result == ncclSuccess) [[likely]] {
    return kOkStatus;
  }
  if (result == ncclInProgress) return Status{Code::kInProgress};
  return fail(codeOf(result), "rank %d: %s of NCCL %s (%s): %s", seat_.rank, name,
              library_.versionText().c_str(), library_.path.c_str(), wordsOf(library_, result).c_str());
}

// ---- Operations -------------------------------------------------------------------------------------------

Status Foreign::run(std::span<const Operation> operations) {
  const ncclComm_t theirs = theirs_.load();
  STRETTO_TRY(callable("operations", theirs != nullptr, true));
  if (operations.size() == 1) {
    return said(nameOf(operations[0].collective), issue(operations[0], theirs));
  }
  ForeignGroup group(library_);
  Status status = kOkStatus;
  for (const Operation& operation : operations) {
    status = said(nameOf(operation.collective), issue(operation, theirs));
    if (!status.ok() && status.code != Code::kInProgress) break;
  }
  return group.end(status);
}

ncclResult_t Foreign::issue(const Operation& operation, ncclComm_t theirs) const {
  const auto type = static_cast<ncclDataType_t>(operation.type);
  const auto op = static_cast<ncclRedOp_t>(operation.givenOp);
  const auto stream = static_cast<cudaStream_t>(operation.stream);
  const auto& [send, receive, count, root] =
      std::tie(operation.send, operation.receive, operation.count, operation.root);
  switch (operation.collective) {
    case Collective::kAllReduce:
      return library_.ncclAllReduce(send, receive, count, type, op, theirs, stream);
    case Collective::kReduce:
      return library_.ncclReduce(send, receive, count, type, op, root, theirs, stream);
    case Collective::kReduceScatter:
      return library_.ncclReduceScatter(send, receive, count, type, op, theirs, stream);
    case Collective::kAllGather:
      return library_.ncclAllGather(send, receive, count, type, theirs, stream);
    case Collective::kBroadcast:
      return library_.ncclBroadcast(send, receive, count, type, root, theirs, stream);
    case Collective::kSend:
      return library_.ncclSend(send, count, type, root, theirs, stream);
    case Collective::kReceive:
      return library_.ncclRecv(receive, count, type, root, theirs, stream);
    case Collective::kAllToAll:
      if (library_.ncclAlltoAll == nullptr) break;
      return library_.ncclAlltoAll(send, receive, count, type, theirs, stream);
    case Collective::kGather:
      if (library_.ncclGather == nullptr) break;
      return library_.ncclGather(send, receive, count, type, root, theirs, stream);
    case Collective::kScatter:
      if (library_.ncclScatter == nullptr) break;
      return library_.ncclScatter(send, receive, count, type, root, theirs, stream);
    case Collective::kAllReduceAddRmsNorm:
    case Collective::kPut:
    case Collective::kSignal:
    case Collective::kWaitSignal:
      return ncclInvalidUsage;  // submitNorm() and submitOneSided() hand none over
  }
  return issuePairs(operation, theirs);
}

// Releases before 2.28 have no all-to-all, gather and scatter, but what they are made of.
ncclResult_t Foreign::issuePairs(const Operation& operation, ncclComm_t theirs) const {
  const auto type = static_cast<ncclDataType_t>(operation.type);
  const auto stream = static_cast<cudaStream_t>(operation.stream);
  const bool isRoot = seat_.rank == operation.root;
  const bool all = operation.collective == Collective::kAllToAll;
  const bool spreads = all || (operation.collective == Collective::kScatter && isRoot);
  const bool collects = all || (operation.collective == Collective::kGather && isRoot);
  const auto* const send = static_cast<const std::byte*>(operation.send);
  auto* const receive = static_cast<std::byte*>(operation.receive);
  ncclResult_t result = library_.ncclGroupStart();
  for (int peer = 0; peer < seat_.ranks && result == ncclSuccess; ++peer) {
    const size_t block = static_cast<size_t>(peer) * operation.bytes();
    const bool sends = spreads || (operation.collective == Collective::kGather && peer == operation.root);
    const bool receives =
        collects || (operation.collective == Collective::kScatter && peer == operation.root);
    if (sends) {
      result = library_.ncclSend(send + (spreads ? block : 0), operation.count, type, peer, theirs, stream);
    }
    if (receives && result == ncclSuccess) {
      result =
          library_.ncclRecv(receive + (collects ? block : 0), operation.count, type, peer, theirs, stream);
    }
  }
  const ncclResult_t ended = library_.ncclGroupEnd();
  return result != ncclSuccess ? result : ended;
}

// ---- The end ----------------------------------------------------------------------------------------------

Status Foreign::error() const {
  const ncclComm_t theirs = theirs_.load();
  if (theirs == nullptr) return kOkStatus;
  ncclResult_t state = ncclSuccess;
  STRETTO_TRY(said("ncclCommGetAsyncError", library_.ncclCommGetAsyncError(theirs, &state)));
  return state == ncclInProgress ? kOkStatus : said("an operation", state);
}

Status Foreign::finalise() {
  return call("ncclCommFinalize", &ForeignLibrary::ncclCommFinalize, kTheirs);
}

Status Foreign::destroy() {
  const ncclComm_t theirs = theirs_.exchange(nullptr);
  return theirs == nullptr ? kOkStatus : said("ncclCommDestroy", library_.ncclCommDestroy(theirs));
}

void Foreign::abort() {
  const ncclComm_t theirs = theirs_.exchange(nullptr);
  if (theirs != nullptr) (void)said("ncclCommAbort", library_.ncclCommAbort(theirs));
}

// ---- Groups -----------------------------------------------------------------------------------------------

ForeignGroup::ForeignGroup(const ForeignLibrary& library)
    : library_(library), started_(library.ncclGroupStart()) {}

ForeignGroup::~ForeignGroup() {
  if (started_ == ncclSuccess) (void)library_.ncclGroupEnd();
}

Status ForeignGroup::end(Status inside) {
  const std::string words = inside.ok() ? std::string() : lastError();
  const ncclResult_t started = std::exchange(started_, ncclInvalidUsage);
  const ncclResult_t result = started == ncclSuccess ? library_.ncclGroupEnd() : started;
  if (!inside.ok() && inside.code != Code::kInProgress) {
    setLastError(words);
    return inside;
  }
  if (result == ncclSuccess || result == ncclInProgress) return Status{codeOf(result)};
  return fail(codeOf(result), "the group's part on NCCL %s (%s): %s", library_.versionText().c_str(),
              library_.path.c_str(), wordsOf(library_, result).c_str());
}

Result<double> ForeignGroup::simulate() {
  if (library_.ncclGroupSimulateEnd == nullptr || started_ != ncclSuccess) {
    return fail(Code::kInvalidUsage, "NCCL %s (%s), which serves a communicator of the group, cannot predict",
                library_.versionText().c_str(), library_.path.c_str());
  }
  started_ = ncclInvalidUsage;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  const ncclResult_t result = library_.ncclGroupSimulateEnd(&info);
  if (result == ncclSuccess) return static_cast<double>(info.estimatedTime);
  return fail(codeOf(result), "ncclGroupSimulateEnd of %s: %s", library_.path.c_str(),
              wordsOf(library_, result).c_str());
}

}  // namespace stretto::communicator
