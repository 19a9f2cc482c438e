#include "communicator/device/engine.hpp"

#include <algorithm>
#include <array>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "communicator/device/watch.hpp"
#include "platform/clock.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {
namespace {

// A place as this rank addresses it, by rank; null if it is none.
using AddressOfRanks = std::array<std::byte*, kMaxRanks>;
std::byte* const* addressesOf(const WindowPlace& place, AddressOfRanks& addresses) {
  if (place.window == nullptr) return nullptr;
  std::transform(place.window->links.begin(), place.window->links.end(), addresses.begin(),
                 [&](const links::DeviceLink& link) { return link.window + place.offset; });
  return addresses.data();
}

CallRecord callWithPeer(const Operation& operation) {
  CallRecord call{};
  call.sequence = 1;  // until it is announced
  call.count = operation.count;
  call.startedTicks = platform::ticks();
  call.collective = static_cast<uint8_t>(operation.collective);
  call.type = static_cast<uint8_t>(operation.type);
  call.op = 0xff;
  call.root = operation.root;
  return call;
}

// Of a group's transfers, with the first that moves something to or from a peer for the words of an error.
LaunchLog::Entry entryOf(std::span<const Operation> operations) {
  LaunchLog::Entry entry;
  for (const Operation& operation : operations) {
    if (!operation.isTransfer() || operation.count == 0) continue;
    const bool isSend = operation.collective == Collective::kSend;
    entry.messages.push_back({static_cast<int16_t>(operation.root), isSend});
    if (entry.first.sequence == 0) entry.first = callWithPeer(operation);
  }
  return entry;
}

}  // namespace

executors::cuda::Launch launchOf(const Operation& operation, const planner::Plan& plan,
                                 const Arguments& arguments) {
  executors::cuda::Launch launch;
  launch.collective = operation.collective;
  launch.algorithm = plan.algorithm;
  launch.protocol = plan.protocol;
  launch.blocks = plan.blocks;
  launch.arguments = arguments;
  launch.scaled = operation.scaled;
  if (operation.scaled) {
    std::copy_n(operation.scalar, sizeof launch.scalar, launch.scalar);
    launch.scalarPlace = operation.scalarPlace;
  }
  return launch;
}

Status DeviceEngine::opens(std::function<bool()> watch) {
  const auto initTimeout = parameters::kInitTimeout.seconds(0.01, 1e6);
  const auto timeout = parameters::kTimeout.seconds(0.001, 1e7);
  if (!initTimeout.ok()) return initTimeout.status();
  const auto warnAfter = parameters::warnAfter();
  if (!timeout.ok()) return timeout.status();
  if (!warnAfter.ok()) return warnAfter.status();
  freeWhatCanBe();
  const int rank = self_.rank();
  const int ranks = self_.ranks();
  const Config& config = self_.config();
  DeviceConnections connections;
  STRETTO_TRY(connectDevices(plane_.membership(),
                             {rank, ranks, config.device, initTimeout.value(), config.mostBlocks,
                              plane_.isSpread(), config.kernelsAtOnce},
                             connections));
  if (!connections.apart.empty()) {
    connections_.apart = std::move(connections.apart);
    return kOkStatus;
  }
  kernelsAtOnce_ = connections.kernelsAtOnce;
  STRETTO_TRY(describe(connections.shape, connections.gpus, plans_.machine()));
  plans_.machine().fewBlocks = connections.fewBlocks;
  auto side = DeviceSide::create(std::move(connections), connections_, rank, ranks,
                                 {timeout.value(), warnAfter.value()});
  if (!side.ok()) return side.status();
  watchdog_.adopt(std::move(side.value()));
  plans_.opens(ranks, watchdog_.side(), false);
  if (ranks > 1) watchOver(rank, config.device, std::move(watch));
  return kOkStatus;
}

void DeviceEngine::closes() {
  journal_.profile().letGoOfKernels();
  std::unique_ptr<DeviceSide> last = watchdog_.letGo();
  if (last == nullptr) return;
  const bool peaceful = health_.state() == State::kFinalised;
  std::vector<int> absent{self_.rank()};
  for (const int lost : health_.lostRanks()) absent.push_back(lost);
  // Nobody else writes where a proxy does.
  for (int rank = 0; plane_.isSpread() && rank < self_.ranks(); ++rank) absent.push_back(rank);
  communicator::letGo(std::move(last), std::move(connections_), std::move(absent), peaceful ? 1.0 : 0.2);
  freeWhatCanBe();
}

