#include "base/event.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>

#include "base/hash.hpp"
#include "base/parameters.hpp"

namespace stretto::events {

namespace {

constexpr size_t kWords = sizeof(Event) / sizeof(uint64_t);
constexpr uint64_t kIdsAtOnce = 4096;
constexpr int kCounterBits = 40;
constexpr size_t kMostEndedRings = 64;

struct alignas(64) Slot {
  uint64_t words[kWords];
};

// One writer, its thread; readers hold the registry's mutex. `head` counts the events published.
//
// Why a copy is consistent: every word of a slot is stored with release, after `head` had reached the event's
// own number k. A reader that sees one word of event k (in the slot of event k - capacity) therefore also
// sees head >= k when it looks at head after copying, and drops what lies at or below head - capacity.
struct Ring {
  explicit Ring(size_t capacity)
      : slots(std::make_unique_for_overwrite<Slot[]>(capacity)), mask(capacity - 1) {}

  std::unique_ptr<Slot[]> slots;  // pages are taken when first written
  uint64_t mask;
  int32_t thread = 0;
  uint64_t nextId = 0;  // the writer's own
  uint64_t endOfIds = 0;
  alignas(64) std::atomic<uint64_t> head{0};
  // Under the registry's mutex.
  uint64_t cursor = 0;
  uint64_t overwritten = 0;
  bool ended = false;
};

struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Ring>> rings;
  size_t capacity = 8192;
  uint64_t lost = 0;
};

// Never destroyed: threads may outlive the statics.
Registry& registry() {
  static Registry* theRegistry = new Registry;
  return *theRegistry;
}

std::atomic<uint64_t> gNextId{1};
std::atomic<uint64_t> gTag{0};  // already shifted into place

uint64_t makeTag() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char host[64] = {};
  gethostname(host, sizeof host - 1);
  Hash hash;
  const pid_t process = getpid();
  hash.add(host, strlen(host));
  hash.add(&process, sizeof process);
  hash.add(&now, sizeof now);
  return (hash.value() >> 48) << kCounterBits;
}

thread_local Ring* tRing = nullptr;
thread_local bool tEnded = false;

// Drops rings of ended threads, oldest first, until few enough are left. Holds the mutex.
void makeRoom(Registry& all) {
  auto count = static_cast<size_t>(
      std::count_if(all.rings.begin(), all.rings.end(), [](const auto& ring) { return ring->ended; }));
  for (auto ring = all.rings.begin(); ring != all.rings.end() && count > kMostEndedRings;) {
    if (!(*ring)->ended) {
      ++ring;
      continue;
    }
    all.lost += (*ring)->head.load(std::memory_order_acquire) - (*ring)->cursor;
    ring = all.rings.erase(ring);
    --count;
  }
}

// Its destructor, at the thread's end, leaves the ring to the readers.
struct RingOwner {
  ~RingOwner() {
    tEnded = true;
    if (tRing == nullptr) return;
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    tRing->ended = true;
    tRing = nullptr;
    makeRoom(all);
  }
};

// After a fork only the calling thread lives on: its ring starts empty, the others' go, and ids get a tag of
// this process.
void prepareFork() {
  registry().mutex.lock();
}
void resumeParent() {
  registry().mutex.unlock();
}
void resetChild() {
  Registry& all = registry();
  std::erase_if(all.rings, [](const auto& ring) { return ring.get() != tRing; });
  if (tRing != nullptr) {
    tRing->thread = static_cast<int32_t>(syscall(SYS_gettid));
    tRing->head.store(0, std::memory_order_relaxed);
    tRing->cursor = 0;
    tRing->overwritten = 0;
  }
  all.lost = 0;
  gTag.store(makeTag(), std::memory_order_relaxed);
  all.mutex.unlock();
}

[[gnu::cold, gnu::noinline]] Ring* makeRing() {
  if (tEnded) return nullptr;
  static thread_local RingOwner owner;
  static std::once_flag once;
  std::call_once(once, [] {
    gTag.store(makeTag(), std::memory_order_relaxed);
    pthread_atfork(prepareFork, resumeParent, resetChild);
  });
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  auto ring = std::make_unique<Ring>(all.capacity);
  ring->thread = static_cast<int32_t>(syscall(SYS_gettid));
  tRing = ring.get();
  all.rings.push_back(std::move(ring));
  static_cast<void>(&owner);
  return tRing;
}

inline Ring* ringOfThread() {
  Ring* ring = tRing;
  return __builtin_expect(ring != nullptr, 1) ? ring : makeRing();
}

// Ids come from one counter, a block per thread at a time.
inline Id makeId(Ring& ring, Type type) {
  if (ring.nextId == ring.endOfIds) {
    ring.nextId = gNextId.fetch_add(kIdsAtOnce, std::memory_order_relaxed);
    ring.endOfIds = ring.nextId + kIdsAtOnce;
  }
  const uint64_t counter = ring.nextId++ & ((uint64_t{1} << kCounterBits) - 1);
  return Id{static_cast<uint64_t>(type) << 56 | gTag.load(std::memory_order_relaxed) | counter};
}

inline void publish(Ring& ring, const Event& event) {
  const uint64_t head = ring.head.load(std::memory_order_relaxed);
  uint64_t words[kWords];
  memcpy(words, &event, sizeof words);
  Slot& slot = ring.slots[head & ring.mask];
  for (size_t i = 0; i < kWords; ++i) {
    std::atomic_ref(slot.words[i]).store(words[i], std::memory_order_release);
  }
  ring.head.store(head + 1, std::memory_order_release);
}

