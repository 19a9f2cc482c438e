#include "bootstrap/hosts.hpp"

#include <algorithm>

namespace stretto::bootstrap {

HostLink* Hosting::byConnection(uint64_t token) {
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const HostLink& host) { return host.connection == token; });
  return found == hosts.end() ? nullptr : &*found;
}

HostLink* Hosting::byProcess(uint64_t process) {
  const auto found =
      std::find_if(hosts.begin(), hosts.end(), [&](const HostLink& host) { return host.process == process; });
  return found == hosts.end() ? nullptr : &*found;
}

void Hosting::forget(uint64_t process) {
  std::erase_if(hosts, [&](const HostLink& host) { return host.process == process; });
}

bool Hosting::suspected(uint64_t process) const {
  return std::any_of(suspects.begin(), suspects.end(),
                     [&](const Suspect& suspect) { return suspect.process == process; });
}

bool Hosting::heard() const {
  return std::any_of(hosts.begin(), hosts.end(), [](const HostLink& host) { return host.member; });
}

size_t Hosting::wanted() const {
  const auto vain = [](const HostLink& host) { return host.attempts > 0; };
  const auto more = parting == nullptr ? 0 : std::count_if(hosts.begin(), hosts.end(), vain);
  return kHostsWanted + static_cast<size_t>(more);
}

std::vector<size_t> desiredHosts(std::span<const MemberInfo> members, const std::vector<bool>& gone,
                                 size_t wanted) {
  std::vector<size_t> hosts;
  for (size_t rank = 0; rank < members.size() && hosts.size() < wanted; ++rank) {
    const auto same = [&](size_t host) { return members[host].process == members[rank].process; };
    if (!gone[rank] && std::none_of(hosts.begin(), hosts.end(), same)) hosts.push_back(rank);
  }
  return hosts;
}

}  // namespace stretto::bootstrap
