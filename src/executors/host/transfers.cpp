#include "executors/host/transfers.hpp"

#include <algorithm>

#include "algorithms/link_channel.hpp"
#include "primitives/disagreement.hpp"

namespace stretto::executors::host {
namespace {

using algorithms::Inlet;
using algorithms::Outlet;

// The next chunk of a transfer.
template <typename B>
size_t nextChunk(const B& host, const HostTransfer& transfer) {
  return std::min<size_t>(transfer.bytes - transfer.moved, algorithms::mostInChunk(host));
}

void account(HostTransfer& transfer, size_t bytes) {
  transfer.moved += bytes;
  transfer.finished = transfer.moved == transfer.bytes;
}

// Sends as many chunks as there are free slots; true if any went.
template <typename B>
Result<bool> progressSend(B& host, HostTransfer& transfer, TransferWatch* watch) {
  Outlet<B> outlet(host, transfer.peer);
  bool any = false;
  while (!transfer.finished && outlet.open()) {
    const size_t bytes = nextChunk(host, transfer);
    if (watch != nullptr) [[unlikely]]
      watch->ready(transfer, bytes);
    host.setTag(transfer.tag);
    host.linkAt(transfer.peer, host.cursors(transfer.peer).sent)->bytes = transfer.bytes;
    if (const Status status = outlet.lend(transfer.data + transfer.moved, bytes); !status.ok()) return status;
    account(transfer, bytes);
    if (watch != nullptr) [[unlikely]]
      watch->moved(transfer);
    any = true;
  }
  return any;
}

CallRecord callOf(const HostTransfer& transfer) {
  CallRecord call{};
  call.tag = transfer.tag;
  call.count = transfer.bytes / sizeOf(transfer.type);
  call.startedTicks = platform::ticks();
  call.collective = static_cast<uint8_t>(transfer.isSend ? Collective::kSend : Collective::kReceive);
  call.type = static_cast<uint8_t>(transfer.type);
  call.op = 0xff;
  call.root = transfer.peer;
  return call;
}

template <typename B>
Status differentMessages(B& host, const HostTransfer& transfer, const Mailbox& mailbox) {
  host.hear(transfer.peer);
  const CallRecord theirs = currentCall(host.peer(transfer.peer).header());
  host.disagrees(transfer.peer, callOf(transfer));
  return failAbout(
      transfer.peer, Code::kInvalidUsage,
      "rank %d receives %zu bytes from rank %d, which sent a message of %llu bytes%s (its call is %s): send "
      "and "
      "receive must agree in count and type, and all ranks make the same calls in the same order",
      host.rank(), transfer.bytes, transfer.peer, static_cast<unsigned long long>(mailbox.bytes),
      mailbox.bytes == transfer.bytes ? " of another type, or runs another operation" : "",
      inWords(theirs).c_str());
}

// What a rank waits for that can do none of its transfers: any of the peers of those that are left.
AwaitedWord awaitedFor(std::span<const HostTransfer> transfers, CallRecord& call) {
  AwaitedWord awaited;
  for (const HostTransfer& transfer : transfers) {
    if (transfer.finished) continue;
    if (awaited.peer < 0) {
      awaited.peer = transfer.peer;
      call = callOf(transfer);
    }
    awaited.anyOf.add(transfer.peer);
  }
  awaited.transfer = &call;
  return awaited;
}

template <typename B>
Result<bool> progressReceive(B& host, HostTransfer& transfer, TransferWatch* watch) {
  Inlet<B> inlet(host, transfer.peer);
  bool any = false;
  while (!transfer.finished && inlet.arrived()) {
    const size_t bytes = nextChunk(host, transfer);
    if (watch != nullptr) [[unlikely]]
      watch->ready(transfer, bytes);
    host.setTag(transfer.tag);
    const Mailbox& mailbox = *host.linkFrom(transfer.peer, host.cursors(transfer.peer).received);
    if (mailbox.tag != transfer.tag) return differentMessages(host, transfer, mailbox);
    if (const Status status = inlet.receive(transfer.data + transfer.moved, bytes, false); !status.ok())
      return status;
    account(transfer, bytes);
    if (watch != nullptr) [[unlikely]]
      watch->moved(transfer);
    any = true;
  }
  return any;
}

// Messages to oneself: the k-th send meets the k-th receive.
Status copyToSelf(const Host& host, std::span<HostTransfer> transfers) {
  auto isOpen = [&](const HostTransfer& t, bool isSend) {
    return t.peer == host.rank() && t.isSend == isSend && !t.finished;
  };
  for (HostTransfer& from : transfers) {
    if (!isOpen(from, true)) continue;
    const auto to =
        std::find_if(transfers.begin(), transfers.end(), [&](HostTransfer& t) { return isOpen(t, false); });
    if (to == transfers.end() || to->tag != from.tag) {
      return fail(
          Code::kInvalidUsage,
          "rank %d sends %zu bytes to itself: the same group must hold a receive of the same count and type",
          host.rank(), from.bytes);
    }
    std::memmove(to->data, from.data, from.bytes);
    from.finished = to->finished = true;
  }
  const bool lonely =
      std::any_of(transfers.begin(), transfers.end(), [&](HostTransfer& t) { return isOpen(t, false); });
  return lonely ? fail(Code::kInvalidUsage, "rank %d receives from itself without a send in the same group",
                       host.rank())
                : kOkStatus;
}

// One look at every transfer that is first in its queue; true if anything moved.
template <typename B>
Result<bool> progressAll(B& host, std::span<HostTransfer> transfers, TransferWatch* watch,
                         bool& allFinished) {
  bool any = false;
  allFinished = true;
  for (HostTransfer& transfer : transfers) {
    if (transfer.finished) continue;
    if (transfer.before < 0 || transfers[static_cast<size_t>(transfer.before)].finished) {
      const auto moved =
          transfer.isSend ? progressSend(host, transfer, watch) : progressReceive(host, transfer, watch);
      if (!moved.ok()) return moved.status();
      any = any || moved.value();
    }
    allFinished = allFinished && transfer.finished;
  }
  return any;
}

template <typename B>
Status runAll(B& host, std::span<HostTransfer> transfers, TransferWatch* watch) {
  STRETTO_TRY(copyToSelf(host, transfers));
  bool allFinished = false;
  while (true) {
    auto moved = progressAll(host, transfers, watch, allFinished);
    if (!moved.ok()) return moved.status();
    if (allFinished) return host.finish();
    // What a long wait tells of itself is not made up for a short one. The first polls come without a pause,
    // which can take as long as half a message.
    constexpr int kAtOnce = 32;
    for (int poll = 0; poll < host.quickPolls() && moved.ok() && !moved.value(); ++poll) {
      if (poll >= kAtOnce) platform::relax();
      STRETTO_TRY(host.progress());
      moved = progressAll(host, transfers, watch, allFinished);
    }
    if (!moved.ok()) return moved.status();
    if (allFinished) return host.finish();
    if (moved.value()) continue;
    CallRecord call;
    const AwaitedWord awaited = awaitedFor(transfers, call);
    Patience patience(host, awaited);
    while (!moved.value()) {
      Status status = host.progress(awaited.anyOf);
      if (status.ok()) status = patience.step();
      moved = progressAll(host, transfers, watch, allFinished);
      if (!moved.ok()) return moved.status();
      // What had come when the reason to give up was seen counts.
      if (!status.ok() && !moved.value()) return status;
    }
  }
}

template <typename B>
Result<bool> look(B& host, int peer) {
  const Inlet<B> inlet(host, peer);
  if (inlet.arrived()) return true;
  const Status status = host.isWithUs(peer, "looks for a message of");
  if (inlet.arrived()) return true;  // since then
  if (!status.ok()) return status;
  return false;
}

}  // namespace

Status runTransfers(Host& host, std::span<HostTransfer> transfers, TransferWatch* watch) {
  return runAll(host, transfers, watch);
}

Status runTransfers(links::net::SpreadHost& host, std::span<HostTransfer> transfers, TransferWatch* watch) {
  return host.giveBack(runAll(host, transfers, watch));
}

Result<bool> hasArrived(Host& host, int peer) {
  return look(host, peer);
}

Result<bool> hasArrived(links::net::SpreadHost& host, int peer) {
  return look(host, peer);
}

}  // namespace stretto::executors::host
