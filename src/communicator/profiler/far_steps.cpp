#include "communicator/profiler/far_steps.hpp"

#include "base/os.hpp"

namespace stretto::communicator {

using namespace observe::profiler;

namespace {

// What NCCL's sockets say of what they send, version 1 of it. A message of ours may go over several sockets,
// so none is named.
struct SocketEvent {
  static constexpr int64_t kId = 0x20001;
  uint8_t type = 1;
  int descriptor = -1;
  int operation = 0;  // a send
  size_t length = 0;
};
static_assert(sizeof(SocketEvent) == 24);

}  // namespace

void FarSteps::open(const Session& session, uint32_t mask, void* parent, const Ways& ways) {
  session_ = &session;
  mask_ = mask;
  parent_ = parent;
  kind_ = ways;
  ways_.resize(2 * static_cast<size_t>(ways.ranks));
}

void FarSteps::close(uint64_t at) {
  for (Way& way : ways_) {
    if (!way.used) continue;
    session_->stop(way.step, at);
    for (; way.left < way.handed; ++way.left) {
      Sent& sent = way.sent[way.left % kMostSent];
      session_->stop(sent.net, at);
      session_->stop(sent.step, at);
    }
    session_->stop(way.op, at);
    way = {};
  }
  session_ = nullptr;
}

// How many steps there will be only the algorithm knows.
void FarSteps::use(Way& way, int peer, bool isSend, uint64_t at) {
  if (way.used) return;
  way.used = true;
  DescriptorV7 descriptor = session_->describe(Type::kProxyOp, parent_);
  descriptor.proxyOp = {os::processId(), 0, peer, 0, static_cast<int>(kind_.chunkBytes), isSend ? 1 : 0};
  way.op = session_->start(descriptor, at);
  ArgumentsV4 none{};
  session_->record(way.op, kOpInProgress, &none, at);
}

void FarSteps::startStep(Way& way, State waits, uint64_t at) {
  if ((mask_ & kProxyStepBits) == 0) return;
  DescriptorV7 descriptor = session_->describe(Type::kProxyStep, way.op);
  descriptor.proxyStep = {way.steps++};
  way.step = session_->start(descriptor, at);
  say(way.step, waits, 0, at);
}

void FarSteps::say(void* step, State state, size_t bytes, uint64_t at) const {
  ArgumentsV4 arguments{};
  arguments.proxyStep.bytes = bytes;
  session_->record(step, state, &arguments, at);
}

void* FarSteps::startNet(const Sent& sent, uint64_t at) const {
  if ((mask_ & bit(Type::kNetPlugin)) == 0 || !kind_.overSockets) return nullptr;
  SocketEvent event;
  event.length = sent.bytes;
  DescriptorV7 descriptor = session_->describe(Type::kNetPlugin, sent.step);
  descriptor.netPlugin = {SocketEvent::kId, &event};
  return session_->start(descriptor, at);
}

void FarSteps::waitsForRoom(int peer) {
  const uint64_t at = session_->now();
  Way& way = to(peer);
  use(way, peer, true, at);
  if (way.step == nullptr) startStep(way, kStepSendPeerWait, at);
}

void FarSteps::fills(int peer, size_t bytes) {
  const uint64_t at = session_->now();
  Way& way = to(peer);
  use(way, peer, true, at);
  if (way.step == nullptr) startStep(way, kStepSendPeerWait, at);
  way.bytes = bytes;
  say(way.step, kStepSendGpuWait, bytes, at);
}

void FarSteps::handsOver(int peer) {
  Way& way = to(peer);
  say(way.step, kStepSendWait, way.bytes, session_->now());
  way.sent[way.handed++ % kMostSent] = {way.step, nullptr, way.bytes};
  way.step = nullptr;
}

void FarSteps::begins(int peer) {
  Way& way = to(peer);
  Sent& sent = way.sent[way.begun++ % kMostSent];
  sent.net = startNet(sent, session_->now());
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
  const uint64_t at = session_->now();
  Way& way = from(peer);
  use(way, peer, false, at);
  if (way.step == nullptr) startStep(way, kStepRecvWait, at);
}

void FarSteps::comes(int peer, size_t bytes) {
  say(from(peer).step, kStepRecvGpuWait, bytes, session_->now());
}

void FarSteps::isRead(int peer) {
  Way& way = from(peer);
  session_->stop(way.step, session_->now());
  way.step = nullptr;
}

}  // namespace stretto::communicator
