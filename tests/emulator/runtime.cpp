// CUDA's runtime interface (include/cuda_runtime_api.h) on the emulator. Devices differ by their number
// alone: each reaches the memory of all, as over NVLink.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "emulator/machine.hpp"
#include "emulator/vmm.hpp"

using stretto::emulator::LaunchSize;
using stretto::emulator::Machine;

// Counts the times it was reached, and how often it was recorded.
struct CUevent_st {
  uint64_t recorded = 0;
  // Of its records; streams may still count and wait for them when the event is destroyed.
  std::shared_ptr<std::atomic<uint64_t>> reached = std::make_shared<std::atomic<uint64_t>>(0);
  cudaStream_t capturing = nullptr;
};

// What a capture has gathered, in the order of the calls; it runs on one stream.
struct CUgraph_st {
  struct Node {
    LaunchSize size;
    std::function<void()> body;  // of a kernel, or else
    std::function<void()> work;
  };
  std::vector<Node> nodes;
  std::set<cudaStream_t> streams;
  cudaStream_t origin = nullptr;
  unsigned long long number = 0;
};
struct CUgraphExec_st {
  std::vector<CUgraph_st::Node> nodes;
};

namespace {

constexpr int kMultiprocessors = 4;  // and as many channels of a communicator: threads take time here
constexpr size_t kMemoryBytes = size_t{64} << 30;

thread_local int gDevice = 0;
thread_local cudaError_t gLastError = cudaSuccess;

// Of devices, of the default streams, of captures.
std::mutex gMutex;
std::vector<cudaStream_t> gDefaultStreams;
std::vector<CUgraph_st*> gCaptures;
unsigned long long gCaptureCount = 0;
std::set<const void*> gPinned;
std::set<int> gContexts;  // devices that have one
struct Owned {
  int device;
  size_t bytes;
};
std::map<const void*, Owned> gOwners;  // allocations

int devices() {
  static const int count = [] {
    const char* const given = std::getenv("STRETTO_EMULATED_DEVICES");
    return given == nullptr ? 8 : std::atoi(given);
  }();
  return count;
}

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) gLastError = error;
  return error;
}

// As CUDA since release 12 a device has a context when it has been made current; before, since it was used.
void makeContext() {
  std::lock_guard lock(gMutex);
  gContexts.insert(gDevice);
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  std::lock_guard lock(gMutex);
  *flags = 0;
  *active = gContexts.count(device) != 0 ? 1 : 0;
  return 0;
}

cudaStream_t streamOf(cudaStream_t stream) {
  if (stream != nullptr) return stream;
  std::lock_guard lock(gMutex);
  gDefaultStreams.resize(static_cast<size_t>(devices()));
  cudaStream_t& own = gDefaultStreams[static_cast<size_t>(gDevice)];
  if (own == nullptr) own = Machine::current().makeStream(gDevice);
  return own;
}

CUgraph_st* captureOf(cudaStream_t stream) {
  std::lock_guard lock(gMutex);
  for (CUgraph_st* const capture : gCaptures) {
    if (capture->streams.count(stream) != 0) return capture;
  }
  return nullptr;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  stream = streamOf(stream);
  if (CUgraph_st* const capture = captureOf(stream); capture != nullptr) {
    capture->nodes.push_back({{}, {}, std::move(work)});
  } else {
    Machine::current().enqueue(stream, std::move(work));
  }
  return cudaSuccess;
}

}  // namespace

