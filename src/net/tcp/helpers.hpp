// Helper threads move bytes over the sockets of flows, so that several flows of a connection move at the same
// time and the thread that uses the connection does other things meanwhile. NCCL calls such threads by the
// same name (NCCL_SOCKET_NTHREADS). For net/tcp only.
//
// The protocol knows nothing of threads: the thread that uses a connection decides what goes over which flow
// and where it goes. It lends a flow's socket to a helper, together with the pieces of memory that the helper
// is to send or to fill, and does not touch them until the flow is back. So each socket direction, and all
// memory that it moves, has one owner at a time. The two share the helper's inbox and two words of the Loan:
// that it is wanted back, and that it is back.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "platform/byte_stream.hpp"
#include "platform/fork.hpp"

namespace stretto::net::tcp {

class HelperThread;

enum class Direction : uint8_t { kSend, kReceive };

// One direction of a socket, which a helper may have. Owned by its flow; all calls by the thread that uses
// the connection. Must be home, or recalled, before the socket is closed and before any of the pieces is
// freed.
class Loan {
 public:
  Loan() = default;
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  // A forked child has no helpers: nothing is lent there.
  bool isLent() const { return lent_ && generation_ == platform::forkGeneration(); }
  // Whether the helper is done with it: enough bytes were moved, or no more can be. Take it home then.
  bool isBack() const;
  struct Outcome {
    size_t bytes = 0;  // that were moved
    // What the kernel said to the last attempt that did not find it busy; kWouldBlock if there was none.
    Transfer last;
    bool stalled = false;  // the kernel once took no more, or had no more
  };
  // Of a loan that is back.
  Outcome takeHome();
  // Waits until no helper uses it: as long as the helper needs for one call of the kernel for each of its
  // loans, none of which blocks. Who recalls several wants all of them back first, and waits once.
  void wantBack();
  Outcome recall();

 private:
  friend class HelperThread;
  friend class Helpers;

  // By the helper: whether anything moved.
  bool step();
  bool isThrough() const { return bytes_ >= enough_ || ended_; }

  ByteStream* stream_ = nullptr;
  Direction direction_ = Direction::kSend;
  std::array<IoSpan, 3> pieces_{};
  size_t count_ = 0;
  size_t enough_ = 0;
  size_t bytes_ = 0;
  Transfer last_;
  bool ended_ = false;
  bool stalled_ = false;

  bool lent_ = false;
  uint32_t generation_ = 0;  // of the process that lent it
  HelperThread* by_ = nullptr;
  Loan* next_ = nullptr;  // in the helper's inbox
  std::atomic<bool> isHome_{true};
  std::atomic<bool> isRecalled_{false};
};

// The helper threads of this process. They start when the first flow is lent and end with the last connection
// that may lend one. Functions may be called from any thread.
class Helpers {
 public:
  // Shared by all who ask while somebody has them; `threads` counts for who is first. Null for 0 threads.
  static std::shared_ptr<Helpers> ofProcess(int threads);
  ~Helpers();

  // So many numbers for lend(), of which neighbours have different threads if there are enough.
  size_t numbers(size_t count) { return nextNumber_.fetch_add(count, std::memory_order_relaxed); }
  // Has a helper move at least `enough` bytes from or to `pieces`, which may hold more. False, and nothing is
  // lent, if no thread can be had.
  bool lend(Loan& loan, size_t number, Direction direction, ByteStream& stream,
            std::span<const IoSpan> pieces, size_t enough);

 private:
  explicit Helpers(int threads);
  HelperThread* threadOf(size_t number);
  HelperThread* startUpTo(size_t wanted);

  const size_t most_;
  const uint32_t generation_ = platform::forkGeneration();
  std::atomic<size_t> nextNumber_{0};
  struct Threads;
  const std::unique_ptr<Threads> threads_;
};

// The helpers of one connection, whose flows have neighbouring numbers. None for a connection of one flow.
class ConnectionHelpers {
 public:
  ConnectionHelpers(size_t flows, int threads)
      : helpers_(flows > 1 ? Helpers::ofProcess(threads) : nullptr),
        first_(helpers_ == nullptr ? 0 : helpers_->numbers(flows)) {}

  explicit operator bool() const { return helpers_ != nullptr; }
  // As Helpers::lend; false without helpers, too.
  bool lend(Loan& loan, size_t flow, Direction direction, ByteStream& stream, std::span<const IoSpan> pieces,
            size_t enough) const {
    return helpers_ != nullptr && helpers_->lend(loan, first_ + flow, direction, stream, pieces, enough);
  }

 private:
  const std::shared_ptr<Helpers> helpers_;
  const size_t first_;
};

}  // namespace stretto::net::tcp
