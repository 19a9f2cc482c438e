// What stands between the kernels of one rank and the net, where ranks on GPUs have hosts between them. All
// windows of such a rank are pinned memory of its own host: one of its own, and for each peer a stand-in for
// that one's. Kernels use the links in them as on one host: they put chunks into the stand-in of whom they
// send to, and read what has come, and what their chunks' receivers have read, in the window of their own.
// The proxy brings chunks and credits from the stand-ins into the peers' windows. It goes by the words that
// kernels store there and by nothing else, so replays of graphs need no call.
//
// A chunk leaves only when its receiver has read what was in its place before: credits go from end to end.
// So whatever comes has room, is put where it belongs at once, and never keeps anything else from coming.
//
// Small chunks and credits that are ready at the same time share a message; a large chunk is a message of its
// own and is lent to the net where it lies.
//
// Threads: one for each device (movers), which moves for all ranks there; the others as said.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "links/net/far_links.hpp"
#include "platform/cuda/device.hpp"
#include "primitives/cuda/state.hpp"

namespace stretto::links::net {

class Mover;

class Proxy {
 public:
  struct Config {
    std::shared_ptr<FarLinks> links;  // to all peers; the proxy's alone from now on
    int device = 0;
    int rank = 0;
    int ranks = 1;
    stretto::cuda::Shape shape;  // of all windows; its layout has linkSizes
  };
  // Makes the windows, and has the device's thread move from now on.
  static Result<std::unique_ptr<Proxy>> create(Config config);
  // No kernel runs any more. What has not left by now never does.
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // By rank, as kernels address them.
  std::array<std::byte*, kMaxRanks> windows() const;
  size_t bytes() const;

  // Any thread: kernels that move something may begin now.
  void wake();
  // Any thread, once no kernel runs any more: waits until all that kernels have put has left, and peers have
  // been told that nothing follows; `seconds` at most and until `ends()`. False if something has not left.
  bool leave(double seconds, const std::function<bool()>& ends);
  // Any thread: a peer whose link does not work any more, for `seconds` at least, and why; -1: none.
  int brokenFor(double seconds, std::string& words) const;

  // For the device's thread: moves what can be moved; whether that was anything.
  bool move();

 private:
  struct Record;
  struct Link;
  struct Found;
  class Packed;

  explicit Proxy(Config config);
  bool take(Link& link);
  bool takeMessage(Link& link, const Mailbox& message, size_t bytes);
  bool deliver(Link& link, const Record& record, const std::byte* data);
  void look(Link& link);
  bool send(Link& link);
  bool hasRoom(const Link& link) const;
  void sendAlone(Link& link, const Found& chunk);
  void sayGoodbye(Link& link);
  void giveUp(Link& link, const std::string& words);

  std::byte* window(int rank) const {
    return memory_.host + static_cast<size_t>(rank) * config_.shape.windowBytes();
  }

  const Config config_;
  platform::cuda::HostMapped memory_;
  std::vector<std::unique_ptr<Link>> links_;
  std::shared_ptr<Mover> mover_;
  std::vector<Found> found_;  // of one look
  std::atomic<uint64_t> begun_{0}, idleAt_{0};  // calls of move(), and the last one that found nothing to do
  std::atomic<bool> leaving_{false};
  bool waits_ = false;        // something could not leave yet
  mutable std::mutex mutex_;                    // for what follows
  int broken_ = -1;
  uint64_t brokenSince_ = 0;
  std::string brokenWords_;
};

}  // namespace stretto::links::net
