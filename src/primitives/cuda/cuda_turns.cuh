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

// In the order of the ranks, of which this is number `self`: its own line among the peers'.
template <typename Reducer, int kPeers>
__device__ __forceinline__ Pack sumInOrder(const Reducer& reducer, uint32_t self, const Pack& own,
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
  for (uint32_t of = 1; of <= kPeers; ++of) {
    const Pack next = valueOf(of);
    reducer.join(low, next.low);
    reducer.join(high, next.high);
  }
  return {reducer.finish(low), reducer.finish(high)};
}

// The peers' lines at `at`, by rank; where `tagAt` is one, also a peer's tag. All loads are under way before
// one is looked at.
template <typename Reducer, typename Format, int kRanks>
__device__ __forceinline__ bool Cuda<Reducer, Format, kRanks>::awaitLines(Pack (&lines)[kPeers],
                                                                          const PeerLines<kPeers>& from,
                                                                          uint32_t at, const Mailbox* tagAt) {
  const int tagPeer = peerAt(1 + coop_.rank() % kPeers);
  WaitSoFar waiting;
  while (true) {
#pragma unroll
    for (int i = 0; i < kPeers; ++i) lines[i] = loadRelaxed(from.in + at + i * from.region);
    bool come = true;
    if (tagAt != nullptr) {
      const Pack reported = loadRelaxed(tagAt);
      come = reported.low >= epoch_;
      if (come && reported.high != tag_) {
        failed_ = true;  // several of the warp see it, and one for each peer says so
        if (coop_.rank() < kPeers) report(Code::kInvalidUsage, tagPeer, reported.high);
        return false;
      }
    }
#pragma unroll
    for (int i = 0; i < kPeers; ++i) come = come && !Format::absent(lines[i]);
    if (come) return true;
    if (!waiting.isDue()) continue;
    int late = tagPeer;
#pragma unroll
    for (int i = 0; i < kPeers; ++i) {
      if (Format::absent(lines[i])) late = sourceAt(i, rank());
    }
    if (const Code code = lookAgain(waiting, late); code != Code::kOk) {
      report(code, late, 0);
      return false;
    }
  }
}

