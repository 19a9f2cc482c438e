// What a rank says to the others beside its operations, and how: messages through the bootstrap, words in the
// header of its own window, and views of that header for ranks of other hosts.
//
// Invariant: the membership is set, used for a message and ended under one lock, so that whoever speaks finds
// it whole or gone. The thread whose turn it is uses it for exchanges without that lock; nothing ends it
// before that turn does. A rank that has no window yet says nothing in it.
//
// Threads: any, but for membership().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/membership.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/far.hpp"
#include "communicator/core/identity.hpp"
#include "primitives/window.hpp"

namespace stretto::communicator {

class ControlPlane {
 public:
  ControlPlane(const Identity& self, const Connections& connections)
      : self_(self), connections_(connections) {}

  // All ranks have met.
  void join(std::unique_ptr<bootstrap::Membership> membership);
  // Says goodbye, if nothing was said.
  void leave();
  // Of a communicator that has joined its ranks.
  bootstrap::Membership& membership() const { return *membership_; }
  bool hasJoined() const { return membership_ != nullptr; }
  // The same as a status: `what` cannot be done without.
  Status joined(const char* what) const;

  // Once there are windows; ends() comes before they go.
  void opens();
  void ends() { header_.store(nullptr); }
  // Null before there is one, and after.
  WindowHeader* header() const { return header_.load(); }
  // Some ranks are on other hosts, and are shown views of the header.
  bool isSpread() const { return spread_; }
  // Once all are connected.
  const links::net::HostMap& places() const { return connections_.places; }

  // Words in the header: why this rank fails, what ends its operations, who is lost, and how it leaves.
  void sayFailed(Status why);
  void sayAbort(uint32_t word);
  void sayLost(int rank);
  void sayLeft(uint32_t how);

  void nudge();
  // `why` is what the others are told instead of "called ncclCommAbort".
  void sayGoodbye(bootstrap::Leaving how, const std::string& why = {});
  // The same, after all have been shown how this rank has left: peers look there for why it does not come.
  void sayLastGoodbye(bootstrap::Leaving how, const std::string& why = {});

  // Shows all other ranks what this one's header says, and asks some for theirs. Whoever holds
  // the lock makes the connection or ends it, and nothing is shown.
  void show(const RankSet& asks);
  // The same, and asks all ranks of other hosts; once a second at most. For one thread, the device's: what
  // they have called is known here when they have said it.
  void askOtherHosts();
  // On the bootstrap's thread, a message of a rank of another host: what it says goes into its stand-in, and
  // it is answered. False if the message says nothing.
  bool hears(int rank, std::span<const uint8_t> message);

  // This rank has given up the making of a child: an exchange that seats its ranks, or the child itself.
  void giveUpSeating(uint64_t seating);
  void giveUpChild(uint64_t child);
  // Which of `members` has given up the one or the other, as an index; -1 if none has. `seating`: 0 if there
  // was none; `child`: the number of that in which this rank has its seat, or 0.
  int whoGaveUp(const std::vector<int>& members, uint64_t seating, uint64_t child) const;
  // By index, which of `members` have left or are lost; none while this communicator is being left.
  std::vector<char> whoHasGone(const std::vector<int>& members) const;
  // The name of a rank's host; empty once this communicator is left.
  std::string hostOf(int rank) const;

 private:
  std::vector<uint8_t> viewOf(const WindowHeader& header, const RankSet& asks) const;
  void answer();
  void showNow(const RankSet& asks);

  const Identity& self_;
  const Connections& connections_;
  std::atomic<WindowHeader*> header_{nullptr};  // of the own window
  bool spread_ = false;
  uint64_t askedTicks_ = 0;  // when askOtherHosts() last did
  mutable std::mutex mutex_;
  std::unique_ptr<bootstrap::Membership> membership_;
  Shown shown_;                   // by mutex_, and so is this:
  uint64_t childrenGivenUp_ = 0;  // so far
};

}  // namespace stretto::communicator
