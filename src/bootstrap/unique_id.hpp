// The 128 bytes that ncclGetUniqueId hands out and the user carries to every rank: where the rendezvous is
// hosted, which session is meant, and the secret that proves one belongs there. Whoever has these bytes can
// join: treat them like a password. The communicator layer and bootstrap/ use it. Pure; any thread.
//
//   0  "STRETTO" and a zero   8  wire version (16 bits)   10  address family, port, 16 address bytes
//  32  session (64 bits)     40  secret (16 bytes)        56  zeros      120  checksum of all before it
#pragma once

#include <cstdint>

#include "base/siphash.hpp"
#include "base/status.hpp"
#include "platform/socket.hpp"

namespace stretto::bootstrap {

using ServiceAddress = SocketAddress;

struct UniqueId {
  uint8_t bytes[128] = {};

  bool operator==(const UniqueId&) const = default;
};
static_assert(sizeof(UniqueId) == 128);

// An id taken apart.
struct Rendezvous {
  ServiceAddress address;
  uint64_t session = 0;
  Key128 secret{};
};

UniqueId encodeId(const Rendezvous& rendezvous);
// kInvalidArgument when the bytes are not an id of ours or were damaged on the way, kInvalidUsage when they
// come from a library that speaks another wire protocol; both say which. `rank` is only for the sentence.
Result<Rendezvous> decodeId(const UniqueId& id, int rank = -1);

// The id of a child session, the same on every rank that calls it with the same arguments, without a word
// to anyone: `leader` is the Service (MemberInfo::service) of the rank that will host the child and call
// Service::openSession; `discriminator` tells children of one parent apart, e.g. split's sequence number and
// colour. Nobody without the parent's id can compute or guess it. `parent` must be a valid id.
UniqueId deriveId(const UniqueId& parent, const ServiceAddress& leader, uint64_t discriminator);

}  // namespace stretto::bootstrap
