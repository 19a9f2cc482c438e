#include "profiler/recorder.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <system_error>

namespace stretto::profiler {
namespace {

// Ended threads whose last events flight mode leaves alone; a stream loses nothing by going on at once.
constexpr size_t kEndedInFlight = 16;
constexpr size_t kMostForeign = 1 << 16;
constexpr auto kAnchorEach = std::chrono::seconds(1);
// Then ever less often: two anchors are a clock, and a process may be killed young.
constexpr auto kFirstAnchor = std::chrono::milliseconds(10);
constexpr uint64_t kLongestWait = 1'000'000'000;  // ns
constexpr uint64_t kAnchorAtEnd = 10'000'000;     // ns: communicators that come and go need no anchor each

}  // namespace

Recorder::Recorder(Settings settings) : settings_(std::move(settings)) {
  learned_ = std::make_unique<std::atomic<uint64_t>[]>(kMostContexts / 64);
}

void Recorder::count(uint64_t format::Header::*counter, uint64_t by) {
  if (format::Header* header = file_.header()) {
    std::atomic_ref(header->*counter).fetch_add(by, std::memory_order_relaxed);
  }
}

format::Segment* Recorder::takeSegment(uint32_t thread, uint64_t sequence, uint64_t now, uint64_t dropped) {
  format::Segment* segment = file_.take(format::SegmentKind::kEvents, thread, sequence, now, dropped);
  if (segment != nullptr && file_.needsPreparing()) wakeKeeper();
  return segment;
}

ThreadWriter* Recorder::attach() {
  char name[32] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  const auto tid = static_cast<uint32_t>(syscall(SYS_gettid));
  ThreadWriter* writer = nullptr;
  uint32_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = nextThread_++;
    const size_t left = mode() == format::Mode::kFlight ? kEndedInFlight : 0;
    if (ended_.size() > left) {
      writer = ended_.front();
      ended_.erase(ended_.begin());
    } else {
      writers_.push_back(std::make_unique<ThreadWriter>(*this));
      writer = writers_.back().get();
    }
  }
  definitions_.thread(number, tid, name);
  writer->adopt(number);
  return writer;
}

void Recorder::detach(ThreadWriter* writer) {
  std::lock_guard lock(mutex_);
  ended_.push_back(writer);
}

uint32_t Recorder::foreignContext(uint64_t handle) {
  std::lock_guard lock(mutex_);
  const auto found = foreign_.find(handle);
  if (found != foreign_.end()) return found->second;
  if (foreign_.size() >= kMostForeign) return format::kNone32;
  const uint32_t number = nextContext_++;
  foreign_.emplace(handle, number);
  definitions_.foreignContext(number, static_cast<uint32_t>(handle >> kTagShift) & 0xffff,
                              static_cast<uint32_t>(handle));
  return number;
}

