#include "platform/network_interface.hpp"

#include <algorithm>
#include <utility>

#include "base/stable_sort.hpp"

namespace stretto {
namespace {

bool isOfOneLink(const SocketAddress& address) {
  return address.family == 6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

// Those whose address others could use, IPv4 first, else in the kernel's order.
Result<std::vector<NetworkInterface>> usableInterfaces() {
  auto all = allInterfaces();
  if (!all.ok()) return all;
  std::erase_if(all.value(), [](const NetworkInterface& one) { return isOfOneLink(one.address); });
  const auto isFirst = [](const NetworkInterface& one) { return one.address.family == 4; };
  sortStably(all.value(),
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
  const auto all = usableInterfaces();
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
  auto all = usableInterfaces();
  if (!all.ok()) return all.status();
  std::vector<NetworkInterface> chosen;
  for (NetworkInterface& one : all.value()) {
    const auto sameName = [&](const NetworkInterface& other) { return other.name == one.name; };
    if (family != 0 && one.address.family != family) continue;
    if (std::any_of(chosen.begin(), chosen.end(), sameName)) continue;
    addDeviceFacts(one);
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
