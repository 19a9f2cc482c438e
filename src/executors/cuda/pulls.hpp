// All-reduces that read the peers' buffers where they are (Protocol::kPull, kPullNosync, kPullPush): one
// kernel each, by any number of blocks. The buffers lie in windows that all ranks have registered. The
// engine's, on its thread; plain C++.
//
//   one shot    meet | reduce everybody's inputs | part
//   two shots   meet | reduce everybody's inputs of one shard | meet | read the other shards' results | part
//   pushed      meet | reduce everybody's inputs of one shard into everybody's results | part
//
// Ranks meet block by block, in mailboxes of the block's channel. To part is to meet once more: then nobody
// reads what this rank has, and whoever comes next on the stream may write it. Without that the user promises
// to leave it alone until an operation later on the same communicator has ended here, of which all ranks hear
// from all: they began it when they had ended this one.
#pragma once

#include "algorithms/registry.hpp"
#include "executors/cuda/engine.hpp"
#include "executors/cuda/kernels.hpp"

namespace stretto::executors::cuda {

// By rank, as this device addresses them. A parameter of the kernel.
struct PeerBuffers {
  const std::byte* sends[algorithms::kMostPulled];
  std::byte* receives[algorithms::kMostPulled];  // of two shots
  bool part;
};

struct PullKernel {
  void (*function)(stretto::cuda::Context, Arguments, PeerBuffers) = nullptr;  // a __global__ one
  int threads = 0;                                                             // of a block
};

// By kOneShot or kTwoShot; kPullPush by the latter.
PullKernel pullKernel(const Launch& launch, int ranks);

// Loads all of them, on the current device.
Status preparePulls();

}  // namespace stretto::executors::cuda
