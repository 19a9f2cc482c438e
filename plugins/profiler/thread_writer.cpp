#include "profiler/thread_writer.hpp"

#include "profiler/recorder.hpp"

namespace stretto::profiler {

constinit thread_local ThreadWriter* ThreadWriter::tOfThisThread = nullptr;

ThreadWriter::ThreadWriter(Recorder& recorder)
    : tag_(recorder.tag()),
      contextPrefix_(kContextType << (kTypeShift - kTagShift) | recorder.tag()),
      counter_(SteadyTicks::fromCounter()),
      extras_(recorder.extras()),
      recorder_(recorder) {}

bool ThreadWriter::unmatched() {
  recorder_.countUnmatched();
  return false;
}

bool ThreadWriter::stop(void* handle, uint64_t now) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  if (__builtin_expect(!isOurs(id), 0)) return unmatched();
  auto* record = reinterpret_cast<format::Stop*>(room(sizeof(format::Stop), now));
  if (record == nullptr) return true;
  record->record = {sizeof(format::Stop), static_cast<uint8_t>(format::Kind::kStop),
                    static_cast<uint8_t>(typeOf(id)), format::kNone32, now};
  record->id = id;
  commit(sizeof(format::Stop));
  return true;
}

// NCCL reports that a send waits for its peer at every poll. What would be millions of equal records is a
// number in the first of them.
bool ThreadWriter::countRepeat(uint64_t id, int state, uint64_t argument) {
  Repeat& repeat = repeats_[id % kRepeats];
  if (repeat.id != id) return false;
  if (state != kStepSendPeerWait || repeat.argument != argument) {
    repeat.id = 0;
    return false;
  }
  std::atomic_ref count(*repeat.count);
  const uint32_t before = count.load(std::memory_order_relaxed);
  if (before != format::kNone32) count.store(before + 1, std::memory_order_relaxed);
  return true;
}

bool ThreadWriter::state(void* handle, int state, uint64_t argument, uint64_t argument2, uint64_t now) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  if (__builtin_expect(!isOurs(id), 0)) return unmatched();
  const bool step = typeOf(id) == Type::kProxyStep;
  if (step && countRepeat(id, state, argument)) return true;
  auto* record = reinterpret_cast<format::State*>(room(sizeof(format::State), now));
  if (record == nullptr) return true;
  record->record = {sizeof(format::State), static_cast<uint8_t>(format::Kind::kState),
                    static_cast<uint8_t>(typeOf(id)), format::kNone32, now};
  record->id = id;
  record->state = static_cast<uint32_t>(state);
  record->count = 1;
  record->argument = argument;
  record->argument2 = argument2;
  commit(sizeof(format::State));
  if (step && state == kStepSendPeerWait) repeats_[id % kRepeats] = {id, argument, &record->count};
  return true;
}

void ThreadWriter::mark(format::Kind kind, uint32_t context, uint64_t now) {
  auto* record = reinterpret_cast<format::Mark*>(room(sizeof(format::Mark), now));
  if (record == nullptr) return;
  record->record = {sizeof(format::Mark), static_cast<uint8_t>(kind), static_cast<uint8_t>(Type::kUnknown),
                    context, now};
  record->zero = 0;
  commit(sizeof(format::Mark));
}

void ThreadWriter::adopt(uint32_t thread) {
  thread_ = thread;
  sequence_ = 0;
  dropped_ = 0;
  if (segment_ == nullptr || static_cast<size_t>(end_ - cursor_) < sizeof(format::ThreadChange)) return;
  auto* record = reinterpret_cast<format::ThreadChange*>(cursor_);
  record->record = {sizeof(format::ThreadChange), static_cast<uint8_t>(format::Kind::kThread),
                    static_cast<uint8_t>(Type::kUnknown), format::kNone32, now()};
  record->thread = thread;
  record->zero = 0;
  commit(sizeof(format::ThreadChange));
}

void ThreadWriter::takeIds() {
  nextId_ = recorder_.takeIds();
  endOfIds_ = nextId_ + Recorder::kIdsAtOnce;
}

uint32_t ThreadWriter::newString(const char* text, Known& known) {
  const auto interned = recorder_.definitions().string(text);
  known = {text, interned.text, interned.number};
  return interned.number;
}

uint32_t ThreadWriter::foreignContext(uint64_t handle) {
  if (handle >> kTypeShift != kContextType) return format::kNone32;
  if (handle != foreignHandle_) {
    foreignNumber_ = recorder_.foreignContext(handle);
    foreignHandle_ = handle;
  }
  return foreignNumber_;
}

void ThreadWriter::sample() {
  untilSample_ = kSampleEach;
  recorder_.countSelf(now() - began_);
}

// The thread's oldest segment, made empty. A reader that looks meanwhile sees an odd generation or a changed
// one.
format::Segment* ThreadWriter::reuse(uint64_t now) {
  if (kept_.empty()) return nullptr;
  format::Segment* s = kept_[oldest_];
  oldest_ = (oldest_ + 1) % kept_.size();
  std::atomic_ref generation(s->generation);
  const uint32_t odd = generation.load(std::memory_order_relaxed) | 1;
  generation.exchange(odd,
                      std::memory_order_acq_rel);  // an exchange: nothing that follows may come before it
  std::atomic_ref(s->committed).store(0, std::memory_order_relaxed);
  s->sequence = sequence_;
  s->firstTicks = now;
  s->dropped = dropped_;
  s->thread = thread_;
  generation.store(odd + 1, std::memory_order_release);
  return s;
}

// The next record's place; null and one more dropped event when there is none.
char* ThreadWriter::nextSegment(uint64_t now) {
  const bool flight = recorder_.mode() == format::Mode::kFlight;
  format::Segment* next = nullptr;
  if (!flight || kept_.size() < recorder_.segmentsPerThread()) {
    next = recorder_.takeSegment(thread_, sequence_, now, dropped_);
    if (next != nullptr && flight) kept_.push_back(next);
  }
  if (next == nullptr) next = reuse(now);
  if (next == nullptr) {
    ++dropped_;
    recorder_.countDropped();
    return nullptr;
  }
  ++sequence_;
  segment_ = next;
  records_ = reinterpret_cast<char*>(next) + format::kSegmentHeaderBytes;
  cursor_ = records_;
  end_ = reinterpret_cast<char*>(next) + recorder_.segmentBytes();
  for (Repeat& repeat : repeats_) {
    repeat.id = 0;
  }
  return cursor_;
}

}  // namespace stretto::profiler
