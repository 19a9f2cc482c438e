// Sends and receives of one group, progressed together over links, so that any order of calls that pairs up
// ends. Called by the communicator on whichever thread runs the group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "base/types.hpp"
#include "links/net/spread_host.hpp"
#include "primitives/host/host.hpp"

namespace stretto::executors::host {

// One send or receive. `tag` is equal at both ends exactly if type and count are.
struct HostTransfer {
  bool isSend = false;
  int peer = -1;
  std::byte* data = nullptr;  // only read when sending
  size_t bytes = 0;
  DataType type = DataType::kInt8;
  uint64_t tag = 0;
  int before = -1;  // the transfer before it, of the same group, to or from the same peer; -1: none

  size_t moved = 0;       // progress, the executor's
  bool finished = false;  // moved == bytes, and a message of no bytes has gone
};

// Told of every chunk of transfers between ranks, on the thread that runs them.
class TransferWatch {
 public:
  virtual void ready(const HostTransfer& transfer, size_t bytes) = 0;  // its wait is over: it is copied now
  virtual void moved(const HostTransfer& transfer) = 0;                // it is copied

 protected:
  ~TransferWatch() = default;
};

// Runs all to their end. Between two ranks, sends meet receives in the order of the calls. `watch` may be
// null.
Status runTransfers(Host& host, std::span<HostTransfer> transfers, TransferWatch* watch = nullptr);
Status runTransfers(links::net::SpreadHost& host, std::span<HostTransfer> transfers,
                    TransferWatch* watch = nullptr);

// Whether a receive from that rank would find something. Not ok if nothing comes from it any more.
Result<bool> hasArrived(Host& host, int peer);
Result<bool> hasArrived(links::net::SpreadHost& host, int peer);

}  // namespace stretto::executors::host
