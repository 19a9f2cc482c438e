// How a window is laid out: the memory of one rank that its peers can address. Plain structures shared by
// every backend; who may write which byte is said beside it. All ranks of a communicator compute the same
// layout from the same few numbers, and check that they did when they connect.
//
// A window has one writer per byte: either its owner, or one particular peer. Counters only grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/status.hpp"
#include "primitives/operation.hpp"

namespace stretto {

inline constexpr int kMaxRanks = 64;         // of one host, and of one communicator of GPUs
inline constexpr int kMostRanks = 1024;      // of one communicator of ranks in host memory, on several hosts
inline constexpr size_t kMailboxBytes = 64;  // a cache line
inline constexpr size_t kPageBytes = 4096;   // regions start on pages, so that unused ones stay untouched
inline constexpr uint64_t kWindowMagic = 0x5354524554544f31;  // "STRETTO1"
inline constexpr uint32_t kWindowVersion = 6;

// A counter with the tag of the operation that moved it, and room for a few bytes of payload, in one cache
// line: whoever sees the counter move has the rest at no further cost. Written by one peer.
struct alignas(kMailboxBytes) Mailbox {
  static constexpr size_t kInlineBytes = 40;
  uint64_t count;
  uint64_t tag;
  uint64_t bytes;
  std::byte inlined[kInlineBytes];
};

// What a rank says about the operation it is in, for peers that wait too long and want to know why. It is
// overwritten while they read: both sides go through primitives/call_record.hpp.
struct alignas(kMailboxBytes) CallRecord {
  uint64_t sequence;  // number of the operation on its communicator, from 1; written last
  uint64_t tag;
  uint64_t count;
  uint64_t startedTicks;
  uint8_t collective;
  uint8_t type;
  uint8_t op;
  uint8_t finished;
  int32_t root;
  uint64_t place;  // of the results in a window that users have registered, if that matters; else 0
  // Of an all-reduce with RMSNorm; anything in others.
  uint32_t hidden;
  float epsilon;
  NormMode mode;
};
static_assert(sizeof(CallRecord) == kMailboxBytes);

// A wait of the owner that has become long, so that peers can find out that it will never end
// (primitives/host/standstill.cpp). Written by the owner alone.
struct alignas(kMailboxBytes) LongWait {
  uint64_t ticket;  // grows by one when such a wait begins and when it ends: odd while there is one
  uint64_t looks;   // how often the owner has looked at what it waits for, and not found it
  uint64_t peers;   // a bit each: the ranks of which any one could end the wait; 0: others than the first 64
  uint64_t sequence;  // of the collective that it belongs to; 0: transfers, of which `call` tells
  // Ranks, the owner included, that the owner has found to disagree with each other, a bit each; 0: none, or
  // others than the first 64.
  uint64_t disagreeing;
  CallRecord call;  // the first unfinished of the transfers that the owner waited for last; 0: never
};

struct WindowHeader {
  // Written once, by the owner, before the window is offered.
  uint64_t magic;
  uint32_t version;
  uint32_t rank;
  uint32_t ranks;
  uint32_t slotBytes;
  uint32_t linkChunk;
  uint32_t heavyFence;  // 1: an owner that fails passes a heavy fence (platform/fence.hpp) after it said so
  uint64_t token;       // proves to a peer that it mapped what it meant to map

  // The owner's process writes it (ncclCommAbort, liveness); non-zero ends every wait of this rank. Made by
  // abortWord().
  alignas(kMailboxBytes) uint32_t abort;
  // The owner's communicator is broken: why, and whom it blames, as abortWord() has it. Peers that wait long
  // look here, and give up too.
  uint32_t failed;
  // How far the owner's end has come: it has begun to finalise, so that what it has not called by now it
  // never will; and nothing of its work runs any more, so that it uses nobody's memory.
  static constexpr uint32_t kCallsOver = 1, kGone = 2;
  uint32_t left;
  // The owner reads peers' own buffers in the operation of this number; 0 while it does not. A peer whose
  // operation fails waits for it to change before it gives its buffers back to its caller. In a line of its
  // own: peers look at the words above in every such operation.
  alignas(kMailboxBytes) uint64_t reading;
  // Those of the first 64 ranks that the owner's process knows to be lost, a bit each: they read nothing any
  // more. Nobody reads where there are more.
  uint64_t lost;

  // sleeping: 1 while the owner sleeps; bell: whoever wakes it adds one.
  alignas(kMailboxBytes) uint32_t sleeping;
  uint32_t bell;

  LongWait wait;