// Device windows are made and opened when the first operation needs them. A rank that had left before is
// missed by those who need it only.
Status DeviceEngine::reachWindows(int peer) {
  const int rank = self_.rank();
  if (self_.ranks() == 1 || side().reaches(peer)) [[likely]] {
    return kOkStatus;
  }
  const uint64_t began = platform::monotonicNanoseconds();
  STRETTO_TRY(side().reach(peer, [this] { plane_.nudge(); }));
  const uint64_t taken = platform::monotonicNanoseconds() - began;
  journal_.counters().connectNanoseconds += taken;
  STRETTO_LOG(kInfo, kInit, "rank %d of %d: device windows of %zu bytes made and opened in %.2f ms", rank,
              self_.ranks(), side().windowBytes(), static_cast<double>(taken) * 1e-6);
  if (side().reaches(peer)) return kOkStatus;
  const int absent = peer == DeviceSide::kEverybody ? side().absentee() : peer;
  return failAbout(absent, Code::kRemote,
                   "rank %d left the communicator before rank %d called an operation that needs it", absent,
                   rank);
}

Status DeviceEngine::mayLaunch(std::span<const Operation> operations) {
  Status ready = watchdog_.look();
  if (ready.ok() && health_.state() != State::kReady) ready = health_.usable();
  if (!ready.ok()) return health_.refuse(operations[0], ready);
  for (const Operation& operation : operations) {
    // A window may have gone since a group took the call.
    Status status = operation.isOneSided() ? side().checkOneSided(operation) : kOkStatus;
    if (status.ok()) status = side().checkBuffers(operation);
    if (status.ok()) continue;
    journal_.profile().takeBack(operations);
    return status;
  }
  return kOkStatus;
}

// In windows, of its results if copy engines write them there; of its inputs, and of results that are read as
// well, if kernels read them there; else 0.
std::pair<uint64_t, uint64_t> DeviceEngine::placesOf(const Operation& operation,
                                                     const planner::Plan& plan) const {
  if (operation.count == 0) return {0, 0};
  if (plan.protocol == planner::Protocol::kCopy) return {side().resultsOf(operation).word(), 0};
  if (!algorithms::isPull(plan.protocol)) return {0, 0};
  const PullPlaces pulls = side().pullsOf(operation);
  return {pulls.inputs.word(), plan.algorithm == planner::Algorithm::kTwoShot ? pulls.results.word() : 0};
}

// The tag holds the places of its buffers, and the channels of its group, if they matter: `layout`, which the
// first call of a group uses up.
Running DeviceEngine::enter(const Operation& operation, const Prepared& prepared, uint64_t& layout) {
  const auto [place, other] = placesOf(operation, prepared.plan);
  uint64_t tag = prepared.tag;
  if (place != 0) tag = mixed(tag, place);
  if (other != 0) tag = mixed(tag, other);
  if (layout != 0 && operation.count != 0) tag = mixed(tag, std::exchange(layout, 0));
  return journal_.enterOnDevice(operation, prepared, tag, place);
}

Status DeviceEngine::run(const Operation& operation, Prepared& prepared, uint64_t& layout) {
  const Running running = enter(operation, prepared, layout);
  if (operation.count == 0) return journal_.conclude(running, kOkStatus);
  Arguments& arguments = prepared.arguments;
  arguments.send = static_cast<const std::byte*>(operation.send);
  arguments.receive = static_cast<std::byte*>(operation.receive);
  arguments.norm = operation.norms() ? &operation.norm : nullptr;
  return launch(running, prepared.plan, arguments);
}

Status DeviceEngine::launch(const Running& running, const planner::Plan& plan, const Arguments& arguments) {
  const Operation& operation = *running.operation;
  Profile& profile = journal_.profile();
  executors::cuda::Launch launch = launchOf(operation, plan, arguments);
  launch.tag = running.tag;
  launch.sequence = running.sequence;
  AddressOfRanks sends, receives;
  if (plan.protocol == planner::Protocol::kCopy) {
    launch.receives = addressesOf(side().resultsOf(operation), receives);
  } else if (algorithms::isPull(plan.protocol)) {
    const PullPlaces pulls = side().pullsOf(operation);
    watchdog_.notePeerReads();
    launch.sends = addressesOf(pulls.inputs, sends);
    launch.receives = addressesOf(pulls.results, receives);
  }
  const bool counted = plan.algorithm != planner::Algorithm::kLocal;
  if (profile.wantsKernels(operation)) [[unlikely]]
    followKernels();
  LaunchLog::Entry entry;
  entry.firstLaunch = side().lastLaunch().number + 1;
  Status status = counted ? reachWindows(DeviceSide::kEverybody) : kOkStatus;
  if (status.ok()) status = side().launch(launch, operation.stream);
  if (profile.on() && status.ok()) [[unlikely]]
    reportLaunched(operation, plan, side().lastLaunch());
  const auto [collectives, oneSided] = side().counted();
  if (counted) {
    entry.ends = {collectives, LaunchLog::Entry::kNotByThese};
  } else {
    entry.ends = {collectives + 1, oneSided + 1};
  }
  entry.lastLaunch = side().lastLaunch().number;
  return concludeLaunch(running, std::move(entry), status);
}

