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

class Together {
 public:
  // One of them, and what the communicator keeps of the operation that it runs.
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
  void clear() {
    members_.clear();
    launches_.clear();
  }

 private:
  std::vector<Member> members_;
  std::vector<executors::cuda::Launch> launches_;
};

}  // namespace stretto::communicator
