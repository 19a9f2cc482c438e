#include "bootstrap/wire.hpp"

#include <algorithm>

namespace stretto::bootstrap {
namespace {

constexpr uint16_t kMark = 0x7453;  // "St": a stray client is told apart at its first 8 bytes
constexpr size_t kProofBytes = sizeof(Hash128);
constexpr size_t kAddressBytes = 20;
constexpr size_t kMemberBytes = 4 + 4 + 8 + 2 * (2 + kMaxNameBytes) + kAddressBytes;

void put(FrameWriter& out, const SocketAddress& address) {
  out.number(address.family).number(address.port).raw(address.bytes);
}

SocketAddress getAddress(PayloadReader& in) {
  SocketAddress address;
  address.family = in.number<uint16_t>();
  address.port = in.number<uint16_t>();
  in.raw(address.bytes);
  return address;
}

void put(FrameWriter& out, const MemberInfo& who) {
  out.number(static_cast<uint32_t>(who.rank)).number(who.pid).number(who.process);
  out.text(who.host, kMaxNameBytes).text(who.version, kMaxNameBytes);
  put(out, who.service);
}

MemberInfo getMember(PayloadReader& in) {
  MemberInfo who;
  who.rank = static_cast<int>(in.number<uint32_t>());
  who.pid = in.number<uint32_t>();
  who.process = in.number<uint64_t>();
  who.host = in.text(kMaxNameBytes);
  who.version = in.text(kMaxNameBytes);
  who.service = getAddress(in);
  return who;
}

void put(FrameWriter& out, const Refusal& why) {
  out.number(static_cast<uint8_t>(why.code)).number(static_cast<int32_t>(why.peer));
  out.text(why.text, kMaxTextBytes);
}

// False when the code is none of ours: a Code out of its range would be undefined further up.
bool getRefusal(PayloadReader& in, Refusal& why) {
  const auto code = in.number<uint8_t>();
  why.peer = in.number<int32_t>();
  why.text = in.text(kMaxTextBytes);
  why.code = static_cast<Code>(code);
  return code > static_cast<uint8_t>(Code::kInProgress) && code <= static_cast<uint8_t>(Code::kAborted) &&
         why.peer >= -1 && why.peer < kMaxRanks;
}

template <typename Enum>
bool getEnum(PayloadReader& in, Enum last, Enum& value) {
  const auto raw = in.number<uint8_t>();
  value = static_cast<Enum>(raw);
  return raw <= static_cast<uint8_t>(last);
}

}  // namespace

FrameWriter::FrameWriter(FrameType type) {
  number(uint32_t{0}).number(static_cast<uint16_t>(type)).number(kMark);
}

FrameWriter& FrameWriter::raw(std::span<const uint8_t> data) {
  const size_t at = bytes_.size();
  bytes_.resize(at + data.size());
  std::copy(data.begin(), data.end(), bytes_.begin() + static_cast<ptrdiff_t>(at));
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view value, size_t limit) {
  value = value.substr(0, limit);
  number(static_cast<uint16_t>(value.size()));
  return raw(std::span(reinterpret_cast<const uint8_t*>(value.data()), value.size()));
}

SharedBytes FrameWriter::take() {
  const auto length = static_cast<uint32_t>(bytes_.size() - 8);
  std::memcpy(bytes_.data(), &length, sizeof length);
  return std::make_shared<const Bytes>(std::move(bytes_));
}

void PayloadReader::raw(std::span<uint8_t> into) {
  const std::span<const uint8_t> from = bytes(into.size());
  if (!from.empty()) std::memcpy(into.data(), from.data(), from.size());
}

std::span<const uint8_t> PayloadReader::bytes(size_t count) {
  if (!good_ || count > rest_.size()) {
    good_ = false;
    return {};
  }
  const std::span<const uint8_t> taken = rest_.first(count);
  rest_ = rest_.subspan(count);
  return taken;
}

std::string PayloadReader::text(size_t limit) {
  const size_t size = number<uint16_t>();
  if (size > limit) good_ = false;
  const std::span<const uint8_t> from = bytes(size);
  std::string value(from.begin(), from.end());
  // It will be printed: no line breaks or escapes from the other end.
  std::replace_if(
      value.begin(), value.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, '?');
  return value;
}

size_t FrameSplitter::fillHeader(std::span<const uint8_t> data) {
  const size_t count = std::min(kHeaderBytes - headerFilled_, data.size());
  if (count != 0) std::memcpy(header_ + headerFilled_, data.data(), count);
  headerFilled_ += count;
  return count;
}

bool FrameSplitter::parseHeader() {
  uint16_t type = 0;
  uint16_t mark = 0;
  std::memcpy(&length_, header_, sizeof length_);
  std::memcpy(&type, header_ + 4, sizeof type);
  std::memcpy(&mark, header_ + 6, sizeof mark);
  type_ = static_cast<FrameType>(type);
  haveHeader_ = true;
  return mark == kMark && type >= static_cast<uint16_t>(FrameType::kHello) &&
         type <= static_cast<uint16_t>(FrameType::kNudge);
}

Hash128 proofOf(const Key128& secret, std::string_view label, uint64_t session, const Nonce& first,
                const Nonce& second, std::span<const uint8_t> body) {
  Bytes message(label.begin(), label.end());
  const auto* at = reinterpret_cast<const uint8_t*>(&session);
  message.insert(message.end(), at, at + sizeof session);
  message.insert(message.end(), first.begin(), first.end());
  message.insert(message.end(), second.begin(), second.end());
  message.insert(message.end(), body.begin(), body.end());
  return sipHash128(secret, message);
}

std::optional<TlsKey> tlsKeyOf(const Key128& secret, const Encryption& with, uint64_t session,
                               const Nonce& hostNonce, const Nonce& memberNonce) {
  Bytes context(memberNonce.begin(), memberNonce.end());
  const auto* const at = reinterpret_cast<const uint8_t*>(&session);
  context.insert(context.end(), at, at + sizeof session);
  return deriveKey(secret, with, hostNonce, "stretto bootstrap tls", context);
}

SharedBytes encode(const Hello& message) {
  return FrameWriter(FrameType::kHello)
      .number(message.wireVersion)
      .number(message.session)
      .raw(message.nonce)
      .number(uint8_t{message.encrypted})
      .take();
}

SharedBytes encode(const Challenge& message) {
  return FrameWriter(FrameType::kChallenge).raw(message.nonce).raw(message.proof).take();
}

SharedBytes encode(const Refusal& message) {
  FrameWriter out(FrameType::kRefused);
  put(out, message);
  return out.take();
}

SharedBytes encode(const Welcome& message) {
  return FrameWriter(FrameType::kWelcome)
      .number(message.pid)
      .number(message.process)
      .text(message.host, kMaxNameBytes)
      .take();
}

SharedBytes encode(const Missing& message) {
  return FrameWriter(FrameType::kMissing)
      .number(message.arrived)
      .number(message.ranks)
      .text(message.text, kMaxTextBytes)
      .take();
}

SharedBytes encode(const Goodbye& message) {
  return FrameWriter(FrameType::kGoodbye)
      .number(static_cast<uint8_t>(message.kind))
      .text(message.text, kMaxTextBytes)
      .number(message.exchanges)
      .take();
}

SharedBytes encode(const Lost& message) {
  return FrameWriter(FrameType::kLost)
      .number(message.rank)
      .number(static_cast<uint8_t>(message.kind))
      .number(message.pid)
      .text(message.host, kMaxNameBytes)
      .text(message.text, kMaxTextBytes)
      .take();
}

SharedBytes encode(const ExchangeFailure& message) {
  FrameWriter out(FrameType::kExchangeFailed);
  out.number(message.sequence);
  put(out, message.why);
  return out.take();
}

SharedBytes encode(const NotYet& message) {
  return FrameWriter(FrameType::kNotYet).number(message.process).take();
}

SharedBytes encode(const Nudge& message) {
  return FrameWriter(FrameType::kNudge)
      .number(message.rank)
      .number(message.number)
      .raw(message.message)
      .take();
}

SharedBytes encodeEmpty(FrameType type) {
  return FrameWriter(type).take();
}

SharedBytes encodeQuery(QueryKind kind) {
  return FrameWriter(FrameType::kQuery).number(static_cast<uint8_t>(kind)).take();
}

SharedBytes encode(const Left& message) {
  return FrameWriter(FrameType::kLeft).number(message.rank).number(message.exchanges).take();
}

SharedBytes encodeExchange(uint32_t sequence, std::string_view name, std::span<const uint8_t> blob) {
  return FrameWriter(FrameType::kExchange).number(sequence).text(name, kMaxNameBytes).raw(blob).take();
}

SharedBytes encodeTable(std::span<const MemberInfo> members) {
  FrameWriter out(FrameType::kTable);
  for (const MemberInfo& who : members) {
    put(out, who);
  }
  return out.take();
}

SharedBytes encodeExchangeResult(uint32_t sequence, std::span<const Bytes> blobs) {
  FrameWriter out(FrameType::kExchangeResult);
  out.number(sequence);
  for (const Bytes& blob : blobs) {
    out.number(static_cast<uint32_t>(blob.size())).raw(blob);
  }
  return out.take();
}

SharedBytes encodeJoin(const Key128& secret, uint64_t session, const Nonce& hostNonce,
                       const Nonce& memberNonce, uint32_t ranks, const MemberInfo& who) {
  FrameWriter body(FrameType::kJoin);
  body.number(ranks);
  put(body, who);
  const SharedBytes framed = body.take();
  const std::span<const uint8_t> payload = std::span(*framed).subspan(8);
  const Hash128 proof = proofOf(secret, kMemberLabel, session, hostNonce, memberNonce, payload);
  return FrameWriter(FrameType::kJoin).raw(proof).raw(payload).take();
}

bool provesSecret(std::span<const uint8_t> joinPayload, const Key128& secret, uint64_t session,
                  const Nonce& hostNonce, const Nonce& memberNonce) {
  if (joinPayload.size() < kProofBytes) {
    return false;
  }
  Hash128 claimed;
  std::memcpy(claimed.data(), joinPayload.data(), claimed.size());
  return equalInConstantTime(claimed, proofOf(secret, kMemberLabel, session, hostNonce, memberNonce,
                                              joinPayload.subspan(kProofBytes)));
}

bool decode(std::span<const uint8_t> payload, Hello& message) {
  PayloadReader in(payload);
  message.wireVersion = in.number<uint16_t>();
  if (in.good() && message.wireVersion != kWireVersion) return true;
  message.session = in.number<uint64_t>();
  in.raw(message.nonce);
  const auto encrypted = in.number<uint8_t>();
  message.encrypted = encrypted == 1;
  return in.complete() && encrypted <= 1;
}

bool decode(std::span<const uint8_t> payload, Challenge& message) {
  PayloadReader in(payload);
  in.raw(message.nonce);
  in.raw(message.proof);
  return in.complete();
}

bool decode(std::span<const uint8_t> payload, Join& message) {
  PayloadReader in(payload);
  in.raw(message.proof);
  message.ranks = in.number<uint32_t>();
  message.who = getMember(in);
  return in.complete() && message.who.process != 0;  // by which members know the rendezvous (hosts.hpp)
}

bool decode(std::span<const uint8_t> payload, Refusal& message) {
  PayloadReader in(payload);
  return getRefusal(in, message) && in.complete();
}

bool decode(std::span<const uint8_t> payload, Welcome& message) {
  PayloadReader in(payload);
  message.pid = in.number<uint32_t>();
  message.process = in.number<uint64_t>();
  message.host = in.text(kMaxNameBytes);
  return in.complete();
}

bool decode(std::span<const uint8_t> payload, Exchange& message) {
  PayloadReader in(payload);
  message.sequence = in.number<uint32_t>();
  message.name = in.text(kMaxNameBytes);
  message.blob = in.rest();
  return in.complete() && message.blob.size() <= kMaxBlobBytes;
}

bool decode(std::span<const uint8_t> payload, ExchangeFailure& message) {
  PayloadReader in(payload);
  message.sequence = in.number<uint32_t>();
  return getRefusal(in, message.why) && in.complete();
}

bool decode(std::span<const uint8_t> payload, Missing& message) {
  PayloadReader in(payload);
  message.arrived = in.number<uint32_t>();
  message.ranks = in.number<uint32_t>();
  message.text = in.text(kMaxTextBytes);
  return in.complete();
}

bool decode(std::span<const uint8_t> payload, Goodbye& message) {
  PayloadReader in(payload);
  const bool known = getEnum(in, Farewell::kDisagreed, message.kind);
  message.text = in.text(kMaxTextBytes);
  message.exchanges = in.number<uint32_t>();
  return known && in.complete();
}

bool decode(std::span<const uint8_t> payload, Lost& message) {
  PayloadReader in(payload);
  message.rank = in.number<uint32_t>();
  const bool known = getEnum(in, LossKind::kDisagreed, message.kind);
  message.pid = in.number<uint32_t>();
  message.host = in.text(kMaxNameBytes);
  message.text = in.text(kMaxTextBytes);
  return known && in.complete();
}

bool decode(std::span<const uint8_t> payload, NotYet& message) {
  PayloadReader in(payload);
  message.process = in.number<uint64_t>();
  return in.complete();
}

bool decode(std::span<const uint8_t> payload, Nudge& message) {
  PayloadReader in(payload);
  message.rank = in.number<uint32_t>();
  message.number = in.number<uint32_t>();
  message.message = in.rest();
  return in.complete() && message.message.size() <= kMaxNudgeBytes;
}

bool decode(std::span<const uint8_t> payload, Left& message) {
  PayloadReader in(payload);
  message.rank = in.number<uint32_t>();
  message.exchanges = in.number<uint32_t>();
  return in.complete();
}

bool decodeQuery(std::span<const uint8_t> payload, QueryKind& kind) {
  PayloadReader in(payload);
  return getEnum(in, QueryKind::kExchange, kind) && in.complete();
}

bool decodeTable(std::span<const uint8_t> payload, int ranks, std::vector<MemberInfo>& members) {
  PayloadReader in(payload);
  members.clear();
  for (int rank = 0; rank < ranks && in.good(); ++rank) {
    members.push_back(getMember(in));
    if (members.back().rank != rank) return false;
  }
  return in.complete() && static_cast<int>(members.size()) == ranks;
}

bool decodeSequence(std::span<const uint8_t> exchangeResult, uint32_t& sequence) {
  PayloadReader in(exchangeResult);
  sequence = in.number<uint32_t>();
  return in.good();
}

bool decodeExchangeResult(const SharedBytes& payload, int ranks, uint32_t& sequence, Contributions& parts) {
  PayloadReader in(*payload);
  sequence = in.number<uint32_t>();
  std::vector<Contributions::Part> found;
  found.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks && in.good(); ++rank) found.push_back(in.bytes(in.number<uint32_t>()));
  parts = Contributions(payload, std::move(found));
  return in.complete();
}

