#include "bootstrap/unique_id.hpp"

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {
namespace {

constexpr char kMagic[8] = "STRETTO";
constexpr size_t kVersionAt = 8;
constexpr size_t kAddressAt = 10;
constexpr size_t kSessionAt = 32;
constexpr size_t kSecretAt = 40;
constexpr size_t kChecksumAt = 120;

// Against damage, not against people: the key is no secret.
uint64_t checksumOf(const UniqueId& id) {
  static constexpr Key128 kPublicKey = {'s', 't', 'r', 'e', 't', 't', 'o', ' ',
                                        'c', 'h', 'e', 'c', 'k', 's', 'u', 'm'};
  const Hash128 hash = sipHash128(kPublicKey, std::span(id.bytes, kChecksumAt));
  uint64_t checksum = 0;
  std::memcpy(&checksum, hash.data(), sizeof checksum);
  return checksum;
}

template <typename T>
T load(const UniqueId& id, size_t at) {
  T value;
  std::memcpy(&value, id.bytes + at, sizeof value);
  return value;
}

template <typename T>
void store(UniqueId& id, size_t at, const T& value) {
  std::memcpy(id.bytes + at, &value, sizeof value);
}

Hash128 derive(const Rendezvous& parent, std::string_view label, const ServiceAddress& leader,
               uint64_t discriminator) {
  FrameWriter message(FrameType::kHello);  // only for its byte order
  message.text(label, kMaxNameBytes).number(parent.session).number(discriminator);
  message.number(leader.family).number(leader.port).raw(leader.bytes);
  return sipHash128(parent.secret, *message.take());
}

Rendezvous takeApart(const UniqueId& id) {
  Rendezvous rendezvous;
  rendezvous.address.family = load<uint16_t>(id, kAddressAt);
  rendezvous.address.port = load<uint16_t>(id, kAddressAt + 2);
  std::memcpy(rendezvous.address.bytes, id.bytes + kAddressAt + 4, sizeof rendezvous.address.bytes);
  rendezvous.session = load<uint64_t>(id, kSessionAt);
  rendezvous.secret = load<Key128>(id, kSecretAt);
  return rendezvous;
}

}  // namespace

UniqueId encodeId(const Rendezvous& rendezvous) {
  UniqueId id;
  std::memcpy(id.bytes, kMagic, sizeof kMagic);
  store(id, kVersionAt, kWireVersion);
  store(id, kAddressAt, rendezvous.address.family);
  store(id, kAddressAt + 2, rendezvous.address.port);
  std::memcpy(id.bytes + kAddressAt + 4, rendezvous.address.bytes, sizeof rendezvous.address.bytes);
  store(id, kSessionAt, rendezvous.session);
  store(id, kSecretAt, rendezvous.secret);
  store(id, kChecksumAt, checksumOf(id));
  return id;
}

Result<Rendezvous> decodeId(const UniqueId& id, int rank) {
  if (std::memcmp(id.bytes, kMagic, sizeof kMagic) != 0) {
    return fail(
        Code::kInvalidArgument,
        "these 128 bytes are not a unique id of this library: they must come from ncclGetUniqueId of the "
        "same library, passed on unchanged to every rank");
  }
  if (load<uint64_t>(id, kChecksumAt) != checksumOf(id)) {
    return fail(
        Code::kInvalidArgument,
        "the unique id is damaged: its checksum does not match; all 128 bytes must be passed on unchanged");
  }
  if (const auto version = load<uint16_t>(id, kVersionAt); version != kWireVersion) {
    return fail(
        Code::kInvalidUsage,
        "%s speaks wire protocol %u, but the unique id was made by a library that speaks %u: load one "
        "version of the library in all ranks",
        rank < 0 ? "this process" : ("rank " + std::to_string(rank)).c_str(), unsigned{kWireVersion},
        unsigned{version});
  }
  const Rendezvous rendezvous = takeApart(id);
  if (rendezvous.address.family != 4 && rendezvous.address.family != 6) {
    return fail(Code::kInvalidArgument, "the unique id holds no address");
  }
  return rendezvous;
}

UniqueId deriveId(const UniqueId& parent, const ServiceAddress& leader, uint64_t discriminator) {
  const Rendezvous from = takeApart(parent);
  Rendezvous child;
  child.address = leader;
  const Hash128 session = derive(from, "stretto child session", leader, discriminator);
  std::memcpy(&child.session, session.data(), sizeof child.session);
  child.secret = derive(from, "stretto child secret", leader, discriminator);
  return encodeId(child);
}

}  // namespace stretto::bootstrap
