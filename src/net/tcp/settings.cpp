#include "net/tcp/settings.hpp"

#include <algorithm>
#include <string>

#include "base/parameters.hpp"
#include "net/tcp/wire.hpp"
#include "platform/cores.hpp"

namespace stretto::net::tcp {
namespace {

constexpr size_t kLeastChunkOfHelpers = 32 << 10;  // to hand over less costs as much as to send it

std::vector<NetworkInterface> those(const std::vector<NetworkInterface>& all, const std::string& list) {
  std::vector<NetworkInterface> chosen;
  for (const NetworkInterface& one : all) {
    if (interfaceMatches(list, one.name)) chosen.push_back(one);
  }
  return chosen;
}

// Without a choice of the user's: all but loopback and those between containers, and of these none that is
// not connected or has less than half the speed of the fastest. Only if there is no other, those.
std::vector<NetworkInterface> chosenByThemselves(const std::vector<NetworkInterface>& all) {
  for (const char* list : {"^docker,lo,virbr,veth,br-", "^lo", "lo"}) {
    std::vector<NetworkInterface> chosen = those(all, list);
    int64_t fastest = 0;
    for (const NetworkInterface& one : chosen) fastest = std::max(fastest, one.bitsPerSecond);
    std::erase_if(chosen, [&](const NetworkInterface& one) {
      return !one.connected || (one.bitsPerSecond > 0 && one.bitsPerSecond < fastest / 2);
    });
    if (!chosen.empty()) return chosen;
  }
  return {};
}

Result<int> familyOfEnvironment() {
  const std::string family = parameters::kSocketFamily.text();
  if (family.empty()) return 0;
  if (family == "AF_INET") return 4;
  if (family == "AF_INET6") return 6;
  return fail(Code::kInvalidUsage, "NCCL_SOCKET_FAMILY=%s: write AF_INET or AF_INET6", family.c_str());
}

Result<std::vector<NetworkInterface>> interfacesOfEnvironment() {
  const auto family = familyOfEnvironment();
  if (!family.ok()) return family.status();
  const auto all = networkInterfaces(family.value());
  if (!all.ok()) return all.status();
  const std::string list = parameters::kSocketInterface.text();
  std::vector<NetworkInterface> chosen =
      list.empty() ? chosenByThemselves(all.value()) : those(all.value(), list);
  if (chosen.size() > kMostAddresses) chosen.resize(kMostAddresses);
  if (!chosen.empty()) return chosen;
  std::string names;
  for (const NetworkInterface& one : all.value()) names += (names.empty() ? "" : ", ") + one.name;
  return fail(Code::kInvalidUsage,
              "NCCL_SOCKET_IFNAME=%s chooses none of this host's network interfaces that are up and have an "
              "address (%s)",
              list.c_str(), names.c_str());
}

// A size or a number from the environment into `value`.
template <typename T>
Status take(const Parameter& parameter, int64_t low, int64_t high, T& value) {
  const auto number = parameter.integer(low, high);
  if (!number.ok()) return number.status();
  value = static_cast<T>(number.value());
  return kOkStatus;
}

// As launchers say it; 1 if none does.
int ranksHere() {
  for (const Parameter* one : {&parameters::kLocalWorldSize, &parameters::kOpenMpiLocalSize}) {
    if (!one->isSet()) continue;
    const auto ranks = one->integer(1, 1 << 20);
    if (ranks.ok()) return static_cast<int>(ranks.value());
  }
  return 1;
}

// Helpers only pay where cores are left for them: two threads that spin on one core take turns of
// milliseconds.
int threadsByThemselves() {
  constexpr int kLeastCores = 8, kMostThreads = 8;
  const int cores = platform::usableCores();
  return cores < kLeastCores ? 0 : std::min({cores / 4, cores / ranksHere() / 2, kMostThreads});
}

Status takeThreadsAndFlows(Settings& settings) {
  constexpr int kMostHelpers = 64;
  settings.threads = threadsByThemselves();
  if (parameters::kNetThreads.isSet()) {
    STRETTO_TRY(take(parameters::kNetThreads, 0, kMostHelpers, settings.threads));
  }
  settings.flows = std::max(1, settings.threads / static_cast<int>(settings.interfaces.size()));
  if (!parameters::kNetFlows.isSet()) return kOkStatus;
  return take(parameters::kNetFlows, 1, kMostFlows, settings.flows);
}

}  // namespace

Result<Settings> settingsOfEnvironment(const Encryption& encryption) {
  Settings settings;
  auto interfaces = interfacesOfEnvironment();
  if (!interfaces.ok()) return interfaces.status();
  settings.interfaces = std::move(interfaces.value());
  settings.encryption = encryption;
  const auto merge = parameters::kNetMerge.flag();
  if (!merge.ok()) return merge.status();
  settings.merge = merge.value();
  STRETTO_TRY(takeThreadsAndFlows(settings));
  STRETTO_TRY(take(parameters::kNetChunk, kLeastChunk, kMostMessage, settings.mostChunk));
  const size_t least = settings.threads > 0 ? kLeastChunkOfHelpers : settings.mostChunk;
  settings.chunk = std::min(least, settings.mostChunk);
  STRETTO_TRY(take(parameters::kNetSmall, 0, kMostSmall, settings.small));
  STRETTO_TRY(take(parameters::kNetLeastWindow, kLeastChunk, kMostMessage, settings.leastWindow));
  STRETTO_TRY(take(parameters::kNetMostWindow, kLeastChunk, kMostMessage, settings.mostWindow));
  settings.mostWindow = std::max(settings.mostWindow, settings.leastWindow);
  const auto silence = parameters::kNetSilence.seconds(2, 3600);
  if (!silence.ok()) return silence.status();
  settings.silence = silence.value();
  if (parameters::kNetSpeed.isSet()) {
    int64_t megabits = 0;
    STRETTO_TRY(take(parameters::kNetSpeed, 1, 10'000'000, megabits));
    for (NetworkInterface& one : settings.interfaces) {
      if (one.bitsPerSecond == 0) one.bitsPerSecond = megabits * 1'000'000;
    }
  }
  return settings;
}

}  // namespace stretto::net::tcp
