// WaitOnAddress wakes threads of its own process alone, so a word of a shared segment is slept on otherwise.
//
// A sleeper takes a place in the segment's header, says there on which word it sleeps, passes a full fence
// and looks at the word once more; then it waits for an event of its own. Who wakes has changed the word,
// passes a full fence, and sets the event of every sleeper on that word. One of the two sees the other, so no
// wake-up is lost; an event that is set too late only makes the next sleep of that thread short. Events are
// named by process and thread, so that a place left by a process that died can be told: nobody has its event.
#include "platform/futex.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cwchar>
#include <map>
#include <mutex>

#include "platform/windows/native.hpp"
#include "platform/windows/segment.hpp"

namespace stretto::platform {
namespace {

using namespace windows;

constexpr size_t kMostKept = 512;  // handles of others' events

struct Word {
  SegmentHeader* segment = nullptr;  // none: of this process alone
  uint64_t offset = 0;
};

Word placeOf(const uint32_t* word) {
  MEMORY_BASIC_INFORMATION facts{};
  if (VirtualQuery(word, &facts, sizeof facts) == 0 || facts.Type != MEM_MAPPED) return {};
  auto* const segment = static_cast<SegmentHeader*>(facts.AllocationBase);
  const auto offset = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(word) -
                                            static_cast<const std::byte*>(facts.AllocationBase));
  if (offset < SegmentHeader::kBytes || segment->magic != SegmentHeader::kMagic) return {};
  return {segment, offset};
}

DWORD milliseconds(uint64_t microseconds) {
  constexpr uint64_t kMost = 1000u * 3600;
  return static_cast<DWORD>(std::min<uint64_t>((microseconds + 999) / 1000, kMost));
}

std::wstring nameOf(uint64_t who) {
  wchar_t name[64];
  swprintf(name, sizeof name / sizeof *name, L"Local\\stretto-sleeper-%016llx",
           static_cast<unsigned long long>(who));
  return name;
}

// The calling thread's own, made at its first sleep.
struct OwnEvent {
  const uint64_t who = static_cast<uint64_t>(GetCurrentProcessId()) << 32 | GetCurrentThreadId();
  const UniqueHandle event = own(CreateEventW(nullptr, FALSE, FALSE, nameOf(who).c_str()));
};

// The events of others, kept open: an event keeps its name as long as anybody has it open, so that a later
// thread of the same numbers gets the same one.
class OthersEvents {
 public:
  // False if nobody has it: whoever slept there has ended.
  bool set(uint64_t who) {
    const std::lock_guard lock(mutex_);
    const auto known = events_.find(who);
    if (known != events_.end()) return SetEvent(known->second.get()) != 0;
    UniqueHandle event = own(OpenEventW(EVENT_MODIFY_STATE, FALSE, nameOf(who).c_str()));
    if (event == nullptr) return GetLastError() != ERROR_FILE_NOT_FOUND;
    SetEvent(event.get());
    if (events_.size() == kMostKept) events_.clear();
    events_.emplace(who, std::move(event));
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, UniqueHandle> events_;
};
OthersEvents& othersEvents() {
  static auto* const all = new OthersEvents;
  return *all;
}

// A free place that is this thread's from now on; null if all are taken.
Sleeper* takePlace(SegmentHeader& segment, uint64_t who) {
  for (Sleeper& place : segment.sleepers) {
    uint64_t nobody = 0;
    if (place.who.load(std::memory_order_relaxed) == 0 && place.who.compare_exchange_strong(nobody, who))
      return &place;
  }
  return nullptr;
}

bool sleepIn(const Word& at, const uint32_t* word, uint32_t expected, DWORD limit) {
  thread_local const OwnEvent mine;
  Sleeper* const place = mine.event == nullptr ? nullptr : takePlace(*at.segment, mine.who);
  if (place == nullptr) {  // no room: sleeps as shortly as can be, and looks again
    Sleep(1);
    return limit <= 1;
  }
  place->offset.store(at.offset, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool changed = std::atomic_ref(const_cast<uint32_t&>(*word)).load() != expected;
  const bool slept = !changed && WaitForSingleObject(mine.event.get(), limit) == WAIT_TIMEOUT;
  place->offset.store(0, std::memory_order_relaxed);
  place->who.store(0, std::memory_order_release);
  return slept;
}

}  // namespace

bool futexWait(const uint32_t* word, uint32_t expected, uint64_t microseconds) {
  const DWORD limit = milliseconds(microseconds);
  if (const Word at = placeOf(word); at.segment != nullptr) return sleepIn(at, word, expected, limit);
  void* const address = const_cast<uint32_t*>(word);
  return !WaitOnAddress(address, &expected, sizeof expected, limit) && GetLastError() == ERROR_TIMEOUT;
}

void futexWake(const uint32_t* word) {
  const Word at = placeOf(word);
  if (at.segment == nullptr) {
    WakeByAddressAll(const_cast<uint32_t*>(word));
    return;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (Sleeper& place : at.segment->sleepers) {
    uint64_t who = place.who.load();
    if (who == 0 || place.offset.load() != at.offset) continue;
    if (!othersEvents().set(who)) place.who.compare_exchange_strong(who, 0);
  }
}

void yieldCore() {
  SwitchToThread();
}

}  // namespace stretto::platform
