#include "communicator/core/one_sided.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.hpp"
#include "communicator/core/gather.hpp"
#include "memory/freed_mark.hpp"
#include "memory/user_memory.hpp"

namespace stretto::communicator {
namespace {

constexpr size_t kNumbers = size_t{OneSided::kContexts} * OneSided::kSignals;

// A rank's status, gathered after it has checked its arguments and again after it has opened the others'
// buffers.
struct WindowStatus {
  uint8_t code = 0;
  char text[399] = {};
};

WindowStatus outcomeOf(Status status) {
  WindowStatus outcome;
  outcome.code = static_cast<uint8_t>(status.code);
  if (!status.ok()) snprintf(outcome.text, sizeof outcome.text, "%s", lastError().c_str());
  return outcome;
}

// The first rank that cannot go on; the same for all.
Status firstRefusal(const PerRank<WindowStatus>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const WindowStatus theirs = outcomes[rank];
    if (theirs.code == 0) continue;
    return failAbout(static_cast<int>(rank), static_cast<Code>(theirs.code),
                     "rank %zu could not register the window: %.*s", rank,
                     static_cast<int>(sizeof theirs.text), theirs.text);
  }
  return kOkStatus;
}

}  // namespace

struct OneSided::Offer {
  Shareable buffer;
  uint64_t bytes = 0;
};

void OneSided::open(int rank, std::span<const Peer> peers, size_t countersOffset) {
  rank_ = rank;
  peers_ = peers;
  countersOffset_ = countersOffset;
}

// The object may stay for long after this, in a communicator that was destroyed. Not `= {}`: a vector keeps
// its room then.
void OneSided::close() {
  const std::lock_guard lock(windowsMutex_);
  std::vector<Window>().swap(windows_);
  std::vector<uint64_t>().swap(sent_);
  std::vector<uint64_t>().swap(taken_);
  peers_ = {};
}

// Three exchanges: a rank may free its buffer or leave when the registration has returned, so it returns when
// all have opened what the others offer.
Status OneSided::registerWindow(bootstrap::Membership& membership, const Registration& mine) {
  Status able = mine.refused;
  if (able.ok() && windows_.size() >= kMostWindows) {
    able = fail(Code::kInvalidUsage, "rank %d has %zu windows of this communicator: deregister some first",
                rank_, windows_.size());
  }
  const auto refusals = gather(membership, "window refused", outcomeOf(able), mine.timeoutSeconds);
  if (!refusals.ok()) return refusals.status();
  STRETTO_TRY(able);
  STRETTO_TRY(firstRefusal(refusals.value()));

  Offer offer;
  offer.buffer = memory::describe(mine.buffer, mine.bytes);
  offer.buffer.address = reinterpret_cast<uint64_t>(mine.buffer);
  offer.bytes = mine.bytes;
  const auto offers = gather(membership, "window", offer, mine.timeoutSeconds);
  if (!offers.ok()) return offers.status();
  Window window{mine.handle, mine.bytes, {}};
  const Status opened = openAll(offers.value().all(), window);
  const auto outcomes = gather(membership, "window opened", outcomeOf(opened), mine.timeoutSeconds);
  if (!outcomes.ok()) return outcomes.status();
  STRETTO_TRY(opened);
  STRETTO_TRY(firstRefusal(outcomes.value()));
  const std::lock_guard lock(windowsMutex_);
  windows_.push_back(std::move(window));
  return kOkStatus;
}

Status OneSided::openAll(std::span<const Offer> offers, Window& window) const {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (offers[rank].bytes != window.bytes) {
      return failAbout(peer, Code::kInvalidUsage,
                       "ranks disagree: rank %d registers a window of %zu bytes, rank %d one of %llu", rank_,
                       window.bytes, peer, static_cast<unsigned long long>(offers[rank].bytes));
    }
    auto place = openPlace(offers[rank], peer, window.bytes);
    if (!place.ok()) return place.status();
    window.places.push_back(std::move(place.value()));
  }
  return kOkStatus;
}

Result<OneSided::Place> OneSided::openPlace(const Offer& theirs, int peer, size_t bytes) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  const Shareable& buffer = theirs.buffer;
  Place place;
  place.there = buffer.address;
  if (peer == rank_ || other.reach == PeerAccess::kAddress) {
    place.here = reinterpret_cast<std::byte*>(buffer.address);
    return place;
  }
  if (buffer.id == 0) return place;
  const uint64_t offset = buffer.address - buffer.base;
  const uint64_t most = buffer.bytes - memory::kMarkBytes;
  if (buffer.address < buffer.base || buffer.bytes < memory::kMarkBytes || offset > most ||
      bytes > most - offset) {
    return failAbout(peer, Code::kInternal, "rank %d described a window outside its own segment", peer);
  }
  auto mapping =
      platform::SharedMemory::open(other.process, static_cast<int>(buffer.descriptor), buffer.bytes);
  if (!mapping.ok()) return mapping.status();
  place.mapping = std::move(mapping.value());
  place.here = place.mapping.data() + offset;
  return place;
}

void OneSided::deregisterWindow(const void* handle) {
  const std::lock_guard lock(windowsMutex_);
  std::erase_if(windows_, [&](const Window& window) { return window.handle == handle; });
}

const OneSided::Window* OneSided::find(const void* handle) const {
  const auto found =
      std::find_if(windows_.begin(), windows_.end(), [&](auto& window) { return window.handle == handle; });
  return found == windows_.end() ? nullptr : &*found;
}

