// What travels between a Membership and the Services that host its session: frames of an 8-byte header
// (payload length, type, mark) and a payload in little-endian order. Everything here is pure: bytes in,
// values out, no sockets, so that it can be fuzzed. For bootstrap/ only.
//
// A connection starts with a handshake in which both ends prove that they know the session's secret:
//
//   member                                 host
//   Hello{wire, session, nonce, encrypted}
//                                    ->
//                                    <-    Challenge{nonce, proof} | NotYet{who answers} |
//                                          Refused{code, peer, text}
//                 [TLS, the member as its client, if both encrypt]
//   Join{proof, who I am}            ->
//                                    <-    Welcome{who hosts} | Refused
//                                    <-    Table{all members}            once everyone has joined
//   Exchange, Query, Nudge, Goodbye  ->
//                                    <-    ExchangeResult, ExchangeFailed, Missing, Left, Lost, HostLeaving,
//                                          Nudge
//
// The Table comes from the process that made the unique id. A process that hosts the session beside it, or
// after it, knows that its members know the table and sends none; each end then tells the other whom it knows
// to be gone (Left, Lost). A host that has passed a goodbye on says so by Left with the member's own rank.
// Another Service that wants to know whether a process lives says Hello and nothing more.
//
// Where connections are encrypted (platform/encryption.hpp), everything from the Join on is; who encrypts and
// who does not refuse each other. Else nothing after the handshake carries a MAC. Over loopback nobody but
// root can put bytes into somebody else's connection. Sessions leave the host only where NCCL_SOCKET_IFNAME
// names an interface, which then must be of a network whose own nodes are trusted, as NCCL's bootstrap and
// data are.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/siphash.hpp"
#include "base/status.hpp"
#include "platform/encryption.hpp"
#include "platform/socket.hpp"

namespace stretto::bootstrap {

inline constexpr uint16_t kWireVersion = 7;
inline constexpr int kMaxRanks = 16384;
inline constexpr size_t kMaxBlobBytes = 64 << 10;      // one rank's part of an exchange
inline constexpr size_t kMaxExchangeBytes = 16 << 20;  // all ranks' parts together
inline constexpr size_t kMaxNudgeBytes = 4096;
inline constexpr size_t kMaxNameBytes = 64;   // an exchange's name, a host's, a version's
inline constexpr size_t kMaxTextBytes = 900;  // an explanation
inline constexpr size_t kMaxHelloBytes = 64;  // of any wire version

using Bytes = std::vector<uint8_t>;
using SharedBytes = std::shared_ptr<const Bytes>;  // one frame, queued to many connections

// What every rank gave to an exchange, by rank, in the bytes that came. Copies share these bytes.
class Contributions {
 public:
  using Part = std::span<const uint8_t>;

  Contributions() = default;
  Contributions(SharedBytes bytes, std::vector<Part> parts)
      : bytes_(std::move(bytes)), parts_(std::move(parts)) {}

  size_t size() const { return parts_.size(); }
  Part operator[](size_t rank) const { return parts_[rank]; }
  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }

 private:
  SharedBytes bytes_;
  std::vector<Part> parts_;
};

enum class FrameType : uint16_t {
  kHello = 1,
  kChallenge,
  kNotYet,
  kRefused,
  kJoin,
  kWelcome,
  kTable,
  kExchange,
  kExchangeResult,
  kExchangeFailed,
  kQuery,
  kMissing,
  kGoodbye,
  kLeft,
  kLost,
  kHostLeaving,
  kNudge,
};

// Appends values to a frame; take() closes it.
class FrameWriter {
 public:
  explicit FrameWriter(FrameType type);
  template <typename T>
  requires std::is_integral_v<T> FrameWriter& number(T value) {
    return raw(std::span(reinterpret_cast<const uint8_t*>(&value), sizeof value));
  }
  FrameWriter& raw(std::span<const uint8_t> data);
  // Length as 16 bits, then the text, cut to `limit` bytes.
  FrameWriter& text(std::string_view value, size_t limit);
  SharedBytes take();

 private:
  Bytes bytes_;
};

