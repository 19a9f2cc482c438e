// TLS 1.3 over a connected, non-blocking socket, between two ends that know a key: an encrypted stream with
// the same calls as the plain one (socket.hpp). ByteStream (byte_stream.hpp) is for use; this is what it
// encrypts with. For platform/ only.
//
// TLS_AES_128_GCM_SHA256, the key as an external PSK with (EC)DHE (psk_dhe_ke): what was recorded stays
// secret when the key becomes known later. No certificates, no tickets, no early data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "platform/encryption.hpp"
#include "platform/fork.hpp"
#include "platform/openssl.hpp"
#include "platform/socket.hpp"

namespace stretto {

enum class TlsRole : uint8_t { kClient, kServer };
// kEnded: the connection did, by whose doing is not known.
enum class TlsHandshake : uint8_t { kGoesOn, kDone, kEnded, kFailed };

// OpenSSL and what all sessions have in common. Null, and why, where there is none. It is loaded once.
struct TlsLibrary {
  const platform::OpenSsl* calls = nullptr;
  ssl_ctx_st* context = nullptr;
  const bio_method_st* pipe = nullptr;  // of a TlsSession's bytes
};
const TlsLibrary* tlsLibrary(std::string& why);

// Two threads may use it at a time, one that sends and one that receives. Its socket comes with every call,
// and is the same every time.
class TlsSession {
 public:
  // RFC 8446, 5.5: AES-GCM may encrypt 2^24.5 records with a key; then there is a new one.
  static constexpr uint64_t kRecordsOfAKey = uint64_t{1} << 23;

  TlsSession(const TlsLibrary& library, TlsRole role, const std::optional<TlsKey>& key,
             uint64_t recordsOfAKey = kRecordsOfAKey);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // To be called until it does not go on; before that nothing can be sent or received.
  TlsHandshake shakeHands(const FileDescriptor& socket, std::string& why);
  // As the plain ones. What is sent is with the kernel when it is said to be sent: after kWouldBlock the next
  // call begins with the same bytes. kFailed with EBADMSG: what came was not encrypted by the other end.
  Transfer send(const FileDescriptor& socket, std::span<const IoSpan> pieces);
  Transfer receive(const FileDescriptor& socket, std::span<const IoSpan> pieces);
  // Bytes have come that receive() has not given out yet: no poller tells of them.
  bool holdsMore() const;
  // Encrypted bytes wait for the socket to take them.
  bool isFlushed() const;

  uint64_t keysUsed() const { return keysUsed_; }  // to send

 private:
  friend struct TlsCallbacks;

  bool flush(const FileDescriptor& socket);
  size_t encrypt(std::span<const IoSpan> pieces, size_t at);
  size_t join(std::span<const IoSpan> pieces, size_t at);
  bool encryptOne(const void* from, size_t bytes);
  bool refill();
  bool isAsWanted(std::string& why) const;
  std::string whyNot() const;
  Transfer broken() const;

  const platform::OpenSsl& ssl_;
  const std::optional<TlsKey> key_;  // nothing: it could not be derived
  const uint64_t recordsOfAKey_;
  const uint32_t generation_ = platform::forkGeneration();
  mutable std::mutex mutex_;
  ssl_st* session_ = nullptr;
  const FileDescriptor* socket_ = nullptr;  // during a call
  bool mayRefill_ = false;
  // What has come and is not decrypted: [begin, end) of the bytes.
  struct {
    std::vector<uint8_t> bytes;
    size_t begin = 0;
    size_t end = 0;
  } in_;
  std::vector<uint8_t> out_;  // encrypted, and not with the kernel from `flushed_` on
  size_t flushed_ = 0;
  size_t promised_ = 0;          // bytes of the caller's that are in out_ and were not said to be sent
  std::vector<uint8_t> joined_;  // several pieces, for one record
  // What is said from then on.
  std::optional<Transfer> sendingEnded_;
  std::optional<Transfer> receivingEnded_;
  bool lacksMemory_ = false;
  uint64_t records_ = 0;  // that were sent with this key
  uint64_t keysUsed_ = 1;
};

}  // namespace stretto
