#include "platform/network_interface.hpp"

#include <cstring>
#include <vector>

#include "platform/windows/native.hpp"

namespace stretto {
namespace {

using namespace platform::windows;

SocketAddress bytesOf(const sockaddr* native) {
  SocketAddress address;
  if (native != nullptr && native->sa_family == AF_INET) {
    address.family = 4;
    std::memcpy(address.bytes, &reinterpret_cast<const sockaddr_in*>(native)->sin_addr, 4);
  } else if (native != nullptr && native->sa_family == AF_INET6) {
    address.family = 6;
    std::memcpy(address.bytes, &reinterpret_cast<const sockaddr_in6*>(native)->sin6_addr, 16);
  }
  return address;
}

}  // namespace

// By the names that users see ("Ethernet"). A network card's slot is not told.
Result<std::vector<NetworkInterface>> allInterfaces() {
  constexpr ULONG kFlags = GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER;
  ULONG bytes = 64 << 10;
  std::vector<IP_ADAPTER_ADDRESSES> room;
  ULONG error = ERROR_BUFFER_OVERFLOW;
  for (int attempt = 0; attempt < 4 && error == ERROR_BUFFER_OVERFLOW; ++attempt) {
    room.resize(bytes / sizeof(IP_ADAPTER_ADDRESSES) + 1);
    error = GetAdaptersAddresses(AF_UNSPEC, kFlags, nullptr, room.data(), &bytes);
  }
  std::vector<NetworkInterface> all;
  if (error == ERROR_NO_DATA) return all;
  if (error != NO_ERROR) {
    return fail(Code::kSystem, "cannot list the network interfaces: %s", sentenceOf(error).c_str());
  }
  for (const IP_ADAPTER_ADDRESSES* adapter = room.data(); adapter != nullptr; adapter = adapter->Next) {
    if (adapter->OperStatus != IfOperStatusUp) continue;
    for (const auto* unicast = adapter->FirstUnicastAddress; unicast != nullptr; unicast = unicast->Next) {
      const SocketAddress address = bytesOf(unicast->Address.lpSockaddr);
      if (address.family == 0) continue;
      NetworkInterface found;
      found.name = utf8(adapter->FriendlyName);
      found.address = address;
      found.prefixBits = unicast->OnLinkPrefixLength;
      found.connected = true;
      found.bitsPerSecond =
          adapter->TransmitLinkSpeed == ~ULONG64{0} ? 0 : static_cast<int64_t>(adapter->TransmitLinkSpeed);
      all.push_back(std::move(found));
    }
  }
  return all;
}

// All is known already.
void addDeviceFacts(NetworkInterface&) {}

}  // namespace stretto
