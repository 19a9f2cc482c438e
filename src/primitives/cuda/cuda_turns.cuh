// The verbs of the Cuda backend in Lamport lines that are put and read in turns, among as many ranks as the
// kernel was compiled for. Part of cuda.cuh.
//
// Thread t of a block has to do with thread t of the peers' alone: it puts a line to each of them, and the
// next one before it waits for the peers' first, so that bytes leave while others come (docs/decisions/0022,
// 0044). The tags, for which Lamport lines have no room, are the first warp's of the first block: its threads
// tell them behind their first lines, and await the peers' beside the peers' first lines. All of the warp
// that have lines do, as one that parted would be twice as late.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

// A part of a user's buffer as lines that are whole and aligned, and as any: the common case knows nothing of
// the other.
template <typename Byte>
struct PlainLines {
  Byte* begin = nullptr;

  __device__ PlainLines() = default;
  __device__ PlainLines(Byte* part, size_t /*bytes*/) : begin(part) {}
  __device__ Pack load(uint32_t line) const { return loadPack(begin + size_t{line} * sizeof(Pack)); }
  __device__ void store(uint32_t line, Pack value) const {
    storePack(begin + size_t{line} * sizeof(Pack), value);
  }
};
template <typename Byte>
struct AnyLines {
  Byte* begin = nullptr;
  size_t bytes = 0;

  __device__ AnyLines() = default;
  __device__ AnyLines(Byte* part, size_t size) : begin(part), bytes(size) {}
  __device__ UnitView<Byte> units() const { return {begin, bytes}; }
  __device__ Pack load(uint32_t line) const {
    return units().loadPair(size_t{line} * LamportFormat::kLineUnits);
  }
  __device__ void store(uint32_t line, Pack value) const {
    units().storePair(size_t{line} * LamportFormat::kLineUnits, value);
  }
};

// A user's buffer as the parts of the ranks, which are all of the same size but where it ends early.
template <typename Byte>
struct RankParts {
  Byte* begin;
  size_t stride;  // from one part to the next
  size_t each;    // bytes of a part
  size_t end;     // bytes of the buffer, from where on nothing is there

  __device__ bool suitLines() const {
    return isAligned(begin, sizeof(Pack)) && stride % sizeof(Pack) == 0 && each % sizeof(Pack) == 0;
  }
  template <template <typename> typename Lines>
  __device__ Lines<Byte> of(int rank) const {
    const size_t at = static_cast<size_t>(rank) * stride;
    return {begin + at, at < end ? std::min(each, end - at) : 0};
  }
};

// The peers' lines, of which the first lies at `at`; where `tagAt` is one, also a peer's tag. All loads are
// under way before one is looked at.
template <typename Reducer, typename Format, int kRanks>
__device__ __forceinline__ bool Cuda<Reducer, Format, kRanks>::awaitLines(Pack (&lines)[kPeers],
                                                                          const std::byte* at,
                                                                          const Mailbox* tagAt) {
  WaitSoFar waiting;
  while (true) {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) lines[i] = loadRelaxed(at + i * Format::region(layout()));
    bool come = true;
    if (tagAt != nullptr) {
      const Pack reported = loadRelaxed(tagAt);
      come = reported.low >= epoch_;
      if (come && reported.high != tag_) {
        failed_ = true;  // several of the warp see it, and one for each peer says so
        if (coop_.rank() < kPeers) report(Code::kInvalidUsage, tagPeer(), reported.high);
        return false;
      }
    }
#pragma unroll
    for (int i = 0; i < kPeers; ++i) come = come && !Format::absent(lines[i]);
    if (come) return true;
    if (!waiting.isDue()) continue;
    int late = tagPeer();
#pragma unroll
    for (int i = 0; i < kPeers; ++i) {
      if (Format::absent(lines[i])) late = sourceAt(i);
    }
    if (const Code code = lookAgain(waiting, late); code != Code::kOk) {
      report(code, late, 0);
      return false;
    }
  }
}

// In the order of the ranks, of which this is number `self`: its own line among the peers'.
template <typename Reducer, typename Format, int kRanks>
__device__ __forceinline__ Pack Cuda<Reducer, Format, kRanks>::sumOfLines(const Reducer& reducer,
                                                                          uint32_t self, const Pack& own,
                                                                          const Pack (&peers)[kPeers]) {
  const auto either = [](bool first, const Pack& a, const Pack& b) -> Pack {
    return {first ? a.low : b.low, first ? a.high : b.high};
  };
  const auto valueOf = [&](uint32_t of) {
    const Pack peer = of < kPeers ? either(of < self, peers[of], peers[of - 1]) : peers[of - 1];
    return either(of == self, own, peer);
  };
  const Pack first = either(self == 0, own, peers[0]);
  auto low = reducer.start(first.low);
  auto high = reducer.start(first.high);
#pragma unroll
  for (uint32_t of = 1; of < kRanks; ++of) {
    const Pack next = valueOf(of);
    reducer.join(low, next.low);
    reducer.join(high, next.high);
  }
  return {reducer.finish(low), reducer.finish(high)};
}

