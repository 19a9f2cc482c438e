#include "communicator/device/connect.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/parameters.hpp"
#include "communicator/core/gather.hpp"
#include "communicator/core/host_memory.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/device/own_window.hpp"
#include "executors/cuda/engine.hpp"
#include "links/ipc/link.hpp"
#include "links/memory/device_link.hpp"
#include "platform/cuda/mapped.hpp"
#include "platform/descriptors.hpp"
#include "platform/random.hpp"
#include "topology/probe.hpp"

namespace stretto::communicator {
namespace {

using links::DeviceEndpoint;
using links::sameDevice;
using platform::cuda::DeviceFacts;

// How far a rank has come, told to all others; every exchange here carries one.
struct Progress {
  uint8_t code = 0;
  uint8_t apart = 0;    // no error, but there is a GPU that this rank's cannot reach, as `text` says
  uint16_t lost = 0;    // lostOf()
  char text[404] = {};  // to the end of a word: what travels has no padding

  static Progress of(Status status) {
    Progress progress;
    progress.code = static_cast<uint8_t>(status.code);
    progress.lost = lostOf(status);
    if (!status.ok()) snprintf(progress.text, sizeof progress.text, "%s", lastError().c_str());
    return progress;
  }
  static Progress outOfReach() {
    Progress progress;
    progress.apart = 1;
    snprintf(progress.text, sizeof progress.text, "%s", lastError().c_str());
    return progress;
  }
};

// The words of the first rank that something is out of reach for, so that they are the same everywhere.
template <typename T>
std::string whyApart(const std::vector<T>& all) {
  const auto first =
      std::find_if(all.begin(), all.end(), [](const T& one) { return one.progress.apart != 0; });
  if (first == all.end()) return {};
  const auto& text = first->progress.text;
  return std::string(text, strnlen(text, sizeof text));
}

// What a rank brings along, before anything is made.
struct Offer {
  Progress progress;
  DeviceFacts facts;
  int32_t channels = 0;
  int32_t residentBlocks = 0;
  int32_t sharing = 0;        // STRETTO_SHARED_DEVICE
  int32_t kernelsBefore = 0;  // DeviceRequest::kernelsAtOnce
};

struct Opened {
  Progress progress;
  DeviceEndpoint endpoint;
};

struct Registered {
  Progress progress;
  DeviceEndpoint endpoint;
  uint64_t number = 0;
  uint64_t sharesDevice = 0;  // with other ranks of the communicator
};

struct Reached {
  Progress progress;
  uint8_t links = 0;  // to its peers, a planner::Links
  uint8_t reserved[7] = {};
};

// Gathers what all ranks tell, and fails everywhere if one of them has failed.
template <typename T>
Result<std::vector<T>> gatherAll(bootstrap::Membership& membership, const char* name, const T& mine,
                                 double timeout) {
  const auto gathered = gather(membership, name, mine, timeout);
  if (!gathered.ok()) return gathered.status();
  std::vector<T> all = gathered.value().all();
  const auto own = static_cast<size_t>(membership.rank());
  if (const auto code = static_cast<Code>(mine.progress.code); code != Code::kOk) {
    setLastError(mine.progress.text);
    return Status{code, static_cast<int16_t>(mine.progress.lost - 1)};
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Progress& theirs = all[rank].progress;
    if (rank == own || theirs.code == 0) continue;
    return failAbout(namedBy(theirs.lost, rank, all.size()), static_cast<Code>(theirs.code),
                     "rank %zu could not connect: %.*s", rank, static_cast<int>(sizeof theirs.text) - 1,
                     theirs.text);
  }
  return all;
}

Status prepareOffer(const DeviceRequest& request, Offer& offer) {
  const int device = request.device;
  const auto facts = platform::cuda::factsOf(device);
  if (!facts.ok()) return facts.status();
  const auto channels = parameters::kChannels.integer(1, kMostChannels);
  if (!channels.ok()) return channels.status();
  const auto sharing = parameters::sharedDevice();
  if (!sharing.ok()) return sharing.status();
  const auto resident = executors::cuda::mostResidentBlocks(device);
  if (!resident.ok()) return resident.status();
  offer.facts = facts.value();
  offer.channels = static_cast<int32_t>(channels.value());
  if (request.mostBlocks > 0) offer.channels = std::min(offer.channels, request.mostBlocks);
  offer.sharing = static_cast<int32_t>(sharing.value());
  offer.kernelsBefore = request.kernelsAtOnce;
  offer.residentBlocks = resident.value();
  return kOkStatus;
}

int sharersOf(const std::vector<Offer>& offers, const Offer& one) {
  return static_cast<int>(std::count_if(
      offers.begin(), offers.end(), [&](const Offer& other) { return sameDevice(one.facts, other.facts); }));
}

// How many kernels may run at once on the device of `one`: the largest number that any rank there has, so
// that all ranks there have the same. A child keeps its parent's number, as the parent's other ranks may run
// kernels of their own there.
int kernelsBeside(const std::vector<Offer>& offers, const Offer& one) {
  const int sharers = sharersOf(offers, one);
  int kernels = 1;
  for (const Offer& other : offers) {
    if (!sameDevice(one.facts, other.facts)) continue;
    kernels = std::max({kernels, kernelsAtOnce(other.sharing, sharers), other.kernelsBefore});
  }
  return kernels;
}

// The same answer on all ranks: two of them are on one device only when both say that they mean it.
Status checkSharing(const std::vector<Offer>& offers) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t other = rank + 1; other < offers.size(); ++other) {
      const Offer &a = offers[rank], &b = offers[other];
      if (!sameDevice(a.facts, b.facts) || (a.sharing != 0 && b.sharing != 0)) continue;
      return fail(
          Code::kInvalidUsage,
          "ranks %zu and %zu are both on the GPU %.63s (%.19s): call cudaSetDevice before each of them is "
          "made, or, if they are meant to share it, set STRETTO_SHARED_DEVICE=1 everywhere",
          rank, other, a.facts.name, a.facts.busId);
    }
  }
  return kOkStatus;
}

