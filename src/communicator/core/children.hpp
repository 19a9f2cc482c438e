// Split, shrink and grow: communicators made of another's ranks. The unique id of a split or a shrink is
// derived from the parent's, so no rank has to be told it, and the child's first rank hosts the rendezvous.
// Who joins a communicator that grows is told the id by its user.
//
// Invariant: every rank takes part in every exchange that seats ranks, in the order of the calls, also for a
// child that was given up meanwhile: so all ranks count their children alike.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/membership.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/queue.hpp"

namespace stretto::communicator {

class Communicator;
class Turn;

// The children of one communicator; lives in it. What finds a seat keeps the communicator.
class Children {
 public:
  Children(const Identity& self, ControlPlane& plane, Health& health, Queue& queue)
      : self_(self), plane_(plane), health_(health), queue_(queue) {}

  // What the first two return has the next turn of this communicator, and must be called once, on any thread;
  // a seat of no ranks is that of a rank without colour. `keep` is shared with what is returned.
  FindSeat split(std::shared_ptr<void> keep, int colour, int key);
  // The seat in a communicator of `ranks`, of which the first are this one's. Collective over this one;
  // exactly one rank passes the new one's id.
  FindSeat grow(std::shared_ptr<void> keep, int ranks, const bootstrap::UniqueId* id);
  // The id of a communicator that this one is to grow to. Until a growth has it, it ends with this one.
  Result<bootstrap::UniqueId> name();
  // Who waits for ranks of this communicator in growths that it will not call is told `why`.
  void endNames(const std::string& why);
  // `leave` (sorted) stay out of what is shrunk.
  Result<FindSeat> shrink(const std::vector<int>& leave);

  // Ok while a child of `members` may still come: none of them is lost to this communicator.
  Status lossAmong(const std::vector<int>& members) const;
  // The same: none has given up its making. As ControlPlane::whoGaveUp has it.
  Status givenUpAmong(const std::vector<int>& members, uint64_t seating, uint64_t child) const;
  // This rank gives up the making of a child that it has a seat in.
  void giveUpChild(uint64_t child) { plane_.giveUpChild(child); }

 private:
  using MakeWish = std::function<std::vector<uint8_t>()>;
  using FindInTurn = std::function<Result<Seat>(uint64_t turn, const bootstrap::StopCheck&)>;

  FindSeat seatByExchange(std::shared_ptr<void> keep, FindInTurn find);
  Result<bootstrap::Membership::Parts> exchangeWishes(Turn& turn, const char* what, const MakeWish& wish,
                                                      const bootstrap::StopCheck& stop);
  Result<Seat> splitSeat(uint64_t turn, int colour, int key, const bootstrap::StopCheck& stop);
  Result<Seat> growSeat(uint64_t turn, int ranks, const bootstrap::UniqueId* id,
                        const bootstrap::StopCheck& stop);

  const Identity& self_;
  ControlPlane& plane_;
  Health& health_;
  Queue& queue_;
  uint64_t split_ = 0;                           // so far; of the thread whose turn it is
  std::atomic<uint64_t> seatings_{0};            // splits and growths called so far
  std::mutex namesMutex_;                        // held while names_ is used
  std::vector<bootstrap::UniqueId> names_;       // that no growth has been called with
  std::mutex shrunkMutex_;                       // held while shrunk_ is used
  std::map<std::vector<int>, uint64_t> shrunk_;  // so far, by the ranks that stayed
};

// What a child that is being made has of its parent: for the thread that makes it. Of a communicator that has
// no parent, and of one that is made, there is nothing: every question is answered by ok.
class Origin {
 public:
  Origin() = default;
  Origin(std::shared_ptr<Communicator> parent, FindSeat findSeat)
      : parent_(std::move(parent)), findSeat_(std::move(findSeat)) {}

  // The first step of a child's making: waits for the parent's ranks until `stop` is not ok.
  Status findSeat(const bootstrap::StopCheck& stop);
  const Seat& seat() const { return seat_; }
  // Whether the parent lets its child wait on. `joined`: all ranks of the child have joined it, which hears
  // of losses by itself then.
  Status holds(uint64_t child, bool joined) const;
  // What the network says when a child cannot be joined may be a consequence: the parent names the cause in
  // a moment. `ended`: nobody wants to know any more.
  Status reasonOf(Status status, const std::function<bool()>& ended) const;
  // This rank gives up the making of the child, and says so to the parent's ranks.
  void giveUp(uint64_t child) const;

 private:
  std::shared_ptr<Communicator> parent_;
  FindSeat findSeat_;
  Seat seat_;  // once it is found
};

}  // namespace stretto::communicator
