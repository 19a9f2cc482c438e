// GPUs that are made up, and that really run kernels: every thread of every block is a fiber, on the CPU. The
// kernels of this library are compiled for it from the same files (include/ stands in for CUDA's headers and
// for the one file of instructions), so that what they do among any number of ranks can be seen on a machine
// without a GPU: results, deadlocks, accesses beyond a buffer, races.
//
// What is as on a GPU: warps step together, so that their stores of one instruction arrive as one; blocks and
// warps run in any order, at any pace, drawn from a seed; kernels of one stream follow each other, and begin
// before the end of the one before where the launch allows it; all blocks are resident. What is not: memory
// is never late (what depends on that is found by order.hpp, not by its result), and time is made up: it
// leaps when all threads only wait, so that deadlines pass at once.
//
// Either the caller drives it: run(), await(). One seed, one course of events. Or, where the threads of a
// program launch kernels that wait for each other, a thread of its own does (`live`), and time is the
// clock's.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "emulator/fiber.hpp"
#include "emulator/order.hpp"

struct CUstream_st;  // as CUDA calls it

namespace stretto::emulator {

using Stream = CUstream_st;

struct LaunchSize {
  unsigned blocks = 1;
  unsigned threads = 32;
  bool early = false;  // may begin before the kernel before it has ended
};

struct Block;
struct Grid;
struct Lane;

struct Warp {
  std::vector<Lane*> lanes;
  size_t ready = 0;  // of them
  double pace = 1;
};

// What a stream does next: a kernel; or work that is done at once when its turn has come and `ready` agrees.
struct Task {
  std::unique_ptr<Grid> grid;
  std::function<void()> work;
  std::function<bool()> ready;
};

// One thread of a kernel.
struct Lane {
  enum class State : uint8_t { kReady, kMeets, kAtBarrier, kAwaitsTurn, kDone };
  enum class Meeting : uint8_t { kSync, kAll, kAny, kShuffle };

  Lane(Block& inBlock, Warp& inWarp, unsigned place, int order, std::function<void()> body)
      : block(inBlock), warp(inWarp), thread(place), number(order), fiber(std::move(body)) {
    ++warp.ready;
  }
  void become(State next) {
    if (state == State::kReady) --warp.ready;
    if (next == State::kReady) ++warp.ready;
    state = next;
  }

  Block& block;
  Warp& warp;
  const unsigned thread;
  const int number;  // to Order; -1: not kept
  State state = State::kReady;
  Meeting meeting = Meeting::kSync;
  int value = 0;  // what it brings to a meeting, and then what came of it
  int from = 0;   // of a shuffle
  Fiber fiber;
};

struct Block {
  struct Barrier {
    std::vector<Lane*> arrived;
    unsigned threads = 0;
    bool any = false;
  };
  Grid& grid;
  unsigned index;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::array<Barrier, 16> barriers;
  std::vector<std::byte> shared;
};

struct Grid {
  Stream& stream;
  LaunchSize size;
  std::function<void()> body;
  std::deque<Block> blocks;
  size_t alive = 0;        // threads
  size_t lettingNext = 0;  // threads that let the next kernel begin
  bool odd = false;        // of the kernels of its stream
  bool started = false;
  bool hasTurn = false;  // the kernel before it has ended
};

}  // namespace stretto::emulator

struct CUstream_st {
  uint64_t id = 0;
  int device = 0;
  std::deque<stretto::emulator::Task> tasks;
  uint64_t launched = 0;  // kernels
  bool retired = false;
  stretto::emulator::Order::Heard last;  // what the threads knew of the kernel that ended last
};

namespace stretto::emulator {

// Those that there are, and those that were retired: one of these is freed by the first call of make() or
// retire() that finds it without work.
class Streams {
 public:
  Stream* make(int device);
  void retire(Stream* stream);
  bool haveWork() const;
  bool haveWork(int device) const;
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  void freeRetired();

  std::vector<std::unique_ptr<Stream>> all_;
  uint64_t made_ = 0;
};

class Machine {
 public:
  struct Settings {
    uint64_t seed = 1;
    bool keepsOrder = false;  // looks for races, which takes time
    bool live = false;
  };
  explicit Machine(const Settings& settings);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  // The one there is; a live one is made if there is none. Kernels find it here.
  static Machine& current();

