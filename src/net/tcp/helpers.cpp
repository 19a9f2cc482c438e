#include "net/tcp/helpers.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "platform/clock.hpp"
#include "platform/fork.hpp"
#include "platform/own_thread.hpp"

namespace stretto::net::tcp {
namespace {

// Without any byte; then the thread sleeps. Longer than the pauses between the steps of a collective.
constexpr double kSpinSeconds = 1e-3;
constexpr int kMostMillisecondsOfSleep = 1000;

Transfer moveSome(Direction direction, ByteStream& stream, std::span<const IoSpan> pieces) {
  return direction == Direction::kSend ? stream.send(pieces) : stream.receive(pieces);
}

// What comes over the socket of a flow that sends is no matter of the helper's.
Poller::For waitsFor(Direction direction) {
  return direction == Direction::kSend ? Poller::For::kWriting : Poller::For::kReading;
}

}  // namespace

bool Loan::isBack() const {
  return isLent() && isHome_.load(std::memory_order_acquire);
}

Loan::Outcome Loan::takeHome() {
  lent_ = false;
  return {bytes_, last_, stalled_};
}

bool Loan::step() {
  const Transfer moved = moveSome(direction_, *stream_, std::span(pieces_).first(count_));
  if (moved.outcome == IoOutcome::kWouldBlock) {
    stalled_ = true;
    return false;
  }
  last_ = moved;
  ended_ = moved.outcome != IoOutcome::kSome;
  bytes_ += moved.bytes;
  size_t left = moved.bytes;
  for (IoSpan& piece : std::span(pieces_).first(count_)) {
    const size_t taken = std::min(left, piece.bytes);
    piece.data = static_cast<std::byte*>(piece.data) + taken;
    piece.bytes -= taken;
    left -= taken;
  }
  return true;
}

// Moves what is lent to it, a call of the kernel for each flow in turn. It spins while bytes move and for a
// little while after, and then sleeps until a socket or somebody who lends wakes it.
class HelperThread {
 public:
  static std::unique_ptr<HelperThread> start();
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void take(Loan& loan);
  void wakeIfAsleep() {
    if (sleeps_.load(std::memory_order_seq_cst)) poller_.wake();
  }

 private:
  explicit HelperThread(Poller&& poller) : poller_(std::move(poller)) {}
  void run();
  bool emptyInbox();
  bool moveAll();
  void sleep();
  bool isCalled() const;

  Poller poller_;
  std::vector<Loan*> loans_;  // the thread's own
  alignas(64) std::atomic<Loan*> inbox_{nullptr};
  std::atomic<bool> sleeps_{false};
  std::atomic<bool> ending_{false};
  platform::OwnThread thread_;
};

std::unique_ptr<HelperThread> HelperThread::start() {
  auto poller = Poller::create();
  if (!poller.ok()) return nullptr;
  std::unique_ptr<HelperThread> helper(new HelperThread(std::move(poller.value())));
  if (!helper->thread_.start([self = helper.get()] { self->run(); })) return nullptr;
  return helper;
}

HelperThread::~HelperThread() {
  ending_.store(true, std::memory_order_seq_cst);
  wakeIfAsleep();
  thread_.join();
}

void HelperThread::take(Loan& loan) {
  loan.by_ = this;
  Loan* before = inbox_.load(std::memory_order_relaxed);
  do {
    loan.next_ = before;
  } while (!inbox_.compare_exchange_weak(before, &loan, std::memory_order_seq_cst));
  wakeIfAsleep();
}

bool HelperThread::emptyInbox() {
  if (inbox_.load(std::memory_order_relaxed) == nullptr) return false;
  for (Loan* loan = inbox_.exchange(nullptr, std::memory_order_acquire); loan != nullptr;
       loan = loan->next_) {
    loans_.push_back(loan);
  }
  return true;
}

// Whether anything moved. Who has its loan back may destroy it at once.
bool HelperThread::moveAll() {
  bool moved = false;
  std::erase_if(loans_, [&](Loan* loan) {
    if (!loan->isRecalled_.load(std::memory_order_relaxed)) moved = loan->step() || moved;
    const bool isDone = loan->isThrough() || loan->isRecalled_.load(std::memory_order_relaxed);
    if (isDone) loan->isHome_.store(true, std::memory_order_release);
    return isDone;
  });
  return moved;
}

bool HelperThread::isCalled() const {
  if (ending_.load(std::memory_order_seq_cst) || inbox_.load(std::memory_order_seq_cst) != nullptr)
    return true;
  return std::any_of(loans_.begin(), loans_.end(),
                     [](const Loan* loan) { return loan->isRecalled_.load(std::memory_order_seq_cst); });
}

// Who calls looks at sleeps_ after it has called, and this thread looks for calls after it has said that it
// sleeps: one of the two sees the other.
void HelperThread::sleep() {
  bool all = true;
  for (const Loan* loan : loans_) {
    all = poller_.add(loan->stream_->socket(), 0, waitsFor(loan->direction_)).ok() && all;
  }
  sleeps_.store(true, std::memory_order_seq_cst);
  std::array<Poller::Event, 16> events;
  if (!isCalled()) poller_.wait(events, all ? kMostMillisecondsOfSleep : 1);
  sleeps_.store(false, std::memory_order_relaxed);
  for (const Loan* loan : loans_) poller_.remove(loan->stream_->socket());
}

void HelperThread::run() {
  uint64_t movedAt = platform::ticks();
  while (!ending_.load(std::memory_order_relaxed)) {
    const bool called = emptyInbox();
    if (moveAll() || called) {
      movedAt = platform::ticks();
    } else if (platform::tickSeconds(platform::ticks() - movedAt) < kSpinSeconds) {
      std::this_thread::yield();
    } else {
      sleep();
      movedAt = platform::ticks();
    }
  }
}

void Loan::wantBack() {
  if (!isLent() || isBack()) return;
  isRecalled_.store(true, std::memory_order_seq_cst);
  by_->wakeIfAsleep();
}

Loan::Outcome Loan::recall() {
  if (!isLent()) {
    lent_ = false;
    return {};
  }
  wantBack();
  while (!isHome_.load(std::memory_order_acquire)) std::this_thread::yield();
  return takeHome();
}

struct Helpers::Threads {
  explicit Threads(size_t most) : ready(most) {}

