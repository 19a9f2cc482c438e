// Who hosts a session: which processes watch over its members, pass on who has left or is lost, and gather
// exchanges. For bootstrap/ only; one thread, the loop's.
//
// 1. The process that made the unique id (the rendezvous) hosts the join, and goes on hosting while it lives.
// 2. Besides it the first processes, by rank, that still hold members host it (desiredHosts). Every member
//    finds them by itself, from what it knows to be gone, and keeps a connection to each; all hosts have
//    equal rights. A connection to a host that is no longer desired is kept until it ends.
// 3. Members that know different things desire different hosts, but only until the news has come around: a
//    host lives with a member, which is connected to the other hosts; what that member hears, its host
//    passes on to all; and a member tells a host that is new to it whom it knows to be gone.
// 4. A member that leaves goes when a host vouches that those who stay will know of it: the rendezvous, a
//    host where all who stay are connected, or one whose own member stays. That one knows it, and will say
//    it with its own goodbye.
// 5. While one of a member's hosts runs, the member hears of every loss.
//
// The limits: two hosts that are stopped, not dead, at the same time; and a goodbye of which nobody but the
// rendezvous and one other host has heard, when both die before others have come to that host. The model in
// tests/model/hosts.hpp has all this, and what goes wrong without one of the rules.
//
// Two conclusions are drawn without a host's word. A connection that ends without HostLeaving: the process
// has died, and its ranks are lost. A connection that is refused: nobody listens where the process listened
// as long as it lived, so it has ended. Both hold where the kernel answers for the address, on one host or on
// hosts that reach each other; any other failure to connect says nothing and is tried again.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {

using Clock = std::chrono::steady_clock;
// When, and a number of its own: names one of the loop's timers, or none while it is zero.
using Timer = std::pair<Clock::time_point, uint64_t>;

// A rank that has left or is lost, and how.
struct Departure {
  int rank = -1;
  bool left = false;       // with a proper goodbye
  uint32_t exchanges = 0;  // that it took part in, if it has left; what follows is for losses
  LossKind kind = LossKind::kDied;
  std::string text = {};
  bool firsthand = false;  // said to this very process; other hosts may not have heard it
};

// A process that hosts the session, or is to, as one member sees it.
struct HostLink {
  SocketAddress address;
  uint64_t process = 0;     // 0: the rendezvous, before it has said it
  uint64_t connection = 0;  // its token; 0 while it waits to connect again
  int attempts = 0;
  bool member = false;        // it counts us in: all that goes to hosts goes to it
  bool behind = false;        // it does not read, so exchanges and nudges were kept from it
  uint64_t nextExchange = 0;  // the first that it has not been sent
};

// A process that seems to have ended. Those who were told that its ranks had left must not take it for a
// loss, so what has arrived is read before anything is concluded.
struct Suspect {
  uint64_t process = 0;
  std::string why;
  Clock::time_point due;
  int patience = 0;  // how often it may be put off until a host has been found to hear from
};

// One member's hosts, and what it has to tell to a host that is new to it.
struct Hosting {
  std::vector<HostLink> hosts;        // the first one, at first, is the rendezvous
  Timer settling{};                   // further hosts are found when it runs
  Timer leaving{};                    // no host is waited for any longer when it runs
  std::vector<Departure> departures;  // whom this member knows to be gone, in the order that it heard of it
  size_t passedOn = 0;                // how many of them the session that is hosted here has been told
  std::vector<Suspect> suspects;
  std::deque<std::pair<uint32_t, SharedBytes>> parts;     // of the last two exchanges
  std::deque<std::pair<uint32_t, SharedBytes>> partsDue;  // of those that wait for one before them to end
  SharedBytes nudge;                                      // the last one
  uint32_t nudges = 0;                                    // how often this member has nudged the others
  bool registered = false;                                // joined: this process can host the session
  bool ready = false;                                     // the time for further hosts has come
  bool restless = false;                                  // waits for a review
  bool awaiting = false;    // the result of an exchange, though a rank that took part has left
  bool succession = false;  // a host has gone, so that a further one takes over
  SharedBytes parting;      // the goodbye, once it is said
  bool over = false;  // one host has passed it on, or there is none; nothing is owed to anybody any more

  HostLink* byConnection(uint64_t token);
  HostLink* byProcess(uint64_t process);
  void forget(uint64_t process);
  bool suspected(uint64_t process) const;
  bool heard() const;  // whether any host counts us in
  // How many further hosts there are to be. Who leaves goes on to others when those found so far do not help.
  size_t wanted() const;
};

// The processes that host the session besides the rendezvous, as indices of their first members: the first
// distinct processes, by rank, of which not all members are gone.
inline constexpr size_t kHostsWanted = 2;
std::vector<size_t> desiredHosts(std::span<const MemberInfo> members, const std::vector<bool>& gone,
                                 size_t wanted = kHostsWanted);

}  // namespace stretto::bootstrap
