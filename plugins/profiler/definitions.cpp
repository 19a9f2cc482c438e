#include "profiler/definitions.hpp"

#include <atomic>
#include <cstring>

#include "profiler/steady_ticks.hpp"

namespace stretto::profiler {
namespace {

constexpr size_t kLongestString = 512;
constexpr size_t kMostStrings = 1 << 16;
constexpr int kAnchorTries = 5;

size_t padded(size_t bytes) {
  return (bytes + 7) & ~size_t{7};
}

struct Reading {
  uint64_t ticks = 0;
  uint64_t monotonic = 0;
  uint64_t realtime = 0;
  uint64_t uncertainty = ~uint64_t{0};
};

// Each clock is read between two readings of the monotonic one, so that it belongs to their middle.
Reading readClocks() {
  const bool counter = SteadyTicks::fromCounter();
  Reading best;
  for (int i = 0; i < kAnchorTries; ++i) {
    const uint64_t first = platform::monotonicNanoseconds();
    const uint64_t ticks = SteadyTicks::now(counter);
    const uint64_t second = platform::monotonicNanoseconds();
    const uint64_t real = platform::realtimeNanoseconds();
    const uint64_t third = platform::monotonicNanoseconds();
    const uint64_t width = third - first;
    if (width >= best.uncertainty * 2 && i > 0) continue;
    const uint64_t middle = first + (second - first) / 2;
    const uint64_t later = second + (third - second) / 2;
    best = {ticks, middle, real - (later - middle), width / 2 + 1};
  }
  return best;
}

}  // namespace

template <typename T>
void Definitions::append(format::Kind kind, T record, const char* text, size_t length) {
  if (!file_.isOpen()) return;
  const size_t bytes = sizeof(T) + padded(length);
  const uint64_t room = file_.segmentBytes() - format::kSegmentHeaderBytes;
  if (record.record.ticks == 0) record.record.ticks = SteadyTicks::now(SteadyTicks::fromCounter());
  if (segment_ == nullptr || used_ + bytes > room) {
    format::Segment* next =
        file_.take(format::SegmentKind::kDefinitions, format::kNone32, sequence_, record.record.ticks, 0);
    if (next == nullptr) return;
    segment_ = next;
    used_ = 0;
    ++sequence_;
  }
  record.record.bytes = static_cast<uint16_t>(bytes);
  record.record.kind = static_cast<uint8_t>(kind);
  record.record.type = 0;
  record.record.context = format::kNone32;
  char* at = reinterpret_cast<char*>(segment_) + format::kSegmentHeaderBytes + used_;
  memcpy(at, &record, sizeof record);
  if (length != 0) memcpy(at + sizeof record, text, length);
  used_ += bytes;
  std::atomic_ref(segment_->committed).store(used_, std::memory_order_release);
}

Definitions::Interned Definitions::string(const char* text) {
  std::string key(text, strnlen(text, kLongestString));
  std::lock_guard lock(mutex_);
  auto found = strings_.find(key);
  if (found == strings_.end()) {
    if (strings_.size() >= kMostStrings) return {"", 0};
    const uint32_t number = ++defined_;
    found = strings_.emplace(std::move(key), number).first;
    format::String record{};
    record.number = number;
    record.length = static_cast<uint32_t>(found->first.size());
    append(format::Kind::kString, record, found->first.data(), found->first.size());
  }
  return {found->first.c_str(), found->second};
}

void Definitions::context(uint32_t number, const ContextFacts& facts) {
  format::Context record{};
  record.number = number;
  record.rank = facts.rank;
  record.ranks = facts.ranks;
  record.nodes = facts.nodes;
  record.communicator = facts.communicator;
  record.name = facts.name == nullptr ? 0 : string(facts.name).number;
  record.abi = static_cast<uint32_t>(facts.abi);
  std::lock_guard lock(mutex_);
  append(format::Kind::kContext, record);
}

void Definitions::thread(uint32_t number, uint32_t tid, const char* name) {
  format::Thread record{};
  record.number = number;
  record.tid = tid;
  record.name = string(name).number;
  std::lock_guard lock(mutex_);
  append(format::Kind::kThreadDefinition, record);
}

void Definitions::fork(uint32_t parentPid) {
  format::Fork record{};
  record.parentPid = parentPid;
  std::lock_guard lock(mutex_);
  append(format::Kind::kFork, record);
}

void Definitions::foreignContext(uint32_t number, uint32_t tag, uint32_t foreignNumber) {
  format::ForeignContext record{};
  record.number = number;
  record.tag = tag;
  record.foreignNumber = foreignNumber;
  std::lock_guard lock(mutex_);
  append(format::Kind::kForeignContext, record);
}

void Definitions::sample(uint32_t context, uint64_t every) {
  format::Sample record{};
  record.number = context;
  record.every = every;
  std::lock_guard lock(mutex_);
  append(format::Kind::kSample, record);
}

void Definitions::anchor(uint64_t olderThanNs) {
  std::lock_guard lock(mutex_);
  if (lastAnchor_ != 0 && platform::monotonicNanoseconds() - lastAnchor_ < olderThanNs) return;
  const Reading reading = readClocks();
  lastAnchor_ = reading.monotonic;
  format::Anchor record{};
  record.record.ticks = reading.ticks;
  record.monotonic = reading.monotonic;
  record.realtime = reading.realtime;
  record.uncertainty = reading.uncertainty;
  append(format::Kind::kAnchor, record);
}

}  // namespace stretto::profiler
