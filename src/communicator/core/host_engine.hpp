// What runs the operations of a rank in host memory: the backend, the buffers that peers share with it, and
// one-sided operations. A rank on a GPU has one as well, for what it tells its peers through host windows,
// and runs nothing here.
//
// Invariant: between opens() and closes() peers, layout and backend stay as they are; nothing runs when it
// closes or is suspended. Memory grows at need and is kept for later operations.
//
// Threads: the one whose turn it is, but for address(), check() and sweep().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/membership.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/journal.hpp"
#include "communicator/core/one_sided.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/core/prepared.hpp"
#include "executors/host/transfers.hpp"
#include "primitives/host/host.hpp"

namespace stretto::communicator {

class HostEngine {
 public:
  explicit HostEngine(const Identity& self) : self_(self) {}

  // What is needed beside the connections, which outlive this.
  struct Setup {
    WindowLayout layout;
    uint32_t linkChunk = 0;  // what a link carries at once, between hosts too
    int cores = 1;
    // Lets peers in other processes know of memory that is freed; none where there are none.
    std::function<void()> nudge;
    std::function<void(WaitStage stage, int peer)> waits;  // as Host::reportWaits has it
    std::function<void(const RankSet& peers)> ask;         // as SpreadHost has it
  };
  Status opens(const Connections& connections, Setup setup);
  void closes();
  bool isOpen() const { return host_ != nullptr; }
  // Ranks in the memory of several hosts: the backend is a SpreadHost.
  bool isSpread() const { return spread_ != nullptr; }

  // A collective whose plan is `prepared`, with the buffers of this call.
  [[gnu::always_inline]] Status run(const Running& running, Prepared& prepared, Counters& counters) {
    const Operation& operation = *running.operation;
    Arguments& arguments = prepared.arguments;
    arguments.send = static_cast<const std::byte*>(operation.send);
    arguments.receive = static_cast<std::byte*>(operation.receive);
    arguments.norm = operation.norms() ? &operation.norm : nullptr;
    if (operation.scaled) [[unlikely]]
      arguments.send = scaledInput(operation, counters);
    host_->begin(running.tag, running.sequence);
    const Status status = prepared.run(*host_, arguments);
    host_->end();
    importer_.endOperation();
    return status;
  }
  // While it lives, `watch` is told of the chunks that collectives send to other hosts; null: nobody is.
  class Watching {
   public:
    Watching(HostEngine& host, links::net::ChunkWatch* watch) : spread_(*host.spread_) {
      spread_.setWatch(watch);
    }
    ~Watching() { spread_.setWatch(nullptr); }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

   private:
    links::net::SpreadHost& spread_;
  };
  // What there is to know of these chunks.
  FarSteps::Ways farWays() const;
  // The sends and receives among `operations`.
  Status runTransfers(std::span<const Operation> operations, bool reported, Profile& profile);
  // Whether a receive from that rank would find something.
  Result<bool> probe(int peer);
  Status runOneSided(const Operation& operation);

  // A window of the user's, as OneSided has it.
  Status registerWindow(bootstrap::Membership& membership, const void* handle, void* buffer, size_t bytes,
                        Status refused, double timeoutSeconds);
  OneSided& oneSided() { return oneSided_; }

  // A peer may have freed memory.
  void sweep() { importer_.sweep(); }
  WaitCounters waitCounters() const { return isOpen() ? host_->waitCounters() : WaitCounters{}; }
  // Gives back what is had again when it is needed; and how much that is.
  void releaseMemory();
  size_t releasableBytes() const { return isOpen() ? host_->scratchBytes() + scaled_.capacity() : 0; }

 private:
  const std::byte* scaledInput(const Operation& operation, Counters& counters);
  void listTransfers(std::span<const Operation> operations);

  const Identity& self_;
  BufferImporter importer_;
  std::unique_ptr<Host> host_;
  uint32_t linkChunk_ = 0;
  links::net::SpreadHost* spread_ = nullptr;  // host_, if it is one
  OneSided oneSided_;
  std::vector<std::byte> scaled_;  // PreMulSum's input
  std::vector<executors::host::HostTransfer> transfers_;
};

}  // namespace stretto::communicator