  // What the owner has given up of the making of this communicator's children: exchanges that seat the ranks
  // of a split or a growth, numbered from 1 in the order of the calls, each at its number modulo kGivenUp;
  // and children in which it had a seat, by their identities, in the order in which it gave them up. Written
  // by the owner alone.
  static constexpr uint64_t kGivenUp = 16;
  alignas(kMailboxBytes) uint64_t seatingsGivenUp[kGivenUp];
  uint64_t childrenGivenUp[kGivenUp];

  // More than the operations by which a rank that waits for nobody may be ahead, but for those of no bytes.
  static constexpr int kCallsKept = 16;
  alignas(kMailboxBytes) CallRecord calls[kCallsKept];
};

// Low 8 bits: Code; bits 8..31: peer + 1.
constexpr uint32_t abortWord(Status why) {
  return static_cast<uint32_t>(why.code) | static_cast<uint32_t>(why.peer + 1) << 8;
}
constexpr Status statusOfAbort(uint32_t word) {
  return {static_cast<Code>(word & 0xff), static_cast<int16_t>(static_cast<int>(word >> 8) - 1)};
}
static_assert(std::is_standard_layout_v<WindowHeader> && std::is_trivially_destructible_v<WindowHeader>);

// The two parts of an epoch, each with slots, lines and mailboxes of its own. A two-shot sends inputs
// in kScatter and results in kGather; what has only one step uses one of them.
enum class Phase : uint32_t { kScatter = 0, kGather = 1 };
inline constexpr uint32_t kPhases = 2;

// Offsets of every region of a window. A pure function of its fields, equal on all ranks.
struct WindowLayout {
  static constexpr uint32_t kSlots = 2;             // why two suffice: docs/decisions/0002-two-slots.md
  static constexpr uint32_t kLinkDepth = 8;         // chunks in flight per ordered pair
  static constexpr size_t kLineRegionBytes = 4736;  // 74 lines of 64: 4,144 bytes of payload
  static constexpr size_t kMostLinePayload = 4096;

  uint32_t ranks = 0;
  uint32_t slotBytes = 0;
  uint32_t linkChunk = 0;
  uint32_t slots = kSlots;                 // a power of two; twice as many as exchanges overlap
  uint32_t lineRegion = kLineRegionBytes;  // of one source in one slot
  uint32_t ll128Region = 0;                // the same for LL128 lines, which have their own memory
  uint32_t warpChunks = 0;                 // of one source, a power of two, where there are warp chunks
  uint32_t linkWarpChunks = 0;             // the same for one source's link: not chunks, then
  uint32_t warpChunkBytes = 0;    // most that a warp chunk holds, a multiple of 64; linkChunk of a link's
  uint32_t linePhases = kPhases;  // exchanges that lines and warp chunks serve in one epoch
  uint32_t lamportRegion = 0;     // of one source in one of kSlots sets, for Lamport lines
  uint32_t linkSizes = 0;         // 1: each warp chunk of a link says how many bytes it holds, for a proxy

