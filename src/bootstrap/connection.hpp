// One socket of the Service's loop with what is half read and half written on it, and the dialogue that
// gives it meaning. For bootstrap/ only; one thread, the loop's.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/call_dialogue.hpp"
#include "bootstrap/client_link.hpp"
#include "bootstrap/dialogue.hpp"
#include "bootstrap/member_dialogue.hpp"
#include "platform/byte_stream.hpp"

namespace stretto::bootstrap {

class Connection final : public Port {
 public:
  // Told (by its token) when a connection has something to flush; the loop does so once per turn, so that
  // what many members are told goes out in few system calls.
  using Dirty = std::vector<uint64_t>;

  Connection(uint64_t token, FileDescriptor socket, Dirty& dirty)
      : token_(token), stream_(std::move(socket)), dirty_(dirty) {}

  void send(SharedBytes frame) override;
  void finish() override;
  void encrypt(TlsRole role, const std::optional<TlsKey>& key) override;

  enum class Pull : uint8_t { kOpen, kEnded };
  // Reads what has come and hands it to the dialogue. Ended: close it, why() says why.
  Pull pull(std::span<uint8_t> scratch);
  // Writes what the socket takes.
  void flush();

  uint64_t token() const { return token_; }
  const FileDescriptor& socket() const { return stream_.socket(); }
  const std::string& why() const { return why_; }
  bool finishing() const { return finishing_; }
  size_t queued() const { return queuedBytes_; }
  // Nothing waits for the socket to take it.
  bool flushed() const { return stream_.isFlushed() && (queue_.empty() || stream_.isShaking()); }
  void clearDirty() { dirtied_ = false; }

  // The loop's own notes.
  std::unique_ptr<Dialogue> dialogue;
  MemberDialogue* member = nullptr;  // the same dialogue, on the member's end
  std::shared_ptr<ClientLink> link;  // on the member's end
  CallDialogue* call = nullptr;      // the same dialogue, when we ask whether a process lives
  bool connecting = false;
  int connectError = 0;  // why it could not be made
  bool watchedForWriting = false;
  Timer drain{};                           // how long it may linger once it is finished
  Clock::time_point deadline{};            // of the handshake, on the host's end
  std::list<uint64_t>::iterator stranger;  // its place among the untrusted, while there
  bool isStranger = false;

 private:
  // Nothing that is queued can get this long: exchanges are in step, and from a host that does not read the
  // loop keeps them.
  static constexpr size_t kMaxQueuedBytes = size_t{4} * kMaxExchangeBytes;

  Pull consume(std::span<const uint8_t> data);
  void markDirty();

  const uint64_t token_;
  ByteStream stream_;
  Dirty& dirty_;
  bool dirtied_ = false;
  FrameSplitter splitter_;
  std::deque<SharedBytes> queue_;
  size_t sentOfFirst_ = 0;
  size_t queuedBytes_ = 0;
  bool finishing_ = false;
  bool saidEnd_ = false;
  bool sendingFailed_ = false;
  std::string why_;
};

}  // namespace stretto::bootstrap
