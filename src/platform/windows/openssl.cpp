#include "platform/openssl.hpp"

namespace stretto::platform {

const OpenSslNames kOpenSslNames{"libssl-3-x64.dll", "libcrypto-3-x64.dll"};

}  // namespace stretto::platform
