// What src/primitives/cuda/memory.cuh is to a GPU, for the emulator: the same functions, and those of CUDA
// itself that kernels call. Found in its place by the order of the include folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "emulator/machine.hpp"

namespace stretto::cuda {

using emulator::Machine;

struct alignas(16) Pack {
  uint64_t low;
  uint64_t high;
};

// In one piece also for other processes, whose kernels run at the same time: as a GPU does it. Compilers
// would make two moves of it.
template <typename T>
void emulatedMove(void* to, const void* from) {
#if defined(__x86_64__)
  if constexpr (sizeof(T) == 16) {
    asm volatile("movdqa (%1), %%xmm0\n\tmovdqa %%xmm0, (%0)" : : "r"(to), "r"(from) : "xmm0", "memory");
    return;
  }
#endif
  std::memcpy(to, from, sizeof(T));
}

// An access that may not be is not made.
template <typename T>
T emulatedLoad(const void* at) {
  T value{};
  if (Machine::current().check(at, sizeof(T), "reads")) emulatedMove<T>(&value, at);
  return value;
}
template <typename T>
void emulatedStore(void* at, T value) {
  Machine::current().progress();
  if (Machine::current().check(at, sizeof(T), "writes")) emulatedMove<T>(at, &value);
}

// Calls what `told` says of an order that is kept.
template <typename Told>
void emulatedOrder(Told reported) {
  Machine& machine = Machine::current();
  if (machine.order() != nullptr) reported(*machine.order(), machine.lane().number);
}

template <typename T>
T emulatedRelaxedLoad(const T* at) {
  Machine::current().step();
  emulatedOrder([&](emulator::Order& order, int self) { order.relaxedLoad(self, at); });
  return emulatedLoad<T>(at);
}
// What lies there is also a write: who reads it by a plain load must know of it.
template <typename T>
void emulatedRelaxedStore(T* at, T value) {
  Machine::current().step();
  emulatedOrder([&](emulator::Order& order, int self) {
    order.relaxedStore(self, at);
    order.plainStore(self, at, sizeof(T));
  });
  emulatedStore(at, value);
}

inline void storeRelaxed(void* at, Pack value) {
  emulatedRelaxedStore(static_cast<Pack*>(at), value);
}
// Eight threads that look at a wide line together see it whole, though kernels of other processes may store
// it between one thread's look and the next one's: the last, which has the flag, goes by what it saw before
// the others look again. (It is stored last: threads of a warp go one after the other.)
inline Pack loadRelaxed(const void* at) {
  constexpr unsigned kLineThreads = 8;
  const auto* const pack = static_cast<const Pack*>(at);
  const Pack seen = emulatedRelaxedLoad(pack);
  if (!Machine::current().hasOthersMemory()) return seen;
  const Pack again = emulatedRelaxedLoad(pack);
  return Machine::current().lane().thread % kLineThreads == kLineThreads - 1 ? seen : again;
}
inline uint32_t loadRelaxed32(const uint32_t* at) {
  return emulatedRelaxedLoad(at);
}
inline uint64_t loadRelaxed64(const uint64_t* at) {
  return emulatedRelaxedLoad(at);
}
template <typename T>
void keepAtHand(T&) {}
inline void storeRelaxed64(uint64_t* at, uint64_t value) {
  emulatedRelaxedStore(at, value);
}
inline void addRelaxed64(uint64_t* at, uint64_t more) {
  *at += more;  // by the one thread that the word belongs to
}

inline void fenceBlock() {
  emulatedOrder([](emulator::Order& order, int self) { order.fence(self, emulator::Order::Scope::kBlock); });
}
inline void fenceSystem() {
  emulatedOrder([](emulator::Order& order, int self) { order.fence(self, emulator::Order::Scope::kSystem); });
}

inline void storeRelease(uint64_t* at, uint64_t value) {
  Machine::current().step();
  emulatedOrder([&](emulator::Order& order, int self) {
    order.releaseStore(self, at);
    order.plainStore(self, at, sizeof value);
  });
  emulatedStore(at, value);
}
inline uint64_t loadAcquire(const uint64_t* at) {
  Machine::current().step();
  emulatedOrder([&](emulator::Order& order, int self) { order.acquireLoad(self, at); });
  return emulatedLoad<uint64_t>(at);
}

inline Pack loadPack(const void* at) {
  Machine::current().mayStep();
  emulatedOrder([&](emulator::Order& order, int self) { order.plainLoad(self, at, sizeof(Pack)); });
  return emulatedLoad<Pack>(at);
}
inline void storePack(void* at, Pack value) {
  Machine::current().mayStep();
  emulatedOrder([&](emulator::Order& order, int self) { order.plainStore(self, at, sizeof(Pack)); });
  emulatedStore(at, value);
}

// No step: threads of one line, of which some have a unit and some have two, must not part.
inline uint64_t loadUnit(const void* begin, size_t unit) {
  const auto* const at = static_cast<const uint64_t*>(begin) + unit;
  emulatedOrder([&](emulator::Order& order, int self) { order.plainLoad(self, at, sizeof(uint64_t)); });
  return emulatedLoad<uint64_t>(at);
}
inline void storeUnit(void* begin, size_t unit, uint64_t value) {
  auto* const at = static_cast<uint64_t*>(begin) + unit;
  emulatedOrder([&](emulator::Order& order, int self) { order.plainStore(self, at, sizeof(uint64_t)); });
  emulatedStore(at, value);
}

template <typename T>
T& blockShared() {
  return *reinterpret_cast<T*>(Machine::current().blockShared(sizeof(T)));
}
inline uint32_t loadShared(const uint32_t& word) {
  Machine::current().step();
  emulatedOrder([&](emulator::Order& order, int self) { order.sharedLoad(self, &word); });
  return word;
}
inline void storeShared(uint32_t& word, uint32_t value) {
  Machine::current().step();
  emulatedOrder([&](emulator::Order& order, int self) { order.sharedStore(self, &word); });
  Machine::current().progress();
  word = value;
}

// Threads poll one after the other here, thousands of them for each poll of one.
inline constexpr uint32_t kPollsPerLook = 128;

inline uint64_t nanoseconds() {
  return Machine::current().nanoseconds();
}
inline void letNextBegin() {
  Machine::current().letNextBegin();
}
inline void awaitPrevious() {
  Machine::current().awaitStage();
}
inline void syncThreads(int barrier, int threads) {
  (void)Machine::current().barrier(barrier, static_cast<unsigned>(threads), false);
}
inline bool anyThread(int barrier, int threads, bool mine) {
  return Machine::current().barrier(barrier, static_cast<unsigned>(threads), mine);
}

}  // namespace stretto::cuda

