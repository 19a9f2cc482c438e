// ncclNetPlugin_v10 (NCCL 2.27), v11 (2.28, 2.29) and v12 (2.30): they differ in what init, listen and
// connect are given, and in the properties of a device.
#include <string>

#include "net/calls.hpp"
#include "net/net.hpp"

namespace stretto::net::exported {
namespace {

constexpr int kMegabitsUnknown = 10000;  // what NCCL itself assumes
constexpr int kUndefined = -1;

template <typename Said>
int getProperties(int device, Said* said) {
  Properties known;
  if (const int result = properties(device, known); result != abi::kSuccess) return result;
  *said = {};
  said->name = keep(known.name);
  said->pciPath = known.pciPath.empty() ? nullptr : keep(known.pciPath);
  said->guid = known.guid;
  said->pointers = abi::kPointerHost;
  const int64_t megabits = known.bitsPerSecond / 1000000;
  said->speed = megabits > 0 ? static_cast<int>(megabits) : kMegabitsUnknown;
  said->port = known.port;
  said->latency = static_cast<float>(known.microseconds);
  said->mostConnections = known.mostConnections;
  said->mostGrouped = known.mostGrouped;
  said->deviceType = abi::kDeviceTypeHost;
  said->parts.count = 1;
  said->parts.devices[0] = device;
  said->mostBytes = said->mostBytesOfCollectives = known.mostBytes;
  if constexpr (requires { said->mostInMultiRequest; }) said->mostInMultiRequest = 1;
  if constexpr (requires { said->rail; }) said->rail = said->plane = kUndefined;
  return abi::kSuccess;
}

int initOfV10(abi::Logger, abi::ProfilerCallback) {
  return init();
}
int initOfV11(void** context, uint64_t, abi::ConnectionConfig*, abi::Logger, abi::ProfilerCallback) {
  *context = nullptr;
  return init();
}
int listenOfV11(void*, int device, void* handle, void** listener) {
  return listen(device, handle, listener);
}
int connectOfV10(int device, abi::ConnectionConfig*, void* handle, void** sender, abi::DeviceHandle**) {
  return connect(device, handle, sender);
}
int connectOfV11(void*, int device, void* handle, void** sender, abi::DeviceHandle**) {
  return connect(device, handle, sender);
}
int acceptOfV7(void* listener, void** receiver, abi::DeviceHandle**) {
  return accept(listener, receiver);
}

constexpr abi::Enrolling<size_t> kEnrolling{regMr, regMrDmaBuf, deregMr};
constexpr abi::MovingV10 kMoving{isend, irecv};
constexpr abi::Ending kEnding{iflush, test, closeSend, closeRecv, closeListen};
constexpr abi::Offload kOffload{nullptr, nullptr};
constexpr abi::MakingV11 kMakingV11{listenOfV11, connectOfV11, acceptOfV7};
constexpr abi::Contexts kContexts{finalize, nullptr};

}  // namespace
}  // namespace stretto::net::exported

#define STRETTO_NET_EXPORT extern "C" __attribute__((visibility("default"))) const

namespace {
using namespace stretto::net;
using namespace stretto::net::exported;
}  // namespace

STRETTO_NET_EXPORT abi::TableV10 ncclNetPlugin_v10 = {
    {kName, initOfV10, stretto::net::exported::devices, getProperties<abi::PropertiesV10>},
    {stretto::net::exported::listen, connectOfV10, acceptOfV7},
    kEnrolling,
    kMoving,
    kEnding,
    kOffload,
    {nullptr}};
STRETTO_NET_EXPORT abi::TableV11 ncclNetPlugin_v11 = {
    {kName, initOfV11, stretto::net::exported::devices, getProperties<abi::PropertiesV11>},
    kMakingV11,
    kEnrolling,
    kMoving,
    kEnding,
    kOffload,
    {nullptr},
    kContexts};
STRETTO_NET_EXPORT abi::TableV12 ncclNetPlugin_v12 = {
    {kName, initOfV11, stretto::net::exported::devices, getProperties<abi::PropertiesV12>},
    kMakingV11,
    kEnrolling,
    kMoving,
    kEnding,
    kOffload,
    {nullptr},
    kContexts};
