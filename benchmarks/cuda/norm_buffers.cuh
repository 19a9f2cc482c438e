// The buffers of one rank of norm_driver, for the largest of its shapes. They live as long as the process.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "check.hpp"
#include "norm_checks.hpp"
#include "norm_floor.cuh"
#include "norm_setup.hpp"

namespace stretto::bench {

struct Buffers {
  void* inputs[kInputs] = {};
  void *residual = nullptr, *start = nullptr, *sum = nullptr, *normalised = nullptr, *reduced = nullptr;
  void *gamma = nullptr, *bias = nullptr, *codes = nullptr;
  float* scales = nullptr;

  void allocate(const Setup& setup) {
    const size_t bytes = 2 * setup.mostElements();
    for (void*& input : inputs) check(cudaMalloc(&input, bytes), "memory");
    for (void** place : {&residual, &start, &sum, &normalised, &reduced, &codes})
      check(cudaMalloc(place, bytes), "memory");
    for (void** place : {&gamma, &bias}) check(cudaMalloc(place, 2 * kMostHidden), "memory");
    const size_t tokens = static_cast<size_t>(*std::max_element(setup.tokens.begin(), setup.tokens.end()));
    check(cudaMalloc(reinterpret_cast<void**>(&scales), sizeof(float) * tokens), "memory");
  }
  void fill(const NormChecks& checks, int rank) const {
    const auto upload = [](void* to, const std::vector<uint16_t>& from) {
      check(cudaMemcpy(to, from.data(), 2 * from.size(), cudaMemcpyHostToDevice), "a copy");
    };
    for (int i = 0; i < kInputs; ++i) upload(inputs[i], checks.input(rank, i));
    upload(start, checks.start());
    upload(gamma, checks.gamma());
    upload(bias, checks.bias());
  }
  // Results that nobody writes show as zeros, and scales that are given are the same in each run.
  void reset(size_t tokens, size_t count, cudaStream_t stream) const {
    check(cudaMemcpyAsync(residual, start, 2 * count, cudaMemcpyDeviceToDevice, stream), "a copy");
    for (void* place : {sum, normalised, reduced, codes})
      check(cudaMemsetAsync(place, 0, 2 * count, stream), "zeros");
    const std::vector<float> all(tokens, kTensorScale);
    check(cudaMemcpyAsync(scales, all.data(), sizeof(float) * tokens, cudaMemcpyHostToDevice, stream),
          "a copy");
    check(cudaStreamSynchronize(stream), "a stream");
  }
  // What a step moves. `lines` are of the two ends, where there are two.
  Moves movesOf(const Call& call, const void* input, int rank, const std::vector<void*>& lines) const {
    const auto packs = [](void* place, bool wanted) { return wanted ? static_cast<uint4*>(place) : nullptr; };
    Moves moves{};
    moves.input = static_cast<const uint4*>(input);
    moves.residual = packs(residual, true);
    moves.normalised = packs(normalised, call.wantsNormalised);
    moves.reduced = packs(reduced, call.wantsReduced);
    moves.codes = call.scaling != strettoScaleNone ? static_cast<uint2*>(codes) : nullptr;
    if (lines.size() == 2) {
      moves.sent = packs(lines[static_cast<size_t>(1 - rank)], true);
      moves.received = packs(lines[static_cast<size_t>(rank)], true);
    }
    return moves;
  }
};

template <typename T>
std::vector<T> download(const void* from, size_t many) {
  std::vector<T> all(many);
  check(cudaMemcpy(all.data(), from, sizeof(T) * many, cudaMemcpyDeviceToHost), "a copy");
  return all;
}

}  // namespace stretto::bench
