// For tests of what encrypts: they need OpenSSL 3, and say so where there is none.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "platform/tls.hpp"

// The first statement of such a test.
#define STRETTO_NEEDS_OPENSSL()                                 \
  if (std::string why_; stretto::tlsLibrary(why_) == nullptr) { \
    GTEST_SKIP() << "nothing can be encrypted here: " << why_;  \
  }                                                             \
  static_assert(true)

namespace stretto::testing {

inline bool contains(std::span<const uint8_t> bytes, std::string_view text) {
  return std::search(bytes.begin(), bytes.end(), text.begin(), text.end()) != bytes.end();
}

}  // namespace stretto::testing
