// What travels over the sockets of a connection: the handshake, then frames from the sender and records from
// the receiver. Everything here is pure: bytes in, values out, no sockets, so that it can be fuzzed. For
// net/tcp only.
//
// Every flow of a connection is a TCP connection of its own that starts with a handshake, in which both ends
// prove that they know the key in the listener's handle. The nonces make a proof worthless to who replays it.
//
//   sender                                         receiver
//   Hello{which connection, which flow, nonce} ->
//                                              <-  Challenge{nonce, proof over both}
//   Join{proof over both}                      ->
//                  [TLS, the sender as its client]
//                                              <-  Admission{}
//
// Before the Admission the sender's end is not connected: the receiver's may have dropped it.
// Then the sender sends frames: a header of fixed size, and for kWhole and kPart the bytes of a message, or
// of one chunk of it. A message is named by its tag and by its index among those of its tag, which is also
// the index of the receive that it is for: so what arrives first, by whatever flow, finds its place by
// itself. Small messages (kWhole) go at once and are kept aside if no receive is there yet; the sender limits
// how many bytes of them are unconfirmed. Large ones wait for the receiver's word that their receive is
// there, and go in parts of one chunk or of several that follow each other.
//
// The receiver sends records of fixed size: which messages are complete, and up to which index receives of a
// tag are there. Both say how things stand, not what changed, so any of them may be repeated or lost.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/siphash.hpp"
#include "net/net.hpp"
#include "platform/encryption.hpp"
#include "platform/socket.hpp"

namespace stretto::net::tcp {

inline constexpr uint32_t kMagic = 0x344e5453;  // "STN4"; its last byte is the version
inline constexpr int kMostFlows = 32;
inline constexpr size_t kMostAddresses = 8;
inline constexpr size_t kMostMessage = size_t{1} << 30;
inline constexpr size_t kLeastChunk = 4 << 10;
inline constexpr size_t kMostSmall = 256 << 10;       // bytes of a message that goes at once
inline constexpr size_t kMostUnconfirmed = 1 << 20;   // bytes of such that the receiver may have to keep
inline constexpr size_t kMostUnconfirmedParts = 128;  // messages of such
inline constexpr uint64_t kMostApart = 256;           // numbers of a message and of the oldest incomplete one

static_assert(std::endian::native == std::endian::little, "structs travel as they lie in memory");

// What a handle says: where the listener is, and the secret that its users know.
struct Rendezvous {
  Key128 key{};
  std::vector<SocketAddress> addresses;  // 1 to kMostAddresses
};
// What a handle takes of its kHandleBytes at most: the rest is for those who keep something of their own in
// it, as plugins of NCCL do.
inline constexpr size_t kRendezvousBytes = kHandleBytes - 16;
// As many addresses as fit; the others are dropped.
Handle encode(const Rendezvous& where);
bool decode(const Handle& handle, Rendezvous& where);

using Nonce = std::array<uint8_t, 16>;

struct Hello {
  uint32_t magic = kMagic;
  uint16_t flow = 0;
  uint16_t flows = 1;
  uint32_t chunk = 0;  // bytes; every chunk but the last of a message has as many
  uint32_t small = 0;  // bytes; messages up to here may go at once
  // Bytes; of several flows: messages up to here always go at once, and are confirmed when there are some.
  // Longer ones are confirmed one by one, since the sender keeps them until then.
  uint32_t copied = kMostSmall;
  uint32_t encrypted = 0;  // 1: all that follows the Join goes through TLS
  Nonce connection{};      // random: the flows of one connection say the same
  Nonce nonce{};

  uint32_t chunksOf(uint32_t bytes) const {
    return static_cast<uint32_t>((bytes + uint64_t{chunk} - 1) / chunk);
  }
};
struct Challenge {
  Nonce nonce{};
  uint32_t encrypted = 0;  // as in the Hello: both must say the same
  Hash128 proof{};
};
struct Join {
  Hash128 proof{};
};
// The flow belongs to its connection now.
struct Admission {
  uint32_t magic = kMagic;
};
bool isGood(const Hello& hello);
inline constexpr std::string_view kReceiverLabel = "stretto net receiver";
inline constexpr std::string_view kSenderLabel = "stretto net sender";
// `label` keeps the two directions apart.
// Of a challenge, its proof is not covered.
Hash128 proofOf(const Key128& key, std::string_view label, const Hello& hello, const Challenge& challenge);
// What the TLS of this flow, and of no other, has for a key.
std::optional<TlsKey> tlsKeyOf(const Key128& key, const Encryption& with, const Hello& hello,
                               const Challenge& challenge);

enum class FrameKind : uint8_t {
  kWhole = 1,  // a message, up to Hello::small bytes
  kPart,       // chunks of a longer message
  kAsk,        // a message waits for the receive with this tag and index
  kLost,       // `offset` is a flow that is not used any more
  kBye,        // the last frame of this flow
};
struct Frame {
  uint16_t magic = 0x4e46;
  FrameKind kind = FrameKind::kWhole;
  uint8_t losses =
      0;  // flows that the sender had lost when it began the frame: of two copies the later has more
  int32_t tag = 0;
  uint64_t number = 0;  // of the message on this connection
  uint64_t index = 0;   // of the message among those of its tag
  uint32_t total = 0;   // bytes of the message
  uint32_t offset = 0;  // of these in it
  uint32_t bytes = 0;   // that follow
  uint32_t unused2 = 0;
};
static_assert(sizeof(Frame) == 40 && std::is_trivially_copyable_v<Frame>);
// Whether it is a frame at all, of a connection that began with `hello`.
bool isGood(const Frame& frame, const Hello& hello);

enum class RecordKind : uint8_t {
  kComplete = 1,  // which messages are
  kReady,         // receives of this tag with an index below `count` are there
  kLost,          // `count` is a flow that is not used any more
};
struct Record {
  uint16_t magic = 0x4e52;
  RecordKind kind = RecordKind::kComplete;
  uint8_t unused = 0;
  int32_t tag = 0;
  uint64_t count = 0;              // kComplete: all messages below it are complete
  std::array<uint64_t, 4> bits{};  // kComplete: bit i is set if message count + i is
};
static_assert(sizeof(Record) == 48 && sizeof(Record::bits) * 8 == kMostApart);
bool isGood(const Record& record, const Hello& hello);
// Whether all that a kComplete says to be complete has a number below `end`.
bool saysNoMoreThan(uint64_t end, const Record& record);

// Which messages are complete: those below a number, and some of those above.
class CompleteSet {
 public:
  bool has(uint64_t number) const {
    if (number < below_) return true;
    const uint64_t at = number - below_;
    return at < kMostApart && (bits_[at / 64] >> at % 64 & 1) != 0;
  }
  // Whether there is room to remember it.
  bool canHold(uint64_t number) const { return number < below_ + kMostApart; }
  void add(uint64_t number);
  // Takes over what a record says, which is never less than what was known.
  void merge(const Record& record);
  Record record() const;
  uint64_t below() const { return below_; }

 private:
  void advance();

  uint64_t below_ = 0;
  std::array<uint64_t, 4> bits_{};
};

// A struct of the wire as the bytes that it is.
template <typename T>
std::span<uint8_t> bytesOf(T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<uint8_t*>(&value), sizeof value};
}

}  // namespace stretto::net::tcp
