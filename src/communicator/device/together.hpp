// Collectives of one group on a GPU that wait to be launched together: planned, announced and recorded like
// any other, one after the other, and then enqueued by one launch. The communicator's, in its turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "communicator/core/operation.hpp"
#include "communicator/core/running.hpp"
#include "executors/cuda/engine.hpp"
#include "planner/plan.hpp"

namespace stretto::communicator {

// All but its tag, its number, and what its protocol must know of the peers.
executors::cuda::Launch launchOf(const Operation& operation, const planner::Plan& plan,
                                 const Arguments& arguments);

// An operation of a group, as far as channels are concerned: what it asks for, and what giveChannels gives
// it.
struct ChannelShare {
  bool shares = false;  // it may have channels beside others'
  int wanted = 1;       // blocks, at least one: as many as it has by itself
  int first = 0;        // given: a channel,
  int blocks = 0;       // and so many from there
  int least = 0;        // giveChannels's own: blocks that it cannot do without
};

// Gives the operations of a group their channels, in the order of the calls. Those that share, up to the next
// one that does not, are side by side. What they want beyond the channels that there are is cut in
// proportion, and no channel is idle then; but none gets less than leastOf its place in the group, which is
// asked only if channels are short. If there are not even so many, they take turns, each from the first
// channel. One that does not share has all that it wants, from the first channel. Nothing else decides: ranks
// that give the same get the same.
void giveChannels(std::span<ChannelShare> group, int channels, const std::function<int(size_t)>& leastOf);

// The fewest blocks that will do for an operation, of `whole`, which do; so do more than any that do.
template <typename WillDo>
int leastBlocks(int whole, WillDo willDo) {
  if (willDo(1)) return 1;  // most operations
  int tooFew = 1;
  while (whole - tooFew > 1) {
    const int middle = tooFew + (whole - tooFew) / 2;
    (willDo(middle) ? whole : tooFew) = middle;
  }
  return whole;
}

class Together {
 public:
  // A collective of the group before it is called.
  struct Placed {
    planner::Plan plan;
    executors::cuda::Launch launch;
    bool shares = false;  // it may be launched with others; else nothing here is of use
  };
  // One of those that wait: announced, and not launched.
  struct Member {
    Running running;
    planner::Plan plan;
  };

  bool empty() const { return members_.empty(); }
  size_t size() const { return members_.size(); }
  const Member& operator[](size_t place) const { return members_[place]; }
  std::span<const executors::cuda::Launch> launches() const { return launches_; }
  // All name the same.
  void* stream() const { return members_.front().running.operation->stream; }
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

  // The group's collectives, in the order of the calls, and their channels.
  std::vector<Placed> placed;
  std::vector<ChannelShare> channels;

 private:
  std::vector<Member> members_;
  std::vector<executors::cuda::Launch> launches_;
};

}  // namespace stretto::communicator
