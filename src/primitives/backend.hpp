// The verbs: everything an algorithm may do to another rank's memory. Algorithms are templates over a type
// that satisfies Backend; `Host` runs them on CPU threads over shared memory, and is their living definition.
//
// Memory ordering is in the verb, never in the algorithm:
// - put: makes bytes visible to the peer only after a later signal.
// - signal (release): all that this coop has put to that peer is visible before the mailbox's counter grows
// to
//   `value`.
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
// - sums: memory of this rank alone, for sums that the user does not ask for.
// - awaitReaders: returns, after an operation has failed here, when no peer reads this rank's buffers any
//   more, or after a bounded time (docs/decisions/0023-what-holds-after-a-fault.md).
//
// A wait that gives up says so to the whole coop, and its caller publishes nothing afterwards.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "primitives/operation.hpp"
#include "primitives/peer.hpp"

namespace stretto {

// Where reduced elements go: into this rank's own memory and, in the same pass, to places in peers' windows.
struct Destinations {
  std::byte* own = nullptr;
  std::byte* const* pushed = nullptr;
  int pushedCount = 0;
};

// What algorithms over links need.
template <typename B>
concept ChunkBackend = requires(B b, typename B::Coop coop, int peer, Mailbox* mailbox, std::byte* to,
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

template <typename B>
concept Backend = ChunkBackend<B> && requires(B b, typename B::Coop coop, int peer, std::byte* to,
                                              const std::byte* from, size_t bytes, ReduceSpec spec) {
  { B::kLineBytes } -> std::convertible_to<size_t>;
  { b.nextEpoch() } -> std::same_as<uint64_t>;
  { b.lineBytes() } -> std::same_as<size_t>;
  {b.putLines(coop, peer, from, bytes, Phase::kGather)};
  { b.readLines(coop, peer, to, bytes, Phase::kGather) } -> std::same_as<Status>;
  { b.reduceLines(coop, spec, to, from, bytes) } -> std::same_as<Status>;
};

// One that reads peers' memory outside windows as well.
template <typename B>
concept ReachingBackend = Backend<B> &&
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

// One that adds and normalises tokens.
template <typename B>
concept NormingBackend = Backend<B> &&
    requires(B b, typename B::Coop coop, const Arguments& arguments, size_t bytes) {
  {b.addNorm(coop, arguments, {})};
  { b.sums(bytes) } -> std::same_as<std::byte*>;
};

}  // namespace stretto