// Places are used again by the round after the next, so a thread that writes there must know that the same
// thread of the peer has read, and erased, what was there. It learns that from lines that it has:
//
//   1. A thread puts line j when it has lines j - 2 of all peers, and has read the results of lines j - 3.
//      It puts the result of line j when it has lines j of all peers.
//   2. In every round but the first a thread fences once, before it puts line f of the round, which is
//   neither
//      the first nor the last. By 1 it has then erased all lines before f - 1, and all results before f - 2.
//   3. Lines. Who puts the first line of a round has, by 1, all but the last of the round before, so line f
//   of
//      it, before which the peer has erased all lines of the round before that.
//   4. Results. Who puts that of line j of a round has line j. If f is at most j, the peer has erased all
//      results before f - 2 of this round. If not, it has those before f - 2 of the round before; so of the
//      round before that all but the last, if f is 1, whose place the last of this round takes, after f.
//
// The order that the fence makes is kept whatever the way of the stores. The next operation may be cut in
// another way. Its first round writes where this operation's last round but one was read: this rank's kernel
// has ended, so it has all lines of the last round, and 2 holds. Its second round writes where the last round
// was read: by then it has lines of the next operation, so the peers' kernels have ended too. The result of a
// line is put when the same is known.
//
// All that needs nothing of the operation before is done before the wait for its end, and the first load does
// not wait for what that one has left.
template <typename Reducer, typename Format, int kRanks>
template <Turns turns, typename Source, typename Target>
__device__ __forceinline__ void Cuda<Reducer, Format, kRanks>::goThrough(LineCursor cursor,
                                                                         const Reducer& reducer,
                                                                         Source (&sent)[kPeers], Source kept,
                                                                         Target target,
                                                                         Target (&gathered)[kPeers]) {
  constexpr bool kShares = turns == Turns::kShare, kGathers = turns == Turns::kShards;
  constexpr int kSent = kShares ? 1 : kPeers;
  std::byte* out[kPeers];
  std::byte* in = ownNear_ + Format::begin(context_.places);
  std::byte* tagNear = peerNear_[0];
  const uint32_t gather = kPeers * Format::region(layout());
  uint32_t apart = kRanks == 2 ? gather : kPhases * gather;
#pragma unroll
  for (int i = 0; i < kPeers; ++i) {
    std::byte* near = peerNear_[i];
    if (kRanks != 2) keepAtHand(near);  // or the compiler would make an array of them, in memory
    if (coop_.rank() % kPeers == i) tagNear = near;
    out[i] =
        near + Format::begin(context_.places) + placeAt(peerAt(i + 1), rank()) * Format::region(layout());
    keepAtHand(out[i]);
    if (i < kSent) keepAtHand(sent[i].begin);
  }
  // threadIdx.y is 0, and no constant: the assembler would load a parameter again where it is used. Of two
  // ranks there are twice as many threads, and where they send each other different things no register is
  // left.
  const auto number = static_cast<uint32_t>(rank());
  const uint32_t self = kRanks == 2 && !kShares ? number : number + threadIdx.y;
  if (kRanks != 2) keepAtHand(tagNear);
  keepAtHand(target.begin);
  keepAtHand(in);
  keepAtHand(apart);
  uint64_t before = hasCome_ ? 0 : come();
  bool goesOn = cursor.begins(), isInside = goesOn && cursor.isInside();
  Pack ahead[kSent] = {};
  const auto load = [&] {
#pragma unroll
    for (int i = 0; i < kSent; ++i) ahead[i] = sent[i].load(cursor.line());
  };
  if (isInside) load();
  keepAtHand(before);  // and not looked at any sooner
  epoch_ += before;
  uint32_t place = static_cast<uint32_t>(epoch_) % Format::kPlaces * apart;
  const auto put = [&] {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) {
      storeRelaxed(out[i] + (place + cursor.at()), Format::sendable(ahead[kShares ? 0 : i]));
    }
  };
  const auto erase = [&](uint32_t at) {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) {
      storePack(in + at + i * Format::region(layout()), {~uint64_t{0}, ~uint64_t{0}});
    }
  };
  if (isInside) put();
  const Mailbox* tagAt = nullptr;
  if (coop_.rank() < kPeers && comparesTags())
    storeRelaxed(tagNear + mailboxOffset(Phase::kScatter, placeAt(tagPeer(), rank())), {epoch_, tag_});
  if (coop_.rank() < kWarp && comparesTags()) tagAt = mailboxFrom(tagPeer(), Phase::kScatter);
  Pack got[kPeers];
  // The line whose result is still to be had from its owner, and where that comes.
  uint32_t awaited = 0, awaitedAt = 0;
  bool awaits = false;
  const auto takeResults = [&] {
    if (!awaits || failed_ || !awaitLines(got, in + awaitedAt, nullptr)) return;
    erase(awaitedAt);
#pragma unroll
    for (int i = 0; i < kPeers; ++i) gathered[i].store(awaited, got[i]);
  };
  while (goesOn) {
    const uint32_t here = cursor.line(), at = place + cursor.at();
    const bool reads = isInside;
    const Pack mine = kShares || !reads ? ahead[0] : kept.load(here);
    goesOn = cursor.next([&] {
      nextEpoch();
      place = apart - place;
    });
    isInside = goesOn && !failed_ && cursor.isInside();
    if (isInside) load();
    if (goesOn && cursor.isToFence()) {
      if (__any_sync(0xffffffff, failed_)) break;
      fenceSystemByWarp();
    }
    if (isInside) put();
    if (!reads || failed_ || !awaitLines(got, in + at, tagAt)) continue;
    tagAt = nullptr;
    const Pack sum = sumOfLines(reducer, self, mine, got);
    if constexpr (kGathers) {
#pragma unroll
      for (int i = 0; i < kPeers; ++i) storeRelaxed(out[i] + (gather + at), Format::sendable(sum));
    }
    erase(at);
    target.store(here, sum);
    if constexpr (kGathers) {
      takeResults();
      awaits = true;
      awaited = here;
      awaitedAt = gather + at;
    }
  }
  if constexpr (kGathers) takeResults();
}