inline Id begin(Phase phase, Type type, Id parent, const Payload& payload, uint64_t ticks) {
  Ring* ring = ringOfThread();
  if (ring == nullptr) return Id::kNone;
  const Id id = makeId(*ring, type);
  publish(*ring, Event{.ticks = ticks,
                       .id = id,
                       .parent = parent,
                       .communicator = payload.communicator,
                       .sequence = payload.sequence,
                       .bytes = payload.bytes,
                       .rank = payload.rank,
                       .peer = payload.peer,
                       .type = type,
                       .phase = phase,
                       .function = payload.function,
                       .dataType = payload.dataType,
                       .op = payload.op,
                       .algorithm = payload.algorithm,
                       .protocol = payload.protocol,
                       .detail = payload.detail});
  return id;
}

inline void follow(Phase phase, Id id, uint64_t ticks, uint8_t detail, uint64_t bytes) {
  Ring* ring = id == Id::kNone ? nullptr : ringOfThread();
  if (ring == nullptr) return;
  publish(
      *ring,
      Event{.ticks = ticks, .id = id, .bytes = bytes, .type = typeOf(id), .phase = phase, .detail = detail});
}

// Appends the events from `from` on that were certainly not being overwritten; returns the head that this
// saw at first: everything before it is either in `out` or gone.
uint64_t copyFrom(Ring& ring, uint64_t from, std::vector<Event>& out) {
  const uint64_t capacity = ring.mask + 1;
  const uint64_t end = ring.head.load(std::memory_order_acquire);
  const uint64_t begin = std::max(from, end > capacity ? end - capacity : 0);
  out.resize(static_cast<size_t>(end - begin));
  for (uint64_t k = begin; k < end; ++k) {
    uint64_t words[kWords];
    for (size_t i = 0; i < kWords; ++i) {
      words[i] = std::atomic_ref(ring.slots[k & ring.mask].words[i]).load(std::memory_order_acquire);
    }
    memcpy(&out[static_cast<size_t>(k - begin)], words, sizeof words);
  }
  const uint64_t now = ring.head.load(std::memory_order_acquire);
  const uint64_t safe = now >= capacity ? now - capacity + 1 : 0;
  const uint64_t unsafe = std::min(end - begin, safe > begin ? safe - begin : 0);
  out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(unsafe));
  return end;
}

ThreadEvents read(Ring& ring, bool take) {
  ThreadEvents result;
  const uint64_t end = copyFrom(ring, take ? ring.cursor : 0, result.events);
  if (take) {
    ring.overwritten += end - ring.cursor - result.events.size();
    ring.cursor = end;
  }
  result.thread = ring.thread;
  result.ended = ring.ended;
  result.recorded = end;
  result.overwritten = ring.overwritten;
  return result;
}

}  // namespace

const char* nameOf(Type type) {
  switch (type) {
    case Type::kNone:
      return "none";
    case Type::kGroup:
      return "group";
    case Type::kCollective:
      return "collective";
    case Type::kP2p:
      return "p2p";
    case Type::kProxyOp:
      return "proxy_op";
    case Type::kProxyStep:
      return "proxy_step";
    case Type::kProxyControl:
      return "proxy_control";
    case Type::kKernelChannel:
      return "kernel_channel";
    case Type::kNetPlugin:
      return "net_plugin";
    case Type::kGroupApi:
      return "group_api";
    case Type::kCollectiveApi:
      return "collective_api";
    case Type::kP2pApi:
      return "p2p_api";
    case Type::kKernelLaunch:
      return "kernel_launch";
    case Type::kWait:
      return "wait";
    case Type::kSleep:
      return "sleep";
    case Type::kInit:
      return "init";
    case Type::kInitBootstrap:
      return "init_bootstrap";
    case Type::kInitExchange:
      return "init_exchange";
    case Type::kInitTopology:
      return "init_topology";
    case Type::kInitConnect:
      return "init_connect";
    case Type::kFinalize:
      return "finalize";
    case Type::kAbort:
      return "abort";
  }
  return "unknown";
}

void enable(bool wanted) {
  watch::set(watch::kEventRings, wanted);
}

Status enableFromEnvironment() {
  if (!parameters::kEvents.isSet()) return kOkStatus;
  const auto wanted = parameters::kEvents.flag();
  if (!wanted.ok()) return wanted.status();
  enable(wanted.value());
  return kOkStatus;
}

Id start(Type type, Id parent, const Payload& payload, uint64_t ticks) {
  return begin(Phase::kStart, type, parent, payload, ticks);
}
Id instant(Type type, Id parent, const Payload& payload, uint64_t ticks) {
  return begin(Phase::kInstant, type, parent, payload, ticks);
}
void stop(Id id, uint64_t ticks, Code outcome, uint64_t bytes) {
  follow(Phase::kStop, id, ticks, static_cast<uint8_t>(outcome), bytes);
}
void state(Id id, uint8_t number, uint64_t ticks, uint64_t argument) {
  follow(Phase::kState, id, ticks, number, argument);
}

Snapshot snapshot() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  Snapshot result;
  result.lost = all.lost;
  for (const auto& ring : all.rings) {
    result.threads.push_back(read(*ring, false));
  }
  return result;
}

Snapshot drain() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  Snapshot result;
  result.lost = all.lost;
  for (const auto& ring : all.rings) {
    result.threads.push_back(read(*ring, true));
  }
  std::erase_if(all.rings, [](const auto& ring) { return ring->ended; });
  return result;
}

bool setRingCapacity(size_t events) {
  if (events < 2 || events > size_t{1} << 24 || (events & (events - 1)) != 0) return false;
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  all.capacity = events;
  return true;
}

}  // namespace stretto::events
