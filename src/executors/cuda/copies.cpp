#include "executors/cuda/copies.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "algorithms/shape.hpp"
#include "platform/cuda/device.hpp"

namespace stretto::executors::cuda {
namespace {

using algorithms::rotated;

Status check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return kOkStatus;
  (void)cudaGetLastError();
  return fail(Code::kSystem, "CUDA: %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

Status copy(std::byte* to, const std::byte* from, size_t bytes, StreamHandle stream) {
  return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
               "a copy into a window");
}

constexpr int kWarp = 32;

int wholeWarps(size_t threads, int most) {
  const size_t warps = (std::min(threads, static_cast<size_t>(most)) + kWarp - 1) / kWarp;
  return static_cast<int>(std::max<size_t>(1, warps)) * kWarp;
}

// As many threads of a block as have something to load.
int threadsFor(size_t bytes, int most) {
  constexpr size_t kPackBytes = 16;
  return wholeWarps(bytes / kPackBytes + 1, most);
}

// An all-reduce of `ranks` equal shards, each cut into chunks.
struct CopiedShards {
  const Arguments& arguments;
  int ranks;
  size_t bytes = arguments.bytes() / static_cast<size_t>(ranks);
  size_t chunk = std::min(arguments.chunkBytes, bytes);

  size_t begin(int rank) const { return static_cast<size_t>(rank) * bytes; }
  size_t chunks() const { return (bytes + chunk - 1) / chunk; }
  size_t at(size_t index) const { return index * chunk; }
  size_t size(size_t index) const { return std::min(chunk, bytes - at(index)); }
  bool fit() const {
    return chunk >= arguments.elementBytes && chunk % arguments.elementBytes == 0 &&
           bytes * static_cast<size_t>(ranks) == arguments.bytes();
  }
  // What the kernel of one chunk is given on one rank.
  Arguments ofKernel(int rank, size_t index) const {
    Arguments part = arguments;
    part.stride = bytes / arguments.elementBytes;
    part.send += begin(rank) + at(index);
    part.receive += at(index);
    part.count = size(index) / arguments.elementBytes;
    return part;
  }
};

}  // namespace

Copies::~Copies() {
  const platform::cuda::ScopedDevice current(device_);
  branches_.push_back(spine_);
  for (StreamHandle stream : branches_) {
    if (stream != nullptr) (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream));
  }
}

Status Copies::prepare() {
  if (spine_ != nullptr) return kOkStatus;
  const platform::cuda::AmidCaptures amid;
  std::vector<Kernel> kernels = {meetingKernel(true), meetingKernel(false)};
  for (int kind = 0; kind < stretto::cuda::kReducerKinds; ++kind) {
    kernels.push_back(reductionKernel(static_cast<KernelTable::Kind>(kind)));
  }
  for (const Kernel& kernel : kernels) {
    cudaFuncAttributes attributes;
    STRETTO_TRY(check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel.function)),
                      "loading a kernel"));
  }
  STRETTO_TRY(addBranch());
  STRETTO_TRY(addBranch());
  spine_ = branches_.back();
  branches_.pop_back();
  return kOkStatus;
}

Status Copies::addBranch() {
  const platform::cuda::AmidCaptures amid;
  cudaStream_t made = nullptr;
  STRETTO_TRY(check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "creating a stream"));
  branches_.push_back(made);
  return kOkStatus;
}

Result<StreamHandle> Copies::branchFor(StreamHandle stream) {
  const auto wanted = Order::captureOf(stream);
  if (!wanted.ok()) return wanted.status();
  for (StreamHandle branch : branches_) {
    const auto capture = Order::captureOf(branch);
    if (capture.ok() && (capture.value() == 0 || capture.value() == wanted.value())) return branch;
  }
  STRETTO_TRY(addBranch());
  return branches_.back();
}

// A copy between two devices in the legacy default stream waits for what either of them has to do, and so for
// kernels that wait for the copy.
Status Copies::run(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream) {
  if (launch.receives == nullptr || launch.scaled || spine_ == nullptr) {
    return fail(Code::kInternal, "%s by copy engines: %s", nameOf(launch.collective),
                launch.scaled       ? "its input is scaled"
                : spine_ == nullptr ? "they are not prepared"
                                    : "the peers' buffers are not known");
  }
  if (stream != nullptr && stream != cudaStreamLegacy) return runOn(launch, kernel, stream);
  STRETTO_TRY(joins_.join(spine_, stream));
  const Status status = runOn(launch, kernel, spine_);
  const Status joined = joins_.join(stream, spine_);
  return status.ok() ? joined : status;
}

