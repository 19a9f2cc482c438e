// Which of this host's network interfaces to be reached at, chosen as NCCL_SOCKET_IFNAME has it. Any folder
// may include this; any thread.
#pragma once

#include <string>

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

}  // namespace stretto
