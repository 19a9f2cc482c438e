// Makes the ranks of a communicator reach each other's GPUs: finds out whether they can once, after
// connect(), when all ranks have said that they are on GPUs; opens what each offers when it is needed. The
// only place that sees both device links and the engine's windows.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/membership.hpp"
#include "communicator/device/layout.hpp"
#include "links/device_endpoint.hpp"
#include "memory/device_region.hpp"
#include "planner/plan.hpp"

namespace stretto::communicator {

// What ranks have agreed upon when they found that they reach each other's GPUs.
struct DeviceConnections {
  int device = 0;
  platform::cuda::DeviceFacts facts;
  planner::Gpus gpus;  // of all ranks
  stretto::cuda::Shape shape;
  bool shared = false;         // with other ranks of this communicator
  bool mayShare = false;       // with those of any communicator: STRETTO_SHARED_DEVICE
  bool fewBlocks = false;      // somebody allows operations less than kMostChannels
  int kernelsAtOnce = 1;       // that may run on this rank's device, of all ranks there
  int residentBlocks = 1;      // that each kernel may count on: the least of all ranks' shares of a device
  links::DeviceEndpoint self;  // of this rank, but for its memory
  bool manyProcesses = false;  // ranks are threads of more than one
  bool proxied = false;        // no rank addresses another one's memory
  std::string apart;           // why some cannot be reached, the same words everywhere; else empty
};

struct DeviceRequest {
  int rank = 0;
  int ranks = 1;
  int device = 0;
  double timeoutSeconds = 0;
  int mostBlocks = 0;     // of an operation; the least of all ranks' counts; 0: any number
  bool proxied = false;   // ranks are on several hosts, and a proxy moves what goes between them
  int kernelsAtOnce = 0;  // on the device, the parent's number of them; 0: no parent
};

// Collective over the membership. Ranks that cannot go on say why, and then none does. GPUs that cannot reach
// each other's memory are no error: `apart` says so, and the connections are of no use.
Status connectDevices(bootstrap::Membership& membership, const DeviceRequest& request,
                      DeviceConnections& connections);

// Opens a window that a rank, which may be this one, has offered.
Result<links::DeviceLink> openWindow(const links::DeviceEndpoint& theirs, double seconds,
                                     const DeviceConnections& connections);

// A buffer of every rank that the others' copy engines write (windows.hpp).
struct ConnectedWindow {
  std::byte* begin = nullptr;            // this rank's
  size_t bytes = 0;                      // that every rank has
  std::vector<links::DeviceLink> links;  // by rank; none if somebody cannot reach it
  std::string apart;  // why collectives do not use it, the same words everywhere; else empty
  std::shared_ptr<memory::DeviceRegion> region;
};
struct WindowRequest {
  int rank = 0;
  uint64_t number = 0;  // equal on all ranks
  std::byte* buffer = nullptr;
  size_t bytes = 0;
  Status refused;  // what this rank says to all others instead
  double timeoutSeconds = 0;
};
// Collective over the membership. A buffer that some rank cannot reach is no error.
Status connectWindow(bootstrap::Membership& membership, const DeviceConnections& connections,
                     const WindowRequest& request, ConnectedWindow& window);

// What measurements between ranks 0, 1, ... of this machine's devices are kept by; with more ranks than
// devices they share.
Result<planner::Gpus> gpusOfThisHost(int ranks);

// What STRETTO_DEVICE makes of the calling thread: the device that a communicator of this thread is for, or
// kHostDevice. kInvalidUsage when a device is insisted on and there is none.
Result<int> deviceOfThisThread();
// True when communicators of this process are on GPUs.
Result<bool> usesDevices();

}  // namespace stretto::communicator
