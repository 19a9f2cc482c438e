#include "communicator/device_side.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/parameters.hpp"
#include "platform/clock.hpp"

namespace stretto::communicator {
namespace {

using executors::cuda::Order;
using executors::cuda::Transfer;
using platform::cuda::Place;

constexpr int kPageBits = 21;

bool toSelf(const Operation& operation, int rank) {
  return operation.isTransfer() && operation.root == rank;
}

}  // namespace

Result<std::unique_ptr<DeviceSide>> DeviceSide::create(DeviceConnections connections, int rank, int ranks,
                                                       double timeoutSeconds) {
  const platform::cuda::ScopedDevice current(connections.device);
  STRETTO_TRY(current.status());
  executors::cuda::Setup setup;
  setup.device = connections.device;
  setup.rank = rank;
  setup.ranks = ranks;
  setup.layout = connections.shape.layout;
  setup.lanes = connections.shape.lanes;
  setup.timeoutSeconds = timeoutSeconds;
  setup.sharedDevice = connections.shared;
  for (size_t peer = 0; peer < connections.links.size(); ++peer) {
    setup.windows[peer] = connections.links[peer].window;
  }
  auto engine = executors::cuda::Engine::create(setup);
  if (!engine.ok()) return engine.status();
  std::unique_ptr<DeviceSide> side(new DeviceSide(std::move(connections), rank, ranks));
  side->engine_ = std::move(engine.value());
  return side;
}

Status describe(const DeviceShape& shape, planner::Machine& machine) {
  machine.gpu = true;
  machine.lanes = shape.lanes;
  if (parameters::kBlocks.isSet()) {
    const auto blocks = parameters::kBlocks.integer(1, kMostLanes);
    if (!blocks.ok()) return blocks.status();
    machine.blocks = static_cast<int>(blocks.value());
  }
  machine.reach = false;
  machine.sameProcess = false;
  machine.cacheBytes = 0;
  machine.slotBytes = shape.layout.slotBytes;
  machine.linkChunk = shape.layout.linkChunk;
  machine.lineBytes = shape.layout.lineRegion;
  machine.wideBytes = shape.layout.wideRegion;
  return kOkStatus;
}

// ---- Buffers ----------------------------------------------------------------------------------------------

Status DeviceSide::checkBuffers(const Operation& operation) {
  if (operation.count == 0) return kOkStatus;
  STRETTO_TRY(checkBuffer(operation, operation.send, "send"));
  return checkBuffer(operation, operation.receive, "receive");
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
    if (!platform::cuda::canReach(connections_.device, device)) {
      return fail(Code::kInvalidArgument,
                  "%s: the %s buffer %p is memory of GPU %d, which rank %d on GPU %d cannot reach",
                  nameOf(operation.collective), which, buffer, device, rank_, connections_.device);
    }
    STRETTO_TRY(platform::cuda::enableReach(connections_.device, device));
  }
  // Pinned memory may share its page with ordinary memory.
  if (where != Place::kHostPinned) known = page;
  return kOkStatus;
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
  if (capture.value() != 0) {
    captured_.store(true, std::memory_order_relaxed);
  } else {
    launched_.fetch_add(1, std::memory_order_relaxed);
  }
  return order_.after(stream, capture.value());
}

Status DeviceSide::launch(const executors::cuda::Launch& what, StreamHandle stream) {
  return inOrder(stream, [&] { return engine_->launch(what, stream); });
}

Status DeviceSide::launchTransfers(std::span<const Operation> operations) {
  transfers_.clear();
  std::vector<StreamHandle> streams;
  for (const Operation& operation : operations) {
    if (!operation.isTransfer()) continue;
    if (std::find(streams.begin(), streams.end(), operation.stream) == streams.end()) {
      streams.push_back(operation.stream);
    }
    if (operation.count == 0 || toSelf(operation, rank_)) continue;
    const bool isSend = operation.collective == Collective::kSend;
    Transfer& transfer = transfers_.emplace_back();
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
  STRETTO_TRY(copyToSelf(operations, main));
  if (!transfers_.empty()) {
    STRETTO_TRY(inOrder(main, [&] { return engine_->launchTransfers(transfers_, 0, main); }));
  }
  for (const StreamHandle other : std::span(streams).subspan(1)) STRETTO_TRY(order_.join(other, main));
  return kOkStatus;
}

// Messages to oneself: the k-th send meets the k-th receive.
Status DeviceSide::copyToSelf(std::span<const Operation> operations, StreamHandle stream) {
  std::vector<const Operation*> sends, receives;
  for (const Operation& operation : operations) {
    if (!toSelf(operation, rank_)) continue;
    (operation.collective == Collective::kSend ? sends : receives).push_back(&operation);
  }
  for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i >= sends.size() || i >= receives.size() || transferTag(*sends[i]) != transferTag(*receives[i])) {
      return fail(
          Code::kInvalidUsage,
          "rank %d sends to itself: the same group must hold a receive of the same count and type for every "
          "send, and the other way round",
          rank_);
    }
    if (sends[i]->count == 0 || sends[i]->send == receives[i]->receive) continue;
    STRETTO_TRY(
        platform::cuda::copyOnStream(receives[i]->receive, sends[i]->send, sends[i]->bytes(), stream));
  }
  return kOkStatus;
}

// ---- The end ----------------------------------------------------------------------------------------------

bool DeviceSide::idle(double seconds, const std::atomic<uint32_t>* ending) const {
  constexpr auto kNap = std::chrono::microseconds(100);
  constexpr double kSlice = 0.1;
  const uint64_t began = platform::monotonicNanoseconds();
  const auto left = [&] {
    return seconds - static_cast<double>(platform::monotonicNanoseconds() - began) * 1e-9;
  };
  const auto told = [&] { return ending != nullptr && ending->load() != 0; };
  while (finished() < launched()) {
    if (left() <= 0 || told()) return false;
    std::this_thread::sleep_for(kNap);
  }
  if (!captured_.load(std::memory_order_relaxed)) return true;
  // Replays are counted as finished only, so whether some still runs is the device's to say.
  while (!platform::cuda::waitForDevice(connections_.device, std::clamp(left(), 0.0, kSlice))) {
    if (left() <= 0 || told()) return false;
  }
  return true;
}

}  // namespace stretto::communicator
