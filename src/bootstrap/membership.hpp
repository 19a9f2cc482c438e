// One rank's place in a communicator's control plane: the rendezvous with the other ranks, small all-gathers
// at any time in the communicator's life, and word of every rank that dies. The communicator layer owns one
// Membership per rank; nothing else in the library talks between processes without going through what was
// exchanged here.
//
// Threads: different Memberships are independent (many ranks may live in one process, one background thread
// serves them all). Of one Membership, exchange() is for one thread at a time; nudge() and sayGoodbye() may
// come from any thread, and the latter makes a waiting exchange() return. After fork() a child's Memberships
// are dead: their methods fail with kInvalidUsage and their destructors leave the parent's alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/os.hpp"
#include "base/status.hpp"
#include "bootstrap/unique_id.hpp"
#include "bootstrap/wire.hpp"
#include "platform/encryption.hpp"

namespace stretto::bootstrap {

class ClientLink;
class ServiceUse;
struct WaitEnd;

// A rank that will not answer any more.
struct PeerLoss {
  int rank = -1;
  uint32_t pid = 0;
  std::string host;
  std::string reason;      // "its connection closed without a goodbye: ...", "called ncclCommAbort", ...
  bool disagreed = false;  // it has left by Leaving::kDisagreed
};
// Called on the background thread, once per lost rank: it must be quick (set a flag, wake somebody), must not
// throw, and must not call into or destroy the Membership.
using LossCallback = std::function<void(const PeerLoss&)>;
// Called on the background thread when another rank has called nudge(), with that rank and its message; the
// same goes for it, but that it may call nudge().
using NudgeCallback = std::function<void(int rank, std::span<const uint8_t> message)>;

// Asked by every wait of a Membership at least every 50 ms: not ok ends the wait with that status and the
// words in lastError(). It is called on the waiting thread, must be quick, must outlive the Membership and
// must not call into it. May be empty: nothing but the deadline ends a wait then.
using StopCheck = std::function<Status()>;

struct JoinOptions {
  std::string version;  // the library's; ranks that say something else are refused. At most 64 bytes
  // Both may be called from the moment that all have joined, even before join() returns.
  LossCallback onPeerLost;
  NudgeCallback onNudged;
};

enum class Leaving : uint8_t {
  kNormally,   // the communicator is destroyed: no loss, nobody's callback is called
  kAborted,    // the others are told a loss, reason "called ncclCommAbort"
  kDisagreed,  // the same, and that it comes of ranks that made different calls, as the reason says
};

class Membership {
 public:
  // Blocks until all `ranks` ranks have joined. Errors: kInvalidArgument (the id, the rank), kInvalidUsage
  // (ranks disagree about the number of ranks, about who is who, or about the library's version: both sides
  // are named), kTimeout (says how many and which ranks are missing), kRemote (a rank or the hosting process
  // died, gave up or aborted meanwhile), kSystem, and whatever `stop` says.
  static Result<std::unique_ptr<Membership>> join(const UniqueId& id, int rank, int ranks,
                                                  double timeoutSeconds, StopCheck stop = {},
                                                  JoinOptions options = {});
  // Says goodbye (normally), if nothing was said. No callback runs once this has returned.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  int rank() const;
  int ranks() const { return static_cast<int>(members().size()); }
  const UniqueId& id() const { return id_; }
  // Whether what goes between hosts is encrypted, as it was when this one joined, whatever the process is
  // told later.
  const Encryption& encryption() const;
  // All members by rank; lives as long as the Membership.
  std::span<const MemberInfo> members() const;

  // Whether that rank has left or is lost, as far as this one has heard. Any thread.
  bool hasGone(int rank) const;

  // All-gather of small blobs (at most 64 KiB each, 16 MiB together; lengths may differ): what every rank
  // gave, by rank. Collective: every rank must make the same exchanges by the same names (at most 64 bytes)
  // in the same order, else all get kInvalidUsage with both names and ranks, now and ever after. kRemote when
  // a rank is gone, kTimeout with the missing ranks; no exchange is possible after either. A process that
  // hosts the session may go at any time, unless it holds ranks. An exchange of nothing is a barrier.
  using Parts = bootstrap::Contributions;
  Result<Parts> exchange(const char* name, std::span<const uint8_t> mine, double timeoutSeconds);
  // The same in two halves. The first returns at once, also while an earlier exchange goes on. The second may
  // be left out, or ended by `stop` beside the check that join() was given: the exchange goes on without this
  // rank's waiting for it, and what comes is dropped. One that is not the latest has none.
  Result<uint32_t> takePart(const char* name, std::span<const uint8_t> mine);
  Result<Parts> await(uint32_t exchange, const char* name, double timeoutSeconds, const StopCheck& stop = {});

  // Asks every other rank for what its onNudged does, with a message of at most 4 KiB. Returns at once;
  // nothing says whether it got there, and of several in a row the last may be the only one that does.
  void nudge(std::span<const uint8_t> message = {});

  // Leaves. Returns when a host of the session vouches that those who stay will know (hosts.hpp), or after
  // half a second; in peace only half a second after the goodbye has gone out. Saying it again does nothing.
  // `why` replaces "called ncclCommAbort" in what the others are told.
  void sayGoodbye(Leaving how, const std::string& why = {});

 private:
  Membership(const UniqueId& id, std::unique_ptr<ServiceUse> service, std::shared_ptr<ClientLink> link);

  Status finishJoin(double timeoutSeconds);
  Status giveUpJoining(double timeoutSeconds);
  std::string notJoined(double seconds);
  // What wait(deadline) says. What has not come after STRETTO_WARN_AFTER the log tells of, once.
  template <typename Wait, typename Words>
  WaitEnd waitAloud(double timeoutSeconds, const Wait& wait, const Words& whatIsMissing);
  Status exchangeTimedOut(const char* name, double timeoutSeconds);
  std::string notExchanged(double seconds);
  void leave(Farewell kind, const std::string& text);
  bool ask(QueryKind kind, Missing& answer);

  const UniqueId id_;
  const os::ProcessId pid_;
  std::unique_ptr<ServiceUse> service_;
  std::shared_ptr<ClientLink> link_;  // shared with the background thread
  std::atomic<bool> left_{false};
};

}  // namespace stretto::bootstrap
