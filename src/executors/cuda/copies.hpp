// Collectives by copy engines (Protocol::kCopy): from the user's buffers into the peers', which lie in
// windows that all ranks have registered. Ranks meet before anything is written to a peer, whose buffer may
// still be in use, and again when all copies have ended; kernels do that, and reduce. All of it is put on the
// user's stream, and on one beside it that is joined to it, so that it can be captured. The engine's, on its
// thread.
#pragma once

#include <functional>
#include <vector>

#include "executors/cuda/engine.hpp"
#include "executors/cuda/kernels.hpp"
#include "executors/cuda/order.hpp"

namespace stretto::executors::cuda {

// Of a kernel launch. `early`: it may begin before the end of the kernel before it. `reported`: it leaves
// stamps for profilers.
struct Size {
  int blocks;
  int threads;
  bool early = true;
  bool reported = true;
};

// Every rank has come here; one block. Of its arguments only the count matters, which is not 0. `isFirst`: of
// the operation's kernels.
Kernel meetingKernel(bool isFirst);

// Of an all-reduce in shards: every rank's contribution to this rank's shard has come; reduces them; every
// rank has reduced its own. `send` is the own contribution, `receive` the result buffer, in whose block p the
// contribution of rank p lies; the result goes into the own block.
Kernel reductionKernel(KernelTable::Kind kind);

class Copies {
 public:
  // Puts one kernel of the operation on a stream.
  using LaunchKernel = std::function<Status(const Kernel&, Size, const Arguments&, StreamHandle)>;

  Copies(int device, int rank, int ranks) : device_(device), rank_(rank), ranks_(ranks), joins_(device) {}
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Loads and makes what run() needs.
  Status prepare();
  // Enqueues the whole operation; after prepare().
  Status run(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream);

 private:
  Status meet(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream, bool isFirst) const;
  Status runOn(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream);
  Status copyBlocks(const Launch& launch, StreamHandle stream, StreamHandle branch);
  Status reduceShards(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream,
                      StreamHandle branch);
  Status addBranch();
  // One that may be joined to `stream`: a stream that takes part in a capture does so until its end.
  Result<StreamHandle> branchFor(StreamHandle stream);

  const int device_;
  const int rank_;
  const int ranks_;
  StreamHandle spine_ = nullptr;        // instead of the legacy default stream
  std::vector<StreamHandle> branches_;  // beside the user's; as many as were captured at a time, and one
  Order joins_;
};

}  // namespace stretto::executors::cuda
