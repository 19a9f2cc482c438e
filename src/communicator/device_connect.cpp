#include "communicator/device_connect.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/parameters.hpp"
#include "communicator/gather.hpp"
#include "executors/cuda/engine.hpp"
#include "links/ipc/link.hpp"
#include "links/memory/device_link.hpp"
#include "platform/random.hpp"

namespace stretto::communicator {
namespace {

using links::DeviceEndpoint;
using links::sameDevice;
using platform::cuda::DeviceFacts;

// How far a rank has come, told to all others; every exchange here carries one.
struct Progress {
  uint8_t code = 0;
  uint8_t apart = 0;  // no error, but there is a GPU that this rank's cannot reach, as `text` says
  char text[400] = {};

  static Progress of(Status status) {
    Progress progress;
    progress.code = static_cast<uint8_t>(status.code);
    if (!status.ok()) snprintf(progress.text, sizeof progress.text, "%s", lastError().c_str());
    return progress;
  }
};

// What a rank brings along, before anything is made.
struct Offer {
  Progress progress;
  DeviceFacts facts;
  int32_t lanes = 0;
  int32_t residentBlocks = 0;
  uint8_t mayShare = 0;
};

struct Opened {
  Progress progress;
  DeviceEndpoint endpoint;
};

template <typename T>
const Progress& progressOf(const T& told) {
  return told.progress;
}
const Progress& progressOf(const Progress& told) {
  return told;
}

// Gathers what all ranks tell, and fails everywhere if one of them has failed.
template <typename T>
Result<std::vector<T>> gatherAll(bootstrap::Membership& membership, const char* name, const T& mine,
                                 double timeout) {
  auto all = gather(membership, name, mine, timeout);
  if (!all.ok()) return all;
  const auto own = static_cast<size_t>(membership.rank());
  if (const auto code = static_cast<Code>(progressOf(mine).code); code != Code::kOk) {
    setLastError(progressOf(mine).text);
    return Status{code};
  }
  for (size_t rank = 0; rank < all.value().size(); ++rank) {
    const Progress& theirs = progressOf(all.value()[rank]);
    if (rank == own || theirs.code == 0) continue;
    return failAbout(static_cast<int>(rank), static_cast<Code>(theirs.code),
                     "rank %zu could not connect: %.*s", rank, static_cast<int>(sizeof theirs.text) - 1,
                     theirs.text);
  }
  return all;
}

Status prepareOffer(int device, Offer& offer) {
  const auto facts = platform::cuda::factsOf(device);
  if (!facts.ok()) return facts.status();
  const auto lanes = parameters::kLanes.integer(1, kMostLanes);
  if (!lanes.ok()) return lanes.status();
  const auto mayShare = parameters::kSharedDevice.flag();
  if (!mayShare.ok()) return mayShare.status();
  const auto resident = executors::cuda::mostResidentBlocks(device);
  if (!resident.ok()) return resident.status();
  offer.facts = facts.value();
  offer.lanes = static_cast<int32_t>(lanes.value());
  offer.mayShare = mayShare.value() ? 1 : 0;
  offer.residentBlocks = resident.value();
  return kOkStatus;
}

int sharersOf(const std::vector<Offer>& offers, const Offer& one) {
  return static_cast<int>(std::count_if(
      offers.begin(), offers.end(), [&](const Offer& other) { return sameDevice(one.facts, other.facts); }));
}

// The same answer on all ranks: two of them are on one device only when both say that they mean it.
Status checkSharing(const std::vector<Offer>& offers) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t other = rank + 1; other < offers.size(); ++other) {
      const Offer &a = offers[rank], &b = offers[other];
      if (!sameDevice(a.facts, b.facts) || (a.mayShare != 0 && b.mayShare != 0)) continue;
      return fail(
          Code::kInvalidUsage,
          "ranks %zu and %zu are both on the GPU %.63s (%.19s): call cudaSetDevice before each of them is "
          "made, or, if they are meant to share it, set STRETTO_SHARED_DEVICE=1 everywhere",
          rank, other, a.facts.name, a.facts.busId);
    }
  }
  return kOkStatus;
}

stretto::cuda::Shape agreeOnShape(const std::vector<Offer>& offers) {
  int lanes = kMostLanes;
  for (const Offer& offer : offers) {
    lanes = std::min(lanes, lanesFor(offer.lanes, offer.residentBlocks, sharersOf(offers, offer)));
  }
  return deviceShape(static_cast<int>(offers.size()), lanes);
}

Status makeWindow(const DeviceRequest& request, DeviceConnections& connections, DeviceEndpoint& mine) {
  auto identity = currentIdentity();
  if (!identity.ok()) return identity.status();
  mine.process = identity.value();
  mine.rank = request.rank;
  mine.device = request.device;
  mine.facts = connections.facts;
  mine.windowBytes = connections.shape.windowBytes();
  STRETTO_TRY(fillRandom({reinterpret_cast<uint8_t*>(&mine.token), sizeof mine.token}));
  auto region = memory::DeviceRegion::create(request.device, mine.windowBytes, mine.token);
  if (!region.ok()) return region.status();
  connections.region = std::move(region.value());
  return executors::cuda::prepareWindow(request.device, connections.region->data(), connections.shape);
}

