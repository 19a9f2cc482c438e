// A job without a bootstrap, and the base of backends that watch or disturb the Host backend: everything an
// algorithm may call, passed on. For tests of algorithms.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "base/os.hpp"
#include "platform/shared_memory.hpp"
#include "primitives/host/host.hpp"

namespace stretto::testing {

// Windows of ranks that are threads of this process, and a Host for each. `reach` is how ranks read each
// other's ordinary memory.
class Job {
 public:
  Job(int ranks, uint32_t slotBytes, uint32_t linkChunk, PeerAccess reach)
      : layout_{static_cast<uint32_t>(ranks), slotBytes, linkChunk} {
    WaitPolicy policy;
    policy.yields = 50;
    policy.timeoutTicks = static_cast<uint64_t>(30 * platform::tickRate());
    for (int rank = 0; rank < ranks; ++rank) {
      auto memory = platform::SharedMemory::createPrivate(layout_.bytes());
      if (!memory.ok()) throw std::bad_alloc();
      windows_.push_back(std::move(memory.value()));
      Peer peer;
      peer.window = windows_.back().data();
      peer.rank = rank;
      peer.process = os::processId();
      peer.reach = reach;
      peers_.push_back(peer);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      hosts_.push_back(std::make_unique<Host>(rank, peers_, layout_, policy));
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int ranks() const { return static_cast<int>(peers_.size()); }
  Host& host(int rank) { return *hosts_[static_cast<size_t>(rank)]; }
  const WindowLayout& layout() const { return layout_; }

 private:
  WindowLayout layout_;
  std::vector<platform::SharedMemory> windows_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

class WrappedHost {
 public:
  using Coop = Host::Coop;
  static constexpr size_t kLineBytes = Host::kLineBytes;
  explicit WrappedHost(Host& host) : host_(host) {}

  int rank() const { return host_.rank(); }
  int ranks() const { return host_.ranks(); }
  Coop coop() const { return host_.coop(); }
  const WindowLayout& layout() const { return host_.layout(); }
  size_t lineBytes() const { return host_.lineBytes(); }
  uint64_t nextEpoch() { return host_.nextEpoch(); }
  uint64_t epoch() const { return host_.epoch(); }
  std::byte* slotAt(int peer, Phase phase) const { return host_.slotAt(peer, phase); }
  const std::byte* slotFrom(int source, Phase phase) const { return host_.slotFrom(source, phase); }
  Mailbox* mailboxAt(int peer, Phase phase) const { return host_.mailboxAt(peer, phase); }
  const Mailbox* mailboxFrom(int source, Phase phase) const { return host_.mailboxFrom(source, phase); }
  uint64_t count(const Mailbox* mailbox) const { return host_.count(mailbox); }
  Host::LinkCursors& cursors(int peer) { return host_.cursors(peer); }
  Mailbox* linkAt(int peer, uint64_t chunk) const { return host_.linkAt(peer, chunk); }
  const Mailbox* linkFrom(int source, uint64_t chunk) const { return host_.linkFrom(source, chunk); }
  Mailbox* creditAt(int sender) const { return host_.creditAt(sender); }
  const Mailbox* creditFrom(int receiver) const { return host_.creditFrom(receiver); }
  bool ready(const Mailbox* mailbox, uint64_t value) const { return host_.ready(mailbox, value); }
  std::byte* scratch(size_t bytes) { return host_.scratch(bytes); }

  void put(Coop coop, int peer, void* to, const void* from, size_t bytes) {
    host_.put(coop, peer, to, from, bytes);
  }
  void signal(Coop coop, int peer, Mailbox* mailbox, uint64_t value) {
    host_.signal(coop, peer, mailbox, value);
  }
  Status wait(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    return host_.wait(coop, peer, mailbox, value);
  }
  Status waitCount(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    return host_.waitCount(coop, peer, mailbox, value);
  }
  void putLines(Coop coop, int peer, const void* from, size_t bytes, Phase phase = Phase::kScatter) {
    host_.putLines(coop, peer, from, bytes, phase);
  }
  Status readLines(Coop coop, int peer, void* to, size_t bytes, Phase phase = Phase::kScatter) {
    return host_.readLines(coop, peer, to, bytes, phase);
  }
  Status reduceLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own, size_t bytes) {
    return host_.reduceLines(coop, spec, to, own, bytes);
  }
  Shareable describe(const void* buffer, size_t bytes) { return host_.describe(buffer, bytes); }
  Status locate(int peer, const Shareable& what, const std::byte*& at) {
    return host_.locate(peer, what, at);
  }
  Status beginReading() { return host_.beginReading(); }
  Status goOnReading() const { return host_.goOnReading(); }
  void pauseReading() const { host_.pauseReading(); }
  Status endReading() { return host_.endReading(); }
  void awaitReaders(Status why) { host_.awaitReaders(why); }
  bool sharesAddresses(int peer) const { return host_.sharesAddresses(peer); }
  Status get(Coop coop, int peer, void* to, const void* from, size_t bytes) {
    return host_.get(coop, peer, to, from, bytes);
  }
  void reduce(Coop coop, const ReduceSpec& spec, Destinations to, const std::byte* const* sources,
              int sourceCount, size_t count, bool stream) {
    host_.reduce(coop, spec, to, sources, sourceCount, count, stream);
  }
  void addNorm(Coop coop, const Arguments& arguments, const NormTokens& tokens) {
    host_.addNorm(coop, arguments, tokens);
  }
  std::byte* sums(size_t bytes) { return host_.sums(bytes); }
  void copy(Coop coop, void* to, const void* from, size_t bytes, bool stream) {
    host_.copy(coop, to, from, bytes, stream);
  }

 protected:
  // The rank in whose window an address lies, this one's included; -1 for ordinary memory.
  int ownerOf(const void* address) const {
    for (int rank = 0; rank < ranks(); ++rank) {
      const std::byte* begin = host_.peer(rank).window;
      if (address >= begin && address < begin + layout().bytes()) return rank;
    }
    return -1;
  }
  bool isRemote(const void* address) const {
    const int owner = ownerOf(address);
    return owner >= 0 && owner != rank();
  }

  Host& host_;
};

}  // namespace stretto::testing