  constexpr size_t mailbox(uint32_t slot, Phase phase, int source) const {
    return kMailboxes +
           ((slot * kPhases + static_cast<uint32_t>(phase)) * ranks + static_cast<uint32_t>(source)) *
               kMailboxBytes;
  }
  // Credits of a link: mailbox n modulo kWarpChunkCredits says that warp chunk n was read. All warp chunks of
  // one mailbox are moved by one warp, in their order. A ring holds that many warp chunks, or a multiple.
  static constexpr uint32_t kWarpChunkCredits = 16;
  constexpr size_t warpChunkCredit(int receiver, uint64_t run) const {
    return warpChunkCreditsBegin() +
           (static_cast<size_t>(receiver) * kWarpChunkCredits + run % kWarpChunkCredits) * kMailboxBytes;
  }
  constexpr size_t credit(int receiver) const {
    return kMailboxes + (slots * kPhases * ranks + static_cast<uint32_t>(receiver)) * kMailboxBytes;
  }
  constexpr size_t lines(uint32_t slot, Phase phase, int source) const {
    return linesBegin() + linesWithin(slot, phase, source);
  }
  // The same from the begin of all lines, for who keeps that: it is a sum over several regions.
  constexpr size_t linesWithin(uint32_t slot, Phase phase, int source) const {
    return lineIndex(slot, phase, source) * lineRegion;
  }
  constexpr size_t ll128Lines(uint32_t slot, Phase phase, int source) const {
    return ll128Begin() + lineIndex(slot, phase, source) * ll128Region;
  }
  constexpr size_t slot(uint32_t slot, Phase phase, int source) const {
    const size_t index =
        (slot * kPhases + static_cast<uint32_t>(phase)) * ranks + static_cast<uint32_t>(source);
    return slotsBegin() + index * slotBytes;
  }
  // One link slot is its mailbox followed by linkChunk bytes of payload.
  constexpr size_t linkSlotBytes() const { return kMailboxBytes + linkChunk; }
  constexpr size_t link(int source, uint64_t chunk) const { return linksBegin() + linkWithin(source, chunk); }
  // The same from the begin of all links.
  constexpr size_t linkWithin(int source, uint64_t chunk) const {
    return (static_cast<size_t>(source) * kLinkDepth + chunk % kLinkDepth) * linkSlotBytes();
  }
  constexpr size_t lamportLines(uint32_t set, Phase phase, int source) const {
    return lamportBegin() + lineIndex(set, phase, source) * lamportRegion;
  }
  constexpr size_t lamportBegin() const {
    return ll128Begin() + size_t{slots} * linePhases * ranks * ll128Region;
  }
  constexpr size_t lamportBytes() const { return size_t{kSlots} * linePhases * ranks * lamportRegion; }
  // Where the large regions begin: slots, then links.
  constexpr size_t slotsBegin() const { return roundToPage(lamportBegin() + lamportBytes()); }
  // A ring of warp chunks: their payload, then a word for each. Rings begin on whole lines: a warp's store
  // that straddles one more line puts more on the wire.
  static constexpr size_t warpChunkRing(size_t count, size_t warpChunkBytes) {
    return roundTo(kLineAlignment, count * (warpChunkBytes + sizeof(uint64_t)));
  }
  constexpr size_t linkChunksOf(int source) const {
    return linkChunksBegin() + static_cast<size_t>(source) * linkRing();
  }
  // The same for a link. Behind the words that say that a warp chunk is there may be as many of their sizes.
  constexpr size_t linkRing() const {
    return warpChunkRing(linkWarpChunks, linkChunk + (linkSizes != 0 ? sizeof(uint64_t) : 0));
  }
  // From the begin of a region of their own, of allWarpChunkBytes().
  constexpr size_t warpChunksOf(Phase phase, int source) const {
    return lineIndex(0, phase, source) * warpChunkRing(warpChunks, warpChunkBytes);
  }
  // Behind all rings a word for every index of each, in the window of who sends: the last epoch that its
  // reader has read there.
  constexpr size_t readMark(Phase phase, int reader, uint64_t index) const {
    return readMarksBegin() + (lineIndex(0, phase, reader) * warpChunks + index) * sizeof(uint64_t);
  }
  constexpr size_t allWarpChunkBytes() const {
    return roundToPage(readMarksBegin() + size_t{linePhases} * ranks * warpChunks * sizeof(uint64_t));
  }
  constexpr size_t bytes() const { return roundToPage(linkChunksBegin() + ranks * linkRing()); }

 private:
  constexpr size_t readMarksBegin() const {
    return size_t{linePhases} * ranks * warpChunkRing(warpChunks, warpChunkBytes);
  }
  static constexpr size_t roundTo(size_t grain, size_t bytes) { return (bytes + grain - 1) / grain * grain; }
  static constexpr size_t roundToPage(size_t bytes) { return roundTo(kPageBytes, bytes); }
  static constexpr size_t kLineAlignment = 128;
  static constexpr size_t kMailboxes =
      (sizeof(WindowHeader) + kMailboxBytes - 1) / kMailboxBytes * kMailboxBytes;
  constexpr size_t warpChunkCreditsBegin() const {
    return kMailboxes + (slots * kPhases + 1) * ranks * kMailboxBytes;
  }
  constexpr size_t linesBegin() const {
    const size_t credits = linkWarpChunks == 0 ? 0 : size_t{ranks} * kWarpChunkCredits * kMailboxBytes;
    return roundTo(kLineAlignment, warpChunkCreditsBegin() + credits);
  }
  constexpr size_t lineIndex(uint32_t slot, Phase phase, int source) const {
    return (size_t{slot} * linePhases + static_cast<uint32_t>(phase)) * ranks + static_cast<uint32_t>(source);
  }
  constexpr size_t ll128Begin() const {
    return linesBegin() + size_t{slots} * linePhases * ranks * lineRegion;
  }
  constexpr size_t linkChunksBegin() const {
    const size_t chunks = linkWarpChunks == 0 ? size_t{ranks} * kLinkDepth : 0;
    return roundToPage(linksBegin() + chunks * linkSlotBytes());
  }
  constexpr size_t linksBegin() const {
    return roundToPage(slotsBegin() + size_t{slots} * kPhases * ranks * slotBytes);
  }
};

}  // namespace stretto
