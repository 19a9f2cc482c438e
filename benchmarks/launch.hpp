// What a call costs the rank that makes it: an all-reduce of 8 bytes, beside a call that only reads a number.
// In a communicator of one rank nobody is waited for, and it is the way through the library and nothing else.
#pragma once

#include <nccl.h>
#include <stretto.h>

#include <chrono>
#include <vector>

#include "driver.hpp"

namespace stretto::bench {

class Launches {
 public:
  explicit Launches(ncclComm_t comm) : comm_(comm) {
    isReady_ = strettoStreamCreate(&stream_) == ncclSuccess;
  }
  ~Launches() {
    if (stream_ != nullptr) strettoStreamDestroy(stream_);
  }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  // `calls` of them in each batch of each way, the ways in turns. Empty on an error.
  std::vector<CallCost> measure(size_t calls, size_t batches) {
    std::vector<CallCost> all{{"empty", {}}, {"call", {}}, {"group", {}}, {"stream", {}}};
    bool well = isReady_;
    const auto time = [&](CallCost& cost, size_t step, auto&& call) {
      const auto began = std::chrono::steady_clock::now();
      for (size_t i = 0; i < calls; i += step) well = well && call() == ncclSuccess;
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
      cost.nanoseconds.push_back(took.count() / static_cast<double>(calls));
    };
    for (size_t batch = 0; batch < batches && well; ++batch) {
      time(all[0], 1, [&] { return ncclCommCount(comm_, &ranks_); });
      time(all[1], 1, [&] { return allReduce(nullptr); });
      time(all[2], kGroup, [&] { return groupOfAllReduces(); });
      time(all[3], 1, [&] { return allReduce(stream_); });
      // What was submitted runs after the clock was read.
      well = well && strettoStreamSynchronize(stream_) == ncclSuccess;
    }
    return well ? all : std::vector<CallCost>{};
  }

 private:
  static constexpr size_t kGroup = 8;

  ncclResult_t allReduce(cudaStream_t stream) {
    return ncclAllReduce(words_, words_ + 2, 2, ncclFloat32, ncclSum, comm_, stream);
  }
  ncclResult_t groupOfAllReduces() {
    ncclResult_t result = ncclGroupStart();
    for (size_t i = 0; i < kGroup && result == ncclSuccess; ++i) result = allReduce(nullptr);
    const ncclResult_t end = ncclGroupEnd();
    return result != ncclSuccess ? result : end;
  }

  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  bool isReady_ = false;
  int ranks_ = 0;
  float words_[4] = {1, 2, 0, 0};
};

}  // namespace stretto::bench
