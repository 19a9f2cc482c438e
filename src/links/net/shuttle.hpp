// What a proxy (proxy.hpp) does for some channels of one rank, with connections of its own: brings chunks and
// credits from the stand-ins into the peers' windows.
//
// A chunk leaves only when its receiver has read what was in its place before: credits go from end to end.
// So whatever comes has room, is put where it belongs at once, and never keeps anything else from coming.
//
// Small chunks and credits that are ready at the same time share a message; a large chunk is a message of its
// own and is lent to the net where it lies.
//
// Threads: one moves (mover.hpp); the others as said.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "links/net/far_links.hpp"
#include "primitives/cuda/state.hpp"

namespace stretto::links::net {

class Shuttle {
 public:
  struct Config {
    std::shared_ptr<FarLinks> links;  // to all peers; the shuttle's alone from now on
    int rank = 0;
    int ranks = 1;
    stretto::cuda::Shape shape;    // of all windows; its layout has linkSizes
    std::byte* windows = nullptr;  // by rank, one after the other, as this thread addresses them
    int first = 0;                 // of its channels,
    int step = 1;                  // every so many
  };
  explicit Shuttle(Config config);
  // Nobody moves any more, and no kernel runs. What has not left by now never does.
  ~Shuttle();
  Shuttle(const Shuttle&) = delete;
  Shuttle& operator=(const Shuttle&) = delete;

  // Moves what can be moved; whether that was anything.
  bool move();

  // Any thread, once no kernel runs any more: peers are told that nothing follows when all has left. By
  // hasLeft() of a number that this gives.
  uint64_t leave();
  bool hasLeft(uint64_t number) const { return idleAt_.load() >= number; }
  // Any thread: a peer whose link does not work any more, for `seconds` at least, and why; -1: none.
  int brokenFor(double seconds, std::string& words) const;

 private:
  struct Half;
  struct Record;
  struct Link;
  struct Found;
  class Packed;

  bool take(Link& link);
  bool takeMessage(Link& link, const Mailbox& message, size_t bytes);
  bool deliver(Link& link, const Record& record, const std::byte* data);
  void look(Link& link);
  bool send(Link& link);
  bool hasRoom(const Link& link) const;
  void sendAlone(Link& link, const Found& chunk);
  void sayGoodbye(Link& link);
  void giveUp(Link& link, const std::string& words);
  void hangUp(Link& link);

  std::byte* window(int rank) const {
    return config_.windows + static_cast<size_t>(rank) * config_.shape.windowBytes();
  }

  const Config config_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Found> found_;                    // of one look
  std::atomic<uint64_t> begun_{0}, idleAt_{0};  // calls of move(), and the last one that found nothing to do
  std::atomic<bool> leaving_{false};
  bool waits_ = false;        // something could not leave yet
  mutable std::mutex mutex_;  // for what follows
  int broken_ = -1;
  uint64_t brokenSince_ = 0;
  std::string brokenWords_;
};

}  // namespace stretto::links::net
