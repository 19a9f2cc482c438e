// The verbs: everything an algorithm may do to another rank's memory. Algorithms are templates over a type
// that satisfies Backend; `Host` runs them on CPU threads over shared memory, and is their living definition.
//
// Memory ordering is in the verb, never in the algorithm:
// - put: makes bytes visible to the peer only after a later signal.
// - signal (release): all that this coop has put to that peer is visible before the mailbox's counter grows
//   to `value`.
// - wait (acquire): returns when the counter is at least `value`, or with a Status when the communicator was
//   aborted, the deadline passed, or the operation's tag is not ours (the ranks disagree).
// - putLines, readLines, reduceLines: carry readiness inside the data, with neither signal nor fence; at most
//   lineBytes() from one source in one phase of one epoch.
// - describe says what others need to know to read a buffer of ours; locate finds a buffer of theirs in our
//   address space (null: it is not there, and get must copy); get copies a peer's memory here.
// - beginReading, goOnReading, endReading: frame the reading of peers' buffers. goOnReading is asked between
//   pieces of a few megabytes; pauseReading comes before a wait, and beginReading after it. They are not ok
//   once a peer has failed. When endReading is ok, all that was read came from buffers whose owners were
//   still in the operation.
// - addNorm: adds and normalises tokens whose parts have come (primitives/host/norm.hpp).
// - shareTokens, dealTokens, addNorm, addNormOf: the same of tokens that travel in lines
//   (primitives/cuda/cuda_norm.cuh). They return no Status: the backend remembers a failure and reports it
//   itself.
// - sums: memory of this rank alone, for sums that the user does not ask for.
// - awaitReaders: returns, after an operation has failed here, when no peer reads this rank's buffers any
//   more, or after a bounded time (docs/decisions/0023-what-holds-after-a-fault.md).
//
// A wait that gives up says so to the whole coop, and its caller publishes nothing afterwards. On GPUs a wait
// for lines gives up for its warp or its thread, and the other threads hear of it at their next look.
//
// Every member that an algorithm calls is declared in a concept: here or, for links and hosts, in
// algorithms/link_channel.hpp and algorithms/stages.hpp. What only some backends can do is a capability with
// a name. A backend claims it by a constant of its class Has, and KeepsItsClaims holds the members of a
// claimed capability against their declaration: one whose signature has drifted breaks the build, and no
// slower way is taken in silence. Without the constant a backend does not have the capability; static_asserts
// beside the backends hold the constants themselves.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.hpp"
#include "primitives/norm.hpp"
#include "primitives/operation.hpp"
#include "primitives/peer.hpp"

