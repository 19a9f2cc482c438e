#include "communicator/core/connect.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "communicator/core/gather.hpp"
#include "links/memory/link.hpp"
#include "links/shm/link.hpp"
#include "platform/cores.hpp"
#include "platform/encryption.hpp"
#include "platform/fence.hpp"
#include "platform/identity.hpp"
#include "platform/random.hpp"

namespace stretto::communicator {
namespace {

// What each rank tells all others once it has connected.
struct Verdict {
  uint64_t tableHash = 0;
  platform::CoreSet cores;
  uint8_t code = 0;
  uint8_t reach = 0;
  uint8_t sameProcess = 0;
  uint8_t deterministic = 0;
  uint8_t onDevice = 0;
  uint8_t unused = 0;
  uint16_t lost = 0;  // lostOf()
  char forced[200] = {};
  char text[400] = {};  // to the end of a word: what travels has no padding
};

size_t regionBytes(const WindowLayout& layout) {
  static_assert(sizeof(WindowOffer) % alignof(KernelWaits) == 0);
  return layout.bytes() + OperationLog::kBytes + sizeof(WindowOffer) + sizeof(KernelWaits) +
         OneSided::bytesFor(static_cast<int>(layout.ranks));
}

Result<std::shared_ptr<memory::Region>> makeWindow(int rank, const WindowLayout& layout) {
  uint64_t token = 0;
  STRETTO_TRY(fillRandom({reinterpret_cast<uint8_t*>(&token), sizeof token}));
  auto region = memory::Region::create("stretto-window", regionBytes(layout), token);
  if (!region.ok()) return region;
  auto& header = *reinterpret_cast<WindowHeader*>(region.value()->data());
  header.version = kWindowVersion;
  header.rank = static_cast<uint32_t>(rank);
  header.ranks = layout.ranks;
  header.slotBytes = layout.slotBytes;
  header.linkChunk = layout.linkChunk;
  header.heavyFence = platform::hasHeavyFence() ? 1 : 0;
  header.token = token;
  header.magic = kWindowMagic;
  return region;
}

// What was mapped must be the window of `rank` with this layout and token.
Status checkWindow(const WindowHeader& header, int rank, const WindowLayout& layout, uint64_t token) {
  if (header.magic != kWindowMagic || header.version != kWindowVersion || header.token != token) {
    return failAbout(rank, Code::kInternal,
                     "what was mapped is not the window of rank %d of this communicator", rank);
  }
  if (header.rank != static_cast<uint32_t>(rank) || header.ranks != layout.ranks ||
      header.slotBytes != layout.slotBytes || header.linkChunk != layout.linkChunk) {
    return failAbout(
        rank, Code::kInvalidUsage,
        "rank %d laid out its window for %u ranks, %u byte slots and %u byte links, this rank for %u, %u "
        "and %u: STRETTO_SLOT_BYTES must be the same everywhere",
        rank, header.ranks, header.slotBytes, header.linkChunk, layout.ranks, layout.slotBytes,
        layout.linkChunk);
  }
  return kOkStatus;
}

// Whether a rank on a GPU wants to reach those of other hosts by our own net.
Result<bool> usesProxies(bool onDevice) {
  const std::string who = parameters::kHosts.text();
  if (who != "own" && who != "nccl" && who != "auto") {
    return fail(Code::kInvalidUsage, "STRETTO_HOSTS=%s: write own, nccl or auto", who.c_str());
  }
  return onDevice && (who == "own" || parameters::kLink.text() == links::net::kName);
}

Result<links::Endpoint> describeSelf(const ConnectRequest& request, const memory::Region& window) {
  auto identity = currentIdentity();
  if (!identity.ok()) return identity.status();
  links::Endpoint mine;
  mine.process = identity.value();
  mine.rank = request.rank;
  mine.onDevice = request.onDevice;
  const auto proxied = usesProxies(request.onDevice);
  if (!proxied.ok()) return proxied.status();
  mine.proxied = proxied.value();
  mine.descriptor = window.descriptor();
  mine.windowAddress = reinterpret_cast<uint64_t>(window.data());
  mine.windowBytes = window.bytes();
  mine.token = window.token();
  return mine;
}

Result<links::Link> openLink(const links::Endpoint& mine, const links::Endpoint& theirs,
                             const Connections& own) {
  const std::string forced = parameters::kLink.text();
  const bool known = forced.empty() || forced == links::memory::kName || forced == links::shm::kName ||
                     forced == links::net::kName;
  if (!known) {
    return fail(Code::kInvalidUsage, "STRETTO_LINK=%s: there are the links %s, %s and %s", forced.c_str(),
                links::memory::kName, links::shm::kName, links::net::kName);
  }
  if (isFar(mine, theirs, forced)) {
    // Without them ranks in host memory and on GPUs are mixed, which agree() refuses.
    if (!own.standIns.heard().empty()) return own.standIns.of(theirs.rank);
    return standIn(own.header(), theirs.rank, own.region->bytes(), own.operationLogOffset);
  }
  if (forced != links::shm::kName && links::memory::applies(mine, theirs)) return links::memory::open(theirs);
  if (forced != links::memory::kName && links::shm::applies(mine, theirs)) return links::shm::open(theirs);
  return failAbout(theirs.rank, Code::kInvalidUsage,
                   "STRETTO_LINK=%s cannot reach rank %d (host %s, process %u) from rank %d (process %u)",
                   forced.c_str(), theirs.rank, theirs.process.hostname, theirs.process.pid, mine.rank,
                   mine.process.pid);
}

// Whether the process has ended. The kernel closes a process's descriptors before it ends, so one that still
// exists is looked at again, for 0.2 s at most: longer than that nobody waits here, not even for an abort.
bool hasEnded(const ProcessIdentity& process) {
  constexpr int kLooks = 40;
  for (int look = 0; look < kLooks; ++look) {
    if (startTimeOf(process.pid) != process.startTime) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// What kept this rank from opening another's memory. If the other has ended, the words name it as those of
// every loss do.
Status whyUnreached(const links::Endpoint& mine, const links::Endpoint& theirs, Status status) {
  const bool mayBeLoss =
      status.code == Code::kRemote || status.code == Code::kSystem || status.code == Code::kInternal;
  if (!mayBeLoss) return status;
  const std::string words = lastError();
  const ProcessIdentity& other = theirs.process;
  const bool seesIt = sameKernel(mine.process, other) && mine.process.pidNamespace == other.pidNamespace;
  if (seesIt && hasEnded(other)) {
    return failAbout(theirs.rank, Code::kRemote,
                     "rank %d lost rank %d (host %s, process %u): its memory cannot be opened any more",
                     mine.rank, theirs.rank, other.hostname, other.pid);
  }
  return failAbout(theirs.rank, status.code, "rank %d cannot reach rank %d (host %s, process %u): %s%s",
                   mine.rank, theirs.rank, other.hostname, other.pid, words.c_str(),
                   seesIt ? ""
                          : ". The two are on different hosts or in different containers, and have "
                            "one NCCL_HOSTID: give each its own");
}

// That move what a rank's kernels put into links: of ranks in host memory the one that waits.
Result<int> proxyThreads(int rank, std::span<const links::Endpoint> endpoints) {
  const links::Endpoint& mine = endpoints[static_cast<size_t>(rank)];
  if (mine.proxied == 0) return 1;
  if (parameters::kProxyThreads.isSet()) {
    const auto given = parameters::kProxyThreads.integer(1, kMostFarLinks);
    return given.ok() ? Result(static_cast<int>(given.value())) : given.status();
  }
  const auto here = std::count_if(endpoints.begin(), endpoints.end(), [&](const links::Endpoint& other) {
    return sameKernel(other.process, mine.process);
  });
  constexpr int kCoresEach = 2;  // the rank's own threads, and the kernel's part in what a socket takes
  return std::clamp(platform::usableCores() / (kCoresEach * static_cast<int>(here)), 1, kMostFarLinks);
}

// Why ranks, all on GPUs, cannot be connected here, being on several hosts, with the same words everywhere;
// empty if they can.
std::string spreadOf(const std::vector<links::Endpoint>& endpoints) {
  const auto onDevice = [](const links::Endpoint& endpoint) { return endpoint.onDevice != 0; };
  const auto proxied = [](const links::Endpoint& endpoint) { return endpoint.proxied != 0; };
  if (!std::all_of(endpoints.begin(), endpoints.end(), onDevice)) return {};
  if (std::all_of(endpoints.begin(), endpoints.end(), proxied)) return {};
  const bool some = std::any_of(endpoints.begin(), endpoints.end(), proxied);
  const ProcessIdentity& first = endpoints.front().process;
  for (size_t rank = 1; rank < endpoints.size(); ++rank) {
    const ProcessIdentity& other = endpoints[rank].process;
    if (sameHost(first, other)) continue;
    char text[400];
    snprintf(text, sizeof text, "ranks 0 and %zu are on different hosts (%.64s%s%.63s, %.64s%s%.63s)%s", rank,
             first.hostname, first.hostId[0] != 0 ? " as " : "", first.hostId, other.hostname,
             other.hostId[0] != 0 ? " as " : "", other.hostId,
             some ? ", and STRETTO_HOSTS=own is not set on all" : "");
    return text;
  }
  return {};
}

// Tries what algorithms will do: read the token in the peer's window through the kernel.
PeerAccess probeReach(const links::Endpoint& mine, const links::Endpoint& theirs) {
  if (sameProcess(mine.process, theirs.process)) return PeerAccess::kAddress;
  uint64_t token = 0;
  const uint64_t at = theirs.windowAddress + offsetof(WindowHeader, token);
  const bool read = platform::readProcess(static_cast<os::ProcessId>(theirs.process.pid), &token,
                                          reinterpret_cast<const void*>(at), sizeof token);
  return read && token == theirs.token ? PeerAccess::kCopy : PeerAccess::kNone;
}

Status openAll(const ConnectRequest& request, const WindowLayout& layout,
               std::span<const links::Endpoint> endpoints, Connections& connections) {
  const links::Endpoint& mine = endpoints[static_cast<size_t>(request.rank)];
  if (!connections.far.empty() && !request.onDevice) {
    auto made = StandIns::create(request.ranks);
    if (!made.ok()) return made.status();
    connections.standIns = std::move(made.value());
  }
  for (links::Endpoint theirs : endpoints) {
    theirs.process.hostname[sizeof theirs.process.hostname - 1] = 0;
    const int index = static_cast<int>(connections.peers.size());
    if (theirs.rank != index || theirs.windowBytes != regionBytes(layout)) {
      return failAbout(
          index, Code::kInvalidUsage,
          "rank %d offers a window of %llu bytes as rank %d, this rank expects %zu: STRETTO_SLOT_BYTES "
          "must be the same everywhere",
          index, static_cast<unsigned long long>(theirs.windowBytes), theirs.rank, regionBytes(layout));
    }
    const bool self = theirs.rank == request.rank;
    auto link = self ? links::memory::open(theirs) : openLink(mine, theirs, connections);
    if (!link.ok()) return whyUnreached(mine, theirs, link.status());
    Peer peer;
    peer.window = link.value().window;
    peer.rank = theirs.rank;
    peer.process = static_cast<int32_t>(theirs.process.pid);
    if (link.value().standIn == nullptr) {
      peer.reach = probeReach(mine, theirs);
      const Status right = checkWindow(peer.header(), theirs.rank, layout, theirs.token);
      if (!right.ok()) return whyUnreached(mine, theirs, right);
      connections.near.push_back(peer);
      connections.standIns.hear(peer.rank);
    }
    connections.links.push_back(std::move(link.value()));
    connections.peers.push_back(peer);
  }
  return kOkStatus;
}

Status agree(const PerRank<Verdict>& verdicts, int rank) {
  const Verdict mine = verdicts[static_cast<size_t>(rank)];
  for (size_t other = 0; other < verdicts.size(); ++other) {
    const Verdict theirs = verdicts[other];
    const int peer = static_cast<int>(other);
    if (theirs.code != 0) {
      return failAbout(namedBy(theirs.lost, other, verdicts.size()), static_cast<Code>(theirs.code),
                       "rank %d could not connect: %.*s", peer, static_cast<int>(sizeof theirs.text),
                       theirs.text);
    }
    if (theirs.tableHash != mine.tableHash) {
      return failAbout(
          peer, Code::kInvalidUsage,
          "ranks %d and %d have different measured tables (%016llx, %016llx): set STRETTO_TABLE to the same "
          "file everywhere",
          rank, peer, static_cast<unsigned long long>(mine.tableHash),
          static_cast<unsigned long long>(theirs.tableHash));
    }
    if (std::memcmp(theirs.forced, mine.forced, sizeof mine.forced) != 0) {
      return failAbout(peer, Code::kInvalidUsage,
                       "ranks %d and %d force different algorithms: STRETTO_RINGS, STRETTO_RING_GATHER, "
                       "STRETTO_PROTO and STRETTO_ALGO are \"%.*s\" there, "
                       "\"%.*s\" here",
                       rank, peer, static_cast<int>(sizeof theirs.forced) - 1, theirs.forced,
                       static_cast<int>(sizeof mine.forced) - 1, mine.forced);
    }
    if (theirs.onDevice != mine.onDevice) {
      return failAbout(
          peer, Code::kInvalidUsage,
          "ranks %d and %d keep their data in different places: rank %d on a GPU, rank %d in host "
          "memory. Set STRETTO_DEVICE=cuda or STRETTO_DEVICE=cpu everywhere",
          rank, peer, mine.onDevice != 0 ? rank : peer, mine.onDevice != 0 ? peer : rank);
    }
    if (theirs.deterministic != mine.deterministic) {
      return failAbout(peer, Code::kInvalidUsage, "ranks %d and %d have different STRETTO_DETERMINISTIC",
                       rank, peer);
    }
  }
  return kOkStatus;
}

// Ranks of one kernel share its cores, whatever hosts they say they are on. A rank may be bound to one of
// them, and its peers to others.
int coresOf(std::span<const links::Endpoint> endpoints, const PerRank<Verdict>& verdicts) {
  size_t all = 0;
  for (size_t first = 0; first < endpoints.size(); ++first) {
    const auto isOfFirst = [&](const links::Endpoint& other) {
      return other.rank == endpoints[first].rank || sameKernel(other.process, endpoints[first].process);
    };
    if (std::any_of(endpoints.begin(), endpoints.begin() + static_cast<ptrdiff_t>(first), isOfFirst))
      continue;
    platform::CoreSet cores;
    for (size_t rank = first; rank < endpoints.size(); ++rank) {
      if (isOfFirst(endpoints[rank])) cores |= verdicts[rank].cores;
    }
    all += cores.count();
  }
  return static_cast<int>(all);
}

// A host is ranks that reach each other without a net.
links::net::HostMap placesOf(std::span<const links::Endpoint> endpoints) {
  const std::string forced = parameters::kLink.text();
  std::vector<int> hostOf;
  std::vector<const links::Endpoint*> firsts;  // of each host
  for (const links::Endpoint& endpoint : endpoints) {
    const auto near = std::find_if(firsts.begin(), firsts.end(), [&](const links::Endpoint* first) {
      return !isFar(*first, endpoint, forced);
    });
    hostOf.push_back(static_cast<int>(near - firsts.begin()));
    if (near == firsts.end()) firsts.push_back(&endpoint);
  }
  return links::net::HostMap(std::move(hostOf));
}

// The same words on all ranks.
Status noHostHasTooMany(const links::net::HostMap& places, std::span<const links::Endpoint> endpoints) {
  for (int host = 0; host < places.hosts(); ++host) {
    const std::span<const int> home = places.home(host);
    if (home.size() <= static_cast<size_t>(kMaxRanks)) continue;
    return fail(
        Code::kInvalidUsage,
        "%zu of the %zu ranks are on host %.64s; this library serves %d ranks of a communicator on each "
        "host, and %d on all",
        home.size(), endpoints.size(), endpoints[static_cast<size_t>(home.front())].process.hostname,
        kMaxRanks, kMostRanks);
  }
  return kOkStatus;
}

planner::Machine summarise(const ConnectRequest& request, std::span<const links::Endpoint> endpoints,
                           const PerRank<Verdict>& verdicts, const links::net::HostMap& places) {
  planner::Machine machine;
  machine.sameProcess = machine.reach = true;
  for (const Verdict verdict : verdicts) {
    machine.sameProcess = machine.sameProcess && verdict.sameProcess != 0;
    machine.reach = machine.reach && verdict.reach != 0;
  }
  machine.cores = coresOf(endpoints, verdicts);
  machine.hosts = places.hosts();
  machine.perHost = places.perHost();
  machine.deterministic = request.deterministic;
  machine.slotBytes = request.slotBytes;
  machine.nearChunk = request.linkChunk;
  machine.farChunk = links::net::chunkBytesFor(request.ranks);
  machine.linkChunk = machine.hosts > 1 && machine.perHost == 1 ? machine.farChunk : machine.nearChunk;
  return machine;
}

}  // namespace

Status mayGoInPlainText(const Encryption& encryption, const std::string& why) {
  if (!encryption.on) return kOkStatus;
  return fail(
      Code::kInvalidUsage,
      "connections are to be encrypted (STRETTO_TLS=1 or ncclSetEncryption), and NVIDIA's NCCL, which would "
      "serve this communicator, sends plain text between hosts: %s. Set STRETTO_HOSTS=own on all ranks, or "
      "do without encryption",
      why.c_str());
}

Status connect(bootstrap::Membership& membership, const ConnectRequest& request, Connections& connections,
               planner::Machine& machine) {
  const WindowLayout layout{static_cast<uint32_t>(request.ranks), request.slotBytes, request.linkChunk};
  auto region = makeWindow(request.rank, layout);
  if (!region.ok()) return region.status();
  connections.region = std::move(region.value());
  connections.operationLogOffset = layout.bytes();
  auto mine = describeSelf(request, *connections.region);
  if (!mine.ok()) return mine.status();
  const auto gathered = gather(membership, "endpoint", mine.value(), request.timeoutSeconds);
  if (!gathered.ok()) return gathered.status();
  const std::vector<links::Endpoint> endpoints = gathered.value().all();
  if (std::string apart = spreadOf(endpoints); !apart.empty()) {
    STRETTO_TRY(mayGoInPlainText(membership.encryption(), apart));
    connections = {};
    connections.apart = std::move(apart);
    return kOkStatus;
  }

  connections.places = placesOf(endpoints);
  STRETTO_TRY(noHostHasTooMany(connections.places, endpoints));
  if (connections.places.hosts() > 1) {
    links::net::FarLinks::Config config;
    config.rank = request.rank;
    config.ranks = request.ranks;
    config.chunkBytes = links::net::chunkBytesFor(request.ranks);
    const auto threads = proxyThreads(request.rank, endpoints);
    if (!threads.ok()) return threads.status();
    auto far = connectFar(membership, std::move(config), endpoints, threads.value(), request.timeoutSeconds);
    if (!far.ok()) return far.status();
    connections.far = std::move(far.value());
  }
  const Status opened = openAll(request, layout, endpoints, connections);
  Verdict verdict;
  verdict.tableHash = request.tableHash;
  snprintf(verdict.forced, sizeof verdict.forced, "%s", request.forced.c_str());
  verdict.cores = platform::usableCoreSet();
  verdict.code = static_cast<uint8_t>(opened.code);
  verdict.lost = lostOf(opened);
  verdict.deterministic = request.deterministic;
  verdict.onDevice = request.onDevice;
  verdict.reach = std::all_of(connections.peers.begin(), connections.peers.end(),
                              [](const Peer& peer) { return peer.reach != PeerAccess::kNone; });
  verdict.sameProcess = std::all_of(connections.peers.begin(), connections.peers.end(),
                                    [](const Peer& peer) { return peer.reach == PeerAccess::kAddress; });
  if (!opened.ok()) snprintf(verdict.text, sizeof verdict.text, "%s", lastError().c_str());
  auto verdicts = gather(membership, "connected", verdict, request.timeoutSeconds);
  if (!verdicts.ok()) return verdicts.status();
  connections.region->closeDescriptor();
  STRETTO_TRY(agree(verdicts.value(), request.rank));
  machine = summarise(request, endpoints, verdicts.value(), connections.places);
  return kOkStatus;
}

}  // namespace stretto::communicator