int64_t longestPayload(FrameType type) {
  constexpr int64_t kRefusalBytes = 1 + 4 + 2 + int64_t{kMaxTextBytes};
  switch (type) {
    case FrameType::kHello:
      return int64_t{kMaxHelloBytes};
    case FrameType::kChallenge:
      return int64_t{sizeof(Nonce) + kProofBytes};
    case FrameType::kNotYet:
      return 8;
    case FrameType::kNudge:
      return 8 + int64_t{kMaxNudgeBytes};
    case FrameType::kHostLeaving:
      return 0;
    case FrameType::kRefused:
      return kRefusalBytes;
    case FrameType::kJoin:
      return int64_t{kProofBytes + 4 + kMemberBytes};
    case FrameType::kWelcome:
      return 4 + 8 + 2 + int64_t{kMaxNameBytes};
    case FrameType::kTable:
      return int64_t{kMaxRanks * kMemberBytes};
    case FrameType::kExchange:
      return 4 + 2 + int64_t{kMaxNameBytes + kMaxBlobBytes};
    case FrameType::kExchangeResult:
      return 4 + 4 * int64_t{kMaxRanks} + int64_t{kMaxExchangeBytes};
    case FrameType::kExchangeFailed:
      return 4 + kRefusalBytes;
    case FrameType::kQuery:
      return 1;
    case FrameType::kMissing:
      return 8 + 2 + int64_t{kMaxTextBytes};
    case FrameType::kGoodbye:
      return 1 + 2 + int64_t{kMaxTextBytes} + 4;
    case FrameType::kLeft:
      return 8;
    case FrameType::kLost:
      return 4 + 1 + 4 + 2 + int64_t{kMaxNameBytes} + 2 + int64_t{kMaxTextBytes};
  }
  return -1;
}

}  // namespace stretto::bootstrap