namespace stretto::emulator {

// Reads as the x of CUDA's variables; there is no other dimension.
template <unsigned (*read)()>
struct Index {
  struct {
    operator unsigned() const { return read(); }
  } x;
  unsigned y = 0;
};

inline unsigned threadIndex() {
  return Machine::current().lane().thread;
}
inline unsigned blockIndex() {
  return Machine::current().lane().block.index;
}
inline unsigned blockSize() {
  return Machine::current().lane().block.grid.size.threads;
}
inline unsigned gridSize() {
  return Machine::current().lane().block.grid.size.blocks;
}

}  // namespace stretto::emulator

inline constexpr stretto::emulator::Index<stretto::emulator::threadIndex> threadIdx;
inline constexpr stretto::emulator::Index<stretto::emulator::blockIndex> blockIdx;
inline constexpr stretto::emulator::Index<stretto::emulator::blockSize> blockDim;
inline constexpr stretto::emulator::Index<stretto::emulator::gridSize> gridDim;

inline void __syncthreads() {
  stretto::cuda::syncThreads(0, static_cast<int>(blockDim.x));
}
inline void __syncwarp() {
  (void)stretto::emulator::Machine::current().meet(stretto::emulator::Lane::Meeting::kSync, 0);
}
inline int __all_sync(unsigned, int mine) {
  return stretto::emulator::Machine::current().meet(stretto::emulator::Lane::Meeting::kAll, mine);
}
inline int __any_sync(unsigned, int mine) {
  return stretto::emulator::Machine::current().meet(stretto::emulator::Lane::Meeting::kAny, mine);
}
inline int __shfl_sync(unsigned, int mine, int from) {
  return stretto::emulator::Machine::current().meet(stretto::emulator::Lane::Meeting::kShuffle, mine, from);
}
inline void __threadfence_system() {
  stretto::cuda::fenceSystem();
}

namespace stretto::cuda {

inline void fenceSystemByWarp() {
  __syncwarp();
  if (threadIdx.x % 32 == 0) fenceSystem();
  __syncwarp();
}

}  // namespace stretto::cuda

// Rare, and no step of a protocol: one thread runs at a time.
inline uint32_t atomicExch(uint32_t* at, uint32_t value) {
  const uint32_t before = *at;
  *at = value;
  return before;
}
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  const unsigned long long before = *at;
  *at = before + value;
  return before;
}
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
  const uint32_t before = *at;
  *at = before + value;
  return before;
}
inline uint32_t atomicExch_system(uint32_t* at, uint32_t value) {
  return atomicExch(at, value);
}
inline uint32_t atomicCAS_system(uint32_t* at, uint32_t compare, uint32_t value) {
  const uint32_t before = *at;
  if (before == compare) *at = value;
  return before;
}
