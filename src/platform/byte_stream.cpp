#include "platform/byte_stream.hpp"

#include <cerrno>
#include <cstring>

namespace stretto {

void ByteStream::encrypt(TlsRole role, const std::optional<TlsKey>& key) {
  std::string why;
  tls_ = std::make_unique<TlsSession>(*tlsLibrary(why), role, key);
  shaking_ = true;
}

std::string wordsOf(int error) {
  if (error == EBADMSG) return "what came was not encrypted by the other end";
  if (error == EPROTO) return "OpenSSL made no new key";
  return std::strerror(error);
}

}  // namespace stretto
