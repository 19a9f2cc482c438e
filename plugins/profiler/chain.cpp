#include "profiler/chain.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstring>

#include "profiler/abi_v4.hpp"
#include "profiler/notice.hpp"
#include "profiler/thread_writer.hpp"

namespace stretto::profiler {
namespace {

// NCCL reports an event's ancestors too; a plugin that asked for steps counts on seeing their operations.
uint32_t withAncestors(uint32_t mask) {
  const uint32_t deep = bit(Type::kProxyStep) | bit(Type::kNetPlugin);
  const uint32_t below = deep | bit(Type::kProxyOp) | bit(Type::kKernelCh) | bit(Type::kKernelPhase);
  const uint32_t operations = bit(Type::kColl) | bit(Type::kP2p) | bit(Type::kGroup);
  const uint32_t api = bit(Type::kGroupApi) | bit(Type::kCollApi) | bit(Type::kP2pApi);
  if ((mask & bit(Type::kNetPlugin)) != 0) mask |= bit(Type::kProxyStep);
  if ((mask & deep) != 0) mask |= bit(Type::kProxyOp);
  if ((mask & bit(Type::kKernelPhase)) != 0) mask |= bit(Type::kKernelCh);
  if ((mask & below) != 0) mask |= operations;
  if ((mask & operations) != 0) mask |= bit(Type::kGroup);
  if ((mask & (bit(Type::kCeSync) | bit(Type::kCeBatch))) != 0) mask |= bit(Type::kCeColl);
  if ((mask & (operations | bit(Type::kCeColl) | bit(Type::kKernelLaunch))) != 0) mask |= api;
  return mask;
}

bool isThisLibrary(const void* table) {
  Dl_info theirs{};
  Dl_info ours{};
  return dladdr(table, &theirs) != 0 && dladdr(reinterpret_cast<const void*>(&isThisLibrary), &ours) != 0 &&
         theirs.dli_fbase == ours.dli_fbase;
}

// The lowest version whose descriptors are a beginning of those of `abi`.
constexpr int lowestLike(int abi) {
  return abi >= 5 ? 5 : abi;
}

// A kernel whose parent is a call: that has stopped long ago, and other plugins take a KernelCh's parent for
// an operation.
bool isReplay(const extras::Started& event) {
  uint64_t parent = 0;
  memcpy(&parent, static_cast<const char*>(event.descriptor) + offsetof(DescriptorV7, parent), sizeof parent);
  return event.type == Type::kKernelCh && ThreadWriter::typeOf(parent) == Type::kCollApi;
}

}  // namespace

bool HandleTable::make() {
  if (slots_ != nullptr) return true;
  void* pages = mmap(nullptr, kKinds * kSlots * sizeof(Slot), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  slots_ = pages == MAP_FAILED ? nullptr : static_cast<Slot*>(pages);
  return slots_ != nullptr;
}

HandleTable::Slot& HandleTable::slot(uint64_t id) const {
  const uint64_t type = id >> kTypeShift;
  const size_t kind = type == kContextType ? kTypes + 1 : type == kUnknownType ? kTypes : type - 1;
  return slots_[kind * kSlots + id % kSlots];
}

void HandleTable::put(uint64_t id, void* theirs) {
  Slot& s = slot(id);
  s.id.store(0, std::memory_order_release);
  s.theirs.store(theirs, std::memory_order_release);
  s.id.store(id, std::memory_order_release);
}

void* HandleTable::get(uint64_t id) const {
  const uint64_t type = id >> kTypeShift;
  if (type == 0 || (type > kTypes && type < kContextType)) return nullptr;
  const Slot& s = slot(id);
  if (s.id.load(std::memory_order_acquire) != id) return nullptr;
  void* theirs = s.theirs.load(std::memory_order_acquire);
  return s.id.load(std::memory_order_acquire) == id ? theirs : nullptr;
}

Chain& chain() {
  static Chain* const all = new Chain;
  return *all;
}

bool Chain::load(const char* path, Logger logger) {
  std::lock_guard lock(mutex_);
  if (library_ == nullptr) library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr || !handles_.make()) {
    const char* reason = library_ == nullptr ? dlerror() : "no memory for its handles";
    notice(logger, LogLevel::kWarn, "no second plugin: %s", reason);
    library_ = nullptr;
    return false;
  }
  return true;
}

// Holds mutex_. Null when it does not speak that version; a word about it the first time.
const Chain::AnyTable* Chain::find(int abi, Logger logger) {
  if (foundFor_ == abi) return table_.load(std::memory_order_relaxed);
  foundFor_ = abi;
  const void* table = nullptr;
  for (int version = abi; version >= lowestLike(abi) && table == nullptr; --version) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    table = dlsym(library_, symbol);
  }
  if (table == nullptr || isThisLibrary(table)) {
    const char* why = table == nullptr ? "has no table for version" : "is this plugin again; not for version";
    notice(logger, LogLevel::kWarn, "the second plugin %s %d of the interface: it gets no calls", why, abi);
    table = nullptr;
  }
  table_.store(static_cast<const AnyTable*>(table), std::memory_order_release);
  return static_cast<const AnyTable*>(table);
}