// Lines are used again by the round after the next, so a thread that writes there must know that the same
// thread of the peer has read, and erased, what was there. It learns that from lines that it has:
//
//   1. Let j count a thread's lines through all rounds of the operation. When the thread puts line j, it has
//      received and erased the lines up to j - 2 from every peer and, in a two-shot, the results up to j - 3.
//      It puts the result of line j when it has lines j of all peers. (From here on, j and f count from the
//      beginning of a round.)
//   2. In every round but the first a thread fences once, before it puts line f of the round, which is
//      neither the first nor the last. By 1 it has then erased all lines up to f - 2, and all results up to
//      f - 3.
//   3. Lines. Who puts the first line of a round has, by 1, all lines of the round before but the last, so
//      it has line f. The peer put that after its fence, and had erased all of the round before that.
//   4. Results. The result of line j of round r + 2 goes where that of line j of round r was. Who puts it has
//      line j of round r + 2 from every peer. There are two cases:
//      a. j >= f of round r + 2. The peer has fenced in round r + 2, and had then erased all results of round
//         r by 2.
//      b. j < f of round r + 2. The peer has fenced in round r + 1, and had then erased all results of round
//         r but perhaps the last. The last one is not concerned: f is not the last line of its round.
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
template <Walk walk, typename User>
__device__ __forceinline__ void Cuda<Reducer, Format, kRanks>::goThrough(LineCursor cursor,
                                                                         const Reducer& reducer, User user) {
  constexpr bool kShares = walk == Walk::kShare, kGathers = walk == Walk::kShards;
  constexpr int kSent = kShares ? 1 : kPeers;
  const uint32_t begin = Format::begin(context_.regions);
  PeerLines<kPeers> lines{.out = {}, .in = ownNear_ + begin, .region = shared_.given.region};
  const uint32_t gather = kPeers * lines.region;
  uint32_t apart = kRanks == 2 ? gather : kPhases * gather;
  // The first threads tell one peer each the tag, and all of the first warp await one.
  const int tagPeer = peerAt(1 + coop_.rank() % kPeers);
  std::byte* tagNear = peerNear_[0];
#pragma unroll
  for (int i = 0; i < kPeers; ++i) {
    std::byte* near = peerNear_[i];
    if (kRanks != 2) keepAtHand(near);  // or the compiler would make an array of them, in memory
    if (coop_.rank() % kPeers == i) tagNear = near;
    lines.out[i] = near + begin + indexAt(peerAt(i + 1), rank()) * lines.region;
    keepAtHand(lines.out[i]);
    if (i < kSent) keepAtHand(user.sent[i].begin);
  }
  uint32_t slots = shared_.given.slots;
  keepAtHand(slots);
  if (kRanks != 2) keepAtHand(tagNear);
  keepAtHand(user.target.begin);
  keepAtHand(lines.in);
  keepAtHand(apart);
  uint64_t before = hasCome_ ? 0 : come();
  bool goesOn = cursor.begins(), isInside = goesOn && cursor.isInside();
  Pack ahead[kSent] = {};
  if (isInside) user.load(ahead, cursor.line());
  keepAtHand(before);  // and not looked at any sooner
  epoch_ += before;
  uint32_t roundBegin = static_cast<uint32_t>(epoch_) % Format::kSets * apart;
  const auto put = [&] { lines.template put<Format>(roundBegin + cursor.at(), ahead); };
  if (isInside) put();
  const Mailbox* tagAt = nullptr;
  const uint32_t now = static_cast<uint32_t>(epoch_) & (slots - 1);  // slotOfEpoch(), by what is at hand
  if (coop_.rank() < kPeers && comparesTags())
    storeRelaxed(tagNear + mailboxOffset(now, Phase::kScatter, indexAt(tagPeer, rank())), {epoch_, tag_});
  if (coop_.rank() < kWarp && comparesTags())
    tagAt = mailbox(ownNear_ + mailboxOffset(now, Phase::kScatter, indexAt(rank(), tagPeer)));
  Pack got[kPeers];
  // The line whose result is still to be had from its owner, and where that comes.
  uint32_t awaited = 0, awaitedAt = 0;
  bool awaits = false;
  const auto takeResults = [&] {
    if (!awaits || failed_ || !awaitLines(got, lines, awaitedAt, nullptr)) return;
    lines.eraseAll(awaitedAt);
    user.gather(awaited, got);
  };
  while (goesOn) {
    const uint32_t here = cursor.line(), at = roundBegin + cursor.at();
    const bool reads = isInside;
    const Pack mine = kShares || !reads ? ahead[0] : user.kept.load(here);
    goesOn = cursor.next([&] {
      nextEpoch();
      roundBegin = apart - roundBegin;
    });
    isInside = goesOn && !failed_ && cursor.isInside();
    if (isInside) user.load(ahead, cursor.line());
    if (goesOn && cursor.isToFence()) {
      if (__any_sync(0xffffffff, failed_)) break;
      fenceSystemByWarp();
    }
    if (isInside) put();
    if (!reads || failed_ || !awaitLines(got, lines, at, tagAt)) continue;
    tagAt = nullptr;
    const Pack sum[] = {sumInOrder(reducer, static_cast<uint32_t>(rank()), mine, got)};
    if constexpr (kGathers) lines.template put<Format>(gather + at, sum);
    lines.eraseAll(at);
    user.target.store(here, sum[0]);
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
template <Walk walk>
__device__ Status Cuda<Reducer, Format, kRanks>::inTurns(Coop coop, const ReduceSpec& spec,
                                                         const RankParts<const std::byte>& from,
                                                         const RankParts<std::byte>& to) {
  const Reducer reducer(spec, typename Reducer::template Among<kRanks>{});
  const LineCursor cursor(linesForBytes<Format>(from.each),
                          static_cast<uint32_t>(lineBytes() / Format::kLineBytes),
                          static_cast<uint32_t>(coop.rank()), static_cast<uint32_t>(coop.size()));
  const auto go = [&](auto kind) {
    using Kind = decltype(kind);
    constexpr bool kGathers = walk == Walk::kShards;
    UserLines<Kind, kPeers> user;
    user.kept = from.template of<Kind>(rank());
    user.target = to.template of<Kind>(kGathers ? rank() : 0);
#pragma unroll
    for (int i = 0; i < kPeers; ++i) {
      user.sent[i] = from.template of<Kind>(peerAt(i + 1));
      if (kGathers) user.gathered[i] = to.template of<Kind>(sourceAt(i, rank()));
    }
    goThrough<walk>(cursor, reducer, user);
  };
  const bool isWhole = walk != Walk::kShards || from.end == kRanks * from.each;
  if (isWhole && from.suitLines() && to.suitLines()) {
    go(Plain{});
  } else {
    go(Any{});
  }
  // Threads without a line have had nothing that they could look beside. There are some only where one round
  // is all, and this is still its epoch.
  if constexpr (kRanks != 2) {
    const auto thread = static_cast<uint32_t>(coop.rank());
    const bool hasLooked = thread >= kPeers || thread < linesForBytes<Format>(from.each) || !comparesTags();
    if (!hasLooked && !failed_) {
      const int tagPeer = peerAt(1 + coop.rank() % kPeers);
      (void)awaitMailbox(tagPeer, mailboxFrom(tagPeer, Phase::kScatter), epoch_, true);
    }
  }
  return failed_ ? Status{Code::kRemote} : Status{};
}

}  // namespace stretto::cuda