void DeviceEngine::reportLaunched(const Operation& operation, const planner::Plan& plan,
                                  const executors::cuda::Engine::Launched& launched) {
  if (side().lastRuns()) {
    journal_.profile().enqueued(operation, plan, launched);
  } else {
    journal_.profile().captured(operation, launched);
  }
}

// The operation is announced by now, and goes on without its stamps if they cannot be had; so do all later
// ones.
void DeviceEngine::followKernels() {
  const std::string before = lastError();
  Profile& profile = journal_.profile();
  Status status = side().wantStamps();
  if (status.ok()) {
    status = profile.followKernels([device = &side()](std::span<KernelStamp> stamps, uint64_t& lost) {
      return device->takeStamps(stamps, lost);
    });
  }
  if (status.ok()) return;
  STRETTO_LOG(kWarn, kProfile, "rank %d: the profiler plugin is not told when kernels run: %s", self_.rank(),
              lastError().c_str());
  setLastError(before);
  profile.doWithoutKernels();
}

Status DeviceEngine::runTransfers(const Operation& first, std::span<const Operation> operations) {
  Profile& profile = journal_.profile();
  Running running = journal_.enterUnnumbered(first);
  running.watched = Profile::anyReported(operations);
  for (const Operation& operation : operations) {
    if (profile.wantsKernels(operation)) [[unlikely]]
      followKernels();
  }
  Status status;
  for (const Operation& operation : operations) {
    if (status.ok() && operation.isTransfer() && operation.count != 0) status = reachWindows(operation.root);
  }
  LaunchLog::Entry entry = entryOf(operations);
  entry.firstLaunch = side().lastLaunch().number + 1;
  if (status.ok()) status = side().launchTransfers(operations);
  entry.lastLaunch = side().lastLaunch().number;
  const auto [collectives, oneSided] = side().counted();
  entry.ends = {collectives + 1, oneSided + 1};
  if (profile.on() && status.ok() && side().lastRuns()) [[unlikely]] {
    for (const Operation& operation : operations) {
      if (operation.isTransfer()) profile.enqueued(operation, {}, side().lastTransfers(operation));
    }
  }
  return concludeLaunch(running, std::move(entry), status);
}

// As between CPU ranks. What lies where a peer's window lay may be another's by now.
Status DeviceEngine::mayPutTo(int peer) const {
  const int rank = self_.rank();
  const WindowHeader& theirs = connections_.peers[static_cast<size_t>(peer)].header();
  if (peer == rank || !callsNothingMore(theirs)) return kOkStatus;
  if (hasFailed(theirs)) STRETTO_TRY(health_.reasonSoon());
  return failAbout(peer, Code::kRemote,
                   "rank %d has finalised its communicator, or given up on it, before rank %d signalled it",
                   peer, rank);
}

// One that waits for signals moves no message: a peer's launch that moves messages does not end its wait.
Status DeviceEngine::runOneSided(const Running& running) {
  const Operation& operation = *running.operation;
  LaunchLog::Entry entry;
  entry.first = callWithPeer(operation);
  entry.firstLaunch = side().lastLaunch().number + 1;
  Status status = operation.collective == Collective::kWaitSignal ? kOkStatus : mayPutTo(operation.root);
  if (status.ok()) status = reachWindows(operation.root);
  if (status.ok()) status = side().launchOneSided(operation);
  entry.lastLaunch = side().lastLaunch().number;
  entry.ends = {LaunchLog::Entry::kNotByThese, side().counted().oneSided};
  return concludeLaunch(running, std::move(entry), status);
}