void Recorder::learn(uint32_t context, const ContextFacts& facts) {
  if (context >= kMostContexts) return;
  std::atomic<uint64_t>& word = learned_[context / 64];
  const uint64_t bit = uint64_t{1} << context % 64;
  if ((word.load(std::memory_order_relaxed) & bit) != 0) return;
  if ((word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) definitions_.context(context, facts);
}

void* Recorder::open(const ContextFacts& facts, const Host& host) {
  uint32_t number = 0;
  {
    std::lock_guard lock(mutex_);
    number = nextContext_++;
    open_.insert(number);
    if (file_.isOpen())
      snprintf(file_.header()->stretto, sizeof file_.header()->stretto, "%s", host.stretto.c_str());
  }
  if (format::Header* header = file_.header()) {
    std::atomic_ref(header->abi).store(static_cast<uint32_t>(facts.abi), std::memory_order_relaxed);
    std::atomic_ref(header->ncclVersion).store(host.nccl, std::memory_order_relaxed);
  }
  startKeeper();
  definitions_.context(number, facts);
  if (ThreadWriter* writer = ThreadWriter::ofThisThread())
    writer->mark(format::Kind::kInit, number, writer->now());
  return reinterpret_cast<void*>(kContextType << kTypeShift | uint64_t{tag_} << kTagShift | number);
}

void Recorder::setMask(int* word, uint32_t types, uint32_t always) {
  std::lock_guard lock(maskMutex_);
  maskWord_ = word;
  maskTypes_ = types;
  maskAlways_ = always;
  maskOpen_ = !file_.isOpen() || file_.window().open;
  std::atomic_ref(*word).store(static_cast<int>(always | (maskOpen_ ? types : 0)), std::memory_order_relaxed);
}

// The word is written when the window opens or closes, and at no other time: between them it is the host's,
// which clears it when its last communicator goes.
void Recorder::followWindow() {
  std::lock_guard lock(maskMutex_);
  if (maskWord_ == nullptr || file_.window().open == maskOpen_) return;
  maskOpen_ = !maskOpen_;
  std::atomic_ref(*maskWord_)
      .store(static_cast<int>(maskAlways_ | (maskOpen_ ? maskTypes_ : 0)), std::memory_order_relaxed);
}

// A context's handle of this process.
bool Recorder::isOwn(uint64_t handle) const {
  return handle >> kTagShift == (kContextType << (kTypeShift - kTagShift) | tag_);
}

void Recorder::sample(void* context, uint64_t every) {
  const auto handle = reinterpret_cast<uint64_t>(context);
  if (isOwn(handle)) definitions_.sample(static_cast<uint32_t>(handle), every);
}

bool Recorder::close(void* context) {
  const auto handle = reinterpret_cast<uint64_t>(context);
  const auto number = static_cast<uint32_t>(handle);
  if (!isOwn(handle)) return false;
  bool last = false;
  {
    std::lock_guard lock(mutex_);
    if (open_.erase(number) == 0) return false;
    last = open_.empty();
  }
  if (ThreadWriter* writer = ThreadWriter::ofThisThread())
    writer->mark(format::Kind::kFinalize, number, writer->now());
  if (last) stopKeeper();
  return true;
}

// The file is there, or this recorder only serves its extras.
Status Recorder::start(uint32_t parentPid) {
  Status status = kOkStatus;
  if (!settings_.directory.empty()) status = file_.create(settings_);
  tag_ = file_.isOpen() ? file_.tag() : static_cast<uint16_t>(getpid());
  if (!status.ok()) return status;
  definitions_.anchor(0);
  if (parentPid != 0) definitions_.fork(parentPid);
  return kOkStatus;
}

void Recorder::startKeeper() {
  std::lock_guard life(life_);
  if (keeper_.joinable() || !file_.isOpen() || shutDown_) return;
  std::atomic_ref(file_.header()->state).store(0, std::memory_order_relaxed);
  keeperEnds_ = false;
  roomNeeded_ = true;
  // No signal of the program's is to be handled on this thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    keeper_ = std::thread([this] { keep(); });
  } catch (const std::system_error&) {
    // Without it threads get their room themselves and anchors come at the ends only.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Recorder::stopKeeper() {
  std::lock_guard life(life_);
  {
    std::lock_guard lock(mutex_);
    if (!open_.empty()) return;  // somebody came meanwhile
  }
  endKeeper();
  definitions_.anchor(kAnchorAtEnd);
  if (file_.isOpen()) std::atomic_ref(file_.header()->state).store(1, std::memory_order_release);
}

void Recorder::endKeeper() {
  if (!keeper_.joinable()) return;
  {
    std::lock_guard lock(keeperMutex_);
    keeperEnds_ = true;
  }
  keeperWakes_.notify_one();
  keeper_.join();
}

void Recorder::wakeKeeper() {
  {
    std::lock_guard lock(keeperMutex_);
    if (roomNeeded_) return;
    roomNeeded_ = true;
  }
  keeperWakes_.notify_one();
}

void Recorder::keep() {
  pthread_setname_np(pthread_self(), "stretto-trace");
  std::chrono::milliseconds pause = kFirstAnchor;
  using Clock = std::chrono::steady_clock;  // the other one steps when somebody sets it
  auto next = Clock::now() + pause;
  std::unique_lock lock(keeperMutex_);
  while (!keeperEnds_) {
    const auto edge = std::chrono::nanoseconds(std::min<uint64_t>(file_.window().nanoseconds, kLongestWait));
    keeperWakes_.wait_until(lock, std::min(next, Clock::now() + edge),
                            [this] { return keeperEnds_ || roomNeeded_; });
    const bool room = roomNeeded_;
    roomNeeded_ = false;
    if (keeperEnds_) return;
    lock.unlock();
    if (room) file_.prepare();
    followWindow();
    if (Clock::now() >= next) {
      definitions_.anchor(0);
      pause = std::min<std::chrono::milliseconds>(2 * pause, kAnchorEach);
      next = Clock::now() + pause;
    }
    lock.lock();
  }
}

void Recorder::shutDown() {
  std::lock_guard life(life_);
  endKeeper();
  shutDown_ = true;
  definitions_.anchor(kAnchorAtEnd);
  file_.seal();
}

}  // namespace stretto::profiler
