#include "communicator/device/registered.hpp"

#include <algorithm>
#include <utility>

namespace stretto::communicator {

Status Windows::mayAdd(int rank) const {
  if (numbers_ > kMostNumber) {
    return fail(Code::kInvalidUsage, "rank %d has registered %llu windows: make a new communicator", rank,
                static_cast<unsigned long long>(kMostNumber));
  }
  if (entries_.size() < kMost) return kOkStatus;
  return fail(Code::kInvalidUsage,
              "rank %d has %zu windows of this communicator: deregister some first, or register larger ones",
              rank, entries_.size());
}

void Windows::add(const void* handle, uint64_t number, ConnectedWindow window) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({handle, number, std::move(window)});
}

void Windows::remove(const void* handle) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.handle == handle; });
}

bool Windows::goesAtOnce(const void* handle) const {
  const auto isMapped = [](const links::DeviceLink& link) { return link.import.isMapped(); };
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    const auto& links = entry.window.links;
    return entry.handle == handle && std::any_of(links.begin(), links.end(), isMapped);
  });
}

void Windows::retire(const void* handle) {
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.handle == handle) retired_.push_back(std::move(entry.window));
    }
  }
  remove(handle);
}

Status Windows::address(const void* handle, int peer, size_t offset, size_t bytes, void** out) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.handle == handle; });
  if (found == entries_.end() || found->window.links.empty()) {
    return fail(Code::kInvalidUsage,
                "%p is not a window that all ranks have registered (NCCL_WIN_COLL_SYMMETRIC) and reach%s%s",
                handle, found == entries_.end() ? "" : ": ",
                found == entries_.end() ? "" : found->window.apart.c_str());
  }
  const auto& links = found->window.links;
  const size_t whole = found->window.bytes;
  if (peer < 0 || static_cast<size_t>(peer) >= links.size() || offset > whole || bytes > whole - offset) {
    return fail(Code::kInvalidArgument,
                "rank %d, %zu bytes from byte %zu on: the window has %zu ranks and %zu bytes", peer, bytes,
                offset, links.size(), whole);
  }
  *out = links[static_cast<size_t>(peer)].window + offset;
  return kOkStatus;
}

WindowPlace Windows::find(const void* begin, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  for (const Entry& entry : entries_) {
    const auto first = reinterpret_cast<uintptr_t>(entry.window.begin);
    const uint64_t offset = address - first;
    if (address < first || offset > entry.window.bytes || entry.window.bytes - offset < bytes) continue;
    return entry.window.apart.empty() ? WindowPlace{&entry.window, entry.number, offset} : WindowPlace{};
  }
  return {};
}

WindowPlace Windows::resultsOf(const Operation& operation, int ranks) const {
  switch (operation.collective) {
    case Collective::kAllGather:
    case Collective::kBroadcast:
      break;
    // A rank's input must last while its peers' data comes.
    case Collective::kAllToAll:
      if (operation.send == operation.receive) return {};
      break;
    case Collective::kAllReduce:
      if (operation.send == operation.receive || operation.scaled) return {};
      break;
    default:
      return {};
  }
  return find(operation.receive, operation.bytes() * blocksReceived(operation.collective, ranks));
}

PullPlaces Windows::pullsOf(const Operation& operation) const {
  if (operation.collective != Collective::kAllReduce || operation.scaled) return {};
  return {find(operation.send, operation.bytes()), find(operation.receive, operation.bytes())};
}

}  // namespace stretto::communicator
