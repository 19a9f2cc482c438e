// Whether the connections between processes are encrypted, and the keys that they are encrypted with. Any
// folder may include this. All functions may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace stretto {

struct Encryption {
  bool on = false;
  std::string secret;  // that the program has given to all processes beside what they share anyway

  bool operator==(const Encryption&) const = default;
};

// By STRETTO_TLS=1 or ncclSetEncryption, either of which is enough. Where it is on and cannot be had
// (OpenSSL 3 is not here) this fails, and so must whatever was to be connected: nothing goes in plain text
// then.
Result<Encryption> encryptionOfProcess();
// What ncclSetEncryption asks for: with a secret of its own, which may be empty; nothing: not to.
void chooseEncryption(std::optional<std::string> secret);

// Of one connection.
using TlsKey = std::array<uint8_t, 32>;

// HKDF with SHA-256 (RFC 5869) of a secret, and of what the program gave beside it. `salt` and `context` are
// what both ends have said about this connection and no other, so that a key opens one connection; `label` is
// the use that it is for. Nothing where OpenSSL fails: what the key was for cannot be encrypted.
std::optional<TlsKey> deriveKey(std::span<const uint8_t> secret, const Encryption& with,
                                std::span<const uint8_t> salt, std::string_view label,
                                std::span<const uint8_t> context);

}  // namespace stretto
