#include "net/tcp/wire.hpp"

#include <algorithm>

namespace stretto::net::tcp {
namespace {

// Whole chunks, of which the last may end with the message.
bool isGoodPart(const Frame& frame, uint32_t chunk) {
  if (frame.bytes == 0 || frame.offset >= frame.total || frame.bytes > frame.total - frame.offset)
    return false;
  const bool isToEnd = frame.bytes == frame.total - frame.offset;
  return frame.offset % chunk == 0 && (isToEnd || frame.bytes % chunk == 0);
}

size_t addressBytes(uint8_t family) {
  return family == 4 ? 4 : 16;
}

}  // namespace

// Magic, number of addresses, key; then per address: family, port, bytes.
Handle encode(const Rendezvous& where) {
  Handle handle{};
  auto* to = reinterpret_cast<uint8_t*>(handle.data());
  const uint8_t* const end = to + kRendezvousBytes;
  std::memcpy(to, &kMagic, sizeof kMagic);
  uint8_t& count = to[4];
  std::memcpy(to + 5, where.key.data(), where.key.size());
  to += 5 + where.key.size();
  for (const SocketAddress& address : where.addresses) {
    const size_t bytes = addressBytes(static_cast<uint8_t>(address.family));
    if (count == kMostAddresses || to + 3 + bytes > end) break;
    to[0] = static_cast<uint8_t>(address.family);
    std::memcpy(to + 1, &address.port, sizeof address.port);
    std::memcpy(to + 3, address.bytes, bytes);
    to += 3 + bytes;
    ++count;
  }
  return handle;
}

bool decode(const Handle& handle, Rendezvous& where) {
  const auto* from = reinterpret_cast<const uint8_t*>(handle.data());
  const uint8_t* const end = from + kRendezvousBytes;
  const size_t count = from[4];
  if (std::memcmp(from, &kMagic, sizeof kMagic) != 0 || count == 0 || count > kMostAddresses) return false;
  std::memcpy(where.key.data(), from + 5, where.key.size());
  from += 5 + where.key.size();
  where.addresses.clear();
  for (size_t i = 0; i < count; ++i) {
    if (from + 3 > end || (from[0] != 4 && from[0] != 6)) return false;
    const size_t bytes = addressBytes(from[0]);
    if (from + 3 + bytes > end) return false;
    SocketAddress address;
    address.family = from[0];
    std::memcpy(&address.port, from + 1, sizeof address.port);
    std::memcpy(address.bytes, from + 3, bytes);
    where.addresses.push_back(address);
    from += 3 + bytes;
  }
  return true;
}

bool isGood(const Hello& hello) {
  return hello.magic == kMagic && hello.flows >= 1 && hello.flows <= kMostFlows && hello.flow < hello.flows &&
         hello.chunk >= kLeastChunk && hello.chunk <= kMostMessage && hello.small <= kMostSmall &&
         hello.copied <= kMostSmall && hello.encrypted <= 1;
}

Hash128 proofOf(const Key128& key, std::string_view label, const Hello& hello, const Challenge& challenge) {
  std::vector<uint8_t> message(label.begin(), label.end());
  const auto* const said = reinterpret_cast<const uint8_t*>(&hello);
  message.insert(message.end(), said, said + sizeof hello);
  const auto* const answered = reinterpret_cast<const uint8_t*>(&challenge);
  message.insert(message.end(), answered, answered + offsetof(Challenge, proof));
  return sipHash128(key, message);
}

std::optional<TlsKey> tlsKeyOf(const Key128& key, const Encryption& with, const Hello& hello,
                               const Challenge& challenge) {
  const auto* const said = reinterpret_cast<const uint8_t*>(&hello);
  return deriveKey(key, with, challenge.nonce, "stretto net tls", {said, sizeof hello});
}

bool isGood(const Frame& frame, const Hello& hello) {
  if (frame.magic != Frame{}.magic || frame.losses >= hello.flows || frame.unused2 != 0) return false;
  switch (frame.kind) {
    case FrameKind::kWhole:
      return frame.total <= hello.small && frame.bytes == frame.total && frame.offset == 0;
    case FrameKind::kPart:
      return frame.total > std::min(hello.small, hello.copied) && frame.total <= kMostMessage &&
             isGoodPart(frame, hello.chunk);
    case FrameKind::kAsk:
      return frame.bytes == 0;
    case FrameKind::kLost:
      return frame.bytes == 0 && frame.offset < hello.flows;
    case FrameKind::kBye:
      return frame.bytes == 0;
  }
  return false;
}

bool isGood(const Record& record, const Hello& hello) {
  if (record.magic != Record{}.magic || record.unused != 0) return false;
  switch (record.kind) {
    case RecordKind::kComplete:
    case RecordKind::kReady:
      return true;
    case RecordKind::kLost:
      return record.count < hello.flows;
  }
  return false;
}

bool saysNoMoreThan(uint64_t end, const Record& record) {
  if (record.count > end) return false;
  for (size_t i = 0; i < record.bits.size(); ++i) {
    const auto above = static_cast<uint64_t>(std::bit_width(record.bits[i]));
    if (above > 0 && 64 * i + above > end - record.count) return false;
  }
  return true;
}

void CompleteSet::advance() {
  while ((bits_[0] & 1) != 0) {
    const int ones = std::countr_one(bits_[0]);
    for (size_t i = 0; i < bits_.size(); ++i) {
      const uint64_t above = i + 1 < bits_.size() ? bits_[i + 1] : 0;
      bits_[i] = ones == 64 ? above : bits_[i] >> ones | above << (64 - ones);
    }
    below_ += static_cast<uint64_t>(ones);
  }
}

void CompleteSet::add(uint64_t number) {
  if (number < below_ || !canHold(number)) return;
  const uint64_t at = number - below_;
  bits_[at / 64] |= uint64_t{1} << at % 64;
  advance();
}

void CompleteSet::merge(const Record& record) {
  if (record.count < below_) return;  // an older one
  if (record.count > below_) {
    below_ = record.count;
    bits_ = record.bits;
  } else {
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= record.bits[i];
  }
  advance();
}

Record CompleteSet::record() const {
  Record record;
  record.count = below_;
  record.bits = bits_;
  return record;
}

}  // namespace stretto::net::tcp
