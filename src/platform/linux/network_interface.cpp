#include "platform/network_interface.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

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

}  // namespace

Result<std::vector<NetworkInterface>> allInterfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return failErrno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<NetworkInterface> all;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const SocketAddress address = bytesOf(one->ifa_addr);
    if (address.family == 0 || (one->ifa_flags & IFF_UP) == 0) continue;
    NetworkInterface found;
    found.name = one->ifa_name;
    found.address = address;
    found.prefixBits = bitsOf(one->ifa_netmask);
    found.connected = (one->ifa_flags & IFF_RUNNING) != 0;
    all.push_back(std::move(found));
  }
  return all;
}

void addDeviceFacts(NetworkInterface& one) {
  const int64_t megabits = numberIn(one.name, "speed", -1);  // -1, too, is what some drivers say
  one.bitsPerSecond = megabits > 0 ? megabits * 1000000 : 0;
  const std::string device = "/sys/class/net/" + one.name + "/device";
  const std::unique_ptr<char, decltype(&::free)> path(::realpath(device.c_str(), nullptr), &::free);
  if (path != nullptr) one.pciPath = path.get();
}

}  // namespace stretto