template <typename Reducer, typename Format, int kRanks>
template <Turns turns, template <typename> typename Lines>
__device__ __forceinline__ void Cuda<Reducer, Format, kRanks>::inTurnsBy(
    const LineCursor& cursor, const Reducer& reducer, const RankParts<const std::byte>& from,
    const RankParts<std::byte>& to) {
  constexpr bool kGathers = turns == Turns::kShards;
  Lines<const std::byte> sent[kPeers];
  Lines<std::byte> gathered[kPeers];
#pragma unroll
  for (int i = 0; i < kPeers; ++i) {
    sent[i] = from.template of<Lines>(peerAt(i + 1));
    if (kGathers) gathered[i] = to.template of<Lines>(sourceAt(i));
  }
  goThrough<turns>(cursor, reducer, sent, from.template of<Lines>(rank()),
                   to.template of<Lines>(kGathers ? rank() : 0), gathered);
}

template <typename Reducer, typename Format, int kRanks>
template <Turns turns>
__device__ Status Cuda<Reducer, Format, kRanks>::inTurns(Coop coop, const ReduceSpec& spec,
                                                         const RankParts<const std::byte>& from,
                                                         const RankParts<std::byte>& to) {
  const Reducer reducer(spec, typename Reducer::template Among<kRanks>{});
  const LineCursor cursor(linesForBytes<Format>(from.each),
                          static_cast<uint32_t>(lineBytes() / Format::kLineBytes),
                          static_cast<uint32_t>(coop.rank()), static_cast<uint32_t>(coop.size()));
  const bool isWhole = turns != Turns::kShards || from.end == kRanks * from.each;
  if (isWhole && from.suitLines() && to.suitLines()) {
    inTurnsBy<turns, PlainLines>(cursor, reducer, from, to);
  } else {
    inTurnsBy<turns, AnyLines>(cursor, reducer, from, to);
  }
  // Threads without a line have had nothing that they could look beside. There are some only where one round
  // is all, and this is still its epoch.
  if constexpr (kRanks != 2) {
    const auto thread = static_cast<uint32_t>(coop.rank());
    const bool hasLooked = thread >= kPeers || thread < linesForBytes<Format>(from.each) || !comparesTags();
    if (!hasLooked && !failed_) {
      (void)awaitMailbox(tagPeer(), mailboxFrom(tagPeer(), Phase::kScatter), epoch_, true);
    }
  }
  return failed_ ? Status{Code::kRemote} : Status{};
}

}  // namespace stretto::cuda
