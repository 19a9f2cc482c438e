// What the kernels of one rank share, between blocks, between launches and with the host. Plain C++.
//
//   Context     goes into every launch by value: where everything is, and which operation this is
//   ChannelState   device memory, one per block number: what survives a launch, so that graphs replay
//   Control     pinned host memory: the host's word to end, and the first failing block's report
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "primitives/window.hpp"

namespace stretto::cuda {

// How far a link has come, in warp chunks.
struct ChunkCursors {
  uint64_t sent;
  uint64_t received;
};

// Written by the blocks that run on this channel, at their end, each its own part; read at the next ones'
// begin.
struct alignas(128) ChannelState {
  uint64_t epoch;
  uint64_t warpChunkEpoch;  // exchanges in warp chunks are counted apart, as each says when it has been read
  // Collectives; of the first channel all, of others those in which it took part. The same on all ranks that
  // agree, so that tags of chunks in links rely on it: nothing else may count here.
  uint64_t finished;
  uint64_t stamped;  // by the blocks of this number, which is not the channel's where transfers run
  uint32_t ended;    // of the first channel: blocks of the launch of several operations that runs
  ChunkCursors links[kMaxRanks];
};

// Instead of a peer, where it is not known who did not come.
inline constexpr int kNobody = -1;

// What a kernel waits for: a collective waits for the peer itself, a block that moves messages for the peer's
// end of the link.
enum class Awaited : uint32_t { kPeer = 0, kReceiver = 1, kSender = 2 };
inline constexpr int kAwaited = 3 * kMaxRanks;
constexpr int awaitedAt(Awaited what, int peer) {
  return static_cast<int>(what) * kMaxRanks + peer;
}

// Times of waits: ticks of the device's %globaltimer, half a millisecond each. They wrap after 26 days.
inline constexpr int kTickBits = 19;  // of nanoseconds
inline constexpr uint32_t kMostTicks = uint32_t{1} << 31;
constexpr uint32_t ticksOf(double seconds) {
  const double ticks = seconds * 1e9 / (1 << kTickBits) + 1;
  return ticks < kMostTicks ? static_cast<uint32_t>(ticks) : kMostTicks - 1;
}

// A deadline is never 0 and so may lie a tick late; the wait seems then to begin a tick late.
constexpr uint32_t deadlineOf(uint32_t tick, uint32_t timeoutTicks) {
  return (tick + timeoutTicks) | 1;
}
// Whether a wait of that deadline is long: 67 ms.
inline constexpr int32_t kLongTicks = 128;
constexpr int32_t ticksWaited(uint32_t tick, uint32_t deadline, uint32_t timeoutTicks) {
  return static_cast<int32_t>(tick - (deadline - timeoutTicks));
}
constexpr bool isLong(uint32_t tick, uint32_t deadline, uint32_t timeoutTicks) {
  return ticksWaited(tick, deadline, timeoutTicks) >= kLongTicks;
}

// A thread of the launch of that number (its low 32 bits) has waited for long, for so many spans of 32 ticks,
// and has looked once more in vain in a span whose number ends in these 16 bits. In one word, which any
// thread of the device that waits stores.
struct LongLook {
  static constexpr uint32_t kTicks = 32;
  static constexpr uint32_t kMostWaited = 0xffff;  // 18 minutes, or more
  static constexpr double kSpanSeconds = 1e-9 * kTicks * (1 << kTickBits);
  uint32_t launch;
  uint16_t waited;
  uint16_t span;

  static constexpr LongLook at(uint32_t launch, uint32_t tick, int32_t ticksWaited) {
    const uint32_t spans = static_cast<uint32_t>(ticksWaited) / kTicks;
    return {launch, static_cast<uint16_t>(spans < kMostWaited ? spans : kMostWaited),
            static_cast<uint16_t>(tick / kTicks)};
  }
  static constexpr LongLook of(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint16_t>(word >> 16),
            static_cast<uint16_t>(word)};
  }
  constexpr uint64_t word() const { return uint64_t{launch} << 32 | uint64_t{waited} << 16 | span; }
};

// `abort` is as WindowHeader::abort: low 8 bits Code, then peer + 1.
struct Control {
  alignas(64) uint32_t abort;  // the host writes
  // One block of the device writes: `reported` goes from 0 to 1 when it begins, to 2 when the rest is there.
  alignas(64) uint32_t reported;
  uint32_t code;
  int32_t peer;  // or kNobody
  uint32_t channel;
  uint64_t sequence;
  uint64_t theirTag;
  alignas(64) uint64_t longLooks[kAwaited];  // LongLook::word()
};

