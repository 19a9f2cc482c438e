// What stands between the kernels of one rank and the net, where ranks on GPUs have hosts between them. All
// windows of such a rank are pinned memory of its own host: one of its own, and for each peer a stand-in for
// that one's. Kernels use the links in them as on one host: they put chunks into the stand-in of whom they
// send to, and read what has come, and what their chunks' receivers have read, in the window of their own.
// Threads of the device bring chunks and credits from the stand-ins into the peers' windows (shuttle.hpp).
// They go by the words that kernels store there and by nothing else, so replays of graphs need no call.
//
// Threads: any.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "links/net/far_links.hpp"
#include "links/net/mover.hpp"
#include "links/net/shuttle.hpp"
#include "platform/cuda/device.hpp"
#include "primitives/cuda/state.hpp"

namespace stretto::links::net {

class Proxy {
 public:
  struct Config {
    // Each to all peers, and a thread for each: channel k is the matter of the k-th, going round.
    std::vector<std::shared_ptr<FarLinks>> links;
    int device = 0;
    int rank = 0;
    int ranks = 1;
    stretto::cuda::Shape shape;  // of all windows; its layout has linkSizes
  };
  // Makes the windows, and has them looked after from now on.
  static Result<std::unique_ptr<Proxy>> create(const Config& config);
  // No kernel runs any more. What has not left by now never does.
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // By rank, as kernels address them.
  std::array<std::byte*, kMaxRanks> windows() const;
  size_t bytes() const { return shape_.windowBytes() * static_cast<size_t>(ranks_); }

  // Kernels that move something may begin now.
  void wake() const;
  // Once no kernel runs any more: waits until all that kernels have put has left, and peers have been told
  // that nothing follows; `seconds` at most and until `ends()`. False if something has not left.
  bool leave(double seconds, const std::function<bool()>& ends) const;
  // A peer whose link does not work any more, for `seconds` at least, and why; -1: none.
  int brokenFor(double seconds, std::string& words) const;

 private:
  struct Part {
    std::unique_ptr<Shuttle> shuttle;
    std::shared_ptr<Mover> mover;
  };

  explicit Proxy(const Config& config) : device_(config.device), ranks_(config.ranks), shape_(config.shape) {}

  const int device_;
  const int ranks_;
  const stretto::cuda::Shape shape_;
  platform::cuda::HostMapped memory_;
  std::vector<Part> parts_;
};

}  // namespace stretto::links::net
