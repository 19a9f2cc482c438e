// Memory that other processes of this host can map. Segments have no name in any file system, so nothing is
// left behind whatever way a process ends; a peer reaches one through its owner's descriptor (on Windows the
// owner's handle, which is duplicated).
#pragma once

#include <cstddef>
#include <string>

#include "base/os.hpp"
#include "base/status.hpp"

namespace stretto::platform {

// How memory is wanted, where the machine can. It is had in any case: what cannot be is left out, and said.
struct MemoryWish {
  bool hugePages = false;  // Linux: transparent ones; Windows: large pages, which need a right of the user's
  int node = -1;  // of NUMA, from which pages are taken if it has any; -1: where they are first touched
};

// Owns one mapping, and the descriptor behind it if it made the segment. Movable.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // A new zeroed segment; pages are taken when first touched. `label` shows in /proc/PID/fd.
  static Result<SharedMemory> create(const char* label, size_t bytes, const MemoryWish& wish = {});
  // The same for this process alone, without a descriptor.
  static Result<SharedMemory> createPrivate(size_t bytes, const MemoryWish& wish = {});
  // A new file that its user alone can read, for what must outlive the process (the flight recorder). Its
  // blocks are taken now: a full disk is an error here, with errno ENOSPC, and would be fatal at a store.
  static Result<SharedMemory> createFile(const std::string& path, size_t bytes);
  // Maps the segment behind descriptor `descriptor` of process `owner`. The segment must be `bytes` long.
  static Result<SharedMemory> open(os::ProcessId owner, int descriptor, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }
  // What of the wish the machine refused, and why; empty where it was granted, or where there was none.
  const std::string& refused() const { return refused_; }
  // The mapping stays; nobody can open it through this process any more.
  void closeDescriptor();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
  std::string refused_;
};

// Copies between this process and another's ordinary memory (Linux: process_vm_readv and process_vm_writev;
// Windows: ReadProcessMemory and WriteProcessMemory). False with errno set when the kernel refuses or the
// range is not mapped there.
bool readProcess(os::ProcessId process, void* destination, const void* remote, size_t bytes);
bool writeProcess(os::ProcessId process, void* remote, const void* source, size_t bytes);

}  // namespace stretto::platform
