#include "links/net/spread_host.hpp"

#include <string>
#include <utility>

#include "platform/futex.hpp"
#include "primitives/disagreement.hpp"

namespace stretto::links::net {

void SpreadHost::signal(Coop coop, int peer, Mailbox* mailbox, uint64_t value) {
  if (!links_.isFar(peer)) return Host::signal(coop, peer, mailbox, value);
  if (links_.isReleased(peer, mailbox)) {
    mailbox->count = value;
  } else {
    mailbox->tag = tag();
    SendRing& ring = links_.to(peer);
    ring.publish();
    if (chunks_.watch() != nullptr) [[unlikely]]
      chunks_.published(peer, ring);
  }
  move();
}

Status SpreadHost::checkChunk(int peer, size_t bytes) {
  if (!links_.isFar(peer)) return kOkStatus;
  const size_t came = links_.from(peer).bytesOf(cursors(peer).received);
  if (chunks_.watch() != nullptr) [[unlikely]]
    chunks_.watch()->comes(peer, bytes);
  if (came == messageBytes(bytes)) return kOkStatus;
  return failAbout(peer, Code::kInternal,
                   "rank %d: a chunk of %zu bytes came from rank %d as a message of %zu", rank(), bytes, peer,
                   came);
}

Status SpreadHost::progress(const RankSet& peers) {
  move();
  const int broken = links_.firstBroken(peers);
  return broken < 0 ? kOkStatus : brokenLink(broken);
}

// Most likely the peer has died or aborted, and word of that comes another way: peerFailed() waits for it.
Status SpreadHost::brokenLink(int peer) {
  const Break& found = *links_.broken(peer);
  const Code code = found.status.code == Code::kSystem ? Code::kSystem : Code::kRemote;
  return peerFailed(peer, "the link over " + std::string(links_.netName()) + " broke: " + found.words, code);
}

// What a far peer has sent is in sight once it has been moved. The word that the peer has left comes another
// way and may be faster: it counts once the link has ended, too, or after a while.
Status SpreadHost::isWithUs(int peer, const char* what) {
  move();
  Status status = Host::isWithUs(peer, what);
  if (!links_.isFar(peer)) return status;
  const Break* const found = links_.broken(peer);
  if (status.ok() && found == nullptr) return kOkStatus;
  if (isOnItsWay(peer) || (found == nullptr && !isGoneForLong(peer))) return kOkStatus;
  if (status.ok()) {
    status = failAbout(peer, Code::kRemote, "rank %d %s rank %d: the link over %s broke: %s", rank(), what,
                       peer, links_.netName(), found->words.c_str());
  }
  const std::string words = lastError();  // connections that end meanwhile have words of their own
  move();
  setLastError(words);
  return status;
}

bool SpreadHost::isGoneForLong(int peer) {
  const auto [seen, isFirst] = goneSince_.try_emplace(peer, platform::ticks());
  return !isFirst && platform::tickSeconds(platform::ticks() - seen->second) > kSecondHandSeconds;
}

template <typename Done>
Status SpreadHost::await(AwaitedWord awaited, Done done) {
  const RankSet peers = awaited.ranks(ranks());
  Patience patience(*this, std::move(awaited));
  while (!done()) {
    move();
    if (done()) return kOkStatus;
    const int broken = links_.firstBroken(peers);
    const Status status = broken < 0 ? patience.step() : brokenLink(broken);
    if (status.ok()) continue;
    // What was sent before the reason to give up was seen counts, and a large message takes several looks.
    constexpr double kSecondsOfTaking = 0.02;
    const std::string words = lastError();  // connections that end meanwhile have words of their own
    const uint64_t began = platform::ticks();
    do {
      move();
    } while (!done() && platform::tickSeconds(platform::ticks() - began) < kSecondsOfTaking);
    setLastError(words);
    return done() ? kOkStatus : status;
  }
  return kOkStatus;
}

Status SpreadHost::until(AwaitedWord awaited, const Mailbox* mailbox, uint64_t value) {
  for (int poll = 0; poll < quickPolls(); ++poll) {
    if (ready(mailbox, value)) [[likely]] {
      return kOkStatus;
    }
    move();
  }
  noteSlowWait();
  return await(std::move(awaited), [&] { return ready(mailbox, value); });
}

Status SpreadHost::awaitLeft(int peer, uint64_t chunks) {
  return links_.isFar(peer) ? until({.peer = peer}, creditFrom(peer), chunks) : kOkStatus;
}

Status SpreadHost::finish() {
  if (links_.isIdle()) return kOkStatus;
  move();
  if (links_.isIdle()) return kOkStatus;
  return await({.peer = -1, .anyOf = links_.busy()}, [&] { return links_.isIdle(); });
}

// The stand-in's bell counts what has been heard of the peer. Views that were on their way before this rank
// asked may be of an earlier call: then it asks again, and when no answer comes.
void SpreadHost::hear(int peer) {
  constexpr uint64_t kSliceMicroseconds = 5000;
  constexpr double kMostSeconds = 1, kSecondsOfAnswer = 0.15;
  constexpr int kMostViews = 3;
  if (!links_.isFar(peer)) return;
  WindowHeader& theirs = this->peer(peer).header();
  const uint64_t began = platform::ticks();
  const auto mayWait = [&] {
    return std::atomic_ref(header().abort).load(std::memory_order_relaxed) == 0 &&
           platform::tickSeconds(platform::ticks() - began) < kMostSeconds;
  };
  for (int views = 0; views < kMostViews && mayWait() && !firstDifference(header(), theirs).found();) {
    const uint32_t before = std::atomic_ref(theirs.bell).load(std::memory_order_acquire);
    const auto answered = [&] {
      return std::atomic_ref(theirs.bell).load(std::memory_order_acquire) != before;
    };
    ask_(RankSet::of(peer));
    const uint64_t asked = platform::ticks();
    while (!answered() && mayWait() && platform::tickSeconds(platform::ticks() - asked) < kSecondsOfAnswer) {
      platform::futexWait(&theirs.bell, before, kSliceMicroseconds);
    }
    if (answered()) ++views;
  }
}

}  // namespace stretto::links::net