// Likewise: a GPU has room for as many kernels as it has multiprocessors, one of each rank there at least.
Status checkRoom(const std::vector<Offer>& offers) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer& one = offers[rank];
    const int sharers = sharersOf(offers, one);
    if (std::max(one.sharing, sharers) <= one.residentBlocks) continue;
    const std::string many = one.sharing > one.residentBlocks
                                 ? "STRETTO_SHARED_DEVICE=" + std::to_string(one.sharing) + " is"
                                 : std::to_string(sharers) + " ranks are";
    return fail(
        Code::kInvalidUsage,
        "rank %zu: %s more than the %d multiprocessors of the GPU %.63s (%.19s), and kernels that wait for "
        "each other need one each",
        rank, many.c_str(), one.residentBlocks, one.facts.name, one.facts.busId);
  }
  return kOkStatus;
}

// Of GPUs that this process cannot both see, as with one GPU visible to each rank, the driver's management
// library knows.
planner::Links linksUnseen(const DeviceFacts& mine, const DeviceFacts& theirs) {
  const std::string before = lastError();
  const auto facts = topology::factsWithDevices();
  const auto linked = facts.ok() ? topology::nvlinkBetween(facts.value()->devices, mine.busId, theirs.busId)
                                 : topology::Nvlink::kUnknown;
  setLastError(before);
  return linked == topology::Nvlink::kYes  ? planner::Links::kNvlink
         : linked == topology::Nvlink::kNo ? planner::Links::kPcie
                                           : planner::Links::kUnknown;
}

planner::Links linksBetween(const DeviceFacts& mine, const DeviceFacts& theirs) {
  if (sameDevice(mine, theirs)) return planner::Links::kSameGpu;
  const int from = platform::cuda::ordinalOf(mine.uuid);
  const int to = platform::cuda::ordinalOf(theirs.uuid);
  if (from < 0 || to < 0) return linksUnseen(mine, theirs);
  return platform::cuda::hasNvlink(from, to) ? planner::Links::kNvlink : planner::Links::kPcie;
}

// Of one rank, to all others.
planner::Links linksOf(size_t rank, const std::vector<DeviceFacts>& facts) {
  planner::Links links = planner::Links::kNvlink;
  for (size_t peer = 0; peer < facts.size(); ++peer) {
    if (peer != rank) links = std::max(links, linksBetween(facts[rank], facts[peer]));
  }
  return links;
}

planner::Gpus gpusOf(const std::vector<DeviceFacts>& facts, planner::Links links) {
  planner::Gpus gpus;
  gpus.links = links;
  const bool alike = std::all_of(facts.begin(), facts.end(), [&](const DeviceFacts& other) {
    return std::strncmp(facts.front().name, other.name, sizeof other.name) == 0;
  });
  if (alike) snprintf(gpus.name, sizeof gpus.name, "%.63s", facts.front().name);
  return gpus;
}

