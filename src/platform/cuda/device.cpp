// The CUDA runtime behind device.hpp. Every call that fails leaves CUDA's own "last error" clean, because
// programs read that one and would take our errors for theirs.
#include "platform/cuda/device.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "platform/cuda/driver.hpp"
#include "platform/kept_memory.hpp"
#include "platform/own_thread.hpp"

namespace stretto::platform::cuda {
namespace {

Status refused(cudaError_t error, const char* what) {
  (void)cudaGetLastError();
  return fail(Code::kSystem, "%s: CUDA says \"%s\" (%s)", what, cudaGetErrorString(error),
              cudaGetErrorName(error));
}

#define STRETTO_CUDA_TRY(call, what)                                             \
  do {                                                                           \
    if (const cudaError_t error_ = (call); error_ != cudaSuccess) [[unlikely]] { \
      return refused(error_, what);                                              \
    }                                                                            \
  } while (false)

// A stream of its own for one piece of work: the legacy stream would wait for, and hold up, everybody's.
class OwnStream {
 public:
  OwnStream() : error_(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) {}
  ~OwnStream() {
    if (error_ == cudaSuccess) (void)cudaStreamDestroy(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cudaError_t error() const { return error_; }
  cudaStream_t get() const { return stream_; }
  cudaError_t wait() const { return cudaStreamSynchronize(stream_); }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_;
};

struct Found {
  int count = 0;
  std::string absence;
};

Found findDevices() {
  Found found;
  const cudaError_t error = cudaGetDeviceCount(&found.count);
  if (error == cudaSuccess && found.count > 0) return found;
  (void)cudaGetLastError();
  found.count = 0;
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    found.absence = driver == 0 ? "no driver (libcuda.so.1) is installed"
                                : "the driver is too old for the CUDA that this library was built with";
  } else if (error == cudaSuccess || error == cudaErrorNoDevice) {
    found.absence = "the driver shows no device to this process (CUDA_VISIBLE_DEVICES?)";
  } else {
    found.absence = std::string("CUDA says \"") + cudaGetErrorString(error) + "\"";
  }
  return found;
}

const Found& found() {
  static const Found result = findDevices();
  return result;
}

Result<DeviceFacts> readFacts(int device) {
  cudaDeviceProp properties;
  STRETTO_CUDA_TRY(cudaGetDeviceProperties(&properties, device), "the properties of a device");
  DeviceFacts facts;
  static_assert(sizeof facts.uuid == sizeof properties.uuid);
  std::memcpy(facts.uuid, &properties.uuid, sizeof facts.uuid);
  STRETTO_CUDA_TRY(cudaDeviceGetPCIBusId(facts.busId, sizeof facts.busId, device), "a device's bus id");
  for (char& letter : facts.busId) letter = static_cast<char>(std::tolower(letter));
  snprintf(facts.name, sizeof facts.name, "%.*s", static_cast<int>(sizeof facts.name) - 1, properties.name);
  facts.multiprocessors = properties.multiProcessorCount;
  facts.capability = properties.major * 10 + properties.minor;
  facts.memoryBytes = properties.totalGlobalMem;
  return facts;
}

// The allocation that holds `memory`. Only the driver's own interface says it.
struct Allocation {
  const std::byte* base;
  size_t bytes;
};
Result<Allocation> allocationOf(const void* memory) {
  using Range = int (*)(unsigned long long* base, size_t* bytes, unsigned long long address);
  static const auto range = reinterpret_cast<Range>(driverFunction("cuMemGetAddressRange"));
  unsigned long long base = 0;
  size_t bytes = 0;
  const int error =
      range == nullptr ? -1 : range(&base, &bytes, reinterpret_cast<unsigned long long>(memory));
  if (error != 0) {
    return fail(Code::kSystem, "the driver does not say in which allocation %p lies (error %d)", memory,
                error);
  }
  return Allocation{reinterpret_cast<const std::byte*>(base), bytes};
}

void giveBack(int device, std::byte* memory) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  if (current.status().ok() && cudaFree(memory) == cudaSuccess) return;
  (void)cudaGetLastError();
  STRETTO_LOG(kWarn, kAlloc, "device %d did not take back the memory at %p", device,
              static_cast<void*>(memory));
}

void giveBackPinned(int device, std::byte* memory) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  if (cudaFreeHost(memory) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace

void* driverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult outcome;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &outcome);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &outcome);
#endif
  if (error == cudaSuccess && outcome == cudaDriverEntryPointSuccess) return function;
  (void)cudaGetLastError();
  return nullptr;
}

bool isBuiltIn() {
  return true;
}
int deviceCount() {
  return found().count;
}
std::string absence() {
  return found().absence;
}

Result<int> currentDevice() {
  int device = -1;
  STRETTO_CUDA_TRY(cudaGetDevice(&device), "the current device");
  return device;
}

AmidCaptures::AmidCaptures() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  before_ = static_cast<int>(mode);
}

