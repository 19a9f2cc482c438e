// The one way of every operation: validated (submit), planned, announced, recorded, launched, concluded.
#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "communicator/core/apart.hpp"
#include "communicator/core/communicator.hpp"
#include "communicator/core/group.hpp"
#include "communicator/core/host_memory.hpp"
#include "communicator/core/turn.hpp"
#include "executors/host/launch.hpp"
#include "primitives/call_record.hpp"

namespace stretto::communicator {
namespace {

constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

NormMode modeOf(const NormArguments& norm) {
  const bool quantises = norm.scaling != Scaling::kNone;
  return {norm.scaling, quantises ? norm.quantisedType : DataType{},
          static_cast<uint8_t>(norm.residual != nullptr), static_cast<uint8_t>(norm.bias != nullptr)};
}

// What ranks agree on of a norm, in two words.
std::pair<uint64_t, uint64_t> normOf(const NormArguments& norm) {
  const NormMode mode = modeOf(norm);
  return {norm.hidden,
          static_cast<uint64_t>(std::bit_cast<uint32_t>(norm.epsilon)) << 32 | std::bit_cast<uint32_t>(mode)};
}

// Equal on two ranks exactly if they run the same operation the same way.
uint64_t tagOf(const Operation& operation, const planner::Plan& plan) {
  uint64_t tag =
      mix(0x53, static_cast<uint64_t>(operation.collective) << 32 |
                    static_cast<uint64_t>(operation.type) << 16 | static_cast<uint64_t>(operation.op) << 8 |
                    (operation.scaled ? 2 : 0) | (operation.reduces ? 1 : 0));
  tag = mix(tag, operation.count);
  tag = mix(tag, static_cast<uint64_t>(operation.root + 1));
  if (operation.norms()) {
    const auto [hidden, rest] = normOf(operation.norm);
    tag = mix(mix(tag, hidden), rest);
  }
  return mix(tag, static_cast<uint64_t>(plan.blocks) << 56 | static_cast<uint64_t>(plan.algorithm) << 48 |
                      static_cast<uint64_t>(plan.protocol) << 40 |
                      static_cast<uint64_t>(plan.directions) << 36 | static_cast<uint64_t>(plan.rings) << 32 |
                      plan.chunkBytes);
}

observe::FlightRecord recordOf(const Operation& operation, uint64_t sequence, const planner::Plan& plan,
                               bool enqueued) {
  observe::FlightRecord record;
  record.sequence = sequence;
  record.startTicks = platform::ticks();
  record.count = operation.count;
  record.function = operation.collective;
  record.type = operation.type;
  record.op = operation.op;
  record.algorithm = plan.algorithm;
  record.protocol = plan.protocol;
  record.root = operation.isCollective() ? operation.root : -1;
  record.peer = operation.isCollective() ? -1 : operation.root;
  record.enqueued = enqueued;
  return record;
}

// Without what differs from call to call.
CallRecord callRecordOf(const Operation& operation) {
  CallRecord what{};
  what.count = operation.count;
  what.collective = static_cast<uint8_t>(operation.collective);
  what.type = static_cast<uint8_t>(operation.type);
  what.op = operation.reduces ? static_cast<uint8_t>(operation.op) : uint8_t{0xff};
  what.root = operation.root;
  if (operation.norms()) {
    what.hidden = static_cast<uint32_t>(operation.norm.hidden);
    what.epsilon = operation.norm.epsilon;
    what.mode = modeOf(operation.norm);
  }
  return what;
}

// What a plan depends on beside the call itself.
uint64_t windowFlags(const planner::Request& request) {
  return (request.windowed ? 1 : 0) | (request.pullsOnce ? 2 : 0) | (request.pullsTwice ? 4 : 0);
}

Signature signatureOf(const Operation& operation, uint64_t windows) {
  constexpr uint64_t kMade = 0x80;
  const uint64_t flags = kMade | windows << 2 | (operation.scaled ? 2 : 0) | (operation.reduces ? 1 : 0);
  Signature signature{static_cast<uint64_t>(operation.collective) |
                          static_cast<uint64_t>(operation.type) << 8 |
                          static_cast<uint64_t>(operation.op) << 16 | flags << 24 |
                          static_cast<uint64_t>(static_cast<uint32_t>(operation.root + 1)) << 32,
                      operation.count};
  if (operation.norms()) [[unlikely]]
    std::tie(signature.norm[0], signature.norm[1]) = normOf(operation.norm);
  return signature;
}

Arguments argumentsOf(const Operation& operation, const planner::Plan& plan, int ranks) {
  Arguments arguments;
  arguments.send = static_cast<const std::byte*>(operation.send);
  arguments.receive = static_cast<std::byte*>(operation.receive);
  arguments.count = operation.count;
  arguments.elementBytes = sizeOf(operation.type);
  arguments.reduce = {operation.type, operation.op, static_cast<uint32_t>(ranks)};
  arguments.root = operation.root;
  arguments.chunkBytes = plan.chunkBytes;
  arguments.rings = plan.rings;
  arguments.directions = static_cast<int>(plan.directions);
  arguments.stream = plan.stream;
  return arguments;
}

// Validated: remembered by the group, run here, or enqueued.
Status hand(Communicator& communicator, const Operation& operation,
            const std::shared_ptr<executors::host::Stream>& stream) {
  if (Group::current().open()) {
    Group::current().add(communicator.shared_from_this(), operation, stream);
    return kOkStatus;
  }
  if (stream == nullptr && (communicator.config().blocking || communicator.onDevice()))
    return communicator.startNow(operation);
  return communicator.start({operation}, stream);
}

// Tells a profiler plugin as well. A call outside of a group is a group of its own. Out of line: only one
// operation of many may be told of.
[[gnu::noinline]] Status submitProfiled(Communicator& communicator, const Operation& called,
                                        Profile::Counted counted,
                                        const std::shared_ptr<executors::host::Stream>& stream) {
  Operation operation = called;
  const auto go = [&] { return hand(communicator, operation, stream); };
  Group& group = Group::current();
  if (group.open()) {
    communicator.profile().call(operation, counted, group.profiled(), group.depth() + 1);
    return go();
  }
  ProfiledGroup alone;
  alone.closes(communicator.profile().call(operation, counted, alone, 1));
  return go();
}

// Somebody watches this process, or CUDA is in it; out of line, so that an operation that nobody watches has
// none of it.
[[gnu::noinline]] Status submitWatched(Communicator& communicator, const Operation& operation,
                                       const std::shared_ptr<executors::host::Stream>& stream) {
  if (watch::watches(watch::kDeviceMemory) && !communicator.onDevice()) [[unlikely]]
    STRETTO_TRY(refuseDeviceMemory(operation, communicator.rank(), communicator.ranks()));
  const Profile::Counted counted = communicator.profile().count(operation);
  if (counted.reported && observe::profiler::mask() != 0) [[unlikely]]
    return submitProfiled(communicator, operation, counted, stream);
  return hand(communicator, operation, stream);
}

}  // namespace

uint64_t transferTag(const Operation& operation) {
  return mix(mix(0x7032, static_cast<uint64_t>(operation.type)), operation.count);
}

// An abort or destroy that met an operation which did not end in time has left the rest to its end. On
// another thread: this one may be the worker, which release() ends.
void Communicator::releaseIfDue() {
  if (!releaseDue_.load(std::memory_order_seq_cst)) [[likely]]
    return;
  if (!turns_.quiet() || mayTouch().code != Code::kOk) return;
  (void)startApart(rank_, config_.device, "to free a communicator whose last operation ended after its abort",
                   [self = shared_from_this()] { self->release(); });
}

Status submit(Communicator& communicator, const Operation& operation,
              const std::shared_ptr<executors::host::Stream>& stream) {
  if (const Status status = communicator.mayCall(); !status.ok()) [[unlikely]] {
    return communicator.refuse(operation, status);
  }
  STRETTO_TRY(validate(operation, communicator.rank(), communicator.ranks(), communicator.onDevice()));
  if (watch::anybody()) [[unlikely]] {
    return submitWatched(communicator, operation, stream);
  }
  return hand(communicator, operation, stream);
}

Status submitOneSided(Communicator& communicator, std::vector<Operation> operations,
                      const std::shared_ptr<executors::host::Stream>& stream) {
  if (const Status status = communicator.mayCall(); !status.ok())
    return communicator.refuse(operations[0], status);
  if (communicator.isSpread() || communicator.foreign() != nullptr) {
    return fail(Code::kInvalidUsage, "%s: one-sided operations between hosts are not there yet",
                nameOf(operations[0].collective));
  }
  for (const Operation& operation : operations) {
    STRETTO_TRY(communicator.checkOneSided(operation));
    if (!communicator.onDevice())
      STRETTO_TRY(refuseDeviceMemory(operation, communicator.rank(), communicator.ranks()));
  }
  if (!Group::current().open()) return communicator.start(std::move(operations), stream);
  for (const Operation& operation : operations)
    Group::current().add(communicator.shared_from_this(), operation, stream);
  return kOkStatus;
}

Status Communicator::start(std::vector<Operation> operations,
                           std::shared_ptr<executors::host::Stream> stream) {
  if (stream == nullptr && (config_.blocking || onDevice())) return run(operations, takeTurn());
  if (stream == nullptr) stream = worker();
  const Profile::HandOver handOver(profile_, operations);
  const uint64_t turn = takeTurn();
  try {
    stream->submit(
        [self = shared_from_this(), turn, work = std::move(operations)] { (void)self->run(work, turn); });
  } catch (...) {
    completeTurn(turn);
    throw;
  }
  return Status{config_.blocking ? Code::kOk : Code::kInProgress};
}

// In both of its callers, so that what runs unwatched makes no call for being possibly watched.
[[gnu::always_inline]] inline Status Communicator::runTurn(std::span<const Operation> operations) {
  if (onDevice()) STRETTO_TRY(mayLaunch(operations));
  if (operations.size() == 1 && operations[0].isCollective()) return runCollective(operations[0]);
  // What peers may wait for comes first, and waits for them last.
  const bool anyOneSided = std::any_of(operations.begin(), operations.end(),
                                       [](const Operation& operation) { return operation.isOneSided(); });
  if (anyOneSided) STRETTO_TRY(runOneSided(operations, false));
  STRETTO_TRY(runTransfers(operations));
  if (onDevice()) STRETTO_TRY(runTogether(operations));
  for (const Operation& operation : operations) {
    if (operation.isCollective() && !onDevice()) STRETTO_TRY(runCollective(operation));
  }
  return anyOneSided ? runOneSided(operations, true) : kOkStatus;
}

Status Communicator::runOneSided(std::span<const Operation> operations, bool waits) {
  for (const Operation& operation : operations) {
    if (!operation.isOneSided() || (operation.collective == Collective::kWaitSignal) != waits) continue;
    recorded_ = flight_.begin(recordOf(operation, 0, {}, onDevice()));
    if (onDevice()) {
      STRETTO_TRY(launchOneSided(operation));
      continue;
    }
    host_->begin(0, 0);
    const Status status = oneSided_.run(*host_, operation);
    host_->end();
    flight_.end(recorded_, status, platform::ticks());
    if (!status.ok()) return explainFailure(operation, status);
    ++counters_.operations;
    if (operation.collective == Collective::kPut) counters_.bytes += operation.bytes();
  }
  return kOkStatus;
}

Status Communicator::run(std::span<const Operation> operations, uint64_t number) {
  const Turn turn(*this, number);
  if (const Status status = isReady() ? kOkStatus : usable(); !status.ok()) [[unlikely]]
    return turn.mine() ? refuse(operations[0], status) : status;  // what runs is named first
  if (!turn.mine())
    return stretto::fail(Code::kAborted, "rank %d: aborted before the operation began", rank_);
  if (foreign() != nullptr) return runForeign(operations);
  if (Profile::anyReported(operations) && profile_.on()) [[unlikely]]
    return runProfiled(operations);
  return runTurn(operations);
}

Status Communicator::runProfiled(std::span<const Operation> operations) {
  profile_.beginTurn(operations);
  const Status status = runTurn(operations);
  profile_.endTurn();
  return status;
}

Status Communicator::force(const char* collective, const char* algorithm, const char* protocol,
                           size_t chunkBytes, int blocks) {
  STRETTO_TRY(mayTouch());
  const Turn turn(*this, takeTurn());
  if (!turn.holds()) return usable();
  const Status status = forced_.force(collective, algorithm, protocol, chunkBytes, blocks);
  prepared_.clear();
  return status;
}

Result<planner::Plan> Communicator::predict(const Operation& operation) {
  const Hold hold(*this);
  if (!hold.holds()) return usable();
  return planner::choose(requestFor(operation), machine_, table_, forced_);
}

Result<std::string> Communicator::explain(const planner::Request& request) {
  const Hold hold(*this);
  if (!hold.holds()) return usable();
  return planner::explainJson(request, machine_, table_, forced_);
}

planner::Request Communicator::requestFor(const Operation& operation) const {
  planner::Request request{operation.collective, operation.type, operation.op, operation.bytes(), ranks_};
  if (operation.norms()) request.tokenBytes = operation.norm.hidden * sizeOf(operation.type);
  if (device_ != nullptr) device_->addWindows(operation, request);
  return request;
}

Status Communicator::prepareFirst(const Operation& operation, Signature signature, Prepared*& prepared) {
  const auto plan = planner::choose(requestFor(operation), machine_, table_, forced_);
  if (!plan.ok()) return plan.status();
  Prepared made = preparedAs(operation, plan.value());
  if (!onDevice()) {
    made.run =
        executors::host::codeOf(operation.collective, made.plan.algorithm, made.plan.protocol, isSpread());
    if (made.run == nullptr) return Status{Code::kInternal};
  }
  prepared = prepared_.keep(signature, made);
  return kOkStatus;
}

inline Status Communicator::prepare(const Operation& operation, Prepared*& prepared) {
  const Signature signature = signatureOf(operation, onDevice() ? windowFlags(requestFor(operation)) : 0);
  prepared = prepared_.find(signature);
  return prepared != nullptr ? kOkStatus : prepareFirst(operation, signature, prepared);
}

Prepared Communicator::preparedAs(const Operation& operation, const planner::Plan& plan) const {
  Prepared made;
  made.plan = plan;
  made.tag = tagOf(operation, plan);
  made.recorded = callOf(recordOf(operation, 0, plan, onDevice()));
  made.recordedCall = callRecordOf(operation);
  made.arguments = argumentsOf(operation, plan, ranks_);
  return made;
}

// The next operation, announced and recorded; returns its tag. In host memory that holds all operations
// before it, so that who disagreed without noticing notices now; a graph that replays an operation has no
// such history.
[[gnu::always_inline]] inline uint64_t Communicator::enter(const Operation& operation,
                                                           const Prepared& prepared) {
  uint64_t tag = prepared.tag;
  uint64_t place = 0;
  if (onDevice()) [[unlikely]] {
    tag = placedTag(operation, prepared, place);
  } else {
    tag = history_ = mix(history_, tag);
  }
  const uint64_t ticks = platform::ticks();
  ++sequence_;
  recordCall(prepared.recordedCall, {sequence_, tag, ticks, place});
  recorded_ = flight_.begin(prepared.recorded, sequence_, ticks, operation.count);
  if (operation.profiled.mask != 0) [[unlikely]]
    beginWatched(operation, prepared.plan, ticks);
  return tag;
}

// On a GPU: with the places of its buffers, and the channels of its group, if they matter.
uint64_t Communicator::placedTag(const Operation& operation, const Prepared& prepared, uint64_t& place) {
  const auto [first, other] = placesOf(operation, prepared.plan);
  place = first;
  uint64_t tag = prepared.tag;
  if (first != 0) tag = mix(tag, first);
  if (other != 0) tag = mix(tag, other);
  if (groupLayout_ != 0 && operation.count != 0) tag = mix(tag, std::exchange(groupLayout_, 0));
  return tag;
}

Status Communicator::runCollective(const Operation& operation) {
  Prepared* prepared = nullptr;
  if (const Status status = prepare(operation, prepared); !status.ok()) [[unlikely]] {
    return refusePlan(operation, status);
  }
  const uint64_t tag = enter(operation, *prepared);
  if (operation.count == 0) return conclude(operation, kOkStatus);

  Arguments& arguments = prepared->arguments;
  arguments.send = static_cast<const std::byte*>(operation.send);
  arguments.receive = static_cast<std::byte*>(operation.receive);
  arguments.norm = operation.norms() ? &operation.norm : nullptr;
  if (onDevice()) return launchOnDevice(operation, prepared->plan, arguments, tag);
  if (operation.scaled) arguments.send = static_cast<const std::byte*>(scaledInput(operation));
  host_->begin(tag, sequence_);
  const Status status = prepared->run(*host_, arguments);
  host_->end();
  importer_.endOperation();
  return conclude(operation, status);
}

// Plans the collectives of a group on a GPU and gives them their channels. Returns what tells groups of other
// channels from this one; 0 for channels that the same calls would have without a group. What cannot be
// planned says so when it is run.
uint64_t Communicator::layOut(std::span<const Operation> operations) {
  together_.placed.clear();
  for (const Operation& operation : operations) {
    if (!operation.isCollective()) continue;
    Together::Placed& placed = together_.placed.emplace_back();
    if (operation.count == 0) continue;
    Prepared* prepared = nullptr;
    if (!prepare(operation, prepared).ok()) continue;
    placed.plan = prepared->plan;
    placed.launch = launchOf(operation, placed.plan, argumentsOf(operation, placed.plan, ranks_));
    placed.shares = device_->mayShare(placed.launch);
  }
  together_.channels.clear();
  for (const Together::Placed& placed : together_.placed) {
    together_.channels.push_back({placed.shares, placed.launch.blocks});
  }
  giveChannels(together_.channels, device_->shape().channels, [this](size_t place) {
    executors::cuda::Launch launch = together_.placed[place].launch;
    return leastBlocks(launch.blocks, [&](int blocks) {
      launch.blocks = blocks;
      return device_->mayShare(launch);
    });
  });
  bool differs = false;
  uint64_t layout = 0;
  for (size_t i = 0; i < together_.placed.size(); ++i) {
    const ChannelShare& given = together_.channels[i];
    Together::Placed& placed = together_.placed[i];
    placed.launch.firstChannel = given.first;
    placed.launch.blocks = given.blocks;
    placed.plan.blocks = static_cast<uint8_t>(given.blocks);
    differs = differs || given.first != 0 || given.blocks != given.wanted;
    layout = mix(layout, static_cast<uint64_t>(given.first) << 32 | static_cast<uint64_t>(given.blocks));
  }
  return differs ? layout : 0;
}

// The collectives of a group on a GPU, in the order of the calls. What can shares a launch with those before
// it; what cannot comes after them. Ranks that group the same calls in another way would wait in other
// channels: the first call's tag tells them at once.
Status Communicator::runTogether(std::span<const Operation> operations) {
  // However it ends: no operation after the group has it in its tag.
  const struct Forget {
    uint64_t& layout;
    ~Forget() { layout = 0; }
  } forget{groupLayout_};
  together_.clear();
  groupLayout_ = layOut(operations);
  auto placed = together_.placed.begin();
  for (const Operation& operation : operations) {
    if (!operation.isCollective()) continue;
    const Together::Placed& own = *placed++;
    if (joins(operation, own)) continue;
    STRETTO_TRY(launchTogether());
    if (!joins(operation, own)) STRETTO_TRY(runCollective(operation));
  }
  return launchTogether();
}

// False if it must be launched by itself, or not with those that wait. Else it has been called, and waits
// too.
bool Communicator::joins(const Operation& operation, const Together::Placed& placed) {
  const bool may = placed.shares && together_.isOn(operation.stream) &&
                   device_->joins(together_.launches(), placed.launch);
  if (!may) return false;
  executors::cuda::Launch launch = placed.launch;
  launch.tag = enter(operation, preparedAs(operation, placed.plan));
  launch.sequence = sequence_;
  together_.add({&operation, placed.plan, recorded_, std::exchange(watched_, false)}, launch);
  return true;
}

// A collective that is about to run, or on a GPU to be launched, which is told of afterwards.
void Communicator::beginWatched(const Operation& operation, const planner::Plan& plan, uint64_t ticks) {
  watched_ = true;
  if (!onDevice() && operation.count != 0 && profile_.on()) profile_.beginCollective(operation, plan, ticks);
}

void Communicator::endWatched(uint64_t ticks) {
  watched_ = false;
  if (!onDevice() && profile_.on()) profile_.endWork(ticks);
}

// What cannot be planned still counts, and is announced with a tag of its own: peers that could plan it learn
// that this rank did not join them.
Status Communicator::refusePlan(const Operation& operation, Status status) {
  recordCall(callRecordOf(operation), {++sequence_, ~tagOf(operation, {}), platform::ticks(), 0});
  return status;
}

inline void Communicator::recordCall(const CallRecord& kind, const CallInstance& call) {
  if (onDevice()) return connections_.operationLog(rank_).enter(kind, call);
  stretto::recordCall(connections_.header(), kind, call);
}

const void* Communicator::scaledInput(const Operation& operation) {
  const size_t count = operation.count * blocksSent(operation.collective, ranks_);
  const size_t bytes = count * sizeOf(operation.type);
  if (scaled_.size() < bytes) {
    scaled_.resize(bytes);
    ++counters_.allocations;
  }
  const void* scalar = operation.scalarPlace != nullptr ? operation.scalarPlace : operation.scalar;
  scale(operation.type, scaled_.data(), operation.send, scalar, count);
  return scaled_.data();
}

Status Communicator::runTransfers(std::span<const Operation> operations) {
  const auto first = std::find_if(operations.begin(), operations.end(),
                                  [](const Operation& operation) { return operation.isTransfer(); });
  if (first == operations.end()) return kOkStatus;
  recorded_ = flight_.begin(recordOf(*first, 0, {}, onDevice()));
  const bool reported = Profile::anyReported(operations);
  watched_ = reported;
  if (onDevice()) return launchTransfers(*first, operations);
  transfers_.clear();
  for (const Operation& operation : operations) {
    if (!operation.isTransfer()) continue;
    const bool isSend = operation.collective == Collective::kSend;
    executors::host::HostTransfer transfer;
    transfer.isSend = isSend;
    transfer.peer = operation.root;
    transfer.data = static_cast<std::byte*>(isSend ? const_cast<void*>(operation.send) : operation.receive);
    transfer.bytes = operation.bytes();
    transfer.type = operation.type;
    transfer.tag = transferTag(operation);
    transfers_.push_back(transfer);
  }
  executors::host::TransferWatch* watch = nullptr;
  if (reported && profile_.on()) [[unlikely]]
    watch = profile_.beginTransfers(operations, transfers_, machine_.linkChunk);
  host_->begin(0, 0);
  const Status status = isSpread() ? executors::host::runTransfers(
                                         static_cast<links::net::SpreadHost&>(*host_), transfers_, watch)
                                   : executors::host::runTransfers(*host_, transfers_, watch);
  host_->end();
  return conclude(*first, status);
}

Status Communicator::conclude(const Operation& operation, Status status) {
  const uint64_t now = platform::ticks();
  flight_.end(recorded_, status, now);
  if (watched_) [[unlikely]]
    endWatched(now);
  if (!status.ok()) [[unlikely]] {
    return explainFailure(operation, status);
  }
  ++counters_.operations;
  counters_.bytes += operation.bytes();
  return kOkStatus;
}

}  // namespace stretto::communicator
