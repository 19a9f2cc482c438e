// Which of this host's network interfaces to be reached at, chosen as NCCL_SOCKET_IFNAME has it. Any folder
// may include this; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "platform/socket.hpp"

namespace stretto {

// Whether a list of names chooses `name`: "eth,ib" those that begin so, "=eth0" that very one, "^docker,lo"
// all but those that begin so, "^=eth0" all but that one.
bool interfaceMatches(const std::string& list, const std::string& name);

// The address (port 0) of the first interface that is up, has one, and is chosen by `list`; IPv4 goes before
// IPv6, and an address that is good on one link only does not count. kInvalidUsage, with what there is, when
// there is none.
Result<SocketAddress> interfaceAddress(const std::string& list);

// One that is up and has an address by which others can reach it.
struct NetworkInterface {
  std::string name;
  SocketAddress address;      // port 0
  int prefixBits = 0;         // of the address, that name the network
  bool connected = false;     // there is a cable, and somebody at its other end
  int64_t bitsPerSecond = 0;  // 0 if the driver does not say
  std::string pciPath;        // of its device in /sys, empty if it has none
};
// All of them, each with one address: of the family 4 or 6 that is asked for, or, for 0, of IPv4 if it has
// one.
Result<std::vector<NetworkInterface>> networkInterfaces(int family);

// What the operating system says: those that are up and have an address, in its order, one that has several
// addresses several times; and the speed and the device of one. For networkInterfaces() and
// interfaceAddress().
Result<std::vector<NetworkInterface>> allInterfaces();
void addDeviceFacts(NetworkInterface& one);

// Whether an address is in the network that the interface is in.
bool inNetworkOf(const NetworkInterface& interface, const SocketAddress& address);

}  // namespace stretto
