// Descriptors that one process of this host hands to others: of memory that no path leads to, such as what
// CUDA exports. They go through a socket without a file (of Linux's abstract names), so nothing is left
// behind whatever way a process ends; asking needs neither the owner's permission to be traced nor more than
// one descriptor at a time on either side. Any folder may include this.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "platform/own_thread.hpp"
#include "platform/socket.hpp"

namespace stretto::platform {

// Where a source is, and what it must be shown: names of sockets can be read by everybody. Travels between
// processes as bytes, over a channel that strangers do not read; all zero means no source.
struct DescriptorAddress {
  uint8_t name[16] = {};
  uint8_t secret[16] = {};
};

// One descriptor and what its owner says of it.
struct NumberedDescriptor {
  FileDescriptor descriptor;
  uint64_t number = 0;
};

// Hands out descriptors to processes of the same user that know its address, each as often as it is asked
// for, from a thread of its own, until it is destroyed.
class DescriptorSource {
 public:
  // Opens one of them, when it is asked for; called on the source's thread alone, and must not wait.
  using Open = std::function<Result<NumberedDescriptor>(size_t index)>;
  static Result<std::unique_ptr<DescriptorSource>> create(size_t count, Open open);
  ~DescriptorSource();
  DescriptorSource(const DescriptorSource&) = delete;
  DescriptorSource& operator=(const DescriptorSource&) = delete;

  const DescriptorAddress& address() const { return address_; }

 private:
  DescriptorSource(size_t count, Open open) : count_(count), open_(std::move(open)) {}
  Status listen();
  void serve();
  void admit();
  bool answer(const FileDescriptor& asker);

  const size_t count_;
  const Open open_;
  DescriptorAddress address_;
  FileDescriptor listener_;
  Poller poller_;
  std::vector<FileDescriptor> askers_;  // of the thread
  std::atomic<bool> ending_{false};
  OwnThread thread_;
};

// All descriptors of a source, in their order, each given to `take` with its index and how many there are.
// The first failure ends it, also one of `take`. kTimeout after `seconds`; kSystem when the source is gone,
// could not open one or says something strange, or when there is no room for one here.
using TakeDescriptor = std::function<Status(size_t index, size_t count, NumberedDescriptor taken)>;
Status takeDescriptors(const DescriptorAddress& address, double seconds, const TakeDescriptor& take);

}  // namespace stretto::platform
