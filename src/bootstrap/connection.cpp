#include "bootstrap/connection.hpp"

namespace stretto::bootstrap {
namespace {

constexpr size_t kPieces = 64;    // frames per system call
constexpr int kReadsPerTurn = 8;  // then the other connections have their turn

// pull() tells of what failed, as soon as the other end closes.
TlsHandshake shakeHands(ByteStream& stream, std::string& why) {
  const TlsHandshake state = stream.shakeHands(why);
  if (state == TlsHandshake::kFailed) endSending(stream.socket());
  return state;
}

// What is queued waits for the handshake, which may wait for nothing but that the socket takes its last
// bytes. Whether it is time for the queue.
bool flushHandshake(ByteStream& stream, std::string& why) {
  if (stream.isFlushed()) return false;
  stream.send({});
  return stream.isFlushed() && shakeHands(stream, why) == TlsHandshake::kDone;
}

}  // namespace

void Connection::send(SharedBytes frame) {
  if (sendingFailed_ || finishing_) {
    return;
  }
  queuedBytes_ += frame->size();
  if (queuedBytes_ > kMaxQueuedBytes) {
    sendingFailed_ = true;  // the other end will see the connection end; reading tells us when
    queue_.clear();
    endSending(stream_.socket());
    return;
  }
  queue_.push_back(std::move(frame));
  markDirty();
}

void Connection::finish() {
  finishing_ = true;
  markDirty();
}

void Connection::markDirty() {
  if (dirtied_) return;
  dirtied_ = true;
  dirty_.push_back(token_);
}

// What is queued goes in plain text before that: a few bytes, which a new socket takes.
void Connection::encrypt(TlsRole role, const std::optional<TlsKey>& key) {
  flush();
  sendingFailed_ = sendingFailed_ || !queue_.empty();
  stream_.encrypt(role, key);
  if (role == TlsRole::kClient) shakeHands(stream_, why_);  // says hello
}

void Connection::flush() {
  if (stream_.isShaking() && !sendingFailed_ && !flushHandshake(stream_, why_)) return;
  while (!queue_.empty() && !sendingFailed_) {
    IoSpan pieces[kPieces];
    size_t count = 0;
    for (const SharedBytes& frame : queue_) {
      if (count == kPieces) break;
      const size_t skip = count == 0 ? sentOfFirst_ : 0;
      pieces[count++] = {const_cast<uint8_t*>(frame->data()) + skip, frame->size() - skip};
    }
    const Transfer sent = stream_.send(std::span(pieces, count));
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
    endSending(stream_.socket());
  }
}

Connection::Pull Connection::consume(std::span<const uint8_t> data) {
  // Nothing that came in plain text may count as encrypted.
  const bool wasEncrypted = stream_.isEncrypted();
  const auto limit = [&](FrameType type) {
    if (stream_.isEncrypted() != wasEncrypted) return int64_t{-1};
    return finishing_ ? longestPayload(type) : dialogue->limit(type);
  };
  const auto sink = [&](FrameType type, std::span<const uint8_t> payload) {
    if (!finishing_) return dialogue->onFrame(type, payload);
    dialogue->onLate(type, payload);
    return true;
  };
  switch (splitter_.feed(data, limit, sink)) {
    case FrameSplitter::Verdict::kGoOn:
      if (stream_.isEncrypted() == wasEncrypted || splitter_.isBetweenFrames()) return Pull::kOpen;
      [[fallthrough]];
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
  if (stream_.isShaking()) {
    const TlsHandshake state = stream_.shakeHands(why_);
    if (state == TlsHandshake::kFailed) dialogue->onNotEncrypted(why_);
    if (state == TlsHandshake::kFailed || state == TlsHandshake::kEnded) return Pull::kEnded;
    markDirty();  // what is queued may go now, or something of the handshake
    if (state == TlsHandshake::kGoesOn) return Pull::kOpen;
  }
  // No poller tells of what the stream holds.
  for (int turn = 0; turn < kReadsPerTurn || stream_.holdsMore(); ++turn) {
    const Transfer got = stream_.receive(scratch);
    switch (got.outcome) {
      case IoOutcome::kWouldBlock:
        return Pull::kOpen;
      case IoOutcome::kClosed:
        why_ = dialogue->trusted() ? "its connection closed without a goodbye: the process has died"
                                   : "it closed before its handshake was done";
        return Pull::kEnded;
      case IoOutcome::kFailed:
        why_ = std::string("its connection broke without a goodbye: the process has died (") +
               wordsOf(got.error) + ")";
        return Pull::kEnded;
      case IoOutcome::kSome:
        if (consume(scratch.first(got.bytes)) == Pull::kEnded) return Pull::kEnded;
        if (stream_.isShaking()) return Pull::kOpen;         // the rest is another protocol's
        if (got.bytes < scratch.size()) return Pull::kOpen;  // level-triggered: more will be reported
        break;
    }
  }
  return Pull::kOpen;
}

}  // namespace stretto::bootstrap
