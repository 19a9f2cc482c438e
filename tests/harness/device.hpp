// Ranks of a test on GPUs: a rank's device, stream and memory, for bodies that otherwise know host memory
// only. Tests run on GPUs when STRETTO_TEST_DEVICE=cuda; ranks share devices when there are fewer of them.
// Plain C++; absent.cpp says that there is none in a build without CUDA.
//
// CUDA does not survive a fork, so the process of the test itself never touches a device: in this mode ranks
// as threads are threads of a child (ranks.cpp).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "nccl.h"

namespace stretto::testing {

// STRETTO_TEST_DEVICE=cuda; STRETTO_TEST_GRAPH=1: calls are captured and run as graphs.
bool testsOnDevice();
bool testsInGraphs();
// Every rank is a host of its own (STRETTO_LINK=net), whatever process it is in.
bool testsBetweenHosts();
// STRETTO_TEST_HOSTS: on so many hosts ranks that are processes say that they are, in turns.
int testedHosts();
// How many devices there are, and whether there is one at all, asked by a child. For GTEST_SKIP.
int devicesThere();
inline bool deviceThere() {
  return devicesThere() > 0;
}

// One rank's GPU. Everything is allocated when it is made and freed when it is destroyed, because CUDA waits
// for a device's kernels when memory is freed, and those may wait for this rank. Used on one thread; throws
// std::runtime_error with CUDA's words.
class OnDevice {
 public:
  // Makes the device of `rank` current for this thread.
  static std::shared_ptr<OnDevice> make(int rank);
  virtual ~OnDevice() = default;

  virtual cudaStream_t stream() const = 0;
  virtual cudaStream_t secondStream() const = 0;
  // One of two places of kPlaceBytes; the address that belongs to `host`, as far behind a cache line's begin.
  static constexpr size_t kPlaceBytes = size_t{48} << 20;
  virtual char* at(int place, const char* host) const = 0;
  // Copies, complete on return but for work on other streams.
  virtual void upload(char* device, const char* host, size_t bytes) = 0;
  virtual void download(char* host, const char* device, size_t bytes) = 0;
  virtual void synchronize() = 0;
  // Captures what `enqueue` puts on stream() (and streams joined to it), runs it `times`; `ready` is called
  // before the first run and after the last, where ranks meet. False if either says so.
  virtual bool inGraph(const std::function<bool()>& enqueue, int times,
                       const std::function<bool()>& ready) = 0;
};

}  // namespace stretto::testing
