#include "bootstrap/connection.hpp"

#include <cstring>

namespace stretto::bootstrap {
namespace {

constexpr size_t kPieces = 64;    // frames per system call
constexpr int kReadsPerTurn = 8;  // then the other connections have their turn

}  // namespace

void Connection::send(SharedBytes frame) {
  if (sendingFailed_ || finishing_) {
    return;
  }
  queuedBytes_ += frame->size();
  if (queuedBytes_ > kMaxQueuedBytes) {
    sendingFailed_ = true;  // the other end will see the connection end; reading tells us when
    queue_.clear();
    endSending(socket_);
    return;
  }
  queue_.push_back(std::move(frame));
  if (!dirtied_) {
    dirtied_ = true;
    dirty_.push_back(token_);
  }
}

void Connection::finish() {
  finishing_ = true;
  if (!dirtied_) {
    dirtied_ = true;
    dirty_.push_back(token_);
  }
}

void Connection::flush() {
  while (!queue_.empty() && !sendingFailed_) {
    IoSpan pieces[kPieces];
    size_t count = 0;
    for (const SharedBytes& frame : queue_) {
      if (count == kPieces) break;
      const size_t skip = count == 0 ? sentOfFirst_ : 0;
      pieces[count++] = {const_cast<uint8_t*>(frame->data()) + skip, frame->size() - skip};
    }
    const Transfer sent = sendSome(socket_, std::span(pieces, count));
    if (sent.outcome == IoOutcome::kWouldBlock) {
      return;
    }
    if (sent.outcome != IoOutcome::kSome) {
      // Not the moment to close: a goodbye may still wait to be read. Reading will report the end.
      sendingFailed_ = true;
      queue_.clear();
      return;
    }
    queuedBytes_ -= sent.bytes;
    sentOfFirst_ += sent.bytes;
    while (!queue_.empty() && sentOfFirst_ >= queue_.front()->size()) {
      sentOfFirst_ -= queue_.front()->size();
      queue_.pop_front();
    }
  }
  if (finishing_ && !saidEnd_ && !connecting) {
    saidEnd_ = true;
    endSending(socket_);
  }
}

Connection::Pull Connection::consume(std::span<const uint8_t> data) {
  const auto limit = [&](FrameType type) {
    return finishing_ ? longestPayload(type) : dialogue->limit(type);
  };
  const auto sink = [&](FrameType type, std::span<const uint8_t> payload) {
    if (!finishing_) return dialogue->onFrame(type, payload);
    dialogue->onLate(type, payload);
    return true;
  };
  switch (splitter_.feed(data, limit, sink)) {
    case FrameSplitter::Verdict::kGoOn:
      return Pull::kOpen;
    case FrameSplitter::Verdict::kMalformed:
      why_ = "it sent bytes that are no message expected here";
      return Pull::kEnded;
    case FrameSplitter::Verdict::kStopped:
      why_ = dialogue->complaint();
      return Pull::kEnded;
  }
  return Pull::kEnded;
}

Connection::Pull Connection::pull(std::span<uint8_t> scratch) {
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const Transfer got = receiveSome(socket_, scratch);
    switch (got.outcome) {
      case IoOutcome::kWouldBlock:
        return Pull::kOpen;
      case IoOutcome::kClosed:
        why_ = dialogue->trusted() ? "its connection closed without a goodbye: the process has died"
                                   : "it closed before its handshake was done";
        return Pull::kEnded;
      case IoOutcome::kFailed:
        why_ = std::string("its connection broke without a goodbye: the process has died (") +
               std::strerror(got.error) + ")";
        return Pull::kEnded;
      case IoOutcome::kSome:
        if (consume(scratch.first(got.bytes)) == Pull::kEnded) return Pull::kEnded;
        if (got.bytes < scratch.size()) return Pull::kOpen;  // level-triggered: more will be reported
        break;
    }
  }
  return Pull::kOpen;
}

}  // namespace stretto::bootstrap
