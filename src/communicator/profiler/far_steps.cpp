#include "communicator/profiler/far_steps.hpp"

#include <cstddef>

#include "base/os.hpp"

namespace stretto::communicator {

using namespace observe::profiler;

namespace {

// What NCCL's sockets say of what they send, version 1 of it: a kind, and behind it a union that is aligned
// as its length is. A message of ours may go over several sockets, so none is named.
struct SocketEvent {
  static constexpr int64_t kId = 0x20001;
  uint8_t type = 1;
  uint8_t zero[7] = {};  // plugins copy the whole of it
  int descriptor = -1;
  int operation = 0;  // a send
  size_t length = 0;
};
static_assert(sizeof(SocketEvent) == 24 && offsetof(SocketEvent, descriptor) == 8 &&
              offsetof(SocketEvent, operation) == 12 && offsetof(SocketEvent, length) == 16);

}  // namespace

void FarSteps::open(const Session& session, uint32_t mask, void* parent, const Ways& ways) {
  ways_.resize(2 * static_cast<size_t>(ways.ranks));
  session_ = &session;
  mask_ = mask;
  parent_ = parent;
  kind_ = ways;
}

void FarSteps::close(uint64_t at) {
  for (int peer = peers_.next(-1); peer >= 0; peer = peers_.next(peer)) {
    end(to(peer), at);
    end(from(peer), at);
  }
  peers_ = {};
  session_ = nullptr;
}

void FarSteps::end(Way& way, uint64_t at) const {
  session_->stop(way.step, at);
  for (; way.left < way.handed; ++way.left) {
    const Sent& sent = way.sent[way.left % kMostSent];
    session_->stop(sent.net, at);
    session_->stop(sent.step, at);
  }
  session_->stop(way.op, at);
  way = {};
}

// How many steps there will be only the algorithm knows.
void FarSteps::startOp(Way& way, int peer, bool isSend, uint64_t at) {
  way.used = true;
  peers_.add(peer);
  DescriptorV7 descriptor = session_->describe(Type::kProxyOp, parent_);
  descriptor.proxyOp = {os::processId(), 0, peer, 0, static_cast<int>(kind_.chunkBytes), isSend ? 1 : 0};
  way.op = session_->start(descriptor, at);
  ArgumentsV4 none{};
  session_->record(way.op, kOpInProgress, &none, at);
}

// The next chunk, unless it has begun already: one that waited for room has, and one that the plugin did not
// take too. Under an operation that the plugin did not take there are no steps, as with NCCL.
void FarSteps::begin(Way& way, int peer, bool isSend, uint64_t at) {
  if (!way.used) startOp(way, peer, isSend, at);
  if (way.inStep) return;
  way.inStep = true;
  const int number = way.steps++;
  if ((mask_ & kProxyStepBits) == 0 || way.op == nullptr) return;
  DescriptorV7 descriptor = session_->describe(Type::kProxyStep, way.op);
  descriptor.proxyStep = {number};
  way.step = session_->start(descriptor, at);
  say(way.step, isSend ? kStepSendPeerWait : kStepRecvWait, 0, at);
}

void FarSteps::say(void* step, observe::profiler::State state, size_t bytes, uint64_t at) const {
  ArgumentsV4 arguments{};
  arguments.proxyStep.bytes = bytes;
  session_->record(step, state, &arguments, at);
}

void* FarSteps::startNet(const Sent& sent) const {
  if ((mask_ & bit(Type::kNetPlugin)) == 0 || !kind_.overSockets || sent.step == nullptr) return nullptr;
  SocketEvent event;
  event.length = sent.bytes;
  DescriptorV7 descriptor = session_->describe(Type::kNetPlugin, sent.step);
  descriptor.netPlugin = {SocketEvent::kId, &event};
  return session_->start(descriptor, session_->now());
}

void FarSteps::waitsForRoom(int peer) {
  begin(to(peer), peer, true, session_->now());
}

void FarSteps::fills(int peer, size_t bytes) {
  const uint64_t at = session_->now();
  Way& way = to(peer);
  begin(way, peer, true, at);
  way.bytes = bytes;
  say(way.step, kStepSendGpuWait, bytes, at);
}

void FarSteps::handsOver(int peer) {
  Way& way = to(peer);
  say(way.step, kStepSendWait, way.bytes, session_->now());
  way.sent[way.handed++ % kMostSent] = {way.step, nullptr, way.bytes};
  way.step = nullptr;
  way.inStep = false;
}

void FarSteps::begins(int peer) {
  Way& way = to(peer);
  Sent& sent = way.sent[way.begun++ % kMostSent];
  sent.net = startNet(sent);
}

void FarSteps::leaves(int peer) {
  const uint64_t at = session_->now();
  Way& way = to(peer);
  Sent& sent = way.sent[way.left++ % kMostSent];
  session_->stop(sent.net, at);
  session_->stop(sent.step, at);
  sent = {};
}

void FarSteps::waitsForData(int peer) {
  begin(from(peer), peer, false, session_->now());
}

void FarSteps::comes(int peer, size_t bytes) {
  say(from(peer).step, kStepRecvGpuWait, bytes, session_->now());
}

void FarSteps::isRead(int peer) {
  Way& way = from(peer);
  session_->stop(way.step, session_->now());
  way.step = nullptr;
  way.inStep = false;
}

}  // namespace stretto::communicator
