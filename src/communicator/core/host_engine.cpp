#include "communicator/core/host_engine.hpp"

#include <cmath>
#include <utility>

#include "base/parameters.hpp"
#include "communicator/core/host_memory.hpp"
#include "communicator/core/tags.hpp"
#include "primitives/host/reduce.hpp"

namespace stretto::communicator {
namespace {

using executors::host::HostTransfer;

// Spin while there is a core for everybody; give way at once when there is not.
Result<WaitPolicy> waitPolicy(int ranks, int cores) {
  const auto timeout = parameters::kTimeout.seconds(0.001, 1e7);
  if (!timeout.ok()) return timeout.status();
  const auto warnAfter = parameters::warnAfter();
  if (!warnAfter.ok()) return warnAfter.status();
  const auto late = parameters::flightLate();
  if (!late.ok()) return late.status();
  double spin = ranks <= cores ? 100 : 0;
  if (parameters::kSpin.isSet()) {
    const auto given = parameters::kSpin.integer(0, 1000000);
    if (!given.ok()) return given.status();
    spin = static_cast<double>(given.value());
  }
  WaitPolicy policy;
  policy.quickPolls = ranks <= cores ? 64 : 4;
  policy.spinTicks = static_cast<uint64_t>(spin * 1e-6 * platform::tickRate());
  policy.yields = 100;
  policy.timeoutTicks = static_cast<uint64_t>(timeout.value() * platform::tickRate());
  if (std::isfinite(warnAfter.value())) {
    policy.warnTicks = static_cast<uint64_t>(warnAfter.value() * platform::tickRate());
  }
  if (std::isfinite(late.value()))
    policy.lateTicks = static_cast<uint64_t>(late.value() * platform::tickRate());
  return policy;
}

// The last one that goes the same way between the same two ranks; -1: none.
inline int latestOf(std::span<const HostTransfer> transfers, const HostTransfer& next) {
  int at = static_cast<int>(transfers.size()) - 1;
  const auto isSame = [&](const HostTransfer& other) {
    return other.peer == next.peer && other.isSend == next.isSend;
  };
  while (at >= 0 && !isSame(transfers[static_cast<size_t>(at)])) --at;
  return at;
}

}  // namespace

Status HostEngine::opens(const Connections& connections, Setup setup) {
  auto policy = waitPolicy(self_.ranks(), setup.cores);
  if (!policy.ok()) return policy.status();
  if (setup.nudge) importer_.notifyOfReleases(std::move(setup.nudge));
  const int rank = self_.rank();
  linkChunk_ = setup.linkChunk;
  if (!connections.far.empty() && !self_.onDevice()) {
    policy.value().polls = true;
    policy.value().yields = 20;  // each look is a call of the kernel already
    const PeersInSight sight{connections.near, connections.standIns.heard()};
    links::net::SpreadHost::Far far{*connections.far.front(), connections.places, sight,
                                    std::move(setup.ask)};
    auto host = std::make_unique<links::net::SpreadHost>(rank, connections.peers, setup.layout,
                                                         policy.value(), &importer_, std::move(far));
    spread_ = host.get();
    host_ = std::move(host);
  } else {
    host_ = std::make_unique<Host>(rank, connections.peers, setup.layout, policy.value(), &importer_);
  }
  host_->reportWaits(std::move(setup.waits));
  oneSided_.open(rank, connections.peers, connections.signalsOffset());
  return kOkStatus;
}

void HostEngine::closes() {
  spread_ = nullptr;
  host_.reset();
  oneSided_.close();
  importer_.close();
  // Not `= {}`: a vector keeps its room then.
  std::vector<std::byte>().swap(scaled_);
  std::vector<HostTransfer>().swap(transfers_);
}

const std::byte* HostEngine::scaledInput(const Operation& operation, Counters& counters) {
  const size_t count = operation.count * blocksSent(operation.collective, self_.ranks());
  const size_t bytes = count * sizeOf(operation.type);
  if (scaled_.size() < bytes) {
    scaled_.resize(bytes);
    ++counters.allocations;
  }
  const void* scalar = operation.scalarPlace != nullptr ? operation.scalarPlace : operation.scalar;
  scale(operation.type, scaled_.data(), operation.send, scalar, count);
  return scaled_.data();
}

inline void HostEngine::listTransfers(std::span<const Operation> operations) {
  transfers_.clear();
  for (const Operation& operation : operations) {
    if (!operation.isTransfer()) continue;
    const bool isSend = operation.collective == Collective::kSend;
    HostTransfer transfer;
    transfer.isSend = isSend;
    transfer.peer = operation.root;
    transfer.data = static_cast<std::byte*>(isSend ? const_cast<void*>(operation.send) : operation.receive);
    transfer.bytes = operation.bytes();
    transfer.type = operation.type;
    transfer.tag = transferTag(operation);
    transfer.before = latestOf(transfers_, transfer);
    transfers_.push_back(transfer);
  }
}

FarSteps::Ways HostEngine::farWays() const {
  return {self_.ranks(), spread_->mostInFarChunk(), spread_->isOverSockets()};
}

Status HostEngine::runTransfers(std::span<const Operation> operations, bool reported, Profile& profile) {
  listTransfers(operations);
  executors::host::TransferWatch* watch = nullptr;
  if (reported && profile.on()) [[unlikely]]
    watch = profile.beginTransfers(operations, transfers_, linkChunk_);
  host_->begin(0, 0);
  const Status status = isSpread() ? executors::host::runTransfers(*spread_, transfers_, watch)
                                   : executors::host::runTransfers(*host_, transfers_, watch);
  host_->end();
  return status;
}

Result<bool> HostEngine::probe(int peer) {
  host_->begin(0, 0);
  auto found =
      isSpread() ? executors::host::hasArrived(*spread_, peer) : executors::host::hasArrived(*host_, peer);
  host_->end();
  return found;
}

Status HostEngine::runOneSided(const Operation& operation) {
  host_->begin(0, 0);
  const Status status = oneSided_.run(*host_, operation);
  host_->end();
  return status;
}

Status HostEngine::registerWindow(bootstrap::Membership& membership, const void* handle, void* buffer,
                                  size_t bytes, Status refused, double timeoutSeconds) {
  if (refused.ok()) refused = refuseDeviceMemory("ncclCommWindowRegister", "window", buffer, self_.rank());
  return oneSided_.registerWindow(membership,
                                  {handle, static_cast<std::byte*>(buffer), bytes, refused, timeoutSeconds});
}

void HostEngine::releaseMemory() {
  host_->releaseScratch();
  std::vector<std::byte>().swap(scaled_);
  importer_.unmap();
}

}  // namespace stretto::communicator
