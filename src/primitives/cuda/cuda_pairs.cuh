// The verbs of the Cuda backend in Lamport lines between two ranks. Part of cuda.cuh.
//
// Thread t of a block has to do with thread t of the peer's alone: it puts a line, and the next one before it
// waits for the peer's first, so that bytes leave while others come (docs/decisions/0022). The tags, for
// which Lamport lines have no room, are the first warp's of the first block: it tells its own behind its
// first line, and awaits the peer's beside the peer's first line. All of the warp do, as one that parted
// would be twice as late.
#pragma once

#include "primitives/cuda/cuda.cuh"

namespace stretto::cuda {

// A user's buffer as lines that are whole and aligned, and as any: the common case knows nothing of the
// other.
template <typename Byte>
struct PlainLines {
  Byte* begin;

  __device__ static bool suit(Byte* pointer, size_t bytes) {
    return isAligned(pointer, sizeof(Pack)) && bytes % sizeof(Pack) == 0;
  }
  __device__ Pack load(uint32_t line) const { return loadPack(begin + size_t{line} * sizeof(Pack)); }
  __device__ void store(uint32_t line, Pack value) const {
    storePack(begin + size_t{line} * sizeof(Pack), value);
  }
};
template <typename Byte>
struct AnyLines {
  Byte* begin;
  size_t bytes;

  __device__ UnitView<Byte> units() const { return {begin, bytes}; }
  __device__ Pack load(uint32_t line) const {
    return units().loadPair(size_t{line} * LamportFormat::kLineUnits);
  }
  __device__ void store(uint32_t line, Pack value) const {
    units().storePair(size_t{line} * LamportFormat::kLineUnits, value);
  }
};

// The peer's line at `at`; where `tagAt` is one, also the peer's tag.
template <typename Reducer, typename Format, int kRanks>
__device__ bool Cuda<Reducer, Format, kRanks>::awaitLine(Pack& line, const std::byte* at,
                                                         const Mailbox* tagAt) {
  WaitSoFar waiting;
  while (true) {
    line = loadRelaxed(at);
    bool come = !Format::absent(line);
    if (tagAt != nullptr) {
      const Pack reported = loadRelaxed(tagAt);
      const bool isReported = reported.low >= epoch_;
      if (isReported && reported.high != tag_) {
        failed_ = true;  // all of the warp see it, and one says so
        if (coop_.rank() == 0) report(Code::kInvalidUsage, peerAt(1), reported.high);
        return false;
      }
      come = come && isReported;
    }
    if (come) return true;
    if (const Code code = exhausted(waiting, peerAt(1)); code != Code::kOk) {
      report(code, peerAt(1), 0);
      return false;
    }
  }
}

// A thread has put line j when it waits for line j - 1, so it puts j when it has j - 2. Where it writes then,
// the same thread of the peer has read, and erased, a line of the last round but one. That is so, and not
// only on its way, if the peer has fenced after erasing and before it put j - 2; which holds with one fence
// in every round but the first, before any of its lines but the first and the last, if it has three. The same
// of the round before the last one, when the last line has come: the next operation writes there.
//
// All that needs nothing of the operation before is done before the wait for its end, and the first load does
// not wait for what that one has left.
template <typename Reducer, typename Format, int kRanks>
template <bool shares, typename Source, typename Target>
__device__ void Cuda<Reducer, Format, kRanks>::goThrough(LineCursor cursor, Reducer reducer, Source sent,
                                                         Source kept, Target target) {
  std::byte* out = peerNear_[0] + Format::begin(context_.places);
  std::byte* in = ownNear_ + Format::begin(context_.places);
  uint32_t apart = Format::region(layout()), comesFirst = rank() == 0;
  keepAtHand(sent.begin);
  keepAtHand(target.begin);
  keepAtHand(out);
  keepAtHand(in);
  keepAtHand(apart);
  keepAtHand(comesFirst);
  uint64_t before = hasCome_ ? 0 : come();
  bool goesOn = cursor.begins(), isInside = goesOn && cursor.isInside();
  Pack ahead{};
  if (isInside) ahead = sent.load(cursor.line());
  keepAtHand(before);  // and not looked at any sooner
  epoch_ += before;
  uint32_t place = static_cast<uint32_t>(epoch_) % Format::kPlaces * apart;
  const auto put = [&] { storeRelaxed(out + (place + cursor.at()), Format::sendable(ahead)); };
  if (isInside) put();
  const Mailbox* tagAt = nullptr;
  if (coop_.rank() == 0 && comparesTags())
    storeRelaxed(mailboxAt(peerAt(1), Phase::kScatter), {epoch_, tag_});
  if (coop_.rank() < kWarp && comparesTags()) tagAt = mailboxFrom(peerAt(1), Phase::kScatter);
  while (goesOn) {
    const uint32_t here = cursor.line();
    std::byte* const at = in + (place + cursor.at());
    const bool reads = isInside;
    const Pack mine = shares || !reads ? ahead : kept.load(here);
    goesOn = cursor.next([&] {
      nextEpoch();
      place = apart - place;
    });
    isInside = goesOn && !failed_ && cursor.isInside();
    if (isInside) ahead = sent.load(cursor.line());
    if (goesOn && cursor.isToFence()) {
      if (__any_sync(0xffffffff, failed_)) break;
      fenceSystemByWarp();
    }
    if (isInside) put();
    Pack got;
    if (!reads || failed_ || !awaitLine(got, at, tagAt)) continue;
    tagAt = nullptr;
    storePack(at, {~uint64_t{0}, ~uint64_t{0}});
    const Pack first = comesFirst ? mine : got;
    const Pack second = comesFirst ? got : mine;
    target.store(here, sumOf(reducer, first, second));
  }
}

// `shares`: `theirs` and `own` are the same, and read once.
template <typename Reducer, typename Format, int kRanks>
template <bool shares>
__device__ Status Cuda<Reducer, Format, kRanks>::inTurns(Coop coop, const ReduceSpec& spec, std::byte* to,
                                                         const std::byte* own, const std::byte* theirs,
                                                         size_t bytes) {
  using Plain = PlainLines<const std::byte>;
  using Any = AnyLines<const std::byte>;
  const Reducer reducer(spec, typename Reducer::Two{});
  const LineCursor cursor(linesForBytes<Format>(bytes),
                          static_cast<uint32_t>(lineBytes() / Format::kLineBytes),
                          static_cast<uint32_t>(coop.rank()), static_cast<uint32_t>(coop.size()));
  if (Plain::suit(theirs, bytes) && (shares || Plain::suit(own, bytes)) && Plain::suit(to, bytes)) {
    goThrough<shares>(cursor, reducer, Plain{theirs}, Plain{own}, PlainLines<std::byte>{to});
  } else {
    goThrough<shares>(cursor, reducer, Any{theirs, bytes}, Any{own, bytes}, AnyLines<std::byte>{to, bytes});
  }
  return failed_ ? Status{Code::kRemote} : Status{};
}

}  // namespace stretto::cuda
