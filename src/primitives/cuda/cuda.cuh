// The Cuda backend: the verbs by the threads of one block, over windows in device memory that NVLink reaches.
// Block k of every rank talks to block k of its peers through channel k of the windows and to nobody else, so
// ranks whose blocks run at different times, or in different numbers of threads, cannot mix anything up
// (equal numbers are asked for where there are rounds: cuda_turns.cuh). One Cuda per thread, its members in
// registers; what the block shares is in BlockShared.
//
// Ordering: a signal is a barrier of the coop, then a system fence and a relaxed store by one thread; a wait
// is relaxed loads by one thread, then a fence and a barrier. Lines carry their own readiness (lines.cuh).
//
// A wait that gives up reports once per rank (state.hpp), tells the coop, and ends the block's later waits at
// their next looks (block.cuh). A wait for lines ends for one warp or thread, and with it its pipeline stage.
#pragma once

#include "primitives/cuda/block.cuh"
#include "primitives/cuda/line_cursor.cuh"
#include "primitives/cuda/lines.cuh"
#include "primitives/cuda/norm.cuh"
#include "primitives/cuda/rank_parts.cuh"
#include "primitives/cuda/reduce.cuh"
#include "primitives/cuda/state.hpp"
#include "primitives/cuda/whole_tokens.cuh"

namespace stretto::cuda {

// kRanks: as many ranks as the kernel was compiled for, 0 for any number.
template <typename Reducer, typename Format, int kRanks = 0>
class Cuda {
 public:
  using Coop = Threads;
  static constexpr size_t kLineBytes = Format::kLineBytes;
  static constexpr bool kNorms = Format::kNorms;                              // shares are tokens
  static constexpr bool kTurns = kRanks != 0 && Format::kLamport && !kNorms;  // of puts and reads
  static constexpr bool kLinks = Format::kLinks;  // each warp runs the algorithm on a share of its own
  struct Has {                                    // what it can do beyond a Backend (primitives/backend.hpp)
    static constexpr bool kOverlaps = true;
    static constexpr bool kFansLines = kRanks != 2;
    static constexpr bool kSharesLines = !Format::kWarpChunks;
    static constexpr bool kOneEpoch = Format::kLamport;  // rounds count their own
    static constexpr bool kTurns = Cuda::kTurns;
    static constexpr bool kLinks = Format::kLinks;
  };
  static constexpr int kLinkWarps = Format::kLinkWarps;
  using Shared = std::conditional_t<
      kLinks, LinksShared,
      std::conditional_t<kNorms, std::conditional_t<Format::kWhole, WholeShared, NormShared>, BlockShared>>;
  static constexpr size_t kElementBytes = Reducer::kElementBytes;  // 0: not known

  __device__ Cuda(const Context& context, Shared& shared, int channel)
      : context_(context),
        shared_(shared),
        rank_(context.rank),
        nearBegin_(size_t{context.regions.bytes} * static_cast<uint32_t>(channel)),
        ownNear_(window(context.rank) + nearBegin_),
        warpChunksBegin_(context.shape.warpChunksBegin(channel)),
        deepBegin_(context.shape.deepBegin(channel)),
        state_(context.channels[channel]),
        channel_(channel),
        place_(context),
        tag_(context.called.tag),
        coop_(firstCoop()) {
#pragma unroll
    for (int step = 1; step < kRanks; ++step) peerNear_[step - 1] = window(peerAt(step)) + nearBegin_;
  }