// Only ranks of other processes need the name, and not every machine can give one.
void nameWindow(const DeviceConnections& connections, DeviceEndpoint& mine) {
  const std::string before = lastError();
  const auto name = platform::cuda::nameForOthers(connections.region->data());
  if (name.ok()) {
    mine.name = name.value();
    mine.named = 1;
  } else {
    setLastError(before);
  }
}

Result<links::DeviceLink> openLink(const DeviceEndpoint& mine, const DeviceEndpoint& theirs) {
  if (links::memory::applies(mine, theirs)) return links::memory::open(mine, theirs);
  if (links::ipc::applies(mine, theirs)) return links::ipc::open(mine, theirs);
  return failAbout(theirs.rank, Code::kInvalidUsage, "they are on different hosts (%.64s and %.64s)",
                   mine.process.hostname, theirs.process.hostname);
}

Status openAll(const std::vector<Opened>& opened, const DeviceRequest& request,
               DeviceConnections& connections, bool& apart) {
  const DeviceEndpoint& mine = opened[static_cast<size_t>(request.rank)].endpoint;
  for (size_t rank = 0; rank < opened.size(); ++rank) {
    DeviceEndpoint theirs = opened[rank].endpoint;
    const int peer = static_cast<int>(rank);
    if (theirs.rank != peer || theirs.windowBytes != mine.windowBytes) {
      return failAbout(peer, Code::kInternal,
                       "rank %d offers a device window of %llu bytes as rank %d, not %llu", peer,
                       static_cast<unsigned long long>(theirs.windowBytes), theirs.rank,
                       static_cast<unsigned long long>(mine.windowBytes));
    }
    auto link = openLink(mine, theirs);
    if (!link.ok()) {
      // A peer that has gone is lost; any other is out of reach.
      apart = link.status().code != Code::kRemote;
      return failAbout(peer, link.status().code,
                       "rank %d on the GPU %.63s (%.19s) cannot reach rank %d on the GPU %.63s (%.19s): %s",
                       request.rank, mine.facts.name, mine.facts.busId, peer, theirs.facts.name,
                       theirs.facts.busId, lastError().c_str());
    }
    connections.links.push_back(std::move(link.value()));
  }
  return kOkStatus;
}

}  // namespace

Status connectDevices(bootstrap::Membership& membership, const DeviceRequest& request,
                      DeviceConnections& connections) {
  connections.device = request.device;
  Offer offer;
  offer.progress = Progress::of(prepareOffer(request.device, offer));
  const auto offers = gatherAll(membership, "device", offer, request.timeoutSeconds);
  if (!offers.ok()) return offers.status();
  STRETTO_TRY(checkSharing(offers.value()));
  connections.facts = offer.facts;
  connections.shared = sharersOf(offers.value(), offer) > 1;
  connections.shape = agreeOnShape(offers.value());

  Opened mine;
  mine.progress = Progress::of(makeWindow(request, connections, mine.endpoint));
  if (mine.progress.code == 0 && request.ranks > 1) nameWindow(connections, mine.endpoint);
  const auto opened = gatherAll(membership, "device window", mine, request.timeoutSeconds);
  if (!opened.ok()) return opened.status();
  bool apart = false;
  Progress reached = Progress::of(openAll(opened.value(), request, connections, apart));
  if (apart) {
    reached.apart = 1;
    reached.code = 0;
  }
  const auto all = gatherAll(membership, "device connected", reached, request.timeoutSeconds);
  if (!all.ok()) return all.status();
  const auto first = std::find_if(all.value().begin(), all.value().end(),
                                  [](const Progress& one) { return one.apart != 0; });
  if (first != all.value().end())
    connections.apart = std::string(first->text, strnlen(first->text, sizeof first->text));
  return kOkStatus;
}

Result<bool> usesDevices() {
  const std::string wanted = parameters::kDevice.text();
  if (wanted == "cpu") return false;
  const bool any = platform::cuda::deviceCount() > 0;
  if (wanted == "auto") return any;
  if (wanted != "cuda") {
    return fail(Code::kInvalidUsage, "STRETTO_DEVICE=%s: write auto, cuda or cpu", wanted.c_str());
  }
  if (!any) {
    return fail(Code::kInvalidUsage, "STRETTO_DEVICE=cuda, but there is no GPU to use: %s",
                platform::cuda::absence().c_str());
  }
  return true;
}

Result<int> deviceOfThisThread() {
  const auto on = usesDevices();
  if (!on.ok()) return on.status();
  return on.value() ? platform::cuda::currentDevice() : Result<int>(kHostDevice);
}

}  // namespace stretto::communicator