  std::vector<std::atomic<HelperThread*>> ready;  // by number; null: not started yet
  std::mutex mutex;                               // of what follows
  std::vector<std::unique_ptr<HelperThread>> all;
  bool saidNone = false;
};

Helpers::Helpers(int threads)
    : most_(static_cast<size_t>(threads)), threads_(std::make_unique<Threads>(most_)) {}

Helpers::~Helpers() = default;

std::shared_ptr<Helpers> Helpers::ofProcess(int threads) {
  if (threads <= 0) return nullptr;
  // Never destroyed: connections may outlive static objects. A forked child, whose parent may have held the
  // mutex, has one of its own.
  struct Here {
    std::mutex mutex;
    std::weak_ptr<Helpers> helpers;
    const uint32_t generation = platform::forkGeneration();
  };
  static std::atomic<Here*> current{new Here};
  Here* here = current.load();
  if (here->generation != platform::forkGeneration()) {
    auto* const fresh = new Here;
    here = current.compare_exchange_strong(here, fresh) ? fresh : here;
  }
  const std::lock_guard lock(here->mutex);
  std::shared_ptr<Helpers> helpers = here->helpers.lock();
  if (helpers != nullptr) return helpers;
  helpers.reset(new Helpers(threads));
  here->helpers = helpers;
  return helpers;
}

HelperThread* Helpers::threadOf(size_t number) {
  if (generation_ != platform::forkGeneration()) return nullptr;
  const size_t wanted = number % most_;
  HelperThread* const ready = threads_->ready[wanted].load(std::memory_order_acquire);
  return ready != nullptr ? ready : startUpTo(wanted);
}

// Threads start one by one, as numbers ask for them; where no more can be had, those that there are do. Null
// if there is none.
HelperThread* Helpers::startUpTo(size_t wanted) {
  const std::lock_guard lock(threads_->mutex);
  auto& all = threads_->all;
  while (all.size() <= wanted && !threads_->saidNone) {
    auto started = HelperThread::start();
    if (started != nullptr) {
      all.push_back(std::move(started));
      continue;
    }
    threads_->saidNone = true;
    STRETTO_LOG(kWarn, kNet, "net/tcp: %zu of %zu helper threads could be started; the flows share them",
                all.size(), most_);
  }
  if (all.empty()) return nullptr;
  HelperThread* const thread = all[wanted % all.size()].get();
  threads_->ready[wanted].store(thread, std::memory_order_release);
  return thread;
}

bool Helpers::lend(Loan& loan, size_t number, Direction direction, ByteStream& stream,
                   std::span<const IoSpan> pieces, size_t enough) {
  HelperThread* const thread = threadOf(number);
  if (thread == nullptr) return false;
  loan.stream_ = &stream;
  loan.direction_ = direction;
  loan.count_ = pieces.size();
  std::copy(pieces.begin(), pieces.end(), loan.pieces_.begin());
  loan.enough_ = enough;
  loan.bytes_ = 0;
  loan.last_ = {IoOutcome::kWouldBlock, 0, 0};
  loan.ended_ = loan.stalled_ = false;
  loan.lent_ = true;
  loan.generation_ = platform::forkGeneration();
  loan.isRecalled_.store(false, std::memory_order_relaxed);
  loan.isHome_.store(false, std::memory_order_relaxed);
  thread->take(loan);
  return true;
}

}  // namespace stretto::net::tcp
