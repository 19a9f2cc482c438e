#include "bootstrap/unique_id.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {
namespace {

Rendezvous somewhere() {
  Rendezvous where;
  where.address = loopbackAddress(12345);
  where.session = 0x0102030405060708;
  where.secret = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  return where;
}

// What a library that speaks another wire protocol would have made of `id`.
UniqueId fromAnotherProtocol(UniqueId id, uint16_t version) {
  std::memcpy(id.bytes + 8, &version, sizeof version);
  Key128 key;
  std::memcpy(key.data(), "stretto checksum", key.size());
  const Hash128 hash = sipHash128(key, std::span(id.bytes, 120));
  std::memcpy(id.bytes + 120, hash.data(), 8);
  return id;
}

TEST(UniqueId, ComesBack) {
  const Result<Rendezvous> decoded = decodeId(encodeId(somewhere()));
  ASSERT_TRUE(decoded.ok()) << lastError();
  EXPECT_EQ(decoded.value().address, somewhere().address);
  EXPECT_EQ(decoded.value().session, somewhere().session);
  EXPECT_EQ(decoded.value().secret, somewhere().secret);
  Rendezvous six = somewhere();
  six.address.family = 6;
  six.address.bytes[15] = 1;
  EXPECT_EQ(decodeId(encodeId(six)).value().address, six.address);
}

TEST(UniqueId, ZerosAndForeignBytesAreRefused) {
  EXPECT_EQ(decodeId(UniqueId{}).status().code, Code::kInvalidArgument);
  EXPECT_NE(lastError().find("ncclGetUniqueId"), std::string::npos) << lastError();
  UniqueId ones;
  std::memset(ones.bytes, 0xff, sizeof ones.bytes);
  EXPECT_EQ(decodeId(ones).status().code, Code::kInvalidArgument);
}

TEST(UniqueId, AnotherWireProtocolNamesBothAndTheRank) {
  const UniqueId id = fromAnotherProtocol(encodeId(somewhere()), kWireVersion + 41);
  EXPECT_EQ(decodeId(id, 3).status().code, Code::kInvalidUsage);
  EXPECT_NE(lastError().find("rank 3 speaks wire protocol " + std::to_string(kWireVersion)),
            std::string::npos)
      << lastError();
  EXPECT_NE(lastError().find(std::to_string(kWireVersion + 41)), std::string::npos) << lastError();
}

TEST(UniqueId, AnIdWithoutAnAddressIsRefused) {
  Rendezvous nowhere = somewhere();
  nowhere.address = {};
  EXPECT_EQ(decodeId(encodeId(nowhere)).status().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace stretto::bootstrap
