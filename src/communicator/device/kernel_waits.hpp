// Ranks on GPUs whose kernels wait for each other without an end: a send meets a collective, or sends and
// receives that need each other are not in one group. The same question as primitives/host/standstill.cpp
// answers for CPU ranks; here the waits are those of kernels, and threads of the host look at them.
//
// A rank publishes which launch of its GPU waits, and for whom (KernelWaits); every rank that waits compares
// what all of them have published (Standstill). Why what it finds is true is said in kernel_waits.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "primitives/cuda/state.hpp"
#include "primitives/window.hpp"

namespace stretto::communicator {

// Messages by peer, since the communicator was made.
struct MessageCounts {
  std::array<uint64_t, kMaxRanks> sent{};
  std::array<uint64_t, kMaxRanks> received{};
};

// What is launched: a collective, the transfers of a group, or a wait for signals, which is like transfers
// that move no message.
struct WaitingLaunch {
  bool isTransfers = false;
  bool isOfSignals = false;
  bool isCounted = true;  // the numbers below are those of all messages; their differences are right anyway
  MessageCounts before;   // of what was enqueued before it
  MessageCounts with;     // and with it
};

// Lies behind the post in a rank's shared region, zeroed at first. The rank's own process writes, its peers
// read at the same time; every word is atomic.
struct alignas(kMailboxBytes) KernelWaits {
  uint64_t launch;       // that waited last, by its rank's number; 0: none has; written last
  uint64_t isTransfers;  // as in WaitingLaunch
  uint64_t isOfSignals;
  uint64_t isCounted;
  MessageCounts before;
  MessageCounts with;
  // By Awaited and peer: how often this rank has seen that a thread of that launch waits, since it last saw
  // so.
  uint64_t looks[stretto::cuda::kAwaited];
};

// The owner's side. One thread at a time.
class KernelWaitsOf {
 public:
  explicit KernelWaitsOf(KernelWaits& published) : published_(published) {}

  using Looks = std::array<stretto::cuda::LongLook, stretto::cuda::kAwaited>;
  // To be called twenty times a second. `now`: what the device has said by now. `find(launch, found)` says
  // what was launched under that number (its low 32 bits); false where that is not known, as of graphs, which
  // are left out. Returns whether a wait goes on, and calls `find` only for a launch that it has not
  // published yet.
  using Find = std::function<bool(uint32_t launch, WaitingLaunch& found)>;
  bool publish(const Looks& now, const Find& find);

 private:
  KernelWaits& published_;
  Looks before_{};
};

// The reader's side, of one rank. One thread at a time.
class Standstill {
 public:
  struct Found {
    uint64_t members =
        0;          // ranks, a bit each and this one among them, that wait for each other without an end
    int gone = -1;  // a rank for which this one waits, and which does nothing any more
  };
  // Counted looks of which the last was certainly made after the first picture: kernel_waits.cpp says why.
  static constexpr uint64_t kLooks = 6;
  // Calls between two pictures that are compared: so many at first, and twice as many each time, while this
  // rank waits on in the same launch. However seldom the looks come, one window holds enough of them.
  static constexpr int kWindow = 12;
  static constexpr int kMostWindow = kWindow << 10;

  // To be called twenty times a second, while a wait of this rank goes on: what is certain by now. `all`: by
  // rank; `gone`: the ranks, a bit each, that have left or given up.
  Found find(int rank, std::span<const KernelWaits* const> all, uint64_t gone);

 private:
  struct Seen {
    uint64_t launch = 0;
    WaitingLaunch what;
    std::array<uint64_t, stretto::cuda::kAwaited> looks{};
  };
  using Picture = std::array<Seen, kMaxRanks>;
  static Seen read(const KernelWaits& waits);
  // Whether a rank has certainly looked for that in vain since the first picture.
  bool awaits(size_t rank, const Picture& now, stretto::cuda::Awaited what, size_t peer) const;
  // Whether what a rank waits for is done by a later launch of the peer than the one that it has published.
  bool needs(size_t rank, const Picture& now, size_t peer) const;
  // Those of `waiting`, a bit each, whose published launch must end before that of `rank` can.
  uint64_t needed(size_t rank, const Picture& now, uint64_t waiting) const;
  int absentee(size_t rank, const Picture& now) const;

  int age_ = 0;  // of first_, in calls
  int window_ = kWindow;
  Picture first_{};
  uint64_t firstGone_ = 0;  // who was gone when it was taken
};

}  // namespace stretto::communicator