AmidCaptures::~AmidCaptures() {
  auto mode = static_cast<cudaStreamCaptureMode>(before_);
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

ScopedDevice::ScopedDevice(int device) {
  int now = -1;
  cudaError_t error = cudaGetDevice(&now);
  if (error == cudaSuccess && now == device) return;
  if (error == cudaSuccess) error = cudaSetDevice(device);
  if (error == cudaSuccess) {
    before_ = now;
  } else {
    status_ = refused(error, "making a device current");
  }
}

ScopedDevice::~ScopedDevice() {
  if (before_ >= 0 && cudaSetDevice(before_) != cudaSuccess) (void)cudaGetLastError();
}

Status stayOn(int device) {
  STRETTO_CUDA_TRY(cudaSetDevice(device), "making a device current");
  return kOkStatus;
}

// They take milliseconds to read and never change.
Result<DeviceFacts> factsOf(int device) {
  static std::mutex mutex;
  static auto* const known = new std::vector<std::pair<int, DeviceFacts>>;
  std::lock_guard lock(mutex);
  for (const auto& [ordinal, facts] : *known) {
    if (ordinal == device) return facts;
  }
  auto facts = readFacts(device);
  if (facts.ok()) known->emplace_back(device, facts.value());
  return facts;
}

bool canAccess(int from, int to) {
  if (from == to) return true;
  int can = 0;
  if (cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess) return can != 0;
  (void)cudaGetLastError();
  return false;
}

bool hasNvlink(int from, int to) {
  int atomics = 0;
  if (cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) == cudaSuccess) {
    return atomics != 0;
  }
  (void)cudaGetLastError();
  return false;
}

Status enablePeerAccess(int device, int peer) {
  if (device == peer) return kOkStatus;
  const AmidCaptures amid;
  const ScopedDevice current(device);
  STRETTO_TRY(current.status());
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
    return kOkStatus;
  }
  STRETTO_CUDA_TRY(error, "access to the memory of a peer device");
  return kOkStatus;
}

int ordinalOf(const uint8_t (&uuid)[16]) {
  for (int device = 0; device < deviceCount(); ++device) {
    const auto facts = factsOf(device);
    if (facts.ok() && std::equal(uuid, uuid + sizeof uuid, facts.value().uuid)) return device;
  }
  return -1;
}

Result<std::byte*> allocate(int device, size_t bytes) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  STRETTO_TRY(current.status());
  std::byte* memory = KeptMemory::ofProcess().take(device, KeptBlock::Kind::kDevice, bytes);
  if (memory == nullptr) {
    void* made = nullptr;
    if (const cudaError_t error = cudaMalloc(&made, bytes); error != cudaSuccess) {
      (void)cudaGetLastError();
      return fail(Code::kSystem, "%zu bytes of memory of device %d: CUDA says \"%s\"", bytes, device,
                  cudaGetErrorString(error));
    }
    memory = static_cast<std::byte*>(made);
    KeptMemory::ofProcess().allocated({device, KeptBlock::Kind::kDevice, memory, bytes});
  }
  const Status cleared = clearNow(device, memory, bytes);
  if (cleared.ok()) return memory;
  release(device, memory);
  return cleared;
}

void release(int device, std::byte* memory) {
  if (memory == nullptr || KeptMemory::ofProcess().keep(memory)) return;
  giveBack(device, memory);
}

Result<HostMapped> allocateHostMapped(int device, size_t bytes) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  STRETTO_TRY(current.status());
  void* host = KeptMemory::ofProcess().take(device, KeptBlock::Kind::kPinned, bytes);
  if (host == nullptr) {
    STRETTO_CUDA_TRY(cudaHostAlloc(&host, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
                     "pinned memory");
    KeptMemory::ofProcess().allocated(
        {device, KeptBlock::Kind::kPinned, static_cast<std::byte*>(host), bytes});
  }
  HostMapped memory{static_cast<std::byte*>(host), nullptr};
  void* mapped = nullptr;
  if (const cudaError_t error = cudaHostGetDevicePointer(&mapped, host, 0); error != cudaSuccess) {
    releaseHostMapped(device, memory);
    return refused(error, "the device's address of pinned memory");
  }
  std::memset(host, 0, bytes);
  memory.device = static_cast<std::byte*>(mapped);
  return memory;
}

void releaseHostMapped(int device, HostMapped memory) {
  if (memory.host == nullptr || KeptMemory::ofProcess().keep(memory.host)) return;
  giveBackPinned(device, memory.host);
}

SharingDevice::SharingDevice(int device) : device_(device) {
  KeptMemory::ofProcess().share(device);
}

SharingDevice::~SharingDevice() {
  for (const KeptBlock& block : KeptMemory::ofProcess().unshare(device_)) {
    (block.kind == KeptBlock::Kind::kDevice ? giveBack : giveBackPinned)(device_, block.address);
  }
}