Status OneSided::address(const void* handle, int peer, size_t offset, void** out) const {
  const std::lock_guard lock(windowsMutex_);
  const Window* const window = find(handle);
  if (window == nullptr) {
    return fail(Code::kInvalidUsage,
                "%p is not a window that all ranks have registered (NCCL_WIN_COLL_SYMMETRIC)", handle);
  }
  if (peer < 0 || static_cast<size_t>(peer) >= window->places.size() || offset > window->bytes) {
    return fail(Code::kInvalidArgument, "rank %d, byte %zu: the window has %zu ranks and %zu bytes", peer,
                offset, window->places.size(), window->bytes);
  }
  std::byte* const here = window->places[static_cast<size_t>(peer)].here;
  if (here == nullptr) {
    return failAbout(peer, Code::kInvalidUsage,
                     "rank %d has registered ordinary memory of another process, which has no address here: "
                     "register memory of ncclMemAlloc",
                     peer);
  }
  *out = here + offset;
  return kOkStatus;
}

Status checkPeer(const Operation& operation, int ranks) {
  if (operation.root >= 0 && operation.root < ranks) return kOkStatus;
  return fail(Code::kInvalidArgument, "%s: peer %d is not a rank: this communicator has ranks 0 to %d",
              nameOf(operation.collective), operation.root, ranks - 1);
}

Status checkLocalBuffer(const Operation& operation) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(operation.count, sizeOf(operation.type), &bytes)) {
    return fail(Code::kInvalidArgument, "%s: %zu elements of %s are more bytes than there can be",
                nameOf(operation.collective), operation.count, nameOf(operation.type));
  }
  if (operation.send != nullptr || operation.count == 0) return kOkStatus;
  return fail(Code::kInvalidArgument, "%s: the local buffer is null, with %zu bytes to move",
              nameOf(operation.collective), operation.bytes());
}

Status OneSided::check(const Operation& operation) const {
  const std::lock_guard lock(windowsMutex_);
  const char* const name = nameOf(operation.collective);
  STRETTO_TRY(checkPeer(operation, static_cast<int>(peers_.size())));
  if (operation.collective != Collective::kPut) return kOkStatus;
  const Window* const window = find(operation.receive);
  if (window == nullptr) {
    return fail(Code::kInvalidArgument,
                "%s: %p is not a window that all ranks have registered (NCCL_WIN_COLL_SYMMETRIC)", name,
                operation.receive);
  }
  size_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(operation.count, sizeOf(operation.type), &bytes);
  if (overflows || operation.offset > window->bytes || bytes > window->bytes - operation.offset) {
    return fail(Code::kInvalidArgument,
                "%s: %zu elements of %s from byte %zu on do not fit in a window of %zu", name,
                operation.count, nameOf(operation.type), operation.offset, window->bytes);
  }
  if (bytes == 0) return kOkStatus;
  STRETTO_TRY(checkLocalBuffer(operation));
  const Place& place = window->places[static_cast<size_t>(operation.root)];
  if (place.here != nullptr || peers_[static_cast<size_t>(operation.root)].reach == PeerAccess::kCopy)
    return kOkStatus;
  return failAbout(
      operation.root, Code::kInvalidUsage,
      "%s: the kernel lets this process not write into rank %d's: register memory of ncclMemAlloc", name,
      operation.root);
}

uint64_t* OneSided::counterAt(int peer, int sender, uint32_t number) const {
  std::byte* const counters = peers_[static_cast<size_t>(peer)].window + countersOffset_;
  return reinterpret_cast<uint64_t*>(counters) + static_cast<size_t>(sender) * kNumbers + number;
}

// Most communicators have no use for them.
uint64_t& OneSided::count(std::vector<uint64_t>& counts, int peer, uint32_t number) const {
  if (counts.empty()) counts.resize(peers_.size() * kNumbers);
  return counts[static_cast<size_t>(peer) * kNumbers + number];
}

Status OneSided::run(Host& host, const Operation& operation) {
  if (operation.collective == Collective::kWaitSignal) return wait(host, operation);
  if (operation.collective == Collective::kPut && operation.count != 0) STRETTO_TRY(put(host, operation));
  uint64_t& sent = count(sent_, operation.root, operation.signal);
  uint64_t* const counter = counterAt(operation.root, rank_, operation.signal);
  STRETTO_TRY(host.signalWord(operation.root, counter, sent + 1));
  ++sent;
  return kOkStatus;
}

Status OneSided::put(Host& host, const Operation& operation) const {
  const Window* const window = find(operation.receive);
  if (window == nullptr) {
    return fail(Code::kInvalidUsage, "rank %d: the window was deregistered before the put", rank_);
  }
  const Place& place = window->places[static_cast<size_t>(operation.root)];
  std::byte* const here = place.here == nullptr ? nullptr : place.here + operation.offset;
  return host.putOutside(operation.root, here, place.there + operation.offset, operation.send,
                         operation.bytes());
}

// Signals of this rank to itself have come before, or never will.
Status OneSided::wait(Host& host, const Operation& operation) {
  uint64_t& taken = count(taken_, operation.root, operation.signal);
  const uint64_t value = taken + operation.count;
  if (operation.root == rank_ && count(sent_, rank_, operation.signal) < value) {
    return fail(Code::kInvalidUsage, "rank %d waits for %zu signals of its own and has sent itself %llu",
                rank_, operation.count,
                static_cast<unsigned long long>(count(sent_, rank_, operation.signal) - taken));
  }
  CallRecord call{};
  call.count = operation.count;
  call.startedTicks = platform::ticks();
  call.collective = static_cast<uint8_t>(Collective::kWaitSignal);
  call.op = 0xff;
  call.root = operation.root;
  STRETTO_TRY(
      host.waitSignal(operation.root, counterAt(rank_, operation.root, operation.signal), value, call));
  taken = value;
  return kOkStatus;
}

}  // namespace stretto::communicator
