// The hot path: one thread's place in the recording. Appends records to the thread's segment with plain
// stores and one release store; takes no lock, makes no system call and allocates nothing until the segment
// is full or a string is new. One thread owns a writer at a time; when it ends, a later thread goes on where
// it stopped. Used by the plugin's ABI families (plugin_v*.cpp) and made by the recorder.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "profiler/abi.hpp"
#include "profiler/format.hpp"
#include "profiler/steady_ticks.hpp"

namespace stretto::profiler {

class Recorder;

// Ids: {type: 8, process tag: 16, counter: 40}. A context's handle is built alike, with a type of its own.
inline constexpr int kTypeShift = 56;
inline constexpr int kTagShift = 40;
inline constexpr uint64_t kUnknownType = 255;
inline constexpr uint64_t kContextType = 254;

// Things besides recording that a plugin may be asked to do at every event.
enum Extra : uint8_t { kChain = 1, kNvtx = 2, kCupti = 4 };

class ThreadWriter {
 public:
  explicit ThreadWriter(Recorder& recorder);
  ThreadWriter(const ThreadWriter&) = delete;
  ThreadWriter& operator=(const ThreadWriter&) = delete;

  // The calling thread's, null while nothing is recorded.
  static ThreadWriter* ofThisThread() {
    return __builtin_expect(tOfThisThread != nullptr, 1) ? tOfThisThread : attachThisThread();
  }
  // What the process changes when a thread begins, ends or forks.
  static void setOfThisThread(ThreadWriter* writer) { tOfThisThread = writer; }

  uint64_t now() const { return SteadyTicks::now(counter_); }
  uint8_t extras() const { return extras_; }
  Recorder& recorder() { return recorder_; }

  uint64_t makeId(Type type) {
    if (__builtin_expect(nextId_ == endOfIds_, 0)) takeIds();
    const uint64_t byte = type == Type::kUnknown ? kUnknownType : static_cast<uint64_t>(type) + 1;
    return byte << kTypeShift | tag_ << kTagShift | nextId_++;
  }

  // What every start has in common.
  struct Head {
    Type type;
    uint64_t id;
    void* context;
    void* parent;
    int rank;
    uint64_t now;
  };
  // Appends a start whose own fields `fill` writes, all of them. False when there was no room.
  template <typename T, typename Fill>
  bool start(const Head& head, Fill&& fill) {
    auto* record = reinterpret_cast<T*>(room(sizeof(T), head.now));
    if (__builtin_expect(record == nullptr, 0)) return false;
    auto* start = reinterpret_cast<format::Start*>(record);
    start->record = {sizeof(T), static_cast<uint8_t>(format::Kind::kStart), static_cast<uint8_t>(head.type),
                     contextNumber(head.context), head.now};
    start->id = head.id;
    start->parent = reinterpret_cast<uint64_t>(head.parent);
    start->rank = head.rank;
    start->threads = 0;
    fill(*record);
    commit(sizeof(T));
    return true;
  }

  // The rest of a callback; false for a handle that this process never gave away.
  bool stop(void* handle, uint64_t now);
  bool state(void* handle, int state, uint64_t argument, uint64_t argument2, uint64_t now);
  void mark(format::Kind kind, uint32_t context, uint64_t now);

  // Whether a handle can be an event's of this process.
  bool isOurs(uint64_t id) const {
    const uint64_t type = id >> kTypeShift;
    return ((id >> kTagShift) & 0xffff) == tag_ && ((type >= 1 && type <= kTypes) || type == kUnknownType);
  }
  static Type typeOf(uint64_t id) {
    const uint64_t type = id >> kTypeShift;
    return type == kUnknownType ? Type::kUnknown : static_cast<Type>(type - 1);
  }
  uint32_t contextNumber(void* context) {
    const auto handle = reinterpret_cast<uint64_t>(context);
    if (__builtin_expect(handle >> kTagShift == contextPrefix_, 1)) return static_cast<uint32_t>(handle);
    return handle == 0 ? format::kNone32 : foreignContext(handle);
  }

  // The number of a text. Its address is remembered, and the text compared each time: a library that was
  // unloaded may leave its addresses to another.
  uint32_t string(const char* text) {
    if (text == nullptr) return 0;
    const auto address = reinterpret_cast<uintptr_t>(text);
    Known& known = known_[(address >> 3 ^ address >> 9) % kKnown];
    if (__builtin_expect(known.address == text && strcmp(known.text, text) == 0, 1)) return known.number;
    return newString(text, known);
  }

  // At the beginning of each callback: its stamp, which is what the caller says (StampedTable) if it says
  // anything and both have the same clock. Every so often a callback is timed.
  uint64_t begin(uint64_t said) {
    if (__builtin_expect(untilSample_ == 1, 0)) began_ = now();
    return said != 0 && counter_ ? said : now();
  }
  void finish() {
    if (__builtin_expect(--untilSample_ == 0, 0)) sample();
  }

  // From now on this writer is another thread's; the recorder calls it on that thread.
  void adopt(uint32_t thread);

 private:
  [[gnu::cold, gnu::noinline]] static ThreadWriter* attachThisThread();
  static constinit thread_local ThreadWriter* tOfThisThread;

  static constexpr size_t kKnown = 64;
  static constexpr size_t kRepeats = 16;
  static constexpr uint32_t kSampleEach = 1024;
  struct Known {
    const char* address = nullptr;
    const char* text = nullptr;
    uint32_t number = 0;
  };
  // A state that may come again at once, and where its count lies.
  struct Repeat {
    uint64_t id = 0;
    uint64_t argument = 0;
    uint32_t* count = nullptr;
  };

  char* room(uint32_t bytes, uint64_t now) {
    if (__builtin_expect(static_cast<size_t>(end_ - cursor_) >= bytes, 1)) return cursor_;
    return nextSegment(now);
  }
  void commit(uint32_t bytes) {
    cursor_ += bytes;
    std::atomic_ref(segment_->committed)
        .store(static_cast<uint64_t>(cursor_ - records_), std::memory_order_release);
  }
  bool countRepeat(uint64_t id, int state, uint64_t argument);

  [[gnu::cold, gnu::noinline]] char* nextSegment(uint64_t now);
  [[gnu::cold, gnu::noinline]] void takeIds();
  [[gnu::cold, gnu::noinline]] uint32_t foreignContext(uint64_t handle);
  [[gnu::cold, gnu::noinline]] uint32_t newString(const char* text, Known& known);
  [[gnu::cold, gnu::noinline]] void sample();
  [[gnu::cold, gnu::noinline]] bool unmatched();
  format::Segment* reuse(uint64_t now);

  char* cursor_ = nullptr;  // where the next record goes; equal to end_ without a segment
  char* end_ = nullptr;
  char* records_ = nullptr;
  format::Segment* segment_ = nullptr;
  uint64_t nextId_ = 0;
  uint64_t endOfIds_ = 0;
  uint64_t tag_ = 0;
  uint64_t contextPrefix_ = 0;
  uint32_t untilSample_ = kSampleEach;
  uint64_t began_ = 0;  // the callback that is timed
  bool counter_ = false;
  uint8_t extras_ = 0;

  Recorder& recorder_;
  uint32_t thread_ = 0;
  uint64_t sequence_ = 0;
  uint64_t dropped_ = 0;
  uint64_t foreignHandle_ = 0;  // the last one seen, and its number
  uint32_t foreignNumber_ = 0;
  std::vector<format::Segment*> kept_;  // flight mode: in the order of first use
  size_t oldest_ = 0;
  Repeat repeats_[kRepeats];
  Known known_[kKnown];
};

}  // namespace stretto::profiler