  // Any thread, for this and what follows.
  std::byte* allocate(size_t bytes);  // zeroed; a file in memory, for other processes; null: it has no more
  void refuseFrom(size_t bytes) { refusedFrom_ = bytes; }  // allocations of so many bytes, from now on
  // Kernels of other processes run at the same time, in memory that this one has opened.
  void openedOthersMemory() { othersMemory_.store(true, std::memory_order_relaxed); }
  bool hasOthersMemory() const { return othersMemory_.load(std::memory_order_relaxed); }
  std::byte* adopt(int descriptor, size_t bytes);  // what another process allocated; takes the descriptor
  bool release(void* memory);                      // false: neither's result begins there
  int descriptorOf(const void* memory) const;      // -1 likewise
  // The allocation that holds it, and its size; null: none.
  std::byte* find(const void* address, size_t* bytes = nullptr);

  Stream* makeStream(int device = 0);
  void retire(Stream* stream);  // its work goes on; not used by the caller any more
  bool isIdle(const Stream* stream);
  void launch(Stream* stream, LaunchSize size, std::function<void()> body);
  void enqueue(Stream* stream, std::function<void()> work, std::function<bool()> ready = {});
  // Until the condition holds, or nothing is left to do. Throws std::runtime_error, with what every thread
  // waits for, if that is for ever; a live machine waits on.
  void await(const std::function<bool()>& condition);
  // Until the streams of that device, or of all (-1), have nothing left to do.
  void run(int device = -1) {
    await([this, device] { return device >= 0 && !streams_.haveWork(device); });
  }

  // What went wrong first in any kernel: a race, an access that may not be, a warp whose threads met in
  // different places. Empty: nothing. A live machine, which nobody asks, ends the program instead.
  std::string complaint() const;
  // Kernels that began before the one before them had ended.
  uint64_t earlyStarts() const { return earlyStarts_; }

  // For the functions that kernels call, in the fiber of a thread.
  Lane& lane() { return *lane_; }
  // The accesses that follow, up to the next call, happen at the same time as those of the warp's others.
  void step();
  // The same now and then.
  void mayStep();
  int meet(Lane::Meeting meeting, int value, int from = 0);
  bool barrier(int number, unsigned threads, bool mine);
  void awaitStage();
  void letNextBegin();
  void progress() { quiet_ = 0; }
  uint64_t nanoseconds() const;
  std::byte* blockShared(size_t bytes);
  // False, and a complaint, for an access of so many bytes that is beyond all memory or not aligned to them.
  bool check(const void* at, size_t bytes, const char* what);
  Order* order() { return settings_.keepsOrder ? &order_ : nullptr; }

 private:
  static constexpr unsigned kWarp = 32;

  // Locks, before the driving thread takes the lock again.
  class Call;

  void drive();
  bool startTasks();
  bool startTasks(Stream& stream);
  void start(Grid& grid);
  void giveTurn(Grid& grid);
  void finish(Stream& stream);
  void round();
  void advance(Warp& warp);
  void settle(Warp& warp);
  void open(Block::Barrier& barrier);
  void drawPaces();
  void complain(const std::string& what);
  void complainOf(const std::string& what);  // by the thread that runs
  std::string describe() const;

  const Settings settings_;
  std::mt19937_64 random_;
  Order order_;
  Streams streams_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<Lane*> released_;  // by a barrier, in the step that is going on
  struct Allocation {
    size_t bytes;
    int descriptor;
  };
  std::map<const std::byte*, Allocation> memory_;
  Lane* lane_ = nullptr;
  uint64_t now_ = 1;
  uint64_t rounds_ = 0;
  uint64_t earlyStarts_ = 0;
  uint64_t quiet_ = 0;  // rounds in which threads only looked
  std::string complaint_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  mutable std::atomic<int> calling_{0};  // threads that want the lock
  bool ending_ = false;
  std::thread driver_;  // of a live machine
  std::atomic<bool> othersMemory_{false};
  std::atomic<size_t> refusedFrom_{SIZE_MAX};
};

}  // namespace stretto::emulator
