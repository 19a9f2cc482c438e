#include "platform/network_interface.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "base/stable_sort.hpp"

namespace stretto {
namespace {

// Family 0 if it is none of IP.
SocketAddress bytesOf(const sockaddr* native) {
  SocketAddress address;
  if (native != nullptr && native->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(native);
    address.family = 4;
    std::memcpy(address.bytes, &four->sin_addr, sizeof four->sin_addr);
  } else if (native != nullptr && native->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(native);
    address.family = 6;
    std::memcpy(address.bytes, &six->sin6_addr, sizeof six->sin6_addr);
  }
  return address;
}

// Family 0 if it is none that others could use.
SocketAddress addressOf(const sockaddr* native) {
  const SocketAddress address = bytesOf(native);
  const bool ofOneLink = address.family == 6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
  return ofOneLink ? SocketAddress{} : address;
}

// A whole number that the kernel shows in a file of an interface's folder, or what stands in for it.
int64_t numberIn(const std::string& name, const char* file, int64_t otherwise) {
  std::ifstream stream("/sys/class/net/" + name + "/" + file);
  int64_t number = 0;
  return stream >> number ? number : otherwise;
}

int bitsOf(const sockaddr* mask) {
  const SocketAddress address = bytesOf(mask);
  int bits = 0;
  for (const uint8_t byte : address.bytes) bits += std::popcount(byte);
  return bits;
}

// Those that are up, IPv4 first, else in the kernel's order; one that has several addresses, several times.
Result<std::vector<NetworkInterface>> allInterfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return failErrno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<NetworkInterface> all;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const SocketAddress address = addressOf(one->ifa_addr);
    if (address.family == 0 || (one->ifa_flags & IFF_UP) == 0) continue;
    NetworkInterface found;
    found.name = one->ifa_name;
    found.address = address;
    found.prefixBits = bitsOf(one->ifa_netmask);
    found.connected = (one->ifa_flags & IFF_RUNNING) != 0;
    all.push_back(std::move(found));
  }
  const auto isFirst = [](const NetworkInterface& one) { return one.address.family == 4; };
  sortStably(all,
             [&](const NetworkInterface& a, const NetworkInterface& b) { return isFirst(a) && !isFirst(b); });
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
  for (const NetworkInterface& one : all.value()) {
    if (interfaceMatches(list, one.name)) return one.address;
    names += (names.empty() ? "" : ", ") + one.name;
  }
  return fail(Code::kInvalidUsage,
              "NCCL_SOCKET_IFNAME=%s chooses none of this host's network interfaces that are up and have an "
              "address (%s)",
              list.c_str(), names.c_str());
}

Result<std::vector<NetworkInterface>> networkInterfaces(int family) {
  auto all = allInterfaces();
  if (!all.ok()) return all.status();
  std::vector<NetworkInterface> chosen;
  for (NetworkInterface& one : all.value()) {
    const auto sameName = [&](const NetworkInterface& other) { return other.name == one.name; };
    if (family != 0 && one.address.family != family) continue;
    if (std::any_of(chosen.begin(), chosen.end(), sameName)) continue;
    const int64_t megabits = numberIn(one.name, "speed", -1);  // -1, too, is what some drivers say
    one.bitsPerSecond = megabits > 0 ? megabits * 1000000 : 0;
    const std::string device = "/sys/class/net/" + one.name + "/device";
    const std::unique_ptr<char, decltype(&::free)> path(::realpath(device.c_str(), nullptr), &::free);
    if (path != nullptr) one.pciPath = path.get();
    chosen.push_back(std::move(one));
  }
  return chosen;
}

bool inNetworkOf(const NetworkInterface& interface, const SocketAddress& address) {
  if (interface.address.family != address.family) return false;
  for (int bit = 0; bit < interface.prefixBits; ++bit) {
    const int mask = 0x80 >> bit % 8;
    if (((interface.address.bytes[bit / 8] ^ address.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace stretto
