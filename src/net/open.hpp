// Which net carries the bytes between hosts in this process. Those above net/ start here.
#pragma once

#include <memory>

#include "net/net.hpp"
#include "platform/encryption.hpp"

namespace stretto::net {

// By NCCL's rules: the first plugin of the comma list NCCL_NET_PLUGIN that works (libnccl-net.so if it is not
// set; none: no plugin), else our own sockets. NCCL_NET is the name that the net must have; Socket, tcp and
// Stretto are ours. kInvalidUsage if no net has it, or where connections are encrypted and it is not ours.
Result<std::shared_ptr<Net>> open(const Encryption& encryption);
// Encrypted as the process is told now.
Result<std::shared_ptr<Net>> open();

}  // namespace stretto::net
