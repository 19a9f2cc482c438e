// FlashInfer's fused all-reduce with RMSNorm (TensorRT-LLM's kernels) as norm_driver has it beside ours: the
// library that tools/gpu_peers makes, and the workspace of a rank, laid out as FlashInfer's Python does.
// Ranks are threads of one process with access to each other's memory, so plain addresses take the place of
// IPC handles.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <array>
#include <barrier>
#include <string>
#include <vector>

#include "../peers/fused_call.hpp"
#include "check.hpp"
#include "norm_setup.hpp"

namespace stretto::bench {

// Why FlashInfer has no kernel for this, or nothing where it has one.
inline std::string whyPeerDoesNotServe(const Setup& setup) {
  const Call& call = setup.call;
  if (setup.shared)
    return "not measured on a GPU that ranks share: its blocks may wait for blocks that find no room";
  if (setup.ranks != 2 && setup.ranks != 4 && setup.ranks != 8) return "it serves 2, 4 or 8 ranks";
  if (call.hasBias) return "it has no bias";
  if (call.wantsReduced) return "it does not give the raw sums together with a norm";
  return "";
}

class PeerLibrary {
 public:
  explicit PeerLibrary(const std::string& path) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Failure("--flashinfer " + path + ": " + dlerror());
    fused_ = reinterpret_cast<int (*)(const TrtllmFusedCall*)>(dlsym(library, "trtllmFused"));
    mistake_ = reinterpret_cast<const char* (*)()>(dlsym(library, "peerMistake"));
    if (fused_ == nullptr || mistake_ == nullptr)
      throw Failure("--flashinfer " + path + ": it has no trtllmFused; make it anew with tools/gpu_peers");
  }
  void run(const TrtllmFusedCall& call) const {
    if (fused_(&call) != 0) throw Failure(std::string("FlashInfer: ") + mistake_());
  }

 private:
  int (*fused_)(const TrtllmFusedCall*) = nullptr;
  const char* (*mistake_)() = nullptr;
};

// Minus zeros, by which FlashInfer's one-shot kernels know what has not come yet.
static __global__ void fillMinusZeros(uint32_t* words, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    words[i] = 0x80008000u;
}

// Of one rank. Its memory lives as long as the process.
class PeerRank {
 public:
  // What a rank's peers must know of it: where its buffer for two shots, its flags and its three buffers for
  // one shot are.
  using Places = std::array<void*, 3>;

  // `places` of all ranks, and where they meet. All ranks make theirs at once.
  PeerRank(const PeerLibrary& library, const Setup& setup, int rank, std::vector<Places>& places,
           std::barrier<>& meeting)
      : library_(library), setup_(setup), rank_(rank), oneShotBytes_(bytesOfOneShot(setup)) {
    for (int peer = 0; peer < setup.ranks; ++peer) reach(peer);
    const auto ranks = static_cast<size_t>(setup.ranks);
    const size_t oneShot = serves(true) ? oneShotBytes_ : 16;
    places[static_cast<size_t>(rank)] = {zeroed(ranks * 2 * setup.mostElements()),
                                         zeroed(ranks * kFlags * sizeof(int)), minusZeros(3 * oneShot)};
    // Calls in progress, flags of either kind, bytes of a buffer, elements to erase.
    const int counters[5] = {0, 0, 0, static_cast<int>(oneShot), 0};
    void* const own = zeroed(sizeof counters);
    check(cudaMemcpy(own, counters, sizeof counters, cudaMemcpyHostToDevice), "a copy");
    check(cudaDeviceSynchronize(), "FlashInfer's workspace");
    meeting.arrive_and_wait();
    std::vector<void*> workspace;
    for (size_t kind = 0; kind < 3; ++kind) {
      for (const Places& each : places) workspace.push_back(each[kind]);
    }
    workspace.push_back(own);
    workspace_ = zeroed(sizeof(void*) * workspace.size());
    check(cudaMemcpy(workspace_, workspace.data(), sizeof(void*) * workspace.size(), cudaMemcpyHostToDevice),
          "a copy");
    meeting.arrive_and_wait();
  }

  // Why this shape is not served in this way, or nothing where it is. FlashInfer's own Python asks for the
  // same.
  std::string whyNot(const Way& way, int tokens) const {
    if (way.oneShot) return serves(true) ? "" : "its buffers for one shot would pass 1 GB";
    return tokens > setup_.ranks ? "" : "its two shots want more tokens than ranks";
  }

  // `call` says what lies where; the rest is filled in. Throws a Failure with FlashInfer's words.
  void run(const Way& way, TrtllmFusedCall call) const {
    call.workspace = workspace_;
    call.rank = call.device = rank_;
    call.ranks = setup_.ranks;
    call.oneShot = way.oneShot ? 1 : 0;
    call.early = way.early ? 1 : 0;
    library_.run(call);
  }

 private:
  static constexpr size_t kFlags = 256;  // of each rank
  // Its kernels count bytes of the third buffer in an int.
  static constexpr size_t kMostOneShot = size_t{1} << 30;

  static size_t bytesOfOneShot(const Setup& setup) {
    return static_cast<size_t>(setup.ranks) * 2 * setup.mostElements();
  }
  bool serves(bool oneShot) const { return !oneShot || oneShotBytes_ < kMostOneShot; }

  void reach(int peer) const {
    if (peer == rank_) return;
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) check(error, "access to a peer's memory for FlashInfer");
    (void)cudaGetLastError();
  }
  static void* zeroed(size_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "memory for FlashInfer's workspace");
    check(cudaMemset(memory, 0, bytes), "zeros");
    return memory;
  }
  static void* minusZeros(size_t bytes) {
    void* const memory = zeroed(bytes);
    fillMinusZeros<<<1024, 256>>>(static_cast<uint32_t*>(memory), bytes / sizeof(uint32_t));
    check(cudaGetLastError(), "minus zeros");
    return memory;
  }

  const PeerLibrary& library_;
  const Setup& setup_;
  const int rank_;
  const size_t oneShotBytes_;
  void* workspace_ = nullptr;
};

}  // namespace stretto::bench