  // How an operation begins. Every thread of the block calls prepare(), and then come().
  //
  //   1. prepare() does what needs nothing of the kernel before this one. That kernel may still run.
  //   2. come() waits until the kernel before has ended and its stores are visible.
  //   3. come() then lets the next kernel of the stream be launched, no sooner. The blocks of the next kernel
  //      arrive while this kernel waits for its peers. If they arrived earlier, this kernel's first loads and
  //      stores would take longer (docs/decisions/0027).
  //   4. come() reads what the operation before has left in the channel, and returns the channel's epoch. The
  //      caller adds that epoch to epoch_, which has counted from 0 since the constructor.
  //
  // begin() does all of this. Where lines go by turns (kTurns), goThrough() calls come(), after loads that
  // need not wait for it. Of several channels of a block, each calls come(), and the `first` alone does
  // step 3.
  __device__ void prepare();
  __device__ uint64_t come(bool first = true) {
    // All threads load the same word, and the compiler is kept from knowing that: threadIdx.y is 0, but no
    // constant. A compiler that knows it keeps the word once for the warp, and therefore waits for it at
    // once. Loads that follow and do not need the word would be issued later.
    constexpr bool kKeepsItsOwn = kElementBytes != 0 && !Format::kWarpChunks;
    const uint64_t* epochAt =
        (Format::kWarpChunks ? &state_.warpChunkEpoch : &state_.epoch) + (kKeepsItsOwn ? threadIdx.y : 0);
    if constexpr (kKeepsItsOwn) keepAtHand(epochAt);
    awaitPrevious();
    if (first) letNextBegin();
    const uint64_t before = loadRelaxed64(epochAt);
    if (first && context_.stamps != nullptr && threadIdx.x == 0) shared_.began = nanoseconds();
    hasCome_ = true;
    return before;
  }
  __device__ void begin(bool first = true) {
    prepare();
    epoch_ += come(first);
  }
  __device__ void beginLinks() requires(Format::kLinks);
  // Every thread of the block calls it, also after a failure.
  __device__ void end() {
    if (kTurns && !hasCome_) epoch_ += come();
    __syncthreads();
    if (threadIdx.x != 0) return;
    (Format::kWarpChunks ? state_.warpChunkEpoch : state_.epoch) = epoch_;
    addRelaxed64(&state_.finished, 1);
    if (context_.stamps != nullptr) leaveStamp(0, loadRelaxed64(&state_.finished));
  }

  // Instead of end(), of one of several operations of a launch: each lies between take() and leave(), all of
  // them between begin() and the kernel's end. Every thread comes to both. leave() says the same to the whole
  // block: true when this operation or one before it was given up, so that the next ones must not run.
  // `number`: its number in the launch. `firstChannel`: of those that have part in it. `isFirst`: of this
  // block.
  __device__ void take(const Called& called, uint32_t number, uint32_t firstChannel,
                       bool isFirst) requires(!Format::kWarpChunks);
  __device__ bool leave() requires(!Format::kWarpChunks);
  // At the kernel's end, by every thread of every block.
  __device__ void endAll(uint32_t operations) requires(!Format::kWarpChunks);

  // All warps have made equally many exchanges.
  __device__ void endLinks() requires(Format::kLinks) {
    __syncthreads();
    for (int peer = static_cast<int>(threadIdx.x); peer < ranks(); peer += static_cast<int>(blockDim.x)) {
      ChunkCursors& link = state_.links[peer];
      link = {cursors(peer).sent - untilMine(link.sent), cursors(peer).received - untilMine(link.received)};
    }
  }

  // In the kernel `transfers` these two replace beginLinks(), endLinks() and end(): for a block that sent to
  // one peer or received from it, beside others on the same channel. `last`: of the block's channels. The
  // same for the whole block: false when it should give up.
  __device__ void beginTransfers(int peer, bool sends) {
    storeShared(shared_.awaits, static_cast<uint32_t>(sends ? Awaited::kReceiver : Awaited::kSender));
    cursor_ = sends ? state_.links[peer].sent : state_.links[peer].received;
  }
  __device__ bool endTransfers(int peer, bool sent, bool last) {
    __syncthreads();
    const bool failed = shared_.failed != 0;
    if (threadIdx.x == 0) {
      (sent ? state_.links[peer].sent : state_.links[peer].received) = cursor_;
      if (last || failed) leaveStamp(2 * (static_cast<uint64_t>(peer) + 1) + (sent ? 1 : 0));
    }
    __syncthreads();
    return !failed;
  }

