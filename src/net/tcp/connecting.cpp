#include <algorithm>

#include "net/tcp/listener.hpp"
#include "net/tcp/sender.hpp"
#include "platform/clock.hpp"
#include "platform/random.hpp"

namespace stretto::net::tcp {
namespace {

constexpr uint64_t kPause = 50'000'000;  // nanoseconds until a flow that failed is tried again
constexpr double kFirstPatience = 3;     // seconds

// The interface that a flow to `to` leaves by, if more than one could: those of its network in turn.
const NetworkInterface* interfaceFor(const std::vector<NetworkInterface>& all, const SocketAddress& to,
                                     size_t turn) {
  std::vector<const NetworkInterface*> near;
  for (const NetworkInterface& one : all) {
    if (inNetworkOf(one, to)) near.push_back(&one);
  }
  return near.empty() ? nullptr : near[turn % near.size()];
}

}  // namespace

TcpConnecting::TcpConnecting(const Settings& settings, const std::vector<NetworkInterface>& interfaces,
                             const Rendezvous& where)
    : settings_(settings), interfaces_(interfaces), where_(where) {}

Status TcpConnecting::begin() {
  const size_t ways = std::max(interfaces_.size(), where_.addresses.size());
  const size_t ofChunks = ways * static_cast<size_t>(settings_.flows);
  // Helpers leave the first flow to small messages.
  const size_t flows = std::min<size_t>(settings_.threads > 0 ? ofChunks + 1 : ofChunks, kMostFlows);
  hello_.flows = static_cast<uint16_t>(flows);
  hello_.chunk = static_cast<uint32_t>(settings_.chunk);
  hello_.small = static_cast<uint32_t>(settings_.small);
  hello_.copied = static_cast<uint32_t>(settings_.copied);
  hello_.encrypted = settings_.encryption.on ? 1 : 0;
  STRETTO_TRY(fillRandom(hello_.connection));
  callers_.resize(flows);
  flows_.resize(flows);
  nextAttempt_.resize(flows);
  failures_.resize(flows);
  patience_.resize(flows, kFirstPatience);
  failingSince_.resize(flows);
  return kOkStatus;
}

void TcpConnecting::call(size_t flow) {
  Hello hello = hello_;
  hello.flow = static_cast<uint16_t>(flow);
  if (!fillRandom(hello.nonce).ok()) return;
  // Flows begin at different addresses; one that fails there tries the next, which may be reached where that
  // one is not.
  const SocketAddress& to = where_.addresses[(flow + failures_[flow]) % where_.addresses.size()];
  callers_[flow] = std::make_unique<Caller>(where_.key, hello, to, interfaceFor(interfaces_, to, flow),
                                            settings_.encryption);
}

Status TcpConnecting::poll(std::unique_ptr<Sender>& connection) {
  const uint64_t now = platform::monotonicNanoseconds();
  for (size_t flow = 0; flow < callers_.size(); ++flow) {
    if (flows_[flow].stream.valid() || now < nextAttempt_[flow]) continue;
    if (callers_[flow] == nullptr) call(flow);
    if (callers_[flow] == nullptr) continue;
    FailedCall failed;
    const Shake state = callers_[flow]->poll(failed);
    if (state == Shake::kFailed) STRETTO_TRY(onFailure(flow, failed));
    if (state == Shake::kGoesOn) turnFromSilent(flow);
    if (state != Shake::kDone) continue;
    flows_[flow] = callers_[flow]->take();
    callers_[flow].reset();
    ++joined_;
  }
  if (joined_ == callers_.size()) {
    connection = std::make_unique<TcpSender>(hello_, std::move(flows_), settings_);
    joined_ = 0;
  }
  return kOkStatus;
}

// Who takes a greeting and does not answer may be the peer, which has other things to do, or somebody else at
// an address that several hosts have. So other addresses are tried in turns that grow longer.
void TcpConnecting::turnFromSilent(size_t flow) {
  if (where_.addresses.size() < 2 || callers_[flow]->secondsUnanswered() < patience_[flow]) return;
  callers_[flow].reset();
  ++failures_[flow];
  patience_[flow] *= 2;
}

// A listener whose queue is full looks like one that is not there, and one that has dropped a flow takes it
// the next time. Who answers and does not know the key listens at an address that several hosts have, as
// bridges do: the peer's others may be its own.
Status TcpConnecting::onFailure(size_t flow, const FailedCall& failed) {
  callers_[flow].reset();
  const uint64_t now = platform::monotonicNanoseconds();
  nextAttempt_[flow] = now + kPause;
  if (failingSince_[flow] == 0) failingSince_[flow] = now;
  const bool isLast =
      failed.isFinal || (failed.impostor && ++impostors_ >= callers_.size() * where_.addresses.size());
  ++failures_[flow];
  if (!isLast && platform::secondsSince(failingSince_[flow]) < settings_.attempts) return kOkStatus;
  const Code code = failed.isFinal ? Code::kInvalidUsage : failed.isOwn ? Code::kSystem : Code::kRemote;
  return fail(code, "net/tcp: no connection to the peer: %s", failed.why.c_str());
}

}  // namespace stretto::net::tcp