std::vector<DeviceFacts> factsOf(const std::vector<Offer>& offers) {
  std::vector<DeviceFacts> facts;
  for (const Offer& offer : offers) facts.push_back(offer.facts);
  return facts;
}

// Equal on all ranks.
void agree(const std::vector<Offer>& offers, DeviceConnections& connections) {
  int channels = kMostChannels;
  int resident = offers.front().residentBlocks;
  for (const Offer& offer : offers) {
    const int own = residentFor(offer.residentBlocks, kernelsBeside(offers, offer));
    resident = std::min(resident, own);
    channels = std::min({channels, offer.channels, own});
    connections.fewBlocks = connections.fewBlocks || offer.channels < kMostChannels;
  }
  connections.residentBlocks = resident;
  const auto shapeOf = connections.proxied ? proxiedShape : deviceShape;
  connections.shape = shapeOf(static_cast<int>(offers.size()), channels);
}

// This rank, but for its memory.
Status describeSelf(int rank, DeviceConnections& connections) {
  auto identity = currentIdentity();
  if (!identity.ok()) return identity.status();
  connections.self.process = identity.value();
  connections.self.rank = rank;
  connections.self.device = connections.device;
  connections.self.facts = connections.facts;
  return kOkStatus;
}

// Memory of `bytes` of this rank, but for its name.
Status describeMemory(const DeviceConnections& connections, size_t bytes, DeviceEndpoint& mine) {
  mine = connections.self;
  mine.windowBytes = bytes;
  return fillRandom({reinterpret_cast<uint8_t*>(&mine.token), sizeof mine.token});
}

// Windows are made when they are first needed. Whether GPUs reach each other must be known before, and a few
// bytes tell.
constexpr size_t kProbeBytes = 4096;
Status makeProbe(DeviceConnections& connections, std::shared_ptr<memory::DeviceRegion>& probe,
                 DeviceEndpoint& mine) {
  STRETTO_TRY(describeSelf(connections.self.rank, connections));
  STRETTO_TRY(describeMemory(connections, kProbeBytes, mine));
  auto region = memory::DeviceRegion::create(connections.device, kProbeBytes, mine.token);
  if (!region.ok()) return region.status();
  probe = std::move(region.value());
  nameMemory(*probe, mine);
  return kOkStatus;
}

Result<links::DeviceLink> openLink(const DeviceEndpoint& mine, const DeviceEndpoint& theirs, double seconds) {
  if (links::memory::applies(mine, theirs)) return links::memory::open(mine, theirs, seconds);
  if (links::ipc::applies(mine, theirs)) return links::ipc::open(mine, theirs, seconds);
  return failAbout(theirs.rank, Code::kInvalidUsage, "they are on different hosts (%.64s and %.64s)",
                   mine.process.hostname, theirs.process.hostname);
}

// The same, with both ends named if it fails.
Result<links::DeviceLink> openNamed(const DeviceEndpoint& mine, const DeviceEndpoint& theirs,
                                    double seconds) {
  auto link = openLink(mine, theirs, seconds);
  if (link.ok()) return link;
  return failAbout(theirs.rank, link.status().code,
                   "rank %d on the GPU %.63s (%.19s) cannot reach rank %d on the GPU %.63s (%.19s): %s",
                   mine.rank, mine.facts.name, mine.facts.busId, theirs.rank, theirs.facts.name,
                   theirs.facts.busId, std::string(lastError()).c_str());
}

// What `all` offer, as `own` reaches it. `apart`: that it failed because something is out of reach.
Status openAll(const std::vector<DeviceEndpoint>& all, int own, double seconds,
               std::vector<links::DeviceLink>& links, bool& apart) {
  const DeviceEndpoint& mine = all[static_cast<size_t>(own)];
  for (size_t rank = 0; rank < all.size(); ++rank) {
    DeviceEndpoint theirs = all[rank];
    theirs.rank = static_cast<int>(rank);
    auto link = openNamed(mine, theirs, seconds);
    if (!link.ok()) {
      // A peer that has gone is lost; any other is out of reach.
      apart = link.status().code != Code::kRemote;
      return link.status();
    }
    links.push_back(std::move(link.value()));
  }
  return kOkStatus;
}

template <typename T>
Progress progressOfOpening(const std::vector<T>& all, int own, double seconds,
                           std::vector<links::DeviceLink>& links) {
  std::vector<DeviceEndpoint> endpoints;
  for (const T& one : all) endpoints.push_back(one.endpoint);
  bool apart = false;
  const Status status = openAll(endpoints, own, seconds, links, apart);
  return apart ? Progress::outOfReach() : Progress::of(status);
}

