// The proxy's part of a collective between hosts, as a profiler plugin hears it: a ProxyOp for each peer on
// another host and each direction, a ProxyStep for each chunk, and in a step that sends a NetPlugin event
// while the net sends it. The thread that runs the operation is its own proxy, so all is told on that thread
// (docs/decisions/0008-profiler-host.md). Used by Profile.
//
// Invariant: whatever was started has been stopped when close() returns, however the collective ended. No
// more chunks to a peer are open than its ring has places. Memory: two of Way, half a kilobyte, for each rank
// of a communicator over hosts, from its first collective on that is told of.
//
//   a step that sends:     SendPeerWait while there is no room (the peer reads late), SendGPUWait while the
//                          chunk is put there, SendWait from then on until the net does not need it any more
//   a step that receives:  RecvWait until the chunk is there (the peer sends late), RecvGPUWait while it is
//                          read
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/rank_set.hpp"
#include "links/net/chunk_watch.hpp"
#include "observe/profiler_host.hpp"
#include "primitives/window.hpp"

namespace stretto::communicator {

class FarSteps final : public links::net::ChunkWatch {
 public:
  struct Ways {
    int ranks = 0;
    size_t chunkBytes = 0;  // at most
    bool overSockets = false;
  };
  // Of a collective that begins, whose event is `parent`. The session outlives close().
  void open(const observe::profiler::Session& session, uint32_t mask, void* parent, const Ways& ways);
  bool isOpen() const { return session_ != nullptr; }
  // The collective has ended: so has whatever is open, which a failure may have left.
  void close(uint64_t at);

  void waitsForRoom(int peer) override;
  void fills(int peer, size_t bytes) override;
  void handsOver(int peer) override;
  void begins(int peer) override;
  void leaves(int peer) override;
  void waitsForData(int peer) override;
  void comes(int peer, size_t bytes) override;
  void isRead(int peer) override;

 private:
  static constexpr uint64_t kMostSent = WindowLayout::kLinkDepth;

  // A chunk that is the net's.
  struct Sent {
    void* step = nullptr;
    void* net = nullptr;
    size_t bytes = 0;
  };
  // One direction of one peer.
  struct Way {
    void* op = nullptr;
    void* step = nullptr;
    size_t bytes = 0;  // of the step
    int steps = 0;
    bool used = false;    // the plugin was told of it, though it may not have taken it
    bool inStep = false;  // the same of a chunk that is not the net's yet, or that is awaited or read
    uint64_t handed = 0, begun = 0, left = 0;
    std::array<Sent, kMostSent> sent{};
  };

  Way& to(int peer) { return ways_[2 * static_cast<size_t>(peer)]; }
  Way& from(int peer) { return ways_[2 * static_cast<size_t>(peer) + 1]; }
  void startOp(Way& way, int peer, bool isSend, uint64_t at);
  void begin(Way& way, int peer, bool isSend, uint64_t at);
  void end(Way& way, uint64_t at) const;
  void say(void* step, observe::profiler::State state, size_t bytes, uint64_t at) const;
  void* startNet(const Sent& sent) const;

  const observe::profiler::Session* session_ = nullptr;
  uint32_t mask_ = 0;
  void* parent_ = nullptr;
  Ways kind_;
  RankSet peers_;          // of which any way is used
  std::vector<Way> ways_;  // two for each rank
};

}  // namespace stretto::communicator
