#include "communicator/profiler/profile.hpp"

#include <algorithm>

#include "base/os.hpp"
#include "communicator/profiler/channels.hpp"
#include "executors/cuda/order.hpp"
#include "platform/clock.hpp"

namespace stretto::communicator {
namespace {

using namespace observe::profiler;
using executors::host::HostTransfer;

// As NCCL's own plugins compare them.
const char* functionName(Collective collective) {
  static constexpr const char* kNames[] = {"AllReduce",           "ReduceScatter", "AllGather", "AlltoAll",
                                           "Broadcast",           "Reduce",        "Gather",    "Scatter",
                                           "AllReduceAddRmsNorm", "Send",          "Recv"};
  static_assert(std::size(kNames) == kCollectives);
  return kNames[static_cast<size_t>(collective)];
}

const char* typeName(DataType type) {
  static constexpr const char* kNames[] = {"ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
                                           "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
                                           "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return nameIn(kNames, type);
}

// Ours, spelt as NCCL spells its own; RING and TREE mean the same in both.
const char* algorithmName(planner::Algorithm algorithm) {
  static constexpr const char* kNames[] = {"LOCAL", "ONE_SHOT", "TWO_SHOT", "DIRECT",   "RING",  "TREE",
                                           "CHAIN", "FLAT",     "PUSH",     "PAIRWISE", "STAGES"};
  return nameIn(kNames, algorithm);
}

const char* protocolName(planner::Protocol protocol) {
  static constexpr const char* kNames[] = {"LINES", "CHUNKS", "WIDE",        "BARE",     "RUNS",
                                           "COPY",  "PULL",   "PULL_NOSYNC", "PULL_PUSH"};
  return nameIn(kNames, protocol);
}

// The first operation that somebody listens to; null if there is none.
const Operation* firstProfiled(std::span<const Operation> operations) {
  const auto found = std::find_if(operations.begin(), operations.end(),
                                  [](const Operation& one) { return one.profiled.mask != 0; });
  return found == operations.end() ? nullptr : &*found;
}

// Two collectives are told in bytes, as NCCL runs them.
bool countsBytes(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kBroadcast;
}

}  // namespace

// ---- Groups and calls -------------------------------------------------------------------------------------

void* ProfiledGroup::enter(std::shared_ptr<Session>& session, const Opening& opening) {
  if (session_ != nullptr || (opening.mask & kGroupApiBits) == 0) return event_;
  session_ = std::move(session);
  DescriptorV7 descriptor = session_->describe(Type::kGroupApi, nullptr);
  descriptor.groupApi = {opening.captured, opening.depth};
  event_ = session_->start(descriptor, opening.at);
  session_->record(event_, kGroupStartApiStop, nullptr, opening.at);
  return event_;
}

void ProfiledGroup::sayClosing(uint64_t at) const {
  session_->record(event_, kGroupEndApiStart, nullptr, at);
}

void ProfiledGroup::end() {
  session_->stop(event_, 0);
  event_ = nullptr;
  session_.reset();
}

void Profile::open(const SessionIdentity& identity, bool onDevice) {
  onDevice_ = onDevice;
  auto session = Session::open(identity);
  counts_ = session != nullptr;
  every_ = identity.every;
  if (counts_) messages_.resize(2 * static_cast<size_t>(identity.ranks));
  const std::lock_guard lock(mutex_);
  session_ = std::move(session);
}

void Profile::close() {
  std::shared_ptr<Session> last;  // finalize is called without the lock
  const std::lock_guard lock(mutex_);
  last = std::move(session_);
}

std::shared_ptr<Session> Profile::found() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

bool Profile::isCaptured(const Operation& operation) {
  const auto capture = executors::cuda::Order::captureOf(operation.stream);
  return capture.ok() && capture.value() != 0;
}

void Profile::takeBack(std::span<const Operation> operations) {
  if (!counts_) return;
  for (const Operation& operation : operations) {
    if (isUncounted(operation) || (onDevice_ && isCaptured(operation))) continue;
    seriesOf(operation).giveBack(every_);
  }
}

uint64_t Profile::call(Operation& operation, Counted counted, ProfiledGroup& group, int depth) const {
  const uint32_t mask = observe::profiler::mask();
  std::shared_ptr<Session> held = mask != 0 ? found() : nullptr;
  if (held == nullptr) return 0;
  const Session& session = *held;  // which the group may take over
  const bool captured = counted.captured;
  const uint64_t at = session.now();
  operation.profiled.mask = mask;
  operation.profiled.sequence = counted.number;
  operation.profiled.groupApi = group.enter(held, {mask, depth, captured, at});
  const bool isTransfer = operation.isTransfer();
  if ((mask & (isTransfer ? kP2pApiBits : kCollectiveApiBits)) == 0) return at;
  DescriptorV7 descriptor =
      session.describe(isTransfer ? Type::kP2pApi : Type::kCollApi, operation.profiled.groupApi);
  const char* const function = functionName(operation.collective);
  const char* const type = typeName(operation.type);
  if (isTransfer) {
    descriptor.p2pApi = {function, operation.count, type, operation.stream, captured, 0};
  } else {
    const int root = std::max(operation.root, 0);  // NCCL says 0 where there is none
    descriptor.collApi = {function, operation.count,           type, root, operation.stream,
                          captured, operation.profiled.userTag};
  }
  operation.profiled.api = session.start(descriptor, at);
  session.stop(operation.profiled.api, at);
  return at;
}

// ---- Handing over -----------------------------------------------------------------------------------------

void* Profile::startLaunch(const Session& session, const Operation& operation, uint64_t at) {
  if ((operation.profiled.mask & bit(Type::kKernelLaunch)) == 0) return nullptr;
  DescriptorV7 descriptor = session.describe(Type::kKernelLaunch, operation.profiled.groupApi);
  descriptor.kernelLaunch = {operation.stream};
  return session.start(descriptor, at);
}

void Profile::HandOver::begin(const Profile& profile, std::span<Operation> operations) {
  const Operation* const first = firstProfiled(operations);
  if (first == nullptr) return;
  session_ = profile.found();
  if (session_ != nullptr) event_ = startLaunch(*session_, *first, 0);
  for (Operation& operation : operations) operation.profiled.handedOver = true;
}

// What ran before it was given to this thread was handed over there; else that is now, and on a GPU it lasts
// until all is enqueued.
void Profile::beginTurn(std::span<const Operation> operations) {
  const Operation* const first = firstProfiled(operations);
  ended_ = 0;
  groupWanted_ = (first->profiled.mask & kGroupBits) != 0;
  const uint64_t at = session_->now();
  if (!first->profiled.handedOver) launch_ = startLaunch(*session_, *first, at);
  if (onDevice_) return;
  session_->stop(launch_, at);
  launch_ = nullptr;
  if (groupWanted_) startGroup(at);
}

void Profile::startGroup(uint64_t at) {
  DescriptorV7 descriptor = session_->describe(Type::kGroup, nullptr);
  group_ = session_->start(descriptor, at);
}

void Profile::endTurn() {
  const uint64_t at = onDevice_ ? session_->now() : ended_;
  session_->stop(launch_, at);
  launch_ = nullptr;
  if (onDevice_) reportEnqueued(at);
  session_->stop(group_, at);
  group_ = nullptr;
}

// ---- Collectives ------------------------------------------------------------------------------------------

void* Profile::startCollective(const Operation& operation, const planner::Plan& plan, uint8_t channels,
                               uint64_t at) const {
  DescriptorV7 descriptor = session_->describe(Type::kColl, operation.profiled.api);
  CollV5& event = descriptor.coll;
  event.sequence = operation.profiled.sequence;
  event.function = functionName(operation.collective);
  event.sendBuffer = operation.send;
  event.receiveBuffer = operation.receive;
  event.count = countsBytes(operation.collective) ? operation.bytes() : operation.count;
  event.dataType = typeName(countsBytes(operation.collective) ? DataType::kInt8 : operation.type);
  event.root = std::max(operation.root, 0);
  event.channels = channels;
  event.warps = onDevice_ ? 0 : 1;  // a kernel keeps its own count
  event.algorithm = algorithmName(plan.algorithm);
  event.protocol = protocolName(plan.protocol);
  event.parentGroup = group_;
  event.userTag = operation.profiled.userTag;
  return session_->start(descriptor, at);
}

void Profile::beginCollective(const Operation& operation, const planner::Plan& plan, uint64_t at) {
  const uint32_t mask = operation.profiled.mask;
  if ((mask & kCollectiveBits) == 0) return;
  collective_ = startCollective(operation, plan, 1, at);
  if ((mask & bit(Type::kKernelCh)) != 0)
    channel_ = startChannel(*session_, collective_, {0, platform::realtimeNanoseconds()}, at);
}

links::net::ChunkWatch* Profile::beginChunks(const Operation& operation, const FarSteps::Ways& ways) {
  if ((operation.profiled.mask & kProxyOpBits) == 0 || collective_ == nullptr) return nullptr;
  farSteps_.open(*session_, operation.profiled.mask, collective_, ways);
  return &farSteps_;
}

void Profile::endWork(uint64_t at) {
  transferSteps_.close(at);
  if (farSteps_.isOpen()) farSteps_.close(at);
  if (channel_ != nullptr) stopChannel(*session_, channel_, platform::realtimeNanoseconds(), at);
  channel_ = nullptr;
  session_->stop(collective_, at);
  collective_ = nullptr;
  ended_ = at;
}

// ---- Operations of GPUs -----------------------------------------------------------------------------------

void Profile::enqueued(const Operation& operation, const planner::Plan& plan,
                       const executors::cuda::Engine::Launched& launched) {
  const uint32_t wanted = operation.isTransfer() ? kP2pBits : kCollectiveBits;
  if ((operation.profiled.mask & wanted) != 0) enqueued_.push_back({operation, plan, launched});
}

// The kernels are on their way; NCCL tells of the operations only now, too.
void Profile::reportEnqueued(uint64_t at) {
  if (enqueued_.empty()) return;
  if (groupWanted_) startGroup(at);
  std::vector<void*> events;
  for (const Enqueued& one : enqueued_) {
    // As many as will tell of themselves by KernelCh, which some plugins wait for.
    const auto channels = static_cast<uint8_t>(withoutKernels_ ? 0 : one.launched.channels);
    events.push_back(one.operation.isTransfer() ? startP2p(one.operation, channels, at)
                                                : startCollective(one.operation, one.plan, channels, at));
    expectKernel(one, events.back());
  }
  for (void* const event : events) session_->stop(event, at);
  enqueued_.clear();
}

void Profile::expectKernel(const Enqueued& enqueued, void* event) const {
  const Operation& operation = enqueued.operation;
  if (follower_ == nullptr || (operation.profiled.mask & bit(Type::kKernelCh)) == 0) return;
  follower_->expect(enqueued.launched.number, enqueued.launched.stamps, event,
                    operation.isTransfer() ? operation.root : -1, operation.collective == Collective::kSend);
}

// Another plugin takes the parent of a KernelCh for an operation's event.
void Profile::captured(const Operation& operation, const executors::cuda::Engine::Launched& launched) {
  const bool wanted = (operation.profiled.mask & bit(Type::kKernelCh)) != 0 && launched.stamps > 0;
  if (wanted && follower_ != nullptr && operation.profiled.api != nullptr && session_->isStamped())
    follower_->captured(launched.number, operation.profiled.api);
}

// One that nobody expected is of a replay, or of an operation that is not told of.
void Profile::reportKernel(const StampMatcher::Matched& matched) const {
  const auto& [parent, stamp, call] = matched;
  if (parent == nullptr && every_ > 1) return;
  const uint64_t at = session_->now();
  void* const above = call != nullptr ? call : parent;
  void* const event = startChannel(*session_, above, {static_cast<uint8_t>(stamp.block), stamp.start}, at);
  if (event == nullptr) return;
  if (call != nullptr) {
    ArgumentsV4 arguments;
    arguments.replayed.number = stamp.operation;
    session_->record(event, kReplayed, &arguments, at);
  }
  stopChannel(*session_, event, stamp.stop, at);
}

Status Profile::followKernels(StampFollower::Take take) {
  try {
    follower_ = std::make_unique<StampFollower>(
        std::move(take), [this](const StampMatcher::Matched& matched) { reportKernel(matched); });
  } catch (const std::exception& error) {  // no memory, or no thread
    return fail(Code::kSystem, "collecting the times of kernels: %s", error.what());
  }
  return kOkStatus;
}

// ---- Sends and receives -----------------------------------------------------------------------------------

void* Profile::startP2p(const Operation& operation, uint8_t channels, uint64_t at) const {
  DescriptorV7 descriptor = session_->describe(Type::kP2p, operation.profiled.api);
  P2pV5& event = descriptor.p2p;
  event.function = functionName(operation.collective);
  event.buffer =
      operation.collective == Collective::kSend ? const_cast<void*>(operation.send) : operation.receive;
  event.dataType = typeName(operation.type);
  event.count = operation.count;
  event.peer = operation.root;
  event.channels = channels;
  event.parentGroup = group_;
  return session_->start(descriptor, at);
}

executors::host::TransferWatch* Profile::beginTransfers(std::span<const Operation> operations,
                                                        std::span<const HostTransfer> transfers,
                                                        size_t chunkBytes) {
  const uint64_t at = session_->now();
  transferSteps_.open(*session_);
  size_t next = 0;
  for (const Operation& operation : operations) {
    if (!operation.isTransfer()) continue;
    const HostTransfer& transfer = transfers[next++];
    const uint32_t mask = operation.profiled.mask;
    if ((mask & kP2pBits) != 0) transferSteps_.add(transfer, mask, startP2p(operation, 1, at));
  }
  return transferSteps_.begin(chunkBytes, at);
}

// ---- The worker -------------------------------------------------------------------------------------------

// They belong to no operation and come with each: where not all are told of, neither are they.
bool Profile::wanted() const {
  return every_ == 1 && (observe::profiler::mask() & bit(Type::kProxyCtrl)) != 0 && on();
}

void Profile::rests() {
  const uint64_t at = session_->now();
  DescriptorV7 descriptor = session_->describe(Type::kProxyCtrl, nullptr);
  resting_ = session_->start(descriptor, at);
  ArgumentsV4 none{};
  session_->record(resting_, kCtrlSleep, &none, at);
}

void Profile::wakes() {
  const uint64_t at = session_->now();
  ArgumentsV4 none{};
  session_->record(resting_, kCtrlWakeup, &none, at);
  session_->stop(resting_, at);
  resting_ = nullptr;
}

void Profile::takes() {
  const uint64_t at = session_->now();
  DescriptorV7 descriptor = session_->describe(Type::kProxyCtrl, nullptr);
  void* const event = session_->start(descriptor, at);
  ArgumentsV4 arguments{};
  session_->record(event, kCtrlAppend, &arguments, at);
  arguments.proxyCtrl.appended = 1;
  session_->record(event, kCtrlAppendEnd, &arguments, at);
  session_->stop(event, at);
}

}  // namespace stretto::communicator
