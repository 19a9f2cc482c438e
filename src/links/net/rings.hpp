// One ordered pair of ranks on different hosts: a ring of kLinkDepth slots at either end, which look to the
// algorithms as the slots in a window do (algorithms/link_channel.hpp). Each slot is a mailbox and its
// payload, and travels as one message, so chunk k of the sender lands in the receiver's slot k mod depth.
// Credits are the receives that the receiver has posted: the net passes nothing on that nobody has room for.
//
// Counts are each end's own. A mailbox leaves with a count of 0, and gets its number at the receiver when the
// whole message is there. The sender's credit is the number of chunks whose slots the net does not need any
// more. For links/net only; one thread at a time, the one that runs the rank's operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "net/net.hpp"
#include "primitives/window.hpp"

namespace stretto::links::net {

// The first message of every connection: who sends on it.
struct Hello {
  static constexpr uint64_t kMagic = 0x4b4e494c54455254;
  uint64_t magic = kMagic;
  int32_t rank = -1;
  int32_t reserved = 0;
};

struct Aligned {
  void operator()(std::byte* memory) const;
};

// Memory of a ring, a cache line where slots begin. Untouched slots take none.
class Slots {
 public:
  static constexpr uint64_t kDepth = WindowLayout::kLinkDepth;

  explicit Slots(size_t chunkBytes);
  Mailbox* at(uint64_t chunk) const {
    return reinterpret_cast<Mailbox*>(memory_.get() + chunk % kDepth * slotBytes_);
  }
  size_t slotBytes() const { return slotBytes_; }
  std::byte* data() const { return memory_.get(); }
  size_t bytes() const { return kDepth * slotBytes_; }

 private:
  size_t slotBytes_;
  std::unique_ptr<std::byte, Aligned> memory_;
};

// Why a ring is of no more use, with the words of whoever found it.
struct Break {
  Status status;
  std::string words;

  bool is() const { return !status.ok(); }
  // Keeps the first one; false if there is one.
  bool note(Status found);
};

class SendRing {
 public:
  SendRing(int rank, size_t chunkBytes);

  Mailbox* slot(uint64_t chunk) const { return slots_.at(chunk); }
  // How much payload the next chunk has: before it is published. It lies in the slot, or where it is lent.
  void setBytes(size_t bytes) {
    bytes_[published_ % Slots::kDepth] = bytes;
    lent_[published_ % Slots::kDepth] = nullptr;
  }
  void lend(const std::byte* from) { lent_[published_ % Slots::kDepth] = from; }
  // Where something that is lent has not left, the ring breaks, and must be closed: true.
  bool giveBack();
  // Ends the connection, which may take a moment. Nothing is read any more then that is lent.
  void close();
  void publish() { ++published_; }
  // A mailbox whose count is the number of chunks whose slots are free again.
  const Mailbox* credits() const { return &credits_; }
  // How many chunks there were, and how many of these the net has begun to send.
  uint64_t published() const { return published_; }
  uint64_t posted() const { return posted_; }
  // All that was published has left.
  bool isIdle() const { return credits_.count == published_; }
  const Break& broken() const { return broken_; }

  bool isConnected() const { return sender_ != nullptr; }
  void connect(std::unique_ptr<stretto::net::Connecting> connecting) { connecting_ = std::move(connecting); }
  // It cannot be connected at all.
  void refuse(Status why) { broken_.note(why); }
  // Whatever can be done now.
  void progress();

 private:
  Status step();
  Status greet();
  Status post();
  Status send(uint64_t chunk);
  Status reap();

  Hello hello_;
  Slots slots_;
  size_t bytes_[Slots::kDepth] = {};
  const std::byte* lent_[Slots::kDepth] = {};
  uint64_t published_ = 0;
  uint64_t posted_ = 0;
  Mailbox credits_{};
  Break broken_;
  std::unique_ptr<stretto::net::Connecting> connecting_;
  std::unique_ptr<stretto::net::Sender> sender_;
  // Before the sender is destroyed: declared behind it.
  std::unique_ptr<stretto::net::Registration> memory_, helloMemory_;
  stretto::net::Request* requests_[Slots::kDepth] = {};
  stretto::net::Request* greeting_ = nullptr;
  bool greeted_ = false;
};

class ReceiveRing {
 public:
  explicit ReceiveRing(size_t chunkBytes) : slots_(chunkBytes) {}

  const Mailbox* slot(uint64_t chunk) const { return slots_.at(chunk); }
  // Of chunk `chunk`, which has arrived.
  size_t bytesOf(uint64_t chunk) const { return sizes_[chunk % Slots::kDepth]; }
  // The mailbox by whose count the owner says how many chunks it has read.
  Mailbox* released() { return &released_; }
  const Break& broken() const { return broken_; }

  bool isConnected() const { return receiver_ != nullptr; }
  void connect(std::unique_ptr<stretto::net::Receiver> receiver) { receiver_ = std::move(receiver); }
  // Nothing comes any more, and it is no error that the sender closes.
  void hangUp();
  void progress();

 private:
  Status step();
  Status post();
  Status reap();

  Slots slots_;
  size_t sizes_[Slots::kDepth] = {};
  uint64_t posted_ = 0;
  uint64_t arrived_ = 0;
  Mailbox released_{};
  Break broken_;
  std::unique_ptr<stretto::net::Receiver> receiver_;
  std::unique_ptr<stretto::net::Registration> memory_;
  stretto::net::Request* requests_[Slots::kDepth] = {};
};

// Bytes of the message that carries a chunk.
constexpr size_t messageBytes(size_t payload) {
  return payload <= Mailbox::kInlineBytes ? sizeof(Mailbox) : sizeof(Mailbox) + payload;
}

}  // namespace stretto::links::net
