// Turns what ranks know of each other into peers: the only place that sees both links and primitives. Runs
// once, while a communicator is made.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/membership.hpp"
#include "communicator/core/far.hpp"
#include "communicator/core/one_sided.hpp"
#include "communicator/device/kernel_waits.hpp"
#include "communicator/device/operation_log.hpp"
#include "communicator/device/own_window.hpp"
#include "links/endpoint.hpp"
#include "links/net/host_map.hpp"
#include "memory/imports.hpp"
#include "memory/region.hpp"
#include "memory/user_memory.hpp"
#include "planner/plan.hpp"
#include "primitives/peer.hpp"

namespace stretto::communicator {

// Everything that reaches other ranks. Peers point into region and links, which any copy keeps.
struct Connections {
  std::shared_ptr<memory::Region>
      region;                      // this rank's window, operation log, post, kernels' waits and signals
  size_t operationLogOffset = 0;   // of every rank's region
  std::vector<links::Link> links;  // by rank; this rank's own entry points at its own window
  std::vector<Peer> peers;         // by rank
  std::vector<Peer> near;          // those of them whose windows are here
  FarLinks far;                    // to ranks of other hosts; none if there are none
  StandIns standIns;               // of those, where ranks are in host memory
  links::net::HostMap places;      // which ranks share a host
  std::string apart;               // why ranks on GPUs cannot be connected here at all; else empty

  WindowHeader& header() const { return *reinterpret_cast<WindowHeader*>(region->data()); }
  OperationLog operationLog(int rank) const {
    return OperationLog(peers[static_cast<size_t>(rank)].window + operationLogOffset);
  }
  size_t windowOfferOffset() const { return operationLogOffset + OperationLog::kBytes; }
  size_t waitsOffset() const { return windowOfferOffset() + sizeof(WindowOffer); }
  size_t signalsOffset() const { return waitsOffset() + sizeof(KernelWaits); }
  WindowOffer& windowOffer(int rank) const {
    return *reinterpret_cast<WindowOffer*>(peers[static_cast<size_t>(rank)].window + windowOfferOffset());
  }
  KernelWaits& kernelWaits(int rank) const {
    return *reinterpret_cast<KernelWaits*>(peers[static_cast<size_t>(rank)].window + waitsOffset());
  }
};

// Shared buffers of users, for the backend: ours described, others' mapped.
class BufferImporter final : public Importer {
 public:
  ~BufferImporter() override { close(); }
  // `tell` lets peers in other processes know when memory is freed that was described to them.
  void notifyOfReleases(std::function<void()> notify) { memory::onRelease(this, std::move(notify)); }
  // Unmaps everything; nothing runs, and nobody is told any more.
  void close() {
    memory::dropOnRelease(this);
    imports_.clear();
  }
  Shareable describe(const void* address, size_t bytes) override {
    return memory::describe(address, bytes, this);
  }
  Result<const std::byte*> map(int peer, int process, const Shareable& what) override {
    return imports_.map(peer, process, what);
  }
  void endOperation() { imports_.endOperation(); }
  // Everything, between operations; it is mapped again when it is needed.
  void unmap() { imports_.clear(); }
  // A peer may have freed memory. Any thread.
  void sweep() { imports_.sweep(); }

 private:
  memory::Imports imports_;
};

// What connect() needs to know beforehand.
struct ConnectRequest {
  int rank = 0;
  int ranks = 1;
  uint32_t slotBytes = 0;
  uint32_t linkChunk = 0;
  uint64_t tableHash = 0;  // ranks must use the same measured table
  std::string forced;      // and force the same algorithms
  bool deterministic = false;
  bool onDevice = false;  // a GPU, which connectDevices() then connects
  double timeoutSeconds = 0;
};

// Why ranks of several hosts, which cannot be served here for the reason `why`, must not be handed over to
// NVIDIA's NCCL: connections are to be encrypted.
Status mayGoInPlainText(const Encryption& encryption, const std::string& why);

// Collective over the membership: makes the window, offers it, opens everybody else's, agrees with all ranks
// about what it found. On success `machine` holds what is the same everywhere. Ranks on GPUs of several hosts
// are no error: `apart` says so, and nothing is connected.
Status connect(bootstrap::Membership& membership, const ConnectRequest& request, Connections& connections,
               planner::Machine& machine);

}  // namespace stretto::communicator