// Plans the collectives of a group and gives them their channels. Returns what tells groups of other channels
// from this one; 0 for channels that the same calls would have without a group. What cannot be planned says
// so when it is run.
uint64_t DeviceEngine::layOut(std::span<const Operation> operations) {
  together_.placed.clear();
  for (const Operation& operation : operations) {
    if (!operation.isCollective()) continue;
    Together::Placed& placed = together_.placed.emplace_back();
    if (operation.count == 0) continue;
    Prepared* prepared = nullptr;
    if (!plans_.prepare(operation, prepared).ok()) continue;
    placed.plan = prepared->plan;
    placed.launch = launchOf(operation, placed.plan, prepared->arguments);
    placed.launch.arguments.send = static_cast<const std::byte*>(operation.send);
    placed.launch.arguments.receive = static_cast<std::byte*>(operation.receive);
    placed.shares = side().mayShare(placed.launch);
  }
  together_.channels.clear();
  for (const Together::Placed& placed : together_.placed) {
    together_.channels.push_back({placed.shares, placed.launch.blocks});
  }
  giveChannels(together_.channels, side().shape().channels, [this](size_t place) {
    executors::cuda::Launch launch = together_.placed[place].launch;
    return leastBlocks(launch.blocks, [&](int blocks) {
      launch.blocks = blocks;
      return side().mayShare(launch);
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
    layout = mixed(layout, static_cast<uint64_t>(given.first) << 32 | static_cast<uint64_t>(given.blocks));
  }
  return differs ? layout : 0;
}

// What can shares a launch with those before it; what cannot comes after them. Ranks that group the same
// calls in another way would wait in other channels: the first call's tag tells them at once.
Status DeviceEngine::runTogether(std::span<const Operation> operations) {
  together_.clear();
  uint64_t layout = layOut(operations);
  auto placed = together_.placed.begin();
  for (const Operation& operation : operations) {
    if (!operation.isCollective()) continue;
    const Together::Placed& own = *placed++;
    if (joins(operation, own, layout)) continue;
    STRETTO_TRY(launchTogether());
    if (joins(operation, own, layout)) continue;
    Prepared* prepared = nullptr;
    if (const Status status = plans_.prepare(operation, prepared); !status.ok())
      return journal_.refusePlan(operation, status);
    STRETTO_TRY(run(operation, *prepared, layout));
  }
  return launchTogether();
}

// False if it must be launched by itself, or not with those that wait. Else it has been called, and waits
// too.
bool DeviceEngine::joins(const Operation& operation, const Together::Placed& placed, uint64_t& layout) {
  const bool may =
      placed.shares && together_.isOn(operation.stream) && side().joins(together_.launches(), placed.launch);
  if (!may) return false;
  const Running running = enter(operation, plans_.preparedAs(operation, placed.plan), layout);
  executors::cuda::Launch launch = placed.launch;
  launch.tag = running.tag;
  launch.sequence = running.sequence;
  together_.add({running, placed.plan}, launch);
  return true;
}

// Each is concluded as if it had been launched by itself.
Status DeviceEngine::launchTogether() {
  if (together_.empty()) return kOkStatus;
  Profile& profile = journal_.profile();
  for (size_t i = 0; i < together_.size(); ++i) {
    if (profile.wantsKernels(*together_[i].running.operation)) [[unlikely]]
      followKernels();
  }
  Status status = reachWindows(DeviceSide::kEverybody);
  if (status.ok()) status = side().launchTogether(together_.launches(), together_.stream());
  const uint64_t before =
      side().counted().collectives - (status.ok() && side().lastRuns() ? together_.size() : 0);
  Status first;
  for (size_t i = 0; i < together_.size(); ++i) {
    const Together::Member& member = together_[i];
    if (profile.on() && status.ok()) [[unlikely]]
      reportLaunched(*member.running.operation, member.plan, side().lastOf(i));
    LaunchLog::Entry entry;
    entry.ends = {before + 1 + i, LaunchLog::Entry::kNotByThese};
    entry.firstLaunch = entry.lastLaunch = side().lastOf(i).number;
    const Status own = concludeLaunch(member.running, std::move(entry), status);
    if (first.ok()) first = own;
  }
  together_.clear();
  return first;
}

// In the flight recorder an operation goes on until it is seen to be done, when so many kernels have ended;
// one that was captured ends here. What is not counted itself is done when the next one that is counted is.
Status DeviceEngine::concludeLaunch(const Running& running, LaunchLog::Entry entry, Status status) {
  if (!status.ok()) {
    const bool isNews = health_.state() != State::kFailed;
    status = journal_.conclude(running, status);
    if (!isNews || health_.state() != State::kFailed) return status;
    health_.raiseAbort(status);
    health_.notifyPeers("could not launch an operation");
    return status;
  }
  if (!side().lastRuns()) {
    if (!entry.messages.empty()) watchdog_.loseCount();
    return journal_.conclude(running, status);
  }
  journal_.enqueued(running);
  entry.place = running.recorded;
  entry.sequence = running.sequence;
  watchdog_.note(std::move(entry));
  return kOkStatus;
}

}  // namespace stretto::communicator