  __device__ int rank() const {
    return kTurns ? rank_ : context_.rank;
  }
  __device__ int ranks() const {
    return kRanks != 0 ? kRanks : context_.ranks;
  }
  __device__ Coop coop() const {
    return coop_;
  }
  __device__ const WindowLayout& layout() const {
    return context_.shape.layout;
  }
  __device__ uint64_t nextEpoch() {
    return ++epoch_;
  }
  __device__ uint64_t epoch() const {
    return epoch_;
  }

  // Most payload that one source's lines hold in one epoch.
  __device__ size_t lineBytes() const {
    return Format::lineBytes(layout());
  }

  // Mailboxes: as Host's, in this block's channel.
  __device__ Mailbox* mailboxAt(int peer, Phase phase) const {
    return mailbox((kRanks == 2 ? peerNear_[0] : near(peer, 0)) +
                   mailboxOffset(slotOfEpoch(), phase, indexAt(peer, rank())));
  }
  __device__ const Mailbox* mailboxFrom(int source, Phase phase) const {
    return mailbox(ownNear_ + mailboxOffset(slotOfEpoch(), phase, indexAt(rank(), source)));
  }

  // The verbs.
  __device__ void put(Coop coop, int /*peer*/, void* to, const void* from, size_t bytes) {
    copyBytes(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, coop.rank(),
              coop.size());
  }
  __device__ void signal(Coop coop, int /*peer*/, Mailbox* mailbox, uint64_t value) {
    coop.sync();
    if (coop.rank() == 0) publish(mailbox, value);
  }
  __device__ void signalAll(Coop coop, Phase phase) {
    coop.sync();
    for (int step = 1 + coop.rank(); step < ranks(); step += coop.size()) {
      publish(mailboxAt(peerAt(step), phase), epoch_);
    }
  }
  __device__ Status wait(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    bool bad = false;
    if (coop.rank() == 0) bad = !await(peer, mailbox, value, true);
    return verdict(coop, bad);
  }
  __device__ Status waitAll(Coop coop, Phase phase);
  // One source with nothing to divide is copied as it is.
  __device__ void reduce(Coop coop, const ReduceSpec& spec, Destinations to, const std::byte* const* sources,
                         int sourceCount, size_t count, bool stream) {
    if (sourceCount == 1 && (spec.op != Operator::kAvg || spec.divisor == 1)) {
      const size_t bytes = count * sizeOf(spec.type);
      copy(coop, to.own, sources[0], bytes, stream);
      for (int push = 0; push < to.pushedCount; ++push) put(coop, rank(), to.pushed[push], sources[0], bytes);
      return;
    }
    reduceBytes(Reducer(spec), to, sources, sourceCount, count * sizeOf(spec.type), coop.rank(), coop.size());
  }
  __device__ void copy(Coop coop, void* to, const void* from, size_t bytes, bool /*stream*/) {
    if (to != from) put(coop, rank(), to, from, bytes);
  }
  __device__ void setTag(uint64_t tag) {
    tag_ = tag;
  }

