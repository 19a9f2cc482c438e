#include "communicator/device/side.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "communicator/core/apart.hpp"
#include "communicator/core/one_sided.hpp"
#include "communicator/core/tags.hpp"
#include "platform/clock.hpp"

namespace stretto::communicator {
namespace {

using executors::cuda::DeviceTransfer;
using executors::cuda::Order;
using platform::cuda::Place;

constexpr int kPageBits = 21;

}  // namespace

Result<std::unique_ptr<DeviceSide>> DeviceSide::create(DeviceConnections connections, const Connections& host,
                                                       int rank, int ranks, Limits limits) {
  const platform::cuda::ScopedDevice current(connections.device);
  STRETTO_TRY(current.status());
  executors::cuda::Setup setup;
  setup.device = connections.device;
  setup.rank = rank;
  setup.ranks = ranks;
  setup.shape = connections.shape;
  setup.timeoutSeconds = limits.timeoutSeconds;
  setup.sharedDevice = connections.mayShare;
  setup.residentBlocks = connections.residentBlocks;
  auto engine = executors::cuda::Engine::create(setup);
  if (!engine.ok()) return engine.status();
  std::unique_ptr<DeviceSide> side(new DeviceSide(std::move(connections), host, rank, ranks, limits));
  side->engine_ = std::move(engine.value());
  if (side->connections_.proxied) STRETTO_TRY(side->useProxy(host.far));
  return side;
}

// Nobody opens anything: peers fill the window when they like, also before this rank has called anything.
Status DeviceSide::useProxy(const FarLinks& far) {
  auto proxy = links::net::Proxy::create({far, connections_.device, rank_, ranks_, connections_.shape});
  if (!proxy.ok()) return proxy.status();
  proxy_ = std::move(proxy.value());
  windowsOf_ = proxy_->windows();
  reachesAll_ = true;
  return engine_->useWindows(windowsOf_.data());
}

Status describe(const stretto::cuda::Shape& shape, const planner::Gpus& gpus, planner::Machine& machine) {
  machine.gpu = true;
  machine.gpus = gpus;
  machine.channels = shape.channels;
  machine.warpChunkChannels = shape.warpChunkChannels;
  machine.deepChannels = shape.deepChannels;
  if (parameters::kBlocks.isSet()) {
    const auto blocks = parameters::kBlocks.integer(1, kMostChannels);
    if (!blocks.ok()) return blocks.status();
    machine.blocks = static_cast<int>(blocks.value());
  }
  machine.reach = false;
  machine.cacheBytes = 0;
  machine.slotBytes = shape.layout.slotBytes;
  machine.linkChunk = shape.layout.linkChunk;
  machine.lineBytes = stretto::cuda::linePayload(shape.layout);
  machine.ll128Bytes = stretto::cuda::ll128Payload(shape.layout);
  machine.lamportBytes = stretto::cuda::lamportPayload(shape.layout);
  machine.warpChunkBytes = shape.layout.warpChunkBytes;
  return kOkStatus;
}

// ---- Device windows ---------------------------------------------------------------------------------------

// The thread shares the windows and nothing else, so that nobody waits for it.
void DeviceSide::serveSoon() {
  if (proxy_ != nullptr || !reached_->isWanted()) return;
  (void)startApart(rank_, connections_.device, "to make its device window for peers that wait",
                   [reached = reached_] { reached->serve(); });
}

Status DeviceSide::reach(int peer, const std::function<void()>& nudge) {
  STRETTO_TRY(reached_->offer());
  if (reached_->isMissing()) nudge();
  STRETTO_TRY(reached_->open(peer));
  const auto addresses = reached_->addresses();
  if (addresses != windowsOf_) STRETTO_TRY(engine_->useWindows(addresses.data()));
  windowsOf_ = addresses;
  hasReached_ = true;
  reachesAll_ = absentee() < 0;
  if (!reachesAll_) serveSoon();
  return kOkStatus;
}

int DeviceSide::absentee() const {
  for (int peer = 0; peer < ranks_; ++peer) {
    if (windowsOf_[static_cast<size_t>(peer)] == nullptr) return peer;
  }
  return -1;
}

// ---- Buffers ----------------------------------------------------------------------------------------------

Status DeviceSide::checkBuffers(const Operation& operation) {
  using C = Collective;
  if (operation.count == 0) return kOkStatus;
  if (operation.norms()) {
    for (const NormBuffer& buffer : buffersOfNorm(operation))
      STRETTO_TRY(checkBuffer(operation, buffer.place, buffer.name));
    return kOkStatus;
  }
  if (operation.isOneSided())
    return operation.collective == C::kPut ? checkBuffer(operation, operation.send, "local") : kOkStatus;
  const bool isRoot = rank_ == operation.root;
  const bool sends = isRoot || (operation.collective != C::kBroadcast && operation.collective != C::kScatter);
  const bool receives = isRoot || (operation.collective != C::kReduce && operation.collective != C::kGather);
  if (sends) STRETTO_TRY(checkBuffer(operation, operation.send, "send"));
  return receives ? checkBuffer(operation, operation.receive, "receive") : kOkStatus;
}

Status DeviceSide::checkBuffer(const Operation& operation, const void* buffer, const char* which) {
  if (buffer == nullptr) return kOkStatus;
  const uintptr_t page = reinterpret_cast<uintptr_t>(buffer) >> kPageBits;
  uintptr_t& known = places_[page % kKnownPlaces];
  if (known == page) [[likely]] {
    return kOkStatus;
  }
  const auto capture = Order::captureOf(operation.stream);
  if (!capture.ok()) return capture.status();
  if (capture.value() != 0) return kOkStatus;
  const auto place = platform::cuda::placeOf(buffer);
  if (!place.ok()) return place.status();
  const auto& [where, device] = place.value();
  if (where == Place::kHost) {
    return fail(
        Code::kInvalidArgument,
        "%s: the %s buffer %p is ordinary host memory, and rank %d is on GPU %d: pass memory of that GPU, or "
        "set STRETTO_DEVICE=cpu for ranks in host memory",
        nameOf(operation.collective), which, buffer, rank_, connections_.device);
  }
  if (where == Place::kDevice && device != connections_.device) {
    if (!platform::cuda::canAccess(connections_.device, device)) {
      return fail(Code::kInvalidArgument,
                  "%s: the %s buffer %p is memory of GPU %d, which rank %d on GPU %d cannot reach",
                  nameOf(operation.collective), which, buffer, device, rank_, connections_.device);
    }
    STRETTO_TRY(platform::cuda::enablePeerAccess(connections_.device, device));
    if (!platform::cuda::mayUse(connections_.device, buffer)) {
      return fail(Code::kInvalidArgument,
                  "%s: the %s buffer %p is mapped memory of GPU %d that GPU %d of rank %d may not use: grant "
                  "it with cuMemSetAccess",
                  nameOf(operation.collective), which, buffer, device, connections_.device, rank_);
    }
  }
  // Pinned memory may share its page with ordinary memory.
  if (where != Place::kHostPinned) known = page;
  return kOkStatus;
}

// ---- Windows ----------------------------------------------------------------------------------------------

// Said once: what goes for one buffer goes for most.
Status DeviceSide::registerWindow(bootstrap::Membership& membership, const void* handle,
                                  WindowRequest request) {
  request.number = windows_.nextNumber();
  request.rank = rank_;
  if (request.refused.ok()) request.refused = windows_.mayAdd(rank_);
  if (request.refused.ok()) request.refused = engine_->wantWindows();
  ConnectedWindow window;
  STRETTO_TRY(connectWindow(membership, connections_, request, window));
  if (!window.apart.empty() && !std::exchange(reportedApart_, true)) {
    STRETTO_LOG(kWarn, kInit,
                "rank %d: the window at %p (%zu bytes) is registered, but operations on it do without copy "
                "engines: %s. Said of the first such window only.",
                rank_, static_cast<void*>(request.buffer), request.bytes, window.apart.c_str());
  }
  windows_.add(handle, request.number, std::move(window));
  return kOkStatus;
}

void DeviceSide::addWindows(const Operation& operation, planner::Request& request) const {
  if (!windows_.any()) return;
  const bool isEmpty = operation.count == 0;
  const PullPlaces pulls = pullsOf(operation);
  request.windowed = isEmpty || resultsOf(operation).window != nullptr;
  request.pullsOnce = isEmpty || pulls.once();
  request.pullsTwice = isEmpty || pulls.twice();
}

// Copies to memory that has gone would take the whole process's use of the GPU with them.
void DeviceSide::deregisterWindow(const void* handle, const std::atomic<uint32_t>& ending) {
  constexpr double kPatience = 2.0;
  if (windows_.goesAtOnce(handle) && !idle(kPatience, [&] { return ending.load() != 0; })) {
    STRETTO_LOG(
        kInfo, kInit,
        "rank %d: its GPU was still busy %.0f s after a window was deregistered; its peers' memory stays "
        "mapped until the communicator ends",
        rank_, kPatience);
    return windows_.retire(handle);
  }
  windows_.remove(handle);
}

// ---- Enqueueing -------------------------------------------------------------------------------------------

template <typename Enqueue>
Status DeviceSide::inOrder(StreamHandle stream, const Enqueue& enqueue) {
  const platform::cuda::ScopedDevice current(connections_.device);
  STRETTO_TRY(current.status());
  const auto capture = Order::captureOf(stream);
  if (!capture.ok()) return capture.status();
  STRETTO_TRY(order_.before(stream, capture.value()));
  STRETTO_TRY(enqueue());
  if (proxy_ != nullptr) proxy_->wake();
  lastRuns_ = capture.value() == 0;
  return order_.after(stream, capture.value());
}

Status DeviceSide::launch(const executors::cuda::Launch& what, StreamHandle stream) {
  STRETTO_TRY(inOrder(stream, [&] { return engine_->launch(what, stream); }));
  if (lastRuns_) counted_.collectives += static_cast<uint64_t>(engine_->lastLaunch().kernels);
  return kOkStatus;
}

Status DeviceSide::launchTogether(std::span<const executors::cuda::Launch> launches, StreamHandle stream) {
  STRETTO_TRY(inOrder(stream, [&] { return engine_->launchTogether(launches, stream); }));
  if (lastRuns_) counted_.collectives += launches.size();
  return kOkStatus;
}

Status DeviceSide::launchTransfers(std::span<const Operation> operations) {
  transfers_.clear();
  std::vector<StreamHandle> streams;
  for (const Operation& operation : operations) {
    if (!operation.isTransfer()) continue;
    if (std::find(streams.begin(), streams.end(), operation.stream) == streams.end()) {
      streams.push_back(operation.stream);
    }
    if (operation.count == 0) continue;
    const bool isSend = operation.collective == Collective::kSend;
    DeviceTransfer& transfer = transfers_.emplace_back();
    transfer.isSend = isSend;
    transfer.peer = operation.root;
    transfer.data = static_cast<std::byte*>(isSend ? const_cast<void*>(operation.send) : operation.receive);
    transfer.bytes = operation.bytes();
    transfer.tag = transferTag(operation);
  }
  if (streams.empty()) return kOkStatus;
  const platform::cuda::ScopedDevice current(connections_.device);
  STRETTO_TRY(current.status());
  const StreamHandle main = streams.front();
  for (const StreamHandle other : std::span(streams).subspan(1)) STRETTO_TRY(order_.join(main, other));
  if (!transfers_.empty()) {
    STRETTO_TRY(inOrder(main, [&] { return engine_->launchTransfers(transfers_, 0, main); }));
  }
  for (const StreamHandle other : std::span(streams).subspan(1)) STRETTO_TRY(order_.join(other, main));
  return kOkStatus;
}

// A window's handle is `receive`.
Status DeviceSide::checkOneSided(const Operation& operation) const {
  STRETTO_TRY(checkPeer(operation, ranks_));
  if (operation.collective != Collective::kPut) return kOkStatus;
  static_assert(OneSided::kContexts * OneSided::kSignals == stretto::cuda::kSignals);
  STRETTO_TRY(checkLocalBuffer(operation));
  void* place = nullptr;
  return windows_.address(operation.receive, operation.root, operation.offset, operation.bytes(), &place);
}

Status DeviceSide::launchOneSided(const Operation& operation) {
  const int peer = operation.root;
  executors::cuda::DeviceSignal signal{peer, operation.signal};
  if (operation.collective == Collective::kPut && operation.count != 0) {
    void* place = nullptr;
    signal.bytes = operation.bytes();
    STRETTO_TRY(windows_.address(operation.receive, peer, operation.offset, signal.bytes, &place));
    signal.to = static_cast<std::byte*>(place);
    signal.from = static_cast<const std::byte*>(operation.send);
  }
  STRETTO_TRY(inOrder(operation.stream, [&] {
    return operation.collective == Collective::kWaitSignal
               ? engine_->launchWait(peer, operation.signal, operation.count, operation.stream)
               : engine_->launchSignal(signal, operation.stream);
  }));
  if (lastRuns_) ++counted_.oneSided;
  return kOkStatus;
}

// What moves nothing is not in the queue of its peer.
executors::cuda::Engine::Launched DeviceSide::lastTransfers(const Operation& operation) const {
  if (operation.count == 0) return {};
  return engine_->lastTransfers(operation.root, operation.collective == Collective::kSend);
}

// ---- The end ----------------------------------------------------------------------------------------------

executors::cuda::KernelCounts DeviceSide::finished() const {
  const platform::cuda::AmidCaptures amid;
  return engine_->finished();
}

LateLaunch::Found DeviceSide::late() {
  return late_.look(engine_->longLooks(), static_cast<double>(platform::monotonicNanoseconds()) * 1e-9);
}

// Whether graphs of this rank still run, or transfers, is the device's to say: kernels do not count those. Of
// a device that ranks share it is asked last: the kernel of another rank may wait for what this one calls
// next.
bool DeviceSide::idle(double seconds, const std::function<bool()>& ends) const {
  if (!order_.knowsItsEnd()) return platform::cuda::waitForDevice(connections_.device, seconds, ends);
  const uint64_t began = platform::monotonicNanoseconds();
  while (!order_.ended()) {
    if (platform::secondsSince(began) >= seconds || (ends && ends())) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

}  // namespace stretto::communicator
