#include "platform/encryption.hpp"

#include <mutex>
#include <vector>

#include "base/parameters.hpp"
#include "platform/tls.hpp"

namespace stretto {
namespace {

struct Chosen {
  std::mutex mutex;
  std::optional<std::string> secret;
};
// Never destroyed: threads that connect may outlive static objects.
Chosen& chosen() {
  static auto* instance = new Chosen;
  return *instance;
}

using Digest = std::array<uint8_t, 32>;

std::optional<Digest> hmac(const platform::OpenSsl& ssl, std::span<const uint8_t> key,
                           std::span<const uint8_t> message) {
  Digest digest{};
  if (ssl.hmac(ssl.sha256(), key.data(), static_cast<int>(key.size()), message.data(), message.size(),
               digest.data(), nullptr) != nullptr) {
    return digest;
  }
  ssl.clearErrors();
  return std::nullopt;
}

}  // namespace

void chooseEncryption(std::optional<std::string> secret) {
  const std::lock_guard lock(chosen().mutex);
  chosen().secret = std::move(secret);
}

Result<Encryption> encryptionOfProcess() {
  const auto wanted = parameters::kTls.flag();
  if (!wanted.ok()) return wanted.status();
  Encryption encryption;
  const char* by = "STRETTO_TLS=1";
  {
    const std::lock_guard lock(chosen().mutex);
    encryption.on = wanted.value() || chosen().secret.has_value();
    encryption.secret = chosen().secret.value_or("");
    if (!wanted.value()) by = "ncclSetEncryption";
  }
  std::string why;
  if (!encryption.on || tlsLibrary(why) != nullptr) return encryption;
  return fail(
      Code::kSystem,
      "%s: connections are to be encrypted, which takes OpenSSL 3 on every host, and this process cannot "
      "load it: %s. Install it (Debian and Ubuntu: libssl3; Red Hat: openssl-libs), or do without "
      "encryption on all ranks; nothing was sent in plain text",
      by, why.c_str());
}

std::optional<TlsKey> deriveKey(std::span<const uint8_t> secret, const Encryption& with,
                                std::span<const uint8_t> salt, std::string_view label,
                                std::span<const uint8_t> context) {
  std::string why;
  const TlsLibrary* const library = tlsLibrary(why);
  if (library == nullptr) return std::nullopt;
  const platform::OpenSsl& ssl = *library->calls;
  std::vector<uint8_t> material(secret.begin(), secret.end());
  material.insert(material.end(), with.secret.begin(), with.secret.end());
  std::vector<uint8_t> info(label.begin(), label.end());
  info.insert(info.end(), context.begin(), context.end());
  info.push_back(1);  // the number of the block: a key is as long as one
  const std::optional<Digest> extracted = hmac(ssl, salt, material);
  return extracted ? hmac(ssl, *extracted, info) : std::nullopt;
}

}  // namespace stretto