using PiecesSource = std::unique_ptr<platform::DescriptorSource>;

// Mapped memory, of which other processes are handed the pieces while `source` lives.
Status shareMapped(const DeviceConnections& connections, const WindowRequest& request, DeviceEndpoint& mine,
                   PiecesSource& source) {
  auto pieces = platform::cuda::Pieces::behind(connections.device, request.buffer, request.bytes);
  if (!pieces.ok()) return pieces.status();
  mine.mapped = 1;
  mine.offset = pieces.value().offset();
  if (!connections.manyProcesses) return kOkStatus;
  const auto held = std::make_shared<platform::cuda::Pieces>(std::move(pieces.value()));
  const auto open = [held](size_t index) -> Result<platform::NumberedDescriptor> {
    auto descriptor = held->share(index);
    if (!descriptor.ok()) return descriptor.status();
    return platform::NumberedDescriptor{std::move(descriptor.value()), held->bytesOf(index)};
  };
  auto made = platform::DescriptorSource::create(held->count(), open);
  if (!made.ok()) return made.status();
  source = std::move(made.value());
  mine.pieces = source->address();
  return kOkStatus;
}

// Memory that peers in every process can write: what CUDA has a name for, or pieces. Says why not.
Status nameBuffer(const DeviceConnections& connections, const WindowRequest& request, DeviceEndpoint& mine,
                  PiecesSource& source) {
  const auto place = platform::cuda::placeOf(request.buffer);
  if (!place.ok()) return place.status();
  if (place.value().place != platform::cuda::Place::kDevice || place.value().device != connections.device) {
    return fail(Code::kInvalidUsage, "the buffer of rank %d is no memory of its GPU %d", request.rank,
                connections.device);
  }
  if (platform::cuda::isMapped(connections.device, request.buffer)) {
    if (shareMapped(connections, request, mine, source).ok()) return kOkStatus;
    mine.mapped = 0;
    return fail(Code::kInvalidUsage, "the buffer of rank %d cannot be shared: %s", request.rank,
                std::string(lastError()).c_str());
  }
  const auto name = platform::cuda::nameForOthers(connections.device, request.buffer);
  if (name.ok() && name.value().room >= request.bytes) {
    mine.name = name.value();
    mine.named = 1;
    return kOkStatus;
  }
  return fail(Code::kInvalidUsage, "the buffer of rank %d does not lie in one allocation of cudaMalloc%s%s",
              request.rank, name.ok() ? "" : ": ", name.ok() ? "" : std::string(lastError()).c_str());
}

Status checkNumbers(const std::vector<Registered>& all) {
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].number == all[0].number) continue;
    return failAbout(static_cast<int>(rank), Code::kInvalidUsage,
                     "rank %zu registers its window number %llu and rank 0 its number %llu: all ranks must "
                     "register their windows together, in the same order",
                     rank, static_cast<unsigned long long>(all[rank].number),
                     static_cast<unsigned long long>(all[0].number));
  }
  return kOkStatus;
}

// Kernels and copies of ranks that share a GPU take turns, so nothing is gained there; one-sided operations
// need the window all the same.
std::string whoSharesDevice(const std::vector<Registered>& all) {
  const auto one =
      std::find_if(all.begin(), all.end(), [](const Registered& it) { return it.sharesDevice != 0; });
  if (one == all.end()) return "";
  return "rank " + std::to_string(one - all.begin()) + " shares its GPU with other ranks";
}

}  // namespace