Result<IpcName> nameForOthers(int device, const void* memory) {
  static_assert(sizeof(cudaIpcMemHandle_t) == sizeof IpcName{}.bytes);
  const AmidCaptures amid;
  const ScopedDevice current(device);
  STRETTO_TRY(current.status());
  // The driver's interface needs a context, which a thread that is new to CUDA's runtime does not have yet.
  STRETTO_CUDA_TRY(cudaSetDevice(device), "making a device current");
  const auto allocation = allocationOf(memory);
  if (!allocation.ok()) return allocation.status();
  const auto& [base, bytes] = allocation.value();
  cudaIpcMemHandle_t handle;
  STRETTO_CUDA_TRY(cudaIpcGetMemHandle(&handle, const_cast<std::byte*>(base)),
                   "a handle by which other processes open device memory (IPC)");
  IpcName name;
  std::memcpy(name.bytes, &handle, sizeof handle);
  name.offset = static_cast<uint64_t>(static_cast<const std::byte*>(memory) - base);
  name.room = bytes - name.offset;
  return name;
}

Result<std::byte*> openNamed(int device, const IpcName& name) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  STRETTO_TRY(current.status());
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, name.bytes, sizeof handle);
  void* base = nullptr;
  STRETTO_CUDA_TRY(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
                   "device memory of another process (IPC)");
  return static_cast<std::byte*>(base);
}

void closeNamed(int device, std::byte* base) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  if (cudaIpcCloseMemHandle(base) != cudaSuccess) (void)cudaGetLastError();
}

Result<Pointed> placeOf(const void* address) {
  cudaPointerAttributes attributes;
  STRETTO_CUDA_TRY(cudaPointerGetAttributes(&attributes, address), "where a buffer lies");
  switch (attributes.type) {
    case cudaMemoryTypeHost:
      return Pointed{Place::kHostPinned, attributes.device};
    case cudaMemoryTypeDevice:
      return Pointed{Place::kDevice, attributes.device};
    case cudaMemoryTypeManaged:
      return Pointed{Place::kManaged, attributes.device};
    default:
      return Pointed{};
  }
}

// CUDA has no wait with a limit for a device: another thread waits, and is left behind past the limit. While
// somebody captures, CUDA does not answer, and it asks again.
bool waitForDevice(int device, double seconds, const std::function<bool()>& ends) {
  constexpr std::chrono::milliseconds kSlice{200};
  struct Waiting {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    bool abandoned = false;
  };
  const auto waiting = std::make_shared<Waiting>();
  const auto work = [waiting, device] {
    const bool current = stayOn(device).ok();
    const AmidCaptures amid;
    std::unique_lock lock(waiting->mutex);
    while (!waiting->done && !waiting->abandoned) {
      lock.unlock();
      const cudaError_t error = current ? cudaDeviceSynchronize() : cudaSuccess;
      if (error != cudaSuccess) (void)cudaGetLastError();
      lock.lock();
      // A device that refuses to answer for another reason runs nothing any more.
      waiting->done = error != cudaErrorStreamCaptureUnsupported;
      if (!waiting->done) waiting->changed.wait_for(lock, std::chrono::milliseconds(5));
    }
    waiting->changed.notify_all();
  };
  if (!startAlone(work)) return false;
  using Clock = std::chrono::steady_clock;
  const auto limit =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::unique_lock lock(waiting->mutex);
  while (!waiting->changed.wait_until(lock, std::min(limit, Clock::now() + kSlice), [&] {
    return waiting->done;
  }) && Clock::now() < limit) {
    lock.unlock();
    const bool enough = ends && ends();
    lock.lock();
    if (enough) break;
  }
  waiting->abandoned = true;
  return waiting->done;
}

Status clearNow(int device, std::byte* memory, size_t bytes) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  STRETTO_TRY(current.status());
  const OwnStream stream;
  STRETTO_CUDA_TRY(stream.error(), "a stream");
  STRETTO_CUDA_TRY(cudaMemsetAsync(memory, 0, bytes, stream.get()), "clearing device memory");
  STRETTO_CUDA_TRY(stream.wait(), "clearing device memory");
  return kOkStatus;
}

Status fillNow(int device, std::byte* memory, uint8_t value, Rows where) {
  const AmidCaptures amid;
  const ScopedDevice current(device);
  STRETTO_TRY(current.status());
  const OwnStream stream;
  STRETTO_CUDA_TRY(stream.error(), "a stream");
  STRETTO_CUDA_TRY(cudaMemset2DAsync(memory, where.pitch, value, where.bytes, where.rows, stream.get()),
                   "filling device memory");
  STRETTO_CUDA_TRY(stream.wait(), "filling device memory");
  return kOkStatus;
}

Status copyNow(void* to, const void* from, size_t bytes, void* stream) {
  const AmidCaptures amid;
  auto* const on = static_cast<cudaStream_t>(stream);
  STRETTO_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on), "a copy");
  STRETTO_CUDA_TRY(cudaStreamSynchronize(on), "a copy");
  return kOkStatus;
}

}  // namespace stretto::platform::cuda
