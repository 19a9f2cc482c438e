// CUDA devices as the rest of the library sees them: which there are, their memory, and how other processes
// reach it. Plain C++: no CUDA header is needed to include this, and a library built without CUDA has the
// same functions (absent.cpp), with no device behind them. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.hpp"

namespace stretto::platform::cuda {

// Whether the library was built with CUDA.
bool isBuiltIn();
// Devices that this process may use; 0 without a driver, a device, or a build with CUDA. Never fails; asked
// of the driver once.
int deviceCount();
// Why there is none, for people: "built without CUDA", "no driver (libcuda.so.1)", ...; empty if there is
// one.
std::string absence();
// The calling thread's current device.
Result<int> currentDevice();

// While it lives the calling thread may do what a capture in another thread would forbid: allocate, wait,
// look.
class AmidCaptures {
 public:
  AmidCaptures();
  ~AmidCaptures();
  AmidCaptures(const AmidCaptures&) = delete;
  AmidCaptures& operator=(const AmidCaptures&) = delete;

 private:
  int before_ = 0;  // a cudaStreamCaptureMode
};

// Makes `device` current for the calling thread, and what was current before again when destroyed.
class ScopedDevice {
 public:
  explicit ScopedDevice(int device);
  ~ScopedDevice();
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;
  Status status() const { return status_; }

 private:
  int before_ = -1;
  Status status_;
};

// Makes `device` the calling thread's current one for good. For threads of the library alone, as the first
// thing they do: they begin with device 0, and a ScopedDevice that restores it, like most calls of CUDA,
// would make a context there: some 500 MB of a GPU that this process may have no other use for.
Status stayOn(int device);

// What tells one device from every other of this host, and what plans depend on. Travels between ranks.
struct DeviceFacts {
  uint8_t uuid[16] = {};
  char busId[20] = {};  // "0000:1b:00.0"
  char name[64] = {};
  int32_t multiprocessors = 0;
  int32_t capability = 0;  // 90 for compute capability 9.0
  int32_t reserved = 0;
  uint64_t memoryBytes = 0;
};
Result<DeviceFacts> factsOf(int device);

// True if kernels on `from` can address the memory of `to`. The same device: true.
bool canAccess(int from, int to);
// True if two devices, of which one reaches the other, are linked by NVLink: what tells it from PCIe is that
// atomics work across it.
bool hasNvlink(int from, int to);
// Lets kernels on `device` address the memory of `peer`; again is allowed.
Status enablePeerAccess(int device, int peer);
// The ordinal that a device has in this process; -1 if it is not visible here.
int ordinalOf(const uint8_t (&uuid)[16]);

// Zeroed memory of `device`, aligned to 2 MiB where the driver does so, and its return. allocate() works
// while other streams capture.
Result<std::byte*> allocate(int device, size_t bytes);
void release(int device, std::byte* memory);

// Pinned memory of the host that kernels address too; zeroed.
struct HostMapped {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
};
Result<HostMapped> allocateHostMapped(int device, size_t bytes);
void releaseHostMapped(int device, HostMapped memory);

// While one of these lives, several ranks share the device: what is released is kept and handed out again,
// since to give it back would wait for kernels of other ranks, and hold up their launches (kept_memory.hpp).
class SharingDevice {
 public:
  explicit SharingDevice(int device);
  ~SharingDevice();
  SharingDevice(const SharingDevice&) = delete;
  SharingDevice& operator=(const SharingDevice&) = delete;

 private:
  const int device_;
};

// A name under which another process of this host opens device memory of allocate() or cudaMalloc: of the
// whole allocation, at whose `offset` the address given lies, and `room` bytes before its end. Whatever else
// device memory may be has no name.
struct IpcName {
  uint8_t bytes[64] = {};
  uint64_t offset = 0;
  uint64_t room = 0;
};
Result<IpcName> nameForOthers(int device, const void* memory);
// The named allocation's base in this process, for kernels of `device`; closed by closeNamed(base).
Result<std::byte*> openNamed(int device, const IpcName& name);
void closeNamed(int device, std::byte* base);

// Where a user's buffer lies.
enum class Place : uint8_t { kHost, kHostPinned, kDevice, kManaged };
struct Pointed {
  Place place = Place::kHost;
  int device = -1;
};
Result<Pointed> placeOf(const void* address);

// Waits until all work of `device` is done, but no longer than `seconds`, and only until `ends()`, which is
// asked a few times a second, says true; false when some still runs. Ends a capture that another thread has
// open on the device: only where kernels cannot be counted instead.
bool waitForDevice(int device, double seconds, const std::function<bool()>& ends = {});

// Makes memory of `device` zero, or sets `rows` runs of `bytes` in it, `pitch` apart, to one value; also
// while other streams capture or kernels wait. Returns when done.
Status clearNow(int device, std::byte* memory, size_t bytes);
struct Rows {
  size_t pitch;
  size_t bytes;
  size_t rows;
};
Status fillNow(int device, std::byte* memory, uint8_t value, Rows where);
// Copies between any two places, on a cudaStream_t that nobody captures; returns when done. Not for hot
// paths.
Status copyNow(void* to, const void* from, size_t bytes, void* stream);

}  // namespace stretto::platform::cuda
