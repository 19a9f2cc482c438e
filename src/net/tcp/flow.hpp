// One TCP connection of the several that carry a connection of net/tcp: what sender and receiver do alike
// with it. For net/tcp only; used by the thread that uses the connection, but for what is lent to a helper.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "net/net.hpp"
#include "net/tcp/helpers.hpp"
#include "net/tcp/wire.hpp"
#include "platform/byte_stream.hpp"

namespace stretto::net::tcp {

// Calls of progress(), after which it looks at every flow, also at those that it waits for nothing from.
inline constexpr uint64_t kLookAtAllEvery = 16;

// One that has proved to be of the peer.
struct Joined {
  ByteStream stream;
  std::string route;
};

struct Flow {
  Flow(Joined&& joined, double silence);
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  // With what the kernel counts.
  FlowCounters count() const;
  // Whether what was sent over it has had no answer for too long. Cheap to ask often.
  bool isSilent(double silence, uint64_t now);
  // Takes it back from a helper first.
  void close();

  ByteStream stream;
  FlowCounters counters;
  bool open = true;
  Loan loan;  // whoever destroys a flow that is open recalls it first

 private:
  uint64_t asked_ = 0;  // when isSilent() asked the kernel last
};

// Why a connection can only be closed any more. The same words for whoever asks again.
class ConnectionFailure {
 public:
  bool ok() const { return status_.ok(); }
  // The status, with its text as the last error.
  Status again() const;
  // `isNews`: the log has it, too.
  void set(Code code, std::string text, bool isNews = true);

 private:
  Status status_;
  std::string text_;
};

// That a flow is lost and others go on, for the log. A peer that dies closes all its flows within a moment,
// so nothing is said until it is known that some are left.
class LossNotice {
 public:
  void note(std::string what);
  void forget() { what_.clear(); }
  const std::string& what() const { return what_; }
  // To be called often; `isAnyLeft`: of the flows.
  void sayIfDue(bool isAnyLeft);

 private:
  std::string what_;
  uint64_t at_ = 0;
};

// "its connection closed" or "it broke (Connection reset by peer)".
std::string whyEnded(const Transfer& transfer);

// Closes a socket so that what was sent over it arrives, even if the peer sends still: a plain close() would
// have the kernel reset the connection then. Waits for the peer's kernel at most `milliseconds`; what is not
// confirmed by then stays open, and later calls of this function and of closeIdle() close it.
void closeGently(FileDescriptor socket, int milliseconds);
void closeIdle();

}  // namespace stretto::net::tcp
