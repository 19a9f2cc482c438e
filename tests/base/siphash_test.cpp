#include "base/siphash.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace stretto {
namespace {

std::string hex(const Hash128& hash) {
  std::string text;
  for (const uint8_t byte : hash) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

// Key 00 01 … 0f, message 00 01 … (length - 1): the published vectors of the 128-bit variant
// (vectors_sip128 in the authors' reference), around every boundary of the 8-byte words.
TEST(SipHash, MatchesTheReferenceVectors) {
  const struct {
    size_t length;
    const char* expected;
  } kVectors[] = {
      {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
      {2, "8177228da4a45dc7fca38bdef60affe4"},  {3, "9c70b60c5267a94e5f33b6b02985ed51"},
      {6, "14eeca338b208613485ea0308fd7a15e"},  {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},
      {8, "3b62a9ba6258f5610f83e264f31497b4"},  {9, "264499060ad9baabc47f8b02bb6d71ed"},
      {15, "5493e99933b0a8117e08ec0f97cfc3d9"}, {16, "6ee2a4ca67b054bbfd3315bf85230577"},
      {17, "473d06e8738db89854c066c47ae47740"}, {31, "2939b0183223fafc1723de4f52c43d35"},
      {32, "7c3956ca5eeafc3e363e9d556546eb68"}, {62, "5853542321f567a005d547a4f04759bd"},
      {63, "5150d1772f50834a503e069a973fbd7c"},
  };
  Key128 key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  for (const auto& vector : kVectors) {
    std::vector<uint8_t> message(vector.length);
    for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(i);
    EXPECT_EQ(hex(sipHash128(key, message)), vector.expected) << vector.length << " bytes";
  }
}

TEST(SipHash, EveryBitOfTheKeyMatters) {
  const std::vector<uint8_t> message(20, 7);
  const Hash128 before = sipHash128({}, message);
  for (size_t bit = 0; bit < 128; ++bit) {
    Key128 key{};
    key[bit / 8] = static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_FALSE(equalInConstantTime(before, sipHash128(key, message))) << bit;
  }
}

TEST(SipHash, ComparisonSeesEveryByte) {
  const Hash128 a{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  EXPECT_TRUE(equalInConstantTime(a, a));
  for (size_t i = 0; i < a.size(); ++i) {
    Hash128 b = a;
    b[i] ^= 0x80;
    EXPECT_FALSE(equalInConstantTime(a, b)) << i;
  }
}

}  // namespace
}  // namespace stretto
