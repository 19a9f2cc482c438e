// For tests of what encrypts: they need OpenSSL 3, and say so where there is none. Where CI is set they fail
// instead: a run that everything depends on must not pass because nothing was tested.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "platform/tls.hpp"

// The first statement of such a test, or of its SetUp().
#define STRETTO_NEEDS_OPENSSL()                                                            \
  if (std::string why_; stretto::tlsLibrary(why_) == nullptr) {                            \
    if (std::getenv("CI") != nullptr) FAIL() << "nothing can be encrypted here: " << why_; \
    GTEST_SKIP() << "nothing can be encrypted here: " << why_;                             \
  }                                                                                        \
  static_assert(true)

namespace stretto::testing {

inline bool contains(std::span<const uint8_t> bytes, std::string_view text) {
  return std::search(bytes.begin(), bytes.end(), text.begin(), text.end()) != bytes.end();
}

}  // namespace stretto::testing
