// The device windows of all ranks, as one rank has them: its own, made and offered, and those of its peers,
// opened as soon as they are offered. Shared with the thread that does it for peers who wait.
//
// Who has offered its window opens all others, whatever its user calls, and says whose it has: so a rank that
// sends and leaves at once can wait until all who may need its window have it, and needs to wait for nobody's
// user (docs/decisions/0021-windows-at-first-use.md).
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "communicator/core/connect.hpp"
#include "communicator/device/connect.hpp"
#include "communicator/device/own_window.hpp"

namespace stretto::communicator {

class DeviceWindows {
 public:
  // `host`: what reaches the ranks' posts.
  DeviceWindows(const DeviceConnections& connections, const Connections& host, double timeoutSeconds);

  // As OwnWindow.
  Status offer() { return own_.offer(); }
  size_t bytes() const { return own_.bytes(); }
  // Some peer has not offered its own yet.
  bool isMissing() const;

  // Opens those that are offered, and waits until that of `needed` is, or everybody's: as kernels wait, until
  // this rank fails or leaves, an abort, a loss, a peer's failure, or for `timeoutSeconds`. A peer that has
  // left before its window was opened is absent. Any thread; at once where it has been done.
  static constexpr int kEverybody = -1;
  Status open(int needed);
  // By rank, and null for who is absent or not needed yet.
  std::array<std::byte*, kMaxRanks> addresses() const;

  // Some rank has offered its window, so it needs the others', and has them to come.
  bool isWanted() const;
  // offer() and open() for its sake. What goes wrong is logged, and may be tried again.
  void serve();
  // Waits until all peers that have windows, too, have opened this rank's: `seconds` at most and until an
  // abort or a loss. Returns a peer that has not, or -1.
  int awaitOpened(double seconds) const;

 private:
  // Those that are offered now, all that can be. Returns one of those that are needed and still missing, or
  // -1.
  Result<int> openOffered(int needed);
  Result<bool> settle(int peer);  // whether it is open or absent now
  Status openOne(int peer);
  bool isOver() const;  // this rank's need of windows
  bool hasLeft(int peer) const;
  Status mayWait(int peer, uint64_t began) const;
  WindowHeader& headerOf(int peer) const { return host_.peers[static_cast<size_t>(peer)].header(); }

  const DeviceConnections connections_;
  const Connections host_;
  const double timeoutSeconds_;
  OwnWindow own_;
  std::atomic<uint32_t> asked_{0};  // how often to serve; 0: no thread does
  std::atomic<bool> isOpen_{false};
  mutable std::mutex mutex_;  // for what follows
  std::vector<links::DeviceLink> links_;
  std::array<std::byte*, kMaxRanks> addresses_{};
  uint64_t failedSince_ = 0;  // when a peer without a window was first seen to have given up
  std::vector<int> pending_;  // ranks whose windows are not open yet
};

}  // namespace stretto::communicator