// Reads values from a payload; any read past the end, or text over its limit, makes it bad for good.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const uint8_t> payload) : rest_(payload) {}
  template <typename T>
  requires std::is_integral_v<T> T number() {
    T value{};
    raw(std::span(reinterpret_cast<uint8_t*>(&value), sizeof value));
    return value;
  }
  void raw(std::span<uint8_t> into);
  std::span<const uint8_t> bytes(size_t count);
  std::string text(size_t limit);
  std::span<const uint8_t> rest() { return std::exchange(rest_, {}); }
  // Whether everything was there and nothing is left over.
  bool complete() const { return good_ && rest_.empty(); }
  bool good() const { return good_; }

 private:
  std::span<const uint8_t> rest_;
  bool good_ = true;
};

// Cuts a stream of bytes into frames. It holds at most one payload, and only as much of it as has arrived.
class FrameSplitter {
 public:
  enum class Verdict : uint8_t { kGoOn, kMalformed, kStopped };

  // `limit(type)` is the longest payload acceptable right now (negative: not that type) and is asked before
  // a byte is stored; `sink(type, payload)` returns false to stop.
  template <typename Limit, typename Sink>
  Verdict feed(std::span<const uint8_t> data, Limit&& limit, Sink&& sink) {
    while (true) {
      if (!haveHeader_) {
        data = data.subspan(fillHeader(data));
        if (headerFilled_ < kHeaderBytes) return Verdict::kGoOn;
        if (!parseHeader()) return Verdict::kMalformed;
        if (int64_t{length_} > limit(type_)) return Verdict::kMalformed;
      }
      const size_t wanted = std::min(length_ - payload_.size(), data.size());
      payload_.insert(payload_.end(), data.begin(), data.begin() + static_cast<ptrdiff_t>(wanted));
      data = data.subspan(wanted);
      if (payload_.size() < length_) return Verdict::kGoOn;
      haveHeader_ = false;
      headerFilled_ = 0;
      const Bytes payload = std::exchange(payload_, {});
      if (!sink(type_, std::span<const uint8_t>(payload))) return Verdict::kStopped;
    }
  }
  // Nothing of another frame has come.
  bool isBetweenFrames() const { return !haveHeader_ && headerFilled_ == 0; }

 private:
  static constexpr size_t kHeaderBytes = 8;

  size_t fillHeader(std::span<const uint8_t> data);
  bool parseHeader();

  uint8_t header_[kHeaderBytes] = {};
  size_t headerFilled_ = 0;
  bool haveHeader_ = false;
  FrameType type_{};
  uint32_t length_ = 0;
  Bytes payload_;
};

// One member as every other member sees it.
struct MemberInfo {
  int rank = -1;
  uint32_t pid = 0;
  uint64_t process = 0;   // random, one per process: tells which ranks live and die together
  std::string host;       // at most 64 bytes
  std::string version;    // the library's, as given to join
  SocketAddress service;  // its process's Service: who can host derived sessions, and where

  bool operator==(const MemberInfo&) const = default;
};

using Nonce = std::array<uint8_t, 16>;

struct Hello {
  uint16_t wireVersion = kWireVersion;
  uint64_t session = 0;
  Nonce nonce{};
  bool encrypted = false;  // whether who says so encrypts what follows the Challenge
};
struct Challenge {
  Nonce nonce{};
  Hash128 proof{};
};
struct Join {
  Hash128 proof{};
  uint32_t ranks = 0;
  MemberInfo who;
};
// Why something cannot be, for the caller's fail().
struct Refusal {
  Code code = Code::kInternal;
  int peer = -1;
  std::string text;
};
struct Welcome {
  uint32_t pid = 0;
  uint64_t process = 0;
  std::string host;
};
// The process that has no such session yet.
struct NotYet {
  uint64_t process = 0;
};
// The number of one rank's calls of nudge(): what comes by two ways counts once. And what that rank says.
struct Nudge {
  uint32_t rank = 0;
  uint32_t number = 0;
  std::span<const uint8_t> message;
};
struct Exchange {
  uint32_t sequence = 0;
  std::string name;
  std::span<const uint8_t> blob;
};
struct ExchangeFailure {
  uint32_t sequence = 0;
  Refusal why;
};
enum class QueryKind : uint8_t { kJoin = 0, kExchange = 1 };
struct Missing {
  uint32_t arrived = 0;
  uint32_t ranks = 0;
  std::string text;  // "rank 2", "ranks 2, 5-7", with a remark where there is one
};
// kDisagreed: an abort because ranks have made different calls.
enum class Farewell : uint8_t { kLeft = 0, kAborted = 1, kExited = 2, kGaveUp = 3, kDisagreed = 4 };
struct Goodbye {
  Farewell kind = Farewell::kLeft;
  std::string text;
  uint32_t exchanges = 0;  // how many it has taken part in
};
// A rank that has left with a goodbye. The exchanges that it has taken part in can still complete: the word
// of it may come from one host before the result comes from another.
struct Left {
  uint32_t rank = 0;
  uint32_t exchanges = 0;
};
enum class LossKind : uint8_t {
  kDied = 0,
  kAborted = 1,
  kExited = 2,
  kGaveUp = 3,
  kBroke = 4,
  kDisagreed = 5
};
struct Lost {
  uint32_t rank = 0;
  LossKind kind = LossKind::kDied;
  uint32_t pid = 0;
  std::string host;
  std::string text;
};

