#include "base/parameters.hpp"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace stretto {
namespace {

// 1 for "", 2^10 for K, and so on; 0 for anything else.
int64_t suffixFactor(const char* suffix) {
  if (*suffix == 0) return 1;
  if (suffix[1] != 0) return 0;
  switch (*suffix) {
    case 'k':
    case 'K':
      return int64_t{1} << 10;
    case 'm':
    case 'M':
      return int64_t{1} << 20;
    case 'g':
    case 'G':
      return int64_t{1} << 30;
    default:
      return 0;
  }
}

}  // namespace

bool Parameter::isSet() const {
  const char* value = getenv(name_);
  return value != nullptr && *value != 0;
}

std::string Parameter::text() const {
  return isSet() ? getenv(name_) : fallback_;
}

Result<int64_t> Parameter::integer(int64_t low, int64_t high) const {
  const std::string value = text();
  char* end = nullptr;
  errno = 0;
  const long long parsed = strtoll(value.c_str(), &end, 10);
  const int64_t factor = end == value.c_str() ? 0 : suffixFactor(end);
  int64_t scaled = 0;
  const bool overflow = errno != 0 || __builtin_mul_overflow(int64_t{parsed}, factor, &scaled);
  if (factor == 0 || overflow || scaled < low || scaled > high) {
    return fail(Code::kInvalidUsage, "%s=%s: not a whole number from %lld to %lld (K, M and G allowed)",
                name_, value.c_str(), static_cast<long long>(low), static_cast<long long>(high));
  }
  return scaled;
}

Result<double> Parameter::seconds(double low, double high) const {
  const std::string value = text();
  char* end = nullptr;
  const double parsed = strtod(value.c_str(), &end);
  if (end == value.c_str() || *end != 0 || !(parsed >= low && parsed <= high)) {
    return fail(Code::kInvalidUsage, "%s=%s: not a number of seconds from %g to %g", name_, value.c_str(),
                low, high);
  }
  return parsed;
}

Result<bool> Parameter::flag() const {
  const std::string value = text();
  if (value == "1") return true;
  if (value == "0") return false;
  return fail(Code::kInvalidUsage, "%s=%s: write 0 or 1", name_, value.c_str());
}

