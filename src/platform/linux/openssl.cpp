#include "platform/openssl.hpp"

namespace stretto::platform {

const OpenSslNames kOpenSslNames{"libssl.so.3", "libcrypto.so.3"};

}  // namespace stretto::platform