namespace stretto::emulator {

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> body) {
  bool early = false;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    early = early || (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                      attribute.val.programmaticStreamSerializationAllowed != 0);
  }
  const LaunchSize size{config.gridDim.x, config.blockDim.x, early};
  if (size.threads % 32 != 0 || size.threads > 1024) {
    return result(cudaErrorInvalidValue);
  }
  const cudaStream_t stream = streamOf(config.stream);
  if (CUgraph_st* const capture = captureOf(stream); capture != nullptr) {
    capture->nodes.push_back({size, std::move(body), {}});
  } else {
    Machine::current().launch(stream, size, std::move(body));
  }
  return cudaSuccess;
}

}  // namespace stretto::emulator

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
const char* cudaGetErrorName(cudaError_t error) {
  constexpr const char* kNames[] = {"cudaSuccess",
                                    "cudaErrorInvalidValue",
                                    "cudaErrorMemoryAllocation",
                                    "cudaErrorInsufficientDriver",
                                    "cudaErrorNoDevice",
                                    "cudaErrorNotReady",
                                    "cudaErrorNotSupported",
                                    "cudaErrorPeerAccessAlreadyEnabled",
                                    "cudaErrorStreamCaptureUnsupported"};
  return kNames[error];
}
cudaError_t cudaGetLastError() {
  return std::exchange(gLastError, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = gDevice;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return result(cudaErrorInvalidValue);
  gDevice = device;
  makeContext();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  snprintf(properties->name, sizeof properties->name, "emulated GPU");
  properties->multiProcessorCount = kMultiprocessors;
  properties->major = 9;
  properties->totalGlobalMem = kMemoryBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  makeContext();
  Machine::current().run(gDevice);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* outcome) {
  *outcome = cudaDriverEntryPointSuccess;
  const bool asksForContext = std::strcmp(name, "cuDevicePrimaryCtxGetState") == 0;
  *function = asksForContext ? reinterpret_cast<void*>(&cuDevicePrimaryCtxGetState)
                             : stretto::emulator::vmmFunction(name);
  return *function == nullptr ? result(cudaErrorNotSupported) : cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  makeContext();
  *memory = Machine::current().allocate(bytes);
  std::lock_guard lock(gMutex);
  if (*memory == nullptr) return result(cudaErrorMemoryAllocation);
  gOwners[*memory] = {gDevice, bytes};
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  {
    std::lock_guard lock(gMutex);
    gOwners.erase(memory);
  }
  return memory == nullptr || Machine::current().release(memory) ? cudaSuccess
                                                                 : result(cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeAsync(void*, cudaStream_t) {
  return cudaSuccess;  // the machine frees it at its end
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  const cudaError_t error = cudaMalloc(memory, bytes);
  std::lock_guard lock(gMutex);
  if (error == cudaSuccess) gPinned.insert(*memory);
  return error;
}
cudaError_t cudaFreeHost(void* memory) {
  {
    std::lock_guard lock(gMutex);
    gPinned.erase(memory);
  }
  return cudaFree(memory);
}
cudaError_t cudaHostGetDevicePointer(void** mapped, void* host, unsigned) {
  *mapped = host;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard lock(gMutex);
  *free = *total = kMemoryBytes;
  for (const auto& [memory, owned] : gOwners) *free -= owned.device == gDevice ? owned.bytes : 0;
  return cudaSuccess;
}
// There is nothing to load.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) {
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  using stretto::emulator::vmmMayUse;
  if (!vmmMayUse(gDevice, to) || !vmmMayUse(gDevice, from)) return result(cudaErrorInvalidValue);
  return enqueue(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return enqueue(stream, [=] {
    for (size_t row = 0; row < height; ++row) std::memset(static_cast<char*>(to) + row * pitch, value, width);
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  if (const int mapped = stretto::emulator::vmmDeviceAt(address); mapped >= 0) {
    *attributes = {cudaMemoryTypeDevice, mapped};
    return cudaSuccess;
  }
  std::byte* const found = Machine::current().find(address);
  std::lock_guard lock(gMutex);
  *attributes = {found == nullptr            ? cudaMemoryTypeUnregistered
                 : gPinned.count(found) != 0 ? cudaMemoryTypeHost
                                             : cudaMemoryTypeDevice,
                 found == nullptr ? gDevice : gOwners[found].device};
  return cudaSuccess;
}
// A name is of the file behind the memory, in its owner's process.
struct IpcName {
  pid_t owner;
  int descriptor;
  void* memory;
  size_t bytes;
};
static_assert(sizeof(IpcName) <= sizeof(cudaIpcMemHandle_t));

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  IpcName name{getpid(), Machine::current().descriptorOf(memory), memory, 0};
  if (name.descriptor < 0) return result(cudaErrorInvalidValue);
  (void)Machine::current().find(memory, &name.bytes);
  std::memcpy(handle->reserved, &name, sizeof name);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  IpcName name;
  std::memcpy(&name, handle.reserved, sizeof name);
  *memory = name.memory;
  if (name.owner == getpid()) return cudaSuccess;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", static_cast<int>(name.owner), name.descriptor);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  *memory = descriptor < 0 ? nullptr : Machine::current().adopt(descriptor, name.bytes);
  if (*memory != nullptr) {
    Machine::current().openedOthersMemory();
    return cudaSuccess;
  }
  if (descriptor >= 0) close(descriptor);
  return result(cudaErrorNotSupported);
}
// What is this process's own was not opened.
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  {
    std::lock_guard lock(gMutex);
    if (gOwners.count(memory) != 0) return cudaSuccess;
  }
  return Machine::current().release(memory) ? cudaSuccess : result(cudaErrorInvalidValue);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  makeContext();
  *stream = Machine::current().makeStream(gDevice);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return result(cudaErrorInvalidValue);
  Machine::current().retire(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream = streamOf(stream);
  if (captureOf(stream) != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  Machine::current().await([stream] { return stream->tasks.empty(); });
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Machine::current().isIdle(streamOf(stream)) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return *event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  stream = streamOf(stream);
  event->capturing = captureOf(stream) != nullptr ? stream : nullptr;
  if (event->capturing != nullptr) return cudaSuccess;
  const uint64_t number = ++event->recorded;
  return enqueue(stream,
                 [reached = event->reached, number] { *reached = std::max<uint64_t>(*reached, number); });
}
// A graph runs on one stream here, in the order of the calls, so that events of a capture order nothing more.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  stream = streamOf(stream);
  if (event->capturing != nullptr) {
    CUgraph_st* const capture = captureOf(event->capturing);
    std::lock_guard lock(gMutex);
    if (capture != nullptr) capture->streams.insert(stream);
    return capture == nullptr ? result(cudaErrorInvalidValue) : cudaSuccess;
  }
  if (captureOf(stream) != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  const uint64_t number = event->recorded;
  Machine::current().enqueue(stream, {}, [reached = event->reached, number] { return *reached >= number; });
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
  std::swap(own, *mode);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  auto* const capture = new CUgraph_st;
  std::lock_guard lock(gMutex);
  capture->streams.insert(stream);
  capture->origin = stream;
  capture->number = ++gCaptureCount;
  gCaptures.push_back(capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = captureOf(stream);
  std::lock_guard lock(gMutex);
  std::erase(gCaptures, *graph);
  return *graph == nullptr ? result(cudaErrorInvalidValue) : cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* number) {
  const CUgraph_st* const capture = captureOf(streamOf(stream));
  *status = capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  *number = capture == nullptr ? 0 : capture->number;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = graph->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  stream = streamOf(stream);
  for (const CUgraph_st::Node& node : executable->nodes) {
    if (node.body) {
      Machine::current().launch(stream, node.size, node.body);
    } else {
      Machine::current().enqueue(stream, node.work);
    }
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
