#include "emulator/machine.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "emulator/vmm.hpp"

namespace stretto::emulator {
namespace {

std::atomic<Machine*> gCurrent{nullptr};

// So long without work, and the stacks of kernels that ran before are freed: the memory of a process in
// between is what its program keeps.
constexpr std::chrono::milliseconds kShortRest{1};
constexpr uint64_t kQuiet = 8;             // rounds after which slow warps are not waited for
constexpr uint64_t kVeryQuiet = 32;        // and after which time leaps, each round
constexpr uint64_t kLeap = 1'000'000'000;  // nanoseconds
constexpr int kMostYields = 64;
constexpr uint64_t kForever = 20'000;  // quiet rounds: more than a deadline takes

// A page that nobody may touch lies behind each allocation, so that its end is seen.
constexpr size_t kPage = 4096;
size_t wholePages(size_t bytes) {
  return std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}
void unmap(void* memory, size_t bytes, int descriptor) {
  munmap(memory, wholePages(bytes) + kPage);
  close(descriptor);
}

const char* nameOf(Lane::State state) {
  constexpr const char* kNames[] = {"run", "vote", "wait at a barrier", "await their turn", "are done"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace

class Machine::Call {
 public:
  explicit Call(const Machine& machine) : calling_(machine.calling_) {
    ++calling_;
    lock_ = std::unique_lock(machine.mutex_);
    --calling_;
  }
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  std::atomic<int>& calling_;
  std::unique_lock<std::mutex> lock_;
};

Stream* Streams::make(int device) {
  freeRetired();
  all_.push_back(std::make_unique<Stream>());
  all_.back()->device = device;
  all_.back()->id = ++made_;
  return all_.back().get();
}

void Streams::retire(Stream* stream) {
  stream->retired = true;
  freeRetired();
}

void Streams::freeRetired() {
  std::erase_if(all_, [](const auto& each) { return each->retired && each->tasks.empty(); });
}

bool Streams::haveWork() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& each) { return !each->tasks.empty(); });
}

bool Streams::haveWork(int device) const {
  return std::any_of(all_.begin(), all_.end(),
                     [device](const auto& each) { return each->device == device && !each->tasks.empty(); });
}

Machine::Machine(const Settings& settings) : settings_(settings), random_(settings.seed) {
  if (gCurrent != nullptr) throw std::logic_error("a second machine");
  gCurrent = this;
  if (settings.live) driver_ = std::thread(&Machine::drive, this);
}

Machine::~Machine() {
  if (driver_.joinable()) {
    {
      const Call call(*this);
      ending_ = true;
    }
    changed_.notify_all();
    driver_.join();
  }
  for (const auto& [begin, all] : memory_) unmap(const_cast<std::byte*>(begin), all.bytes, all.descriptor);
  gCurrent = nullptr;
}

Machine& Machine::current() {
  static std::mutex mutex;
  if (gCurrent != nullptr) return *gCurrent;
  std::lock_guard lock(mutex);
  if (gCurrent == nullptr) new Machine({.live = true});  // as a GPU, it outlives the program
  return *gCurrent;
}

std::byte* Machine::allocate(size_t bytes) {
  if (bytes >= refusedFrom_) return nullptr;
  const int descriptor = memfd_create("emulated memory", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  const bool fits = ftruncate(descriptor, static_cast<off_t>(wholePages(bytes))) == 0;
  std::byte* const memory = fits ? adopt(descriptor, bytes) : nullptr;
  if (memory == nullptr) close(descriptor);
  return memory;
}

std::byte* Machine::adopt(int descriptor, size_t bytes) {
  const size_t whole = wholePages(bytes);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const room = mmap(nullptr, whole + kPage, PROT_NONE, kFlags, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  if (mmap(room, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    munmap(room, whole + kPage);
    return nullptr;
  }
  const Call call(*this);
  memory_[static_cast<std::byte*>(room)] = {bytes, descriptor};
  return static_cast<std::byte*>(room);
}

int Machine::descriptorOf(const void* memory) const {
  const Call call(*this);
  const auto found = memory_.find(static_cast<const std::byte*>(memory));
  return found == memory_.end() ? -1 : found->second.descriptor;
}

bool Machine::release(void* memory) {
  const Call call(*this);
  const auto found = memory_.find(static_cast<const std::byte*>(memory));
  if (found == memory_.end()) return false;
  const auto [bytes, descriptor] = found->second;
  if (order() != nullptr) order()->forget(memory, bytes);
  memory_.erase(found);
  unmap(memory, bytes, descriptor);
  return true;
}

std::byte* Machine::find(const void* address, size_t* bytes) {
  const Call call(*this);
  const auto after = memory_.upper_bound(static_cast<const std::byte*>(address));
  if (after == memory_.begin()) return nullptr;
  const auto& [memory, all] = *std::prev(after);
  if (bytes != nullptr) *bytes = all.bytes;
  const bool in = static_cast<const std::byte*>(address) < memory + all.bytes;
  return in ? const_cast<std::byte*>(memory) : nullptr;
}

bool Machine::check(const void* at, size_t bytes, const char* what) {
  const auto* const begin = static_cast<const std::byte*>(at);
  const bool isAligned = reinterpret_cast<uintptr_t>(at) % bytes == 0;
  const auto after = memory_.upper_bound(begin);
  if (isAligned && after != memory_.begin()) {
    const auto& [memory, all] = *std::prev(after);
    if (begin + bytes <= memory + all.bytes) return true;
  }
  if (isAligned && vmmHolds(at, bytes)) return true;
  complainOf(std::string(what) + " " + std::to_string(bytes) + " bytes " +
             (isAligned ? "beyond all memory" : "at an address that is not aligned to them"));
  return false;
}

void Machine::complainOf(const std::string& what) {
  complain("block " + std::to_string(lane_->block.index) + ", thread " + std::to_string(lane_->thread) + " " +
           what);
}

void Machine::complain(const std::string& what) {
  if (complaint_.empty()) complaint_ = what;
  if (!settings_.live) return;
  fprintf(stderr, "emulated GPU: %s\n", what.c_str());
  std::abort();
}

std::string Machine::complaint() const {
  const Call call(*this);
  return complaint_.empty() ? order_.race() : complaint_;
}

Stream* Machine::makeStream(int device) {
  const Call call(*this);
  return streams_.make(device);
}

void Machine::retire(Stream* stream) {
  const Call call(*this);
  streams_.retire(stream);
}

bool Machine::isIdle(const Stream* stream) {
  const Call call(*this);
  return stream->tasks.empty();
}

void Machine::launch(Stream* stream, LaunchSize size, std::function<void()> body) {
  Task task;
  const Call call(*this);
  task.grid = std::make_unique<Grid>(Grid{*stream, size, std::move(body), {}});
  task.grid->odd = ++stream->launched % 2 == 1;
  stream->tasks.push_back(std::move(task));
  changed_.notify_all();
}

void Machine::enqueue(Stream* stream, std::function<void()> work, std::function<bool()> ready) {
  Task task;
  task.work = std::move(work);
  task.ready = std::move(ready);
  const Call call(*this);
  stream->tasks.push_back(std::move(task));
  changed_.notify_all();
}

void Machine::await(const std::function<bool()>& condition) {
  Call call(*this);
  if (settings_.live) {
    changed_.wait(call.lock(), [&] { return condition() || !streams_.haveWork(); });
    return;
  }
  while (!condition()) {
    while (startTasks()) {
    }
    if (warps_.empty()) return;
    round();
    if (quiet_ > kForever) throw std::runtime_error("nothing moves any more: " + describe());
  }
}

// The thread of a live machine. It steps aside for callers, and where kernels only wait, for everybody.
void Machine::drive() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto isWanted = [this] { return ending_ || streams_.haveWork(); };
    if (!changed_.wait_for(lock, kShortRest, isWanted)) {
      Fiber::freeStacks();
      changed_.wait(lock, isWanted);
    }
    if (ending_) return;
    while (startTasks()) changed_.notify_all();
    if (!warps_.empty()) round();
    const bool waits = quiet_ > kQuiet || warps_.empty();
    lock.unlock();
    if (waits) std::this_thread::sleep_for(std::chrono::microseconds(50));
    // Not for ever: who asks all the time waits for what kernels do.
    for (int turn = 0; calling_ > 0 && turn < kMostYields; ++turn) std::this_thread::yield();
    lock.lock();
  }
}

uint64_t Machine::nanoseconds() const {
  if (!settings_.live) return now_;
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

bool Machine::startTasks() {
  bool any = false;
  for (const auto& stream : streams_) any = startTasks(*stream) || any;
  return any;
}

// True if something was done that may let others go on.
bool Machine::startTasks(Stream& stream) {
  if (stream.tasks.empty()) return false;
  Task& first = stream.tasks.front();
  if (first.grid == nullptr) {
    if (first.ready && !first.ready()) return false;
    const auto work = std::move(first.work);
    stream.tasks.pop_front();
    if (work) work();
    return true;
  }
  Grid& grid = *first.grid;
  if (!grid.started) start(grid);
  if (!grid.hasTurn) giveTurn(grid);
  if (grid.alive == 0) {
    finish(stream);
    return true;
  }
  const bool letsNext = grid.lettingNext == size_t{grid.size.blocks} * grid.size.threads;
  if (letsNext && stream.tasks.size() > 1) {
    Grid* const next = stream.tasks[1].grid.get();
    if (next != nullptr && next->size.early && !next->started) {
      ++earlyStarts_;
      start(*next);
    }
  }
  return false;
}

void Machine::start(Grid& grid) {
  grid.started = true;
  for (unsigned index = 0; index < grid.size.blocks; ++index) {
    Block& block = grid.blocks.emplace_back(Block{grid, index, {}, {}, {}});
    for (unsigned thread = 0; thread < grid.size.threads; ++thread) {
      const int number = order() == nullptr ? -1 : order()->numberOf(grid.stream.id, grid.odd, index, thread);
      if (thread % kWarp == 0) warps_.push_back(std::make_unique<Warp>());
      Warp& warp = *warps_.back();
      block.lanes.push_back(std::make_unique<Lane>(block, warp, thread, number, grid.body));
      warp.lanes.push_back(block.lanes.back().get());
    }
  }
  grid.alive = size_t{grid.size.blocks} * grid.size.threads;
  drawPaces();
}

// A kernel that begins in its turn knows of the one before; of one that began early those threads do that
// waited for the turn.
void Machine::giveTurn(Grid& grid) {
  grid.hasTurn = true;
  progress();
  for (Block& block : grid.blocks) {
    for (const auto& lane : block.lanes) {
      if (lane->state == Lane::State::kAwaitsTurn) lane->become(Lane::State::kReady);
      if (order() != nullptr && !grid.size.early) order()->hear(lane->number, grid.stream.last);
    }
  }
}

void Machine::finish(Stream& stream) {
  Grid& grid = *stream.tasks.front().grid;
  std::erase_if(warps_, [&](const auto& warp) { return &warp->lanes.front()->block.grid == &grid; });
  if (order() != nullptr) {
    std::vector<int> numbers;
    for (const Block& block : grid.blocks) {
      for (const auto& lane : block.lanes) numbers.push_back(lane->number);
    }
    stream.last = order()->together(numbers);
  }
  stream.tasks.pop_front();
}

// Some warps run far ahead of others, for a while.
void Machine::drawPaces() {
  constexpr double kPaces[] = {1, 1, 0.5, 0.1, 0.01};
  for (const auto& warp : warps_) warp->pace = kPaces[random_() % std::size(kPaces)];
}

void Machine::round() {
  constexpr uint64_t kRoundsOfOnePace = 64;
  if (++rounds_ % kRoundsOfOnePace == 0) drawPaces();
  now_ += ++quiet_ > kVeryQuiet ? kLeap : 100;
  std::shuffle(warps_.begin(), warps_.end(), random_);
  constexpr double kWhole = static_cast<double>(std::mt19937_64::max());
  for (const auto& warp : warps_) {
    if (warp->ready == 0) continue;
    if (quiet_ > kQuiet || static_cast<double>(random_()) <= warp->pace * kWhole) advance(*warp);
  }
}

void Machine::advance(Warp& warp) {
  // The caches do not hold the stacks of all threads, so the next ones are fetched while this one runs.
  constexpr size_t kAhead = 2;
  for (size_t i = 0; i < warp.lanes.size(); ++i) {
    if (i + kAhead < warp.lanes.size()) warp.lanes[i + kAhead]->fiber.fetch();
    Lane* const lane = warp.lanes[i];
    if (lane->state != Lane::State::kReady) continue;
    lane_ = lane;
    lane->fiber.resume();
    lane_ = nullptr;
    if (!lane->fiber.done()) continue;
    lane->become(Lane::State::kDone);
    --lane->block.grid.alive;
    progress();
  }
  // All of a warp at the same time, also those that come after the last to arrive.
  for (Lane* const lane : released_) lane->become(Lane::State::kReady);
  released_.clear();
  settle(warp);
}

// Threads that meet go on when all of their warp's have come.
void Machine::settle(Warp& warp) {
  std::vector<Lane*> met;
  for (Lane* const lane : warp.lanes) {
    if (lane->state == Lane::State::kMeets) {
      met.push_back(lane);
    } else if (lane->state != Lane::State::kDone) {
      return;
    }
  }
  if (met.empty()) return;
  using Meeting = Lane::Meeting;
  const Meeting meeting = met.front()->meeting;
  bool all = true, any = false;
  std::vector<int> values(kWarp), numbers;
  for (const Lane* const lane : met) {
    if (lane->meeting != meeting) complain("threads of one warp vote, or synchronise, in different places");
    all = all && lane->value != 0;
    any = any || lane->value != 0;
    values[lane->thread % kWarp] = lane->value;
    numbers.push_back(lane->number);
  }
  for (Lane* const lane : met) {
    if (meeting == Meeting::kAll) lane->value = all ? 1 : 0;
    if (meeting == Meeting::kAny) lane->value = any ? 1 : 0;
    if (meeting == Meeting::kShuffle) lane->value = values[static_cast<size_t>(lane->from) % kWarp];
    lane->become(Lane::State::kReady);
  }
  if (meeting == Meeting::kSync && order() != nullptr) order()->meet(numbers);
}

void Machine::step() {
  lane_->fiber.pause();
}

void Machine::mayStep() {
  constexpr uint64_t kOneIn = 8;
  if (random_() % kOneIn == 0) step();
}

int Machine::meet(Lane::Meeting meeting, int value, int from) {
  Lane& self = *lane_;
  self.become(Lane::State::kMeets);
  self.meeting = meeting;
  self.value = value;
  self.from = from;
  self.fiber.pause();
  return self.value;
}

// All who are waited for have come, whole warps of them.
void Machine::open(Block::Barrier& barrier) {
  progress();
  std::map<const Warp*, size_t> warps;
  std::vector<int> numbers;
  for (Lane* const lane : barrier.arrived) {
    lane->value = barrier.any ? 1 : 0;
    ++warps[&lane->warp];
    numbers.push_back(lane->number);
  }
  for (const auto& [warp, count] : warps) {
    if (count != warp->lanes.size()) complain("threads of one warp wait at different barriers");
  }
  if (order() != nullptr) order()->meet(numbers);
  released_.insert(released_.end(), barrier.arrived.begin(), barrier.arrived.end());
  barrier = {};
}

bool Machine::barrier(int number, unsigned threads, bool mine) {
  Lane& self = *lane_;
  Block::Barrier& at = self.block.barriers.at(static_cast<size_t>(number));
  if (at.arrived.empty()) at.threads = threads;
  if (at.threads != threads) complain("threads of a block wait at one barrier for different numbers of them");
  at.arrived.push_back(&self);
  at.any = at.any || mine;
  self.become(Lane::State::kAtBarrier);
  if (at.arrived.size() == threads) open(at);
  self.fiber.pause();
  return self.value != 0;
}

void Machine::awaitStage() {
  const Grid& grid = lane_->block.grid;
  if (!grid.hasTurn) {
    lane_->become(Lane::State::kAwaitsTurn);
    step();
  }
  if (order() != nullptr && grid.size.early) order()->hear(lane_->number, grid.stream.last);
}

void Machine::letNextBegin() {
  ++lane_->block.grid.lettingNext;
}

std::byte* Machine::blockShared(size_t bytes) {
  auto& shared = lane_->block.shared;
  if (shared.empty()) shared.resize(bytes, std::byte{0xa5});
  return shared.data();
}

std::string Machine::describe() const {
  std::map<std::string, int> threads;
  for (const auto& warp : warps_) {
    for (const Lane* const lane : warp->lanes) {
      const std::string where = "of stream " + std::to_string(lane->block.grid.stream.id) + ", block " +
                                std::to_string(lane->block.index) + " ";
      ++threads[where + nameOf(lane->state)];
    }
  }
  std::string text;
  for (const auto& [what, count] : threads) text += std::to_string(count) + " threads " + what + "; ";
  return text;
}

}  // namespace stretto::emulator