Status connectDevices(bootstrap::Membership& membership, const DeviceRequest& request,
                      DeviceConnections& connections) {
  connections.device = request.device;
  Offer offer;
  offer.progress = Progress::of(prepareOffer(request, offer));
  const auto offers = gatherAll(membership, "device", offer, request.timeoutSeconds);
  if (!offers.ok()) return offers.status();
  STRETTO_TRY(checkSharing(offers.value()));
  STRETTO_TRY(checkRoom(offers.value()));
  connections.facts = offer.facts;
  connections.shared = sharersOf(offers.value(), offer) > 1;
  connections.mayShare = offer.sharing != 0;
  connections.kernelsAtOnce = kernelsBeside(offers.value(), offer);
  connections.proxied = request.proxied;
  agree(offers.value(), connections);
  if (request.proxied) {
    connections.gpus = gpusOf(factsOf(offers.value()), planner::Links::kUnknown);
    return describeSelf(request.rank, connections);
  }

  Opened mine;
  std::shared_ptr<memory::DeviceRegion> probe;  // until all have looked
  connections.self.rank = request.rank;
  mine.progress = Progress::of(makeProbe(connections, probe, mine.endpoint));
  const auto opened = gatherAll(membership, "device probe", mine, request.timeoutSeconds);
  if (!opened.ok()) return opened.status();
  Reached reached;
  {
    std::vector<links::DeviceLink> links;
    reached.progress = progressOfOpening(opened.value(), request.rank, request.timeoutSeconds, links);
    connections.manyProcesses = std::any_of(links.begin(), links.end(), [](const links::DeviceLink& link) {
      return link.kind == links::ipc::kName;
    });
  }
  const std::vector<DeviceFacts> facts = factsOf(offers.value());
  reached.links = static_cast<uint8_t>(linksOf(static_cast<size_t>(request.rank), facts));
  const auto all = gatherAll(membership, "device connected", reached, request.timeoutSeconds);
  if (!all.ok()) return all.status();
  connections.apart = whyApart(all.value());
  uint8_t links = 0;
  for (const Reached& one : all.value()) links = std::max(links, one.links);
  connections.gpus =
      gpusOf(facts, static_cast<planner::Links>(std::min<uint8_t>(links, planner::kLinkKinds - 1)));
  return kOkStatus;
}

Result<links::DeviceLink> openWindow(const DeviceEndpoint& theirs, double seconds,
                                     const DeviceConnections& connections) {
  if (theirs.windowBytes != connections.shape.windowBytes()) {
    return failAbout(theirs.rank, Code::kInternal,
                     "rank %d has a device window of %llu bytes, rank %d expects %zu", theirs.rank,
                     static_cast<unsigned long long>(theirs.windowBytes), connections.self.rank,
                     connections.shape.windowBytes());
  }
  return openNamed(connections.self, theirs, seconds);
}

Status connectWindow(bootstrap::Membership& membership, const DeviceConnections& connections,
                     const WindowRequest& request, ConnectedWindow& window) {
  const std::string before = lastError();  // what is out of reach is no error
  const platform::cuda::ScopedDevice current(connections.device);
  STRETTO_TRY(current.status());
  Registered mine;
  mine.number = request.number;
  mine.sharesDevice = connections.shared ? 1 : 0;
  Status status = request.refused;
  if (status.ok()) status = describeMemory(connections, request.bytes, mine.endpoint);
  mine.progress = Progress::of(status);
  PiecesSource source;  // until all have what they need
  if (status.ok() && !nameBuffer(connections, request, mine.endpoint, source).ok()) {
    mine.progress = Progress::outOfReach();
  }
  window.begin = request.buffer;
  window.region =
      memory::DeviceRegion::borrow(connections.device, request.buffer, request.bytes, mine.endpoint.token);
  const auto all = gatherAll(membership, "window", mine, request.timeoutSeconds);
  if (!all.ok()) return all.status();
  STRETTO_TRY(checkNumbers(all.value()));
  window.bytes = request.bytes;
  for (const Registered& one : all.value()) {
    window.bytes = std::min<size_t>(window.bytes, one.endpoint.windowBytes);
  }
  window.apart = whyApart(all.value());
  Reached reached;
  if (window.apart.empty()) {
    reached.progress = progressOfOpening(all.value(), request.rank, request.timeoutSeconds, window.links);
  }
  const auto ends = gatherAll(membership, "window connected", reached, request.timeoutSeconds);
  if (!ends.ok()) return ends.status();
  if (window.apart.empty()) window.apart = whyApart(ends.value());
  if (window.apart.empty()) {
    window.apart = whoSharesDevice(all.value());
    return kOkStatus;
  }
  window.links.clear();
  setLastError(before);
  return kOkStatus;
}

Result<planner::Gpus> gpusOfThisHost(int ranks) {
  std::vector<DeviceFacts> facts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto one = platform::cuda::factsOf(rank % platform::cuda::deviceCount());
    if (!one.ok()) return one.status();
    facts.push_back(one.value());
  }
  planner::Links links = planner::Links::kNvlink;
  for (size_t rank = 0; rank < facts.size(); ++rank) links = std::max(links, linksOf(rank, facts));
  return gpusOf(facts, links);
}

Result<bool> usesDevices() {
  const std::string wanted = parameters::kDevice.text();
  if (wanted == "cpu") return false;
  const bool any = platform::cuda::deviceCount() > 0;
  if (wanted == "auto") {
    if (!any) warnOfMissingCuda();
    return any;
  }
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