namespace stretto {

// Where reduced elements go: into this rank's own memory and, in the same pass, to places in peers' windows.
struct Destinations {
  std::byte* own = nullptr;
  std::byte* const* pushed = nullptr;
  int pushedCount = 0;
};

// What every backend has.
template <typename B>
concept AnyBackend = requires(B b, typename B::Coop coop, int peer, Mailbox* mailbox, std::byte* to,
                              const std::byte* from, const std::byte* const* sources, size_t bytes,
                              uint64_t value, ReduceSpec spec) {
  { b.rank() } -> std::same_as<int>;
  { b.ranks() } -> std::same_as<int>;
  { b.coop() } -> std::same_as<typename B::Coop>;
  {b.put(coop, peer, to, from, bytes)};
  {b.signal(coop, peer, mailbox, value)};
  { b.wait(coop, peer, mailbox, value) } -> std::same_as<Status>;
  {b.reduce(coop, spec, Destinations{}, sources, 1, bytes, true)};
  {b.copy(coop, to, from, bytes, true)};
};

// Moves data in lines.
template <typename B>
concept Backend = AnyBackend<B> && requires(B b, typename B::Coop coop, int peer, std::byte* to,
                                            const std::byte* from, size_t bytes, ReduceSpec spec) {
  { b.nextEpoch() } -> std::same_as<uint64_t>;
  { b.lineBytes() } -> std::same_as<size_t>;
  {b.putLines(coop, peer, from, bytes, Phase::kGather)};
  {b.putLines(coop, peer, from, bytes)};  // of kScatter, as reduceLines reads them
  { b.readLines(coop, peer, to, bytes, Phase::kGather) } -> std::same_as<Status>;
  { b.readLines(coop, peer, to, bytes) } -> std::same_as<Status>;
  { b.reduceLines(coop, spec, to, from, bytes) } -> std::same_as<Status>;
};

// Moves data in the slots of a window as well, with a signal for each chunk.
template <typename B>
concept SlotBackend = Backend<B> && requires(B b, int peer, Phase phase) {
  { b.epoch() } -> std::same_as<uint64_t>;
  { b.layout().slotBytes } -> std::convertible_to<size_t>;
  { b.slotAt(peer, phase) } -> std::same_as<std::byte*>;
  { b.slotFrom(peer, phase) } -> std::convertible_to<const std::byte*>;
  { b.mailboxAt(peer, phase) } -> std::same_as<Mailbox*>;
  { b.mailboxFrom(peer, phase) } -> std::same_as<const Mailbox*>;
};

// Reads peers' memory outside windows as well.
template <typename B>
concept ReachingBackend = SlotBackend<B> &&
    requires(B b, typename B::Coop coop, int peer, std::byte* to, const std::byte* from, size_t bytes) {
  { b.describe(from, bytes) } -> std::same_as<Shareable>;
  { b.locate(peer, Shareable{}, from) } -> std::same_as<Status>;
  { b.sharesAddresses(peer) } -> std::same_as<bool>;
  { b.scratch(bytes) } -> std::same_as<std::byte*>;
  { b.get(coop, peer, to, from, bytes) } -> std::same_as<Status>;
  { b.beginReading() } -> std::same_as<Status>;
  { b.goOnReading() } -> std::same_as<Status>;
  {b.pauseReading()};
  { b.endReading() } -> std::same_as<Status>;
  {b.awaitReaders(Status{})};
};

// Adds and normalises tokens that lie in slots or in the user's memory.
template <typename B>
concept NormingBackend = SlotBackend<B> &&
    requires(B b, typename B::Coop coop, const Arguments& arguments, size_t bytes) {
  {b.addNorm(coop, arguments, NormTokens{})};
  { b.sums(bytes) } -> std::same_as<std::byte*>;
};

// Adds and normalises tokens as their lines come.
template <typename B>
concept LineNormingBackend = Backend<B> && requires(B b, typename B::Coop coop, const Arguments& arguments,
                                                    TokenRun tokens, TokenRun (*share)(int peer), int owner) {
  { b.tokensInLines(arguments) } -> std::same_as<size_t>;
  {b.shareTokens(coop, arguments, tokens)};
  {b.dealTokens(coop, arguments, share)};
  {b.addNorm(coop, arguments, tokens, true)};
  {b.addNormOf(coop, arguments, tokens, owner)};
};

// ---- Capabilities: what a backend claims, and the members that the claim promises -------------------------

// Overlaps the stages of neighbouring chunks (algorithms/exchange.hpp).
template <typename B>
concept Overlaps = requires {
  requires B::Has::kOverlaps;
};
template <typename B>
concept OverlapMembers = requires(B b, size_t chunks, Status (*stage)(size_t chunk)) {
  { b.pipeline(chunks, stage, stage) } -> std::same_as<Status>;
};

// An algorithm asks for one epoch only, whose lines hold the whole operation. (A backend that takes turns
// goes through several rounds, and counts their epochs itself.)
template <typename B>
concept OneEpoch = requires {
  requires B::Has::kOneEpoch;
};

// Lines to and from all peers at once (algorithms/exchange.hpp has the same for one peer after the other).
template <typename B>
concept FansLines = requires {
  requires B::Has::kFansLines;
};
template <typename B>
concept FanMembers = requires(B b, typename B::Coop coop, Phase phase, ReduceSpec spec, std::byte* to,
                              const std::byte* from, size_t bytes, size_t most, int only,
                              std::pair<const std::byte*, size_t> (*part)(int peer),
                              std::pair<std::byte*, size_t> (*place)(int peer)) {
  {b.putLinesAll(coop, phase, most, part)};
  { b.readLinesAll(coop, phase, most, place) } -> std::same_as<Status>;
  { b.reducePutLines(coop, spec, to, from, bytes, most, only) } -> std::same_as<Status>;
};

// A one-shot in lines, as one operation of the backend.
template <typename B>
concept SharesLines = requires {
  requires B::Has::kSharesLines;
};
template <typename B>
concept ShareMembers = requires(B b, typename B::Coop coop, ReduceSpec spec, std::byte* to,
                                const std::byte* own, size_t bytes) {
  { b.shareLines(coop, spec, to, own, bytes) } -> std::same_as<Status>;
};

// A reduce-scatter in lines, as one operation of the backend in which puts and reads take turns. Where a
// backend FansLines as well, the same for a two-shot, which two ranks do not have.
template <typename B>
concept TakesTurns = requires {
  requires B::Has::kTurns;
};
template <typename B>
concept DealMembers = requires(B b, typename B::Coop coop, ReduceSpec spec, std::byte* to,
                               const std::byte* from, size_t stride, size_t bytes) {
  { b.dealLines(coop, spec, to, from, stride, bytes) } -> std::same_as<Status>;
};
template <typename B>
concept ShardMembers = requires(B b, typename B::Coop coop, ReduceSpec spec, std::byte* to,
                                const std::byte* from, size_t each, size_t bytes) {
  { b.shardLines(coop, spec, to, from, each, bytes) } -> std::same_as<Status>;
};

constexpr bool implies(bool claim, bool members) {
  return !claim || members;
}
// To be asserted of every backend that algorithms are compiled over.
template <typename B>
concept KeepsItsClaims = implies(Overlaps<B>, OverlapMembers<B>) && implies(FansLines<B>, FanMembers<B>) &&
    implies(SharesLines<B>, ShareMembers<B>) && implies(TakesTurns<B>, DealMembers<B>) &&
    implies(TakesTurns<B>&& FansLines<B>, ShardMembers<B>);

}  // namespace stretto