uint32_t Chain::open(void* context, const ContextFacts& facts, Logger logger) {
  std::lock_guard lock(mutex_);
  const AnyTable* table = find(facts.abi, logger);
  if (table == nullptr) return 0;
  void* theirs = nullptr;
  int result = 0;
  if (facts.abi <= 3) {
    result = reinterpret_cast<InitV1>(table->init)(&theirs, &mask_);
  } else if (facts.abi == 4) {
    result = reinterpret_cast<InitV4>(table->init)(&theirs, &mask_, facts.name, facts.communicator,
                                                   facts.nodes, facts.ranks, facts.rank, logger);
  } else {
    result = reinterpret_cast<InitV5>(table->init)(&theirs, facts.communicator, &mask_, facts.name,
                                                   facts.nodes, facts.ranks, facts.rank, logger);
  }
  if (result != kSuccess) {
    notice(logger, LogLevel::kWarn, "the second plugin, %s, refused this communicator (%d)", table->name,
           result);
    return asked_;
  }
  handles_.put(reinterpret_cast<uint64_t>(context), theirs);
  asked_ = static_cast<uint32_t>(mask_) & typesOf(facts.abi);
  wanted_.store(withAncestors(asked_), std::memory_order_relaxed);
  return asked_;
}

void Chain::close(void* context) {
  const AnyTable* table = table_.load(std::memory_order_acquire);
  void* theirs = handles_.get(reinterpret_cast<uint64_t>(context));
  if (table == nullptr || theirs == nullptr) return;
  handles_.put(reinterpret_cast<uint64_t>(context), nullptr);
  table->finalize(theirs);
}

void Chain::start(const extras::Started& event) {
  const AnyTable* table = table_.load(std::memory_order_acquire);
  const bool wanted =
      event.type != Type::kUnknown && (wanted_.load(std::memory_order_relaxed) & bit(event.type)) != 0;
  void* context = handles_.get(reinterpret_cast<uint64_t>(event.context));
  if (table == nullptr || !wanted || context == nullptr) return;
  // A copy, because its parents are to be theirs. All versions have the parent in the second word.
  alignas(DescriptorV7) char copy[sizeof(DescriptorV7)] = {};
  memcpy(copy, event.descriptor, event.bytes);
  const auto translate = [&](size_t offset) {
    uint64_t id = 0;
    memcpy(&id, copy + offset, sizeof id);
    void* theirs = handles_.get(id);
    memcpy(copy + offset, &theirs, sizeof theirs);
  };
  translate(offsetof(DescriptorV7, parent));
  if (isReplay(event)) memset(copy + offsetof(DescriptorV7, parent), 0, sizeof(void*));
  if (event.abi >= 5 && event.type == Type::kColl) translate(offsetof(DescriptorV7, coll.parentGroup));
  if (event.abi >= 5 && event.type == Type::kP2p) translate(offsetof(DescriptorV7, p2p.parentGroup));
  void* theirs = nullptr;
  table->start(context, &theirs, copy);
  if (theirs != nullptr) handles_.put(event.id, theirs);
}

void Chain::stop(uint64_t id) {
  const AnyTable* table = table_.load(std::memory_order_acquire);
  void* theirs = handles_.get(id);
  if (table != nullptr && theirs != nullptr) table->stop(theirs);
}

void Chain::state(uint64_t id, int state, void* arguments) {
  const AnyTable* table = table_.load(std::memory_order_acquire);
  void* theirs = handles_.get(id);
  if (table != nullptr && theirs != nullptr && state != kReplayed) table->state(theirs, state, arguments);
}

}  // namespace stretto::profiler
