#include "platform/network_interface.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/stable_sort.hpp"

namespace stretto {
namespace {

struct Found {
  std::string name;
  SocketAddress address;
};

// Family 0 if it is none that others could use.
SocketAddress addressOf(const sockaddr* native) {
  SocketAddress address;
  if (native != nullptr && native->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(native);
    address.family = 4;
    std::memcpy(address.bytes, &four->sin_addr, sizeof four->sin_addr);
  } else if (native != nullptr && native->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(native);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return address;
    address.family = 6;
    std::memcpy(address.bytes, &six->sin6_addr, sizeof six->sin6_addr);
  }
  return address;
}

// Those that are up, IPv4 first, else in the kernel's order.
Result<std::vector<Found>> allInterfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return failErrno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<Found> all;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const SocketAddress address = addressOf(one->ifa_addr);
    if (address.family != 0 && (one->ifa_flags & IFF_UP) != 0) all.push_back({one->ifa_name, address});
  }
  const auto isFirst = [](const Found& one) { return one.address.family == 4; };
  sortStably(all, [&](const Found& a, const Found& b) { return isFirst(a) && !isFirst(b); });
  return all;
}

bool beginsWith(const std::string& text, const std::string& beginning) {
  return text.compare(0, beginning.size(), beginning) == 0;
}

}  // namespace

bool interfaceMatches(const std::string& list, const std::string& name) {
  size_t at = 0;
  const bool except = beginsWith(list, "^");
  if (except) ++at;
  const bool exact = at < list.size() && list[at] == '=';
  if (exact) ++at;
  bool found = false;
  while (at < list.size()) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string wanted = list.substr(at, end - at);
    found = found || (!wanted.empty() && (exact ? name == wanted : beginsWith(name, wanted)));
    at = end + 1;
  }
  return found != except;
}

Result<SocketAddress> interfaceAddress(const std::string& list) {
  const auto all = allInterfaces();
  if (!all.ok()) return all.status();
  std::string names;
  for (const Found& one : all.value()) {
    if (interfaceMatches(list, one.name)) return one.address;
    names += (names.empty() ? "" : ", ") + one.name;
  }
  return fail(Code::kInvalidUsage,
              "NCCL_SOCKET_IFNAME=%s chooses none of this host's network interfaces that are up and have an "
              "address (%s)",
              list.c_str(), names.c_str());
}

}  // namespace stretto