  __device__ void putLines(Coop coop, int peer, const void* from, size_t bytes,
                           Phase phase = Phase::kScatter) {
    if constexpr (Format::kWarpChunks) {
      putWarpChunk(warpChunksOf(peer, phase, rank()), epoch_, lineFlag(), static_cast<const std::byte*>(from),
                   bytes);
    } else if (coop.rank() < coop.size()) {
      putLinesAt<Format::kAtOnce>(coop, linesOf(peer, phase, rank()), lineFlag(),
                                  {static_cast<const std::byte*>(from), bytes});
    }
  }
  __device__ Status readLines(Coop coop, int peer, void* to, size_t bytes, Phase phase = Phase::kScatter) {
    if constexpr (Format::kWarpChunks) {
      return readWarpChunk(peer, warpChunksOf(rank(), phase, peer), epoch_, lineFlag(),
                           static_cast<std::byte*>(to), bytes);
    } else {
      readLinesAt<Format::kAtOnce>(coop, peer, linesOf(rank(), phase, peer), lineFlag(),
                                   {static_cast<std::byte*>(to), bytes});
      return failed_ ? Status{Code::kRemote} : Status{};
    }
  }
  __device__ Status reduceLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own,
                                size_t bytes) {
    if constexpr (Format::kWarpChunks) {
      return reduceWarpChunk(spec, to, own, bytes);
    } else {
      return inLines<false>(coop, spec, to, own, bytes);
    }
  }
  // putLines() to every peer and reduceLines(), reading the input once where each thread has little of it.
  __device__ Status shareLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own,
                               size_t bytes) requires(Has::kSharesLines) {
    if constexpr (kTurns) {
      return inTurns<Walk::kShare>(coop, spec, {own, 0, bytes, bytes}, {to, 0, bytes, bytes});
    } else {
      return inLines<true>(coop, spec, to, own, bytes);
    }
  }
  // The same where each rank has a block of `bytes` of what is at `from`, `stride` bytes after the one
  // before: this rank reduces its own.
  __device__ Status dealLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* from,
                              size_t stride, size_t bytes) requires(kTurns) {
    return inTurns<Walk::kDeal>(coop, spec, {from, stride, bytes, ~size_t{0}}, {to, 0, bytes, bytes});
  }
  // The same where the blocks are shards of `each` bytes of the `bytes` at `from`, and every rank's result
  // goes to all: a two-shot.
  __device__ Status shardLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* from,
                               size_t each, size_t bytes) requires(kTurns&& Has::kFansLines) {
    return inTurns<Walk::kShards>(coop, spec, {from, each, each, bytes}, {to, each, each, bytes});
  }

  // For all peers at once (algorithms/exchange.hpp), so that loads of several are under way together. Parts
  // are sent as lines of `most` bytes, beyond their end empty ones; who reads counts on it.
  template <typename Part>
  __device__ void putLinesAll(Coop coop, Phase phase, size_t most, Part part) requires(Has::kFansLines) {
    if constexpr (Format::kWarpChunks) {
      putWarpChunkAll(phase, part);
    } else if (coop.rank() < coop.size()) {
      putLinesAllAt(coop, phase, linesForBytes<Format>(most), part);
    }
  }
  template <typename Target>
  __device__ Status readLinesAll(Coop coop, Phase phase, size_t most,
                                 Target target) requires(Has::kFansLines) {
    if constexpr (Format::kWarpChunks) {
      readWarpChunkAll(phase, target);
    } else if (coop.rank() < coop.size()) {
      readLinesAllAt(coop, phase, linesForBytes<Format>(most), target);
    }
    return failed_ ? Status{Code::kRemote} : Status{};
  }
  __device__ Status reducePutLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own,
                                   size_t bytes, size_t most, int only) requires(Has::kFansLines);

  // Tokens, by their numbers among those of the block, of which this is the first in the operation.
  // share(peer): those that a peer owns; an empty line says that there are none.
  __device__ void beginTokens(size_t first) requires(kNorms) {
    firstToken_ = first;
  }
  __device__ void shareTokens(Coop coop, const Arguments& a, TokenRun tokens) requires(kNorms);
  template <typename Share>
  __device__ void dealTokens(Coop coop, const Arguments& a, Share share) requires(kNorms);
  // Adds and normalises them: reduces what the peers have put, and sends the sums to the kGather lines of all
  // if `sends`; or takes the sums that `owner` has sent.
  __device__ void addNorm(Coop coop, const Arguments& a, TokenRun tokens, bool sends) requires(kNorms);
  __device__ void addNormOf(Coop coop, const Arguments& a, TokenRun tokens, int owner) requires(kNorms);
  __device__ size_t tokensInLines(const Arguments& a) const requires(kNorms);

  // A whole message over a link, in warp chunks; the other end does the other.
  __device__ Status sendWarpChunks(int peer, const std::byte* from, size_t bytes);
  __device__ Status receiveWarpChunks(int peer, std::byte* to, size_t bytes);

  // A link, by one warp (algorithms/link_channel.hpp).
  __device__ Status acquireLink(int peer, size_t bytes, std::byte*& data) requires(Format::kLinks);
  __device__ void publishLink(int peer) requires(Format::kLinks);
  __device__ Status awaitLink(int peer, const std::byte*& data) requires(Format::kLinks);
  __device__ void releaseLink(int peer) requires(Format::kLinks);

  // Stages run at the same time, each by its own warps. A stage of a chunk begins when the stage before has
  // done that chunk. The first stage runs ahead of the last by half as many chunks as there are slots; where
  // warp chunks are sent, by as many as there is room for.
  template <typename... Stages>
  __device__ Status pipeline(size_t chunks, Stages... stages);

 protected:
  static constexpr int kPeers = kRanks > 1 ? kRanks - 1 : 1;  // where their number is known
  static constexpr int kTagBits = 20;                         // of a line's flag; the rest is the epoch
  static constexpr int kWarp = 32;

  // The peer that comes `step` ranks later, going round; a division would take long.
  __device__ int peerAt(int step) const {
    if constexpr (kRanks == 2) return 1 - rank();
    const int sum = rank() + step;
    return sum < ranks() ? sum : sum - ranks();
  }
  // Windows have room for peers only: the index of `source` in the window of `owner`.
  __device__ static int indexAt(int owner, int source) {
    if constexpr (kRanks == 2) return 0;
    return source - (source > owner ? 1 : 0);
  }
  __device__ std::byte* window(int peer) const {
    static_assert(kRanks <= Context::kAtHand);
    if constexpr (kRanks == 2) return peer == 0 ? context_.windows[0] : context_.windows[1];
    if constexpr (!kTurns) {
      return kRanks != 0 || peer < Context::kAtHand ? context_.windows[peer] : context_.allWindows[peer];
    }
    // Compared, not indexed: parameters that are found by an index come through a cache that every launch
    // finds cold.
    std::byte* found = context_.windows[0];
#pragma unroll
    for (int i = 1; i < kRanks; ++i) {
      std::byte* other = context_.windows[i];
      keepAtHand(other);  // or the compiler would index a copy of them, in memory
      found = peer == i ? other : found;
    }
    return found;
  }
  __device__ std::byte* near(int peer, size_t offset) const {
    if (peer == rank()) return ownNear_ + offset;
    return (kRanks == 2 ? peerNear_[0] : window(peer) + nearBegin_) + offset;
  }
  __device__ std::byte* deep(int peer, size_t offset) const {
    return window(peer) + deepBegin_ + offset;
  }
  __device__ static Mailbox* mailbox(std::byte* at) {
    return reinterpret_cast<Mailbox*>(at);
  }
  __device__ uint32_t slotOfEpoch() const {
    return static_cast<uint32_t>(epoch_) & (layout().slots - 1);
  }
  // Of one source's lines of this epoch. Pairs have one phase and one source.
  __device__ uint32_t lineOffset(Phase phase, int source) const {
    const uint32_t slot = Format::kSets != 0 ? static_cast<uint32_t>(epoch_) % Format::kSets : slotOfEpoch();
    uint32_t index = slot;
    if constexpr (kRanks != 2) {
      index = (slot * layout().linePhases + static_cast<uint32_t>(phase)) * layout().ranks +
              static_cast<uint32_t>(source);
    }
    return Format::begin(context_.regions) + index * Format::region(layout());
  }
  // And a peer's word to a rank about this epoch.
  __device__ size_t mailboxOffset(uint32_t slot, Phase phase, int source) const {
    if constexpr (kRanks == 2) return WindowLayout{.ranks = 1}.mailbox(slot, phase, 0);
    return layout().mailbox(slot, phase, source);
  }
  __device__ std::byte* linesOf(int owner, Phase phase, int source) const {
    return near(owner, lineOffset(phase, indexAt(owner, source)));
  }
  // This rank's at the peer `step` further: a constant, wherever `step` is one.
  __device__ std::byte* linesAt(int step, Phase phase) const {
    return (kRanks > 1 ? peerNear_[step - 1] : window(peerAt(step)) + nearBegin_) +
           lineOffset(phase, indexAt(peerAt(step), rank()));
  }
  // Whether this block compares the tag of an operation in Lamport lines with its peers'. Lamport lines have
  // no room for a tag, so it goes through a mailbox beside them.
  //
  //   1. Operations that differ, differ in all of their blocks. So one block compares for all: that of the
  //      operation's first channel.
  //   2. That block reports a difference before it ends, and so before the kernel ends. Other blocks may have
  //      written results of wrong lines by then. The report makes the operation fail all the same.
  //   3. Other blocks may wait for lines that never come. They see that a block has given up, and end.
  __device__ bool comparesTags() const {
    return static_cast<uint32_t>(channel_) == place_.firstChannel;
  }
  __device__ uint64_t lineFlag() const {
    return epoch_ << kTagBits | (tag_ & ((1u << kTagBits) - 1));
  }
  __device__ uint64_t warpChunkFlag(uint64_t number) const {
    return (number + 1) << kTagBits | (tag_ & ((1u << kTagBits) - 1));
  }
  __device__ void publish(Mailbox* mailbox, uint64_t value) const {
    fenceSystem();
    storeRelaxed(mailbox, {value, tag_});
  }
  __device__ Status verdict(Coop coop, bool bad) {
    if (!anyThread(coop.barrier, coop.count, bad)) return {};
    return Status{Code::kRemote};  // the host knows more (Control)
  }

  // Without order: what the peer did before is not yet visible when it returns.
  __device__ bool awaitMailbox(int peer, const Mailbox* mailbox, uint64_t value, bool tagged);
  __device__ bool await(int peer, const Mailbox* mailbox, uint64_t value, bool tagged) {
    const bool come = awaitMailbox(peer, mailbox, value, tagged);
    fenceSystem();
    return come;
  }
  template <int kLines, int kSources>
  __device__ bool awaitParts(Pack (&got)[kSources][kLines], const std::byte* const (&lines)[kSources],
                             uint64_t flag, int first, const LinePart<Format> (&parts)[kLines], int lane);
  __device__ WarpChunkRing warpChunksOf(int owner, Phase phase, int source) const {
    return {window(owner) + warpChunksBegin_ + layout().warpChunksOf(phase, indexAt(owner, source)),
            layout().warpChunks, layout().warpChunkBytes};
  }
  __device__ WarpChunkRing linkChunksOf(int owner, int source) const {
    return {deep(owner, layout().linkChunksOf(indexAt(owner, source))), layout().linkWarpChunks,
            layout().linkChunk};
  }
  __device__ void putWarpChunk(const WarpChunkRing& ring, uint64_t number, uint64_t flag,
                               const std::byte* from, size_t bytes) const;
  __device__ bool agreed(bool fine);
  __device__ bool awaitFlag(int peer, const uint64_t* at, uint64_t flag);
  __device__ bool awaitWarpChunk(int peer, const uint64_t* at, uint64_t flag);
  __device__ Status readWarpChunk(int peer, const WarpChunkRing& ring, uint64_t number, uint64_t flag,
                                  std::byte* to, size_t bytes);
  // The warp chunks of this epoch of all peers; false when one did not come.
  __device__ bool awaitWarpChunkAll(Phase phase);
  // That peers have read what lay where this epoch's warp chunks of `phase` go, and that this rank has read
  // theirs.
  __device__ bool awaitRead(Phase phase);
  __device__ void markRead(Phase phase) const;
  __device__ uint64_t* readMarkOf(int owner, Phase phase, int reader) const {
    const uint64_t index = epoch_ & (layout().warpChunks - 1);
    return reinterpret_cast<uint64_t*>(window(owner) + warpChunksBegin_ +
                                       layout().readMark(phase, indexAt(owner, reader), index));
  }
  // Where this epoch's warp chunks of a phase lie in every window; the same as operands of a reduction, with
  // `own` for this rank; and at `only`, or at all peers, as where its result goes: to `to` as well.
  __device__ Parts warpChunkRow(Phase phase) const;
  __device__ auto operandsIn(const Parts& row, const std::byte* own) const;
  __device__ auto targetsIn(const Parts& row, std::byte* to, int only = -1) const;
  __device__ Status reduceWarpChunk(const ReduceSpec& spec, std::byte* to, const std::byte* own,
                                    size_t bytes);
  __device__ Status reducePutWarpChunk(const ReduceSpec& spec, std::byte* to, const std::byte* own,
                                       size_t bytes, int only);
  __device__ void flagWarpChunkAll(Phase phase) const;
  template <typename Part>
  __device__ void putWarpChunkAll(Phase phase, Part part);
  template <typename Target>
  __device__ void readWarpChunkAll(Phase phase, Target target);
  template <typename... Stages>
  __device__ Status pipelineOfWarps(size_t chunks, Stages... stages);
  template <typename... Stages>
  __device__ Status pipelineOfTokens(size_t chunks, Stages... stages);
  static constexpr int kTokenLines = kRanks == 2 ? 3 : 2;
  static constexpr int kTokenSources = kRanks == 2 ? 1 : 2;
  using TokenParts = LinePart<Format>[kTokenLines];
  __device__ UnitSource tokenOf(const Arguments& a, size_t token) const {
    return {a.send + (firstToken_ + token) * a.tokenBytes(), a.tokenBytes()};
  }
  template <typename SumOf>
  __device__ void addNormBy(Coop coop, const Arguments& a, TokenRun tokens, SumOf sumOf);
  __device__ Coop firstCoop() const {
    const int threads = static_cast<int>(blockDim.x);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if constexpr (Format::kLinks) return {warp * kWarp, kWarp, Threads::kOneWarp};
    return {0, threads - (Format::kLamport && !kTurns ? kWarp : 0), Format::kNorms ? 1 : 0};
  }
  // This warp's: all of its threads read, one writes, between two barriers of the warp.
  __device__ ChunkCursors& cursors(int peer) const requires(Format::kLinks) {
    return shared_.cursors[peer][threadIdx.x / kWarp];
  }
  // Warp chunks of a link from number `cursor` on that come before this warp's next one.
  __device__ static uint64_t untilMine(uint64_t cursor) requires(Format::kLinks) {
    return (threadIdx.x / kWarp - cursor) % Format::kLinkWarps;
  }
  // Where a receiver says which warp chunk it has read last of those alike modulo kWarpChunkCredits.
  __device__ const Mailbox* creditFrom(int receiver, uint64_t number) const {
    return mailbox(near(rank(), layout().warpChunkCredit(indexAt(rank(), receiver), number)));
  }
  __device__ bool awaitRoom(int peer, uint64_t number);
  // By the thread that then says that the warp chunk is there: how many bytes it holds, if somebody asks.
  __device__ void noteSize(const WarpChunkRing& ring, uint64_t number, size_t bytes) const {
    if (layout().linkSizes != 0 && threadIdx.x % kWarp == 0) storeRelaxed64(ring.size(number), bytes);
  }
  __device__ void giveCredit(int sender, uint64_t number) const;
  template <typename Visit>
  __device__ void forEachWarpChunk(uint64_t& cursor, size_t bytes, Visit visit);
  template <int kLines>
  __device__ void putLinesAt(Coop coop, std::byte* lines, uint64_t flag, const UnitSource& source);
  template <int kLines>
  __device__ void readLinesAt(Coop coop, int peer, const std::byte* lines, uint64_t flag,
                              const UnitTarget& target);
  template <typename Part>
  __device__ void putLinesAllAt(Coop coop, Phase phase, uint32_t lines, Part part);
  template <typename Target>
  __device__ void readLinesAllAt(Coop coop, Phase phase, uint32_t lines, Target target);
  template <int kSources>
  __device__ void linesFrom(int first, Phase phase, const std::byte* (&lines)[kSources]) const;
  template <int kLines, int kSources, typename Take>
  __device__ void reduceBatch(const Reducer& reducer, const LinePart<Format> (&parts)[kLines],
                              const Pack (&own)[kLines], int lane, Take take);
  template <int kLines>
  __device__ void reducePair(const Reducer& reducer, const UnitTarget& target,
                             const LinePart<Format> (&parts)[kLines], const Pack (&own)[kLines], int lane);
  template <bool put, int kLines, typename ReduceOne>
  __device__ void passLines(Coop coop, const UnitSource& source, ReduceOne reduceOne);
  template <int kLines>
  __device__ void loadBatch(Pack (&own)[kLines], const UnitSource& source,
                            const LinePart<Format> (&parts)[kLines], int lane) const;
  template <int kLines>
  __device__ void putBatch(std::byte* lines, uint64_t flag, const Pack (&own)[kLines],
                           const LinePart<Format> (&parts)[kLines], int lane) const;
  template <int kLines>
  __device__ void eraseBatch(int source, Phase phase, const LinePart<Format> (&parts)[kLines]) const;
  __device__ void exchangeTags(int thread, int threads);
  __device__ bool awaitLines(Pack (&lines)[kPeers], const PeerLines<kPeers>& from, uint32_t at,
                             const Mailbox* tagAt);
  template <Walk walk, typename User>
  __device__ void goThrough(LineCursor cursor, const Reducer& reducer, User user);
  template <Walk walk>
  __device__ Status inTurns(Coop coop, const ReduceSpec& spec, const RankParts<const std::byte>& from,
                            const RankParts<std::byte>& to);
  template <bool put>
  __device__ Status inLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own,
                            size_t bytes);
  __device__ bool awaitStage(int stage, size_t chunk, int stages);
  // `peer`: who is waited for; or kNobody. `differs()`: what has come is another operation's.
  template <typename Differs = NothingDiffers>
  __device__ Code exhausted(WaitSoFar& waiting, int peer, Differs differs = {}) const {
    if (!waiting.isDue()) return Code::kOk;
    return differs() ? Code::kInvalidUsage : lookAgain(waiting, peer);
  }
  __device__ Code lookAgain(WaitSoFar& waiting, int peer) const {
    const Look seen = kTurns ? lookAroundApart(context_, shared_, waiting.deadline, peer)
                             : lookAround(context_, shared_, waiting.deadline, peer);
    waiting.deadline = seen.deadline;
    return seen.code;
  }
  // `finished`: of a collective, its number.
  __device__ void leaveStamp(uint64_t queue, uint64_t finished = 0) const;
  __device__ void report(Code code, int peer, uint64_t theirTag) {
    failed_ = true;
    const Failure failure{code, peer, channel_, theirTag};
    if constexpr (kTurns) {
      reportApart(context_, place_.called(context_), shared_, failure);
    } else {
      reportOnce(context_, place_.called(context_), shared_, failure);
    }
  }

  const Context& context_;
  Shared& shared_;
  int rank_;
  size_t nearBegin_;
  std::byte* ownNear_;
  std::byte* peerNear_[kPeers];  // by step, where their number is known
  size_t warpChunksBegin_;
  size_t deepBegin_;
  ChannelState& state_;
  int channel_;
  [[no_unique_address]] std::conditional_t<Format::kWarpChunks, OnlyOne, OneOfSeveral> place_;
  uint64_t tag_;
  uint64_t epoch_ = 0;  // before come(): so many after the channel's
  Coop coop_;
  bool failed_ = false, hasCome_ = false;
  size_t firstToken_ = 0;
  uint64_t cursor_ = 0;  // of the one end of a link that the block moves, where transfers run
};

}  // namespace stretto::cuda

#include "primitives/cuda/cuda_lines.cuh"
#include "primitives/cuda/cuda_norm.cuh"
#include "primitives/cuda/cuda_stages.cuh"
#include "primitives/cuda/cuda_turns.cuh"
#include "primitives/cuda/cuda_warp_chunks.cuh"
#include "primitives/cuda/cuda_whole_tokens.cuh"
