// All links of one rank to ranks of other hosts. It listens at one place, and connects to a peer when it has
// the first chunk for it; a connection carries one way, and its first message says who sends. For the backend
// (spread_host.hpp) and communicator/core/connect, which gives it the others' handles.
//
// Threads: one at a time, the one that runs the rank's operation; it moves everything whenever it waits.
#pragma once

#include <algorithm>
#include <bit>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/rank_set.hpp"
#include "links/net/rings.hpp"
#include "net/net.hpp"

namespace stretto::links::net {

inline constexpr const char* kName = "net";

// Of a chunk over a link between hosts. A message costs about 10 us beside its bytes, so chunks are large;
// but a rank that talks to everybody has a ring of them for each.
constexpr size_t chunkBytesFor(int ranks) {
  constexpr size_t kMost = size_t{512} << 10, kLeast = size_t{64} << 10, kOfAll = size_t{4} << 20;
  return std::clamp(kOfAll / std::bit_ceil(static_cast<size_t>(ranks)), kLeast, kMost);
}

class FarLinks {
 public:
  // `net` outlives it: `device` is one of its devices.
  struct Config {
    std::shared_ptr<stretto::net::Net> net;
    int device = 0;
    int rank = 0;
    int ranks = 1;
    size_t chunkBytes = 0;
  };
  static Result<std::unique_ptr<FarLinks>> listen(Config config);
  ~FarLinks();

  // Before progress().
  const stretto::net::Handle& handle() const { return listener_->handle(); }
  // That rank is on another host, and listens there.
  void add(int peer, const stretto::net::Handle& handle);
  bool isFar(int peer) const { return peers_[static_cast<size_t>(peer)].isFar; }
  size_t chunkBytes() const { return config_.chunkBytes; }
  const char* netName() const { return config_.net->name(); }

  // The rings of a far peer, made at first use.
  SendRing& to(int peer);
  ReceiveRing& from(int peer);
  // Null while that peer has not connected; for who waits for nobody in particular.
  ReceiveRing* connectedFrom(int peer) const {
    ReceiveRing* const ring = peers_[static_cast<size_t>(peer)].receiving.get();
    return ring != nullptr && ring->isConnected() ? ring : nullptr;
  }
  // That peer has said that it sends nothing any more.
  void hangUp(int peer);
  // Whether `mailbox` is where this rank says what it has read of what comes from that peer.
  bool isReleased(int peer, const Mailbox* mailbox) const {
    const auto& ring = peers_[static_cast<size_t>(peer)].receiving;
    return ring != nullptr && mailbox == ring->released();
  }

  // Moves what can be moved.
  void progress();
  // Chunks of whatever memory can be sent from there.
  bool lends() const { return lends_; }
  void giveBack();
  // Nothing more is sent: peers are told of the end of these links.
  void leave();
  // All chunks that were published have left; else for which peers some have not.
  bool isIdle() const;
  RankSet busy() const;
  // The link to or from this peer that does not work any more; null while both do.
  const Break* broken(int peer) const;
  // The first of `peers` with such a link; -1: none.
  int firstBroken(const RankSet& peers) const;
  // Whether something that this peer sent before it left may still come: the end of its link comes behind it.
  bool isOnItsWay(int peer) const;

 private:
  // There may be a thousand, of which a rank talks to a few.
  struct FarPeer {
    std::unique_ptr<SendRing> sending;
    std::unique_ptr<ReceiveRing> receiving;
    uint32_t handleAt = 0;  // in handles_
    uint16_t handleBytes = 0;
    bool isFar = false;
  };
  // Somebody has connected and has not said yet who it is.
  struct Caller {
    Hello hello;  // outlives the receiver: a card may write there until that is closed
    std::unique_ptr<stretto::net::Receiver> receiver;
    std::unique_ptr<stretto::net::Registration> memory;  // before the receiver is destroyed
    stretto::net::Request* request = nullptr;
  };

  explicit FarLinks(Config config) : config_(std::move(config)), peers_(static_cast<size_t>(config_.ranks)) {}

  void dial(FarPeer& peer);
  void answer();
  void admit();
  Status hear(Caller& caller, bool& heard);
  Status seat(Caller& caller, size_t bytes);

  Config config_;
  std::unique_ptr<stretto::net::Listener> listener_;  // null once all have connected
  Break deaf_;                                        // why nobody can connect any more
  std::vector<FarPeer> peers_;                        // by rank
  std::vector<std::byte> handles_;                    // of all of them, without the zeros at their ends
  std::vector<SendRing*> sending_;                    // that are used
  std::vector<ReceiveRing*> receiving_;               // that are connected
  std::list<Caller> callers_;                         // stay where they are
  bool lends_ = false;
  bool tellsEnd_ = false;
  int expected_ = 0;  // peers that have not connected to this rank,
  int wanted_ = 0;    // and those of them from whom it waits for something
  uint32_t looks_ = 0;
};

}  // namespace stretto::links::net