// When one block of a kernel had its turn, for whoever profiles. Pinned host memory: the block writes, the
// host reads. Each fact lies beside the number of the stamp (from 1, of the blocks of one number), in 16
// bytes that are stored at once: a reader that sees the number has the fact, and the writer needs no fence.
struct Stamp {
  struct alignas(16) Fact {
    uint64_t value;
    uint64_t number;
  };
  Fact start;  // %globaltimer, nanoseconds
  Fact stop;
  Fact launch;  // Context::launch: equal in every replay of a graph
  Fact queue;   // of a transfer: 2 * (peer + 1), and 1 more if it sends; of a collective: as below

  // And ChannelState::finished of the block's channel after it: equal on all ranks, replays of graphs
  // included.
  static constexpr uint64_t kCollective = uint64_t{1} << 63;
};

// A ring for each of the first blocks; later ones leave no stamps.
struct Stamps {
  static constexpr int kBlocks = 32;
  static constexpr uint64_t kEntries = 64;
  Stamp of[kBlocks][kEntries];
};

// What one source's lines of one slot hold.
constexpr size_t linePayload(const WindowLayout& layout) {
  return layout.lineRegion / 16 * 8;
}
constexpr size_t ll128Payload(const WindowLayout& layout) {
  return layout.ll128Region / 128 * 120;
}

constexpr size_t lamportPayload(const WindowLayout& layout) {
  return layout.lamportRegion;
}

// Signals of one-sided operations that a rank can send to another, told apart by their numbers.
inline constexpr uint32_t kSignals = 1024;

// A device window: first the lines of every channel, close together, then the warp chunks of those channels
// that have some, then what the deep channels have besides, then the counters of signals: one for each rank
// that sends them and each number. `layout` is of one channel that has everything, for as many sources as a
// rank has peers.
struct Shape {
  WindowLayout layout;
  int32_t channels = 1;
  int32_t warpChunkChannels = 1;  // the first of them
  int32_t deepChannels = 1;       // the first of them

  constexpr size_t nearBytes() const { return layout.slotsBegin(); }
  constexpr size_t deepBytes() const { return layout.bytes() - layout.slotsBegin(); }
  // Offsets to which those of `layout` are added: of mailboxes and lines, of warp chunks, and of slots and
  // links.
  constexpr size_t nearBegin(int channel) const { return nearBytes() * static_cast<size_t>(channel); }
  constexpr size_t warpChunksBegin(int channel) const {
    return nearBytes() * static_cast<size_t>(channels) +
           layout.allWarpChunkBytes() * static_cast<size_t>(channel);
  }
  constexpr size_t deepBegin(int channel) const {
    return warpChunksBegin(warpChunkChannels) + deepBytes() * static_cast<size_t>(channel) - nearBytes();
  }
  constexpr size_t signalsBegin() const {
    return warpChunksBegin(warpChunkChannels) + deepBytes() * static_cast<size_t>(deepChannels);
  }
  static constexpr size_t signalAt(int sender, uint32_t number) {
    return (static_cast<size_t>(sender) * kSignals + number) * sizeof(uint64_t);
  }
  constexpr size_t signalBytes() const { return signalAt(static_cast<int>(layout.ranks) + 1, 0); }
  constexpr size_t windowBytes() const { return signalsBegin() + signalBytes(); }
};

// Where things lie in the near part of a channel, said by the host: a kernel that computed it from the layout
// would be later by a tenth of what a small operation takes.
struct Regions {
  uint32_t bytes;    // of a channel's near part: the distance of channels
  uint32_t lines;    // from its begin: LL lines,
  uint32_t ll128;    // LL128 ones,
  uint32_t lamport;  // and Lamport ones, each of the first slot, phase and source

  constexpr Regions() : bytes(0), lines(0), ll128(0), lamport(0) {}
  constexpr explicit Regions(const Shape& shape)
      : bytes(static_cast<uint32_t>(shape.nearBytes())),
        lines(static_cast<uint32_t>(shape.layout.lines(0, Phase::kScatter, 0))),
        ll128(static_cast<uint32_t>(shape.layout.ll128Lines(0, Phase::kScatter, 0))),
        lamport(static_cast<uint32_t>(shape.layout.lamportLines(0, Phase::kScatter, 0))) {}
};

// Which operation a kernel runs, as the host called it.
struct Called {
  uint64_t tag;
  uint64_t sequence;
};

struct Context {
  // Windows by rank: of the first ranks here, where a kernel finds them soonest, of all in device memory.
  static constexpr int kAtHand = 8;
  std::byte* windows[kAtHand];
  std::byte* const* allWindows;
  Shape shape;
  Regions regions;  // of `shape`
  ChannelState* channels;
  Control* control;
  Stamps* stamps;  // null: nobody wants any
  uint64_t launch;
  uint32_t timeoutTicks;  // of every wait
  Called called;          // of a launch of several operations: nothing
  int32_t rank;
  int32_t ranks;
};
static_assert(std::is_trivially_copyable_v<Context> && sizeof(Context) <= 256);

}  // namespace stretto::cuda
