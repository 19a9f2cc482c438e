// Collectives of one group on a GPU that wait to be launched together: planned, announced and recorded like
// any other, one after the other, and then enqueued by one launch. The communicator's, in its turns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "communicator/operation.hpp"
#include "executors/cuda/engine.hpp"
#include "planner/plan.hpp"

namespace stretto::communicator {

// All but its tag, its number, and what its protocol must know of the peers.
executors::cuda::Launch launchOf(const Operation& operation, const planner::Plan& plan,
                                 const Arguments& arguments);

// Where the operations of a group have their lanes: side by side as long as there are lanes, then from the
// first again; those that are launched by themselves from the first. All ranks lay out a group alike, as it
// depends on plans alone; what shares a launch may differ.
class GroupLanes {
 public:
  explicit GroupLanes(int lanes) : lanes_(lanes) {}

  // Of the next operation, its first.
  int place(bool shares, int blocks) {
    const int first = shares && next_ + blocks <= lanes_ ? next_ : 0;
    next_ = shares ? first + blocks : 0;
    return first;
  }

 private:
  const int lanes_;
  int next_ = 0;
};

class Together {
 public:
  // A collective of the group before it is called.
  struct Placed {
    planner::Plan plan;
    executors::cuda::Launch launch;
    bool shares = false;  // it may be launched with others; else nothing here is of use
  };
  // One of those that wait, and what the communicator keeps of the operation that it runs.
  struct Member {
    const Operation* operation;  // the group's
    planner::Plan plan;
    uint64_t recorded;  // its place in the flight recorder
    bool watched;
    events::Id event;
  };

  bool empty() const { return members_.empty(); }
  size_t size() const { return members_.size(); }
  const Member& operator[](size_t place) const { return members_[place]; }
  std::span<const executors::cuda::Launch> launches() const { return launches_; }
  // All name the same.
  void* stream() const { return members_.front().operation->stream; }
  bool isOn(void* stream) const { return empty() || this->stream() == stream; }

  void add(const Member& member, const executors::cuda::Launch& launch) {
    members_.push_back(member);
    launches_.push_back(launch);
  }
  // Launched.
  void clear() {
    members_.clear();
    launches_.clear();
  }

  // The group's collectives, in the order of the calls.
  std::vector<Placed> placed;

 private:
  std::vector<Member> members_;
  std::vector<executors::cuda::Launch> launches_;
};

}  // namespace stretto::communicator