// The branch is joined whatever happens: a capture could not end without.
Status Copies::runOn(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream) {
  const auto branch = branchFor(stream);
  if (!branch.ok()) return branch.status();
  STRETTO_TRY(meet(launch, kernel, stream, true));
  STRETTO_TRY(joins_.join(branch.value(), stream));
  Status status = launch.collective == Collective::kAllReduce
                      ? reduceShards(launch, kernel, stream, branch.value())
                      : copyBlocks(launch, stream, branch.value());
  const Status joined = joins_.join(stream, branch.value());
  if (status.ok()) status = joined;
  return status.ok() ? meet(launch, kernel, stream, false) : status;
}

// Only the first follows a kernel of another operation, and may begin before its end.
Status Copies::meet(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream,
                    bool isFirst) const {
  const Kernel how = meetingKernel(isFirst);
  const int threads = wholeWarps(static_cast<size_t>(ranks_) - 1, how.mostThreads);
  return kernel(how, {1, threads, isFirst}, launch.arguments, stream);
}

// One peer after the other, beginning with the next rank, so that each is written by one rank at a time. The
// own block does not leave the device: it is copied at the same time.
Status Copies::copyBlocks(const Launch& launch, StreamHandle stream, StreamHandle branch) {
  const Arguments& a = launch.arguments;
  const bool fromRoot = launch.collective == Collective::kBroadcast;
  if (fromRoot && a.root != rank_) return kOkStatus;
  const size_t at = fromRoot ? 0 : a.block(rank_);
  const auto from = [&](int peer) {
    return launch.collective == Collective::kAllToAll ? a.send + a.block(peer) : a.send;
  };
  const bool inPlace = from(rank_) == a.receive + at;
  if (!inPlace) STRETTO_TRY(copy(a.receive + at, from(rank_), a.bytes(), branch));
  for (int step = 1; step < ranks_; ++step) {
    const int peer = rotated(rank_, step, ranks_);
    STRETTO_TRY(copy(launch.receives[peer] + at, from(peer), a.bytes(), stream));
  }
  return kOkStatus;
}

// Block p of a rank's receive buffer is free until the results of shard p come: until then it holds what rank
// p adds to this rank's shard. While one chunk of the shards is reduced, the next one is copied.
Status Copies::reduceShards(const Launch& launch, const LaunchKernel& kernel, StreamHandle stream,
                            StreamHandle branch) {
  const Arguments& a = launch.arguments;
  const CopiedShards shards{a, ranks_};
  if (!shards.fit()) {
    return fail(Code::kInternal, "%zu elements of %zu bytes in %d shards of chunks of %zu bytes", a.count,
                a.elementBytes, ranks_, a.chunkBytes);
  }
  constexpr size_t kMostChunks = 64;
  if (shards.chunks() > kMostChunks) {
    return fail(
        Code::kInvalidUsage,
        "an all-reduce by copies of shards of %zu bytes in chunks of %zu: more than %zu copies to each "
        "rank; force a larger chunk",
        shards.bytes, a.chunkBytes, kMostChunks);
  }
  const auto toAll = [&](size_t index, auto from) {
    for (int step = 1; step < ranks_; ++step) {
      const int peer = rotated(rank_, step, ranks_);
      STRETTO_TRY(copy(launch.receives[peer] + shards.begin(rank_) + shards.at(index),
                       from(peer) + shards.at(index), shards.size(index), stream));
    }
    return kOkStatus;
  };
  const auto contribution = [&](int peer) { return a.send + shards.begin(peer); };
  const auto result = [&](int) -> const std::byte* { return a.receive + shards.begin(rank_); };
  const auto reduce = [&](size_t index) {
    STRETTO_TRY(joins_.join(branch, stream));
    const Kernel how = reductionKernel(stretto::cuda::kindOf(a.reduce));
    const Arguments part = shards.ofKernel(rank_, index);
    const int threads = threadsFor(part.bytes() / static_cast<size_t>(launch.blocks), how.mostThreads);
    return kernel(how, {launch.blocks, threads, false, false}, part, branch);
  };
  STRETTO_TRY(toAll(0, contribution));
  STRETTO_TRY(reduce(0));
  for (size_t index = 0; index < shards.chunks(); ++index) {
    const bool last = index + 1 == shards.chunks();
    if (!last) STRETTO_TRY(toAll(index + 1, contribution));
    STRETTO_TRY(joins_.join(stream, branch));
    if (!last) STRETTO_TRY(reduce(index + 1));
    STRETTO_TRY(toAll(index, result));
  }
  return kOkStatus;
}

}  // namespace stretto::executors::cuda