namespace parameters {

constexpr Parameter kTimeout{"STRETTO_TIMEOUT", "1800", "seconds until a wait on a peer gives up"};
constexpr Parameter kWarnAfter{"STRETTO_WARN_AFTER", "10",
                               "seconds after which a wait on a peer is told of at WARN, once; 0: never"};
constexpr Parameter kInitTimeout{"STRETTO_INIT_TIMEOUT", "300", "seconds until all ranks must have joined"};
constexpr Parameter kAlgo{"STRETTO_ALGO", "", "force an algorithm: NAME or COLLECTIVE:NAME,..."};
constexpr Parameter kProto{"STRETTO_PROTO", "",
                           "force a readiness protocol: lines or chunks; between GPUs also wide, bare, runs, "
                           "copy, pull, pull_push, pull_nosync"};
constexpr Parameter kLink{"STRETTO_LINK", "",
                          "force how ranks reach each other: memory, shm, net; of GPUs net alone"};
constexpr Parameter kHosts{"STRETTO_HOSTS", "auto",
                           "who serves GPUs of several hosts: own, nccl, or auto, which is nccl for now"};
constexpr Parameter kProxyThreads{
    "STRETTO_PROXY_THREADS", "", "threads that move a GPU's bytes between hosts: 1 to 4 (default: by cores)"};
constexpr Parameter kRealNccl{"STRETTO_REAL_NCCL", "",
                              "path of NVIDIA's libnccl.so.2, for what is handed to it; none: never"};
constexpr Parameter kDevice{"STRETTO_DEVICE", "auto",
                            "where ranks keep their data: cuda, cpu or auto (cuda if there is one)"};
constexpr Parameter kSharedDevice{
    "STRETTO_SHARED_DEVICE", "0",
    "1: ranks may share a GPU, for tests, with room for 8 kernels at a time or two for each rank, whichever "
    "is more, if it has as many multiprocessors; 2 and more: with room for so many, and one for each rank"};
constexpr Parameter kChannels{"STRETTO_LANES", "128",
                              "thread blocks of a GPU that an operation may use: 1 to 128"};
constexpr Parameter kBlocks{"STRETTO_BLOCKS", "", "how many of them every operation uses (default: planned)"};
constexpr Parameter kDeterministic{"STRETTO_DETERMINISTIC", "0", "1: the same bits from every algorithm"};
constexpr Parameter kTable{"STRETTO_TABLE", "", "file with the measured table (default: the shipped one)"};
constexpr Parameter kRings{"STRETTO_RINGS", "1", "rings that a ring algorithm uses: 1, 2 or 4"};
constexpr Parameter kRingGather{"STRETTO_RING_GATHER", "one_way",
                                "how a ring passes finished blocks on: one_way or both_ways round"};
constexpr Parameter kSpin{"STRETTO_SPIN", "",
                          "microseconds a wait spins before it yields (default: by cores)"};
constexpr Parameter kSlotBytes{"STRETTO_SLOT_BYTES", "", "bytes of slots per rank (default: by ranks)"};
constexpr Parameter kFlightDirectory{
    "STRETTO_FLIGHT_DIR", "",
    "folder that keeps each rank's flight recorder; none: no files (default: "
    "of ranks that do not end in peace, in /dev/shm)"};
constexpr Parameter kFlightLate{"STRETTO_FLIGHT_LATE", "0",
                                "seconds after which a wait on a peer has the flight recorders of its "
                                "communicator copied within STRETTO_FLIGHT_DIR; 0: never"};
constexpr Parameter kCpuLevel{"STRETTO_CPU", "", "force the vector level: scalar, avx2, avx512 or neon"};
constexpr Parameter kMaxCtas{
    "NCCL_MAX_CTAS", "",
    "thread blocks that an operation may take at most, in place of ncclConfig_t's maxCTAs"};
constexpr Parameter kHostId{"NCCL_HOSTID", "", "text that replaces this host's identity"};
constexpr Parameter kSocketInterface{"NCCL_SOCKET_IFNAME", "",
                                     "network interface where ranks of other hosts reach this one"};
constexpr Parameter kSocketFamily{"NCCL_SOCKET_FAMILY", "",
                                  "AF_INET or AF_INET6: addresses of this family alone"};
constexpr Parameter kNet{"NCCL_NET", "", "name of the net between hosts; Socket and tcp are our own"};
constexpr Parameter kNetPlugin{"NCCL_NET_PLUGIN", "libnccl-net.so",
                               "net plugins, the first that works: paths, names, STATIC_PLUGIN or none"};
constexpr Parameter kNetFlows{"STRETTO_NET_FLOWS", "",
                              "TCP connections of a connection between hosts, over each network interface "
                              "(default: one, or one for each helper thread)"};
constexpr Parameter kNetThreads{
    "STRETTO_NET_THREADS", "",
    "helper threads of a process that move large messages between hosts (default: from 8 cores on a "
    "quarter of them, at most half of a rank's share and at most 8; else none)"};
constexpr Parameter kLocalWorldSize{"LOCAL_WORLD_SIZE", "1",
                                    "ranks on this host, as torchrun and stretto run say it"};
constexpr Parameter kOpenMpiLocalSize{"OMPI_COMM_WORLD_LOCAL_SIZE", "1",
                                      "ranks on this host, as OpenMPI's mpirun says it"};
constexpr Parameter kNetMerge{"STRETTO_NET_MERGE", "1",
                              "1: all network interfaces together are one device; 0: each is one"};
constexpr Parameter kNetChunk{
    "STRETTO_NET_CHUNK", "512K",
    "the most bytes of a message between hosts that go over one TCP connection at a time"};
constexpr Parameter kNetSmall{
    "STRETTO_NET_SMALL", "64K",
    "messages between hosts of up to so many bytes go before their receive is there"};
constexpr Parameter kNetLeastWindow{"STRETTO_NET_WINDOW_MIN", "512K",
                                    "bytes under way over each of several TCP connections, at least"};
constexpr Parameter kNetMostWindow{"STRETTO_NET_WINDOW_MAX", "16M",
                                   "bytes under way over each of several TCP connections, at most"};
constexpr Parameter kNetSilence{"STRETTO_NET_SILENCE", "4",
                                "seconds until a host that does not answer counts as gone"};
constexpr Parameter kNetSpeed{"STRETTO_NET_SPEED", "",
                              "Mbit/s of network interfaces whose driver does not say it"};
constexpr Parameter kNetGrouped{"STRETTO_NET_GROUPED", "1",
                                "receives in one request that the net plugin offers to NCCL: 1 to 8"};
constexpr Parameter kTls{
    "STRETTO_TLS", "0",
    "1: connections between processes are encrypted (TLS 1.3, by OpenSSL 3 of this machine)"};
constexpr Parameter kProfilerPlugin{
    "NCCL_PROFILER_PLUGIN", "",
    "profiler plugin: a path, a name, STATIC_PLUGIN or none (default: libnccl-profiler.so)"};
constexpr Parameter kProfileEvery{"STRETTO_PROFILE_EVERY", "1",
                                  "a profiler plugin is told of every n-th operation of each function"};
constexpr Parameter kTopologyFile{"STRETTO_TOPO_FILE", "", "read the topology from this file, do not probe"};
constexpr Parameter kTopologyDump{"STRETTO_TOPO_DUMP", "", "write the topology found to this file"};

namespace {

// 0 is never.
Result<double> secondsOrNever(const Parameter& parameter) {
  const auto seconds = parameter.seconds(0, 1e7);
  return seconds.ok() && seconds.value() == 0 ? Result(std::numeric_limits<double>::infinity()) : seconds;
}

}  // namespace

Result<double> warnAfter() {
  return secondsOrNever(kWarnAfter);
}

Result<int64_t> sharedDevice() {
  return kSharedDevice.integer(0, 1024);
}

Result<double> flightLate() {
  const auto seconds = secondsOrNever(kFlightLate);
  const bool isFolder = kFlightDirectory.isSet() && kFlightDirectory.text() != "none";
  if (!seconds.ok() || isFolder || std::isinf(seconds.value())) return seconds;
  return fail(Code::kInvalidUsage, "STRETTO_FLIGHT_LATE=%s needs STRETTO_FLIGHT_DIR, a folder for the copies",
              kFlightLate.text().c_str());
}

std::span<const Parameter* const> all() {
  static constexpr const Parameter* kAll[] = {&kTimeout,
                                              &kWarnAfter,
                                              &kInitTimeout,
                                              &kAlgo,
                                              &kProto,
                                              &kLink,
                                              &kHosts,
                                              &kProxyThreads,
                                              &kDevice,
                                              &kSharedDevice,
                                              &kChannels,
                                              &kBlocks,
                                              &kDeterministic,
                                              &kTable,
                                              &kSpin,
                                              &kRings,
                                              &kRingGather,
                                              &kSlotBytes,
                                              &kFlightDirectory,
                                              &kCpuLevel,
                                              &kHostId,
                                              &kMaxCtas,
                                              &kSocketInterface,
                                              &kProfilerPlugin,
                                              &kProfileEvery,
                                              &kTopologyFile,
                                              &kTopologyDump,
                                              &kRealNccl,
                                              &kSocketFamily,
                                              &kNetFlows,
                                              &kNetThreads,
                                              &kLocalWorldSize,
                                              &kOpenMpiLocalSize,
                                              &kNetMerge,
                                              &kNetChunk,
                                              &kNetSmall,
                                              &kNetLeastWindow,
                                              &kNetMostWindow,
                                              &kNetSilence,
                                              &kNet,
                                              &kNetPlugin,
                                              &kNetSpeed,
                                              &kNetGrouped,
                                              &kTls,
                                              &kFlightLate};
  return kAll;
}

}  // namespace parameters
}  // namespace stretto
