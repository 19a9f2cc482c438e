// How things fail. A Status is a few bytes, crosses to a device and costs nothing to return; the words
// that go with it are kept beside it, per thread, where fail() was called. UCX's rule holds: who first
// decides that something is an error says so, once; everybody else only passes the Status on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace stretto {

enum class Code : uint8_t {
  kOk = 0,
  kInProgress,       // not finished yet, ask again
  kInvalidArgument,  // one argument is wrong by itself
  kInvalidUsage,     // the call is wrong here: unsupported, out of order, or ranks disagree
  kSystem,           // the operating system refused
  kInternal,         // our mistake
  kRemote,           // a peer died, aborted or vanished
  kTimeout,          // a wait passed its deadline
  kAborted,          // this communicator was aborted
};
const char* nameOf(Code code);

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  int16_t peer = -1;  // the rank it was about, -1 if none

  constexpr bool ok() const { return code == Code::kOk; }
};
inline constexpr Status kOkStatus{};

// Sets this thread's last error text (printf format), logs it at WARN, and returns the Status.
[[gnu::format(printf, 2, 3), gnu::cold]] Status fail(Code code, const char* format, ...);
// The same, about a peer.
[[gnu::format(printf, 3, 4), gnu::cold]] Status failAbout(int peer, Code code, const char* format, ...);
// strerror(errno) is appended; code is kSystem.
[[gnu::format(printf, 1, 2), gnu::cold]] Status failErrno(const char* format, ...);

// This thread's last error text; empty if it never failed. setLastError moves text between threads.
const std::string& lastError();
void setLastError(std::string text);

// A value or the Status that explains its absence: one that is ok explains nothing, and is an error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status)                          // NOLINT
      : status_(!status.ok() ? status : fail(Code::kInternal, "neither a result nor an error")) {}
  bool ok() const { return status_.ok(); }
  Status status() const { return status_; }
  T& value() { return value_; }
  const T& value() const { return value_; }

 private:
  T value_{};
  Status status_{};
};

// Passes a failed Status up.
#define STRETTO_TRY(expression)                                    \
  do {                                                             \
    if (::stretto::Status status_ = (expression); !status_.ok()) { \
      return status_;                                              \
    }                                                              \
  } while (false)

}  // namespace stretto