// What proves knowledge of the secret. `label` keeps the two directions apart; `body` is covered too.
Hash128 proofOf(const Key128& secret, std::string_view label, uint64_t session, const Nonce& first,
                const Nonce& second, std::span<const uint8_t> body);
inline constexpr std::string_view kHostLabel = "stretto host proof";
inline constexpr std::string_view kMemberLabel = "stretto member proof";

// What the TLS of one connection, and of no other, has for a key.
std::optional<TlsKey> tlsKeyOf(const Key128& secret, const Encryption& with, uint64_t session,
                               const Nonce& hostNonce, const Nonce& memberNonce);

SharedBytes encode(const Hello&);
SharedBytes encode(const Challenge&);
SharedBytes encode(const Refusal&);  // as Refused
SharedBytes encode(const Welcome&);
SharedBytes encode(const Missing&);
SharedBytes encode(const Goodbye&);
SharedBytes encode(const Lost&);
SharedBytes encode(const ExchangeFailure&);
SharedBytes encode(const NotYet&);
SharedBytes encode(const Nudge&);
SharedBytes encode(const Left&);
SharedBytes encodeEmpty(FrameType type);
SharedBytes encodeQuery(QueryKind kind);
SharedBytes encodeExchange(uint32_t sequence, std::string_view name, std::span<const uint8_t> blob);
SharedBytes encodeTable(std::span<const MemberInfo> members);
SharedBytes encodeExchangeResult(uint32_t sequence, std::span<const Bytes> blobs);
// The proof is made here, because it covers the rest of the message.
SharedBytes encodeJoin(const Key128& secret, uint64_t session, const Nonce& hostNonce,
                       const Nonce& memberNonce, uint32_t ranks, const MemberInfo& who);
bool provesSecret(std::span<const uint8_t> joinPayload, const Key128& secret, uint64_t session,
                  const Nonce& hostNonce, const Nonce& memberNonce);

// Each is false for anything but exactly one whole, well-formed message. Of a Hello of another wire version
// only the version is read: whoever says it is to be told.
bool decode(std::span<const uint8_t> payload, Hello& message);
bool decode(std::span<const uint8_t> payload, Challenge& message);
bool decode(std::span<const uint8_t> payload, Join& message);
bool decode(std::span<const uint8_t> payload, Refusal& message);
bool decode(std::span<const uint8_t> payload, Welcome& message);
bool decode(std::span<const uint8_t> payload, Exchange& message);
bool decode(std::span<const uint8_t> payload, ExchangeFailure& message);
bool decode(std::span<const uint8_t> payload, Missing& message);
bool decode(std::span<const uint8_t> payload, Goodbye& message);
bool decode(std::span<const uint8_t> payload, Lost& message);
bool decode(std::span<const uint8_t> payload, NotYet& message);
bool decode(std::span<const uint8_t> payload, Nudge& message);
bool decode(std::span<const uint8_t> payload, Left& message);
bool decodeQuery(std::span<const uint8_t> payload, QueryKind& kind);
// The table must hold exactly `ranks` members, in the order of their ranks.
bool decodeTable(std::span<const uint8_t> payload, int ranks, std::vector<MemberInfo>& members);
// The first number of an exchange's result: which exchange it ends.
bool decodeSequence(std::span<const uint8_t> exchangeResult, uint32_t& sequence);
bool decodeExchangeResult(const SharedBytes& payload, int ranks, uint32_t& sequence, Contributions& parts);

// The longest payload of a type that either end ever sends.
int64_t longestPayload(FrameType type);

}  // namespace stretto::bootstrap
