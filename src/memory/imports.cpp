#include "memory/imports.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "memory/freed_mark.hpp"
#include "platform/own_thread.hpp"

namespace stretto::memory {
namespace {

// Unmapping a segment last frees its pages, some 2 GB of them a second; who is told that memory was freed has
// deaths to watch for.
constexpr size_t kMostAtOnce = size_t{16} << 20;

// Unmaps what is given, on a thread of its own if that may take long.
template <typename Mappings>
void drop(Mappings dead) {
  size_t bytes = 0;
  for (const auto& mapping : dead) bytes += mapping.memory.size();
  if (bytes <= kMostAtOnce) return;
  // Without a thread here: what it was to get is gone with the attempt.
  (void)platform::startAlone([last = std::move(dead)]() mutable { last.clear(); });
}

}  // namespace

Result<const std::byte*> Imports::map(int peer, int process, const Shareable& what) {
  const uint64_t offset = what.address - what.base;
  if (what.address < what.base || what.bytes < kMarkBytes || offset > what.bytes - kMarkBytes) {
    return failAbout(peer, Code::kInternal, "rank %d described a buffer outside its own segment", peer);
  }
  if (!holding_) beginOperation();
  const auto same = [&](const Mapping& mapping) { return mapping.peer == peer && mapping.id == what.id; };
  const auto known = std::find_if(mappings_.begin(), mappings_.end(), same);
  if (known != mappings_.end() && known->memory.size() == what.bytes) {
    mappings_.splice(mappings_.begin(), mappings_, known);
    mappings_.front().usedBy = operation_;
    return mappings_.front().memory.data() + offset;
  }
  auto opened = platform::SharedMemory::open(process, static_cast<int>(what.descriptor), what.bytes);
  if (!opened.ok()) return opened.status();
  drop(takeOldest(what.bytes));
  mappings_.push_front({peer, what.id, operation_, std::move(opened.value())});
  bytes_ += what.bytes;
  return mappings_.front().memory.data() + offset;
}

// Owners may have freed what they could not tell us of.
void Imports::beginOperation() {
  mutex_.lock();
  holding_ = true;
  ++operation_;
  drop(takeFreed());
}

void Imports::letGo() {
  holding_ = false;
  mutex_.unlock();
  sweepAsAsked();
}

void Imports::sweep() {
  asked_.store(true);
  sweepAsAsked();
}

// Whoever finds the mutex taken may leave: its holder looks at `asked_` after it has given the mutex back.
void Imports::sweepAsAsked() {
  while (asked_.load() && mutex_.try_lock()) {
    asked_.store(false);
    Mappings freed = takeFreed();
    mutex_.unlock();
    drop(std::move(freed));
  }
}

// In a forked child an operation of its parent's may hold the mutex for ever.
void Imports::clear() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  bytes_ = 0;
  mappings_.clear();
}

Imports::Mappings Imports::takeFreed() {
  Mappings freed;
  for (auto next = mappings_.begin(); next != mappings_.end();) {
    const auto mapping = next++;
    if (!isMarkedFreed(mapping->memory, mapping->id)) continue;
    bytes_ -= mapping->memory.size();
    freed.splice(freed.end(), mappings_, mapping);
  }
  return freed;
}

// The least recently used, so that `more` bytes can be mapped; none that the running operation uses.
Imports::Mappings Imports::takeOldest(size_t more) {
  Mappings oldest;
  const auto full = [&] {
    return mappings_.size() >= kMostMappings || bytes_ > kMostBytes || more > kMostBytes - bytes_;
  };
  while (full() && !mappings_.empty() && mappings_.back().usedBy != operation_) {
    bytes_ -= mappings_.back().memory.size();
    oldest.splice(oldest.end(), mappings_, std::prev(mappings_.end()));
  }
  return oldest;
}

}  // namespace stretto::memory
