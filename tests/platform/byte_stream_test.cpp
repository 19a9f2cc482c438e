// Streams over sockets, in plain text and encrypted.
#include "platform/byte_stream.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <random>

#include "harness/encrypted.hpp"
#include "platform/clock.hpp"
#include "platform/connected_pair.hpp"

namespace stretto {
namespace {

using testing::contains;

constexpr double kPatience = 60;  // seconds; the machine may be busy
constexpr TlsKey kKey{1, 2, 3};

bool eventually(const std::function<bool()>& poll) {
  const uint64_t begin = platform::monotonicNanoseconds();
  while (!poll()) {
    if (platform::secondsSince(begin) > kPatience) return false;
  }
  return true;
}

std::vector<uint8_t> randomBytes(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

struct Ends {
  Ends() {
    testing::Pair pair = testing::connected();
    client = std::move(pair.client);
    server = std::move(pair.server);
  }
  void encrypt(const TlsKey& keyOfServer = kKey) {
    client.encrypt(TlsRole::kClient, kKey);
    server.encrypt(TlsRole::kServer, keyOfServer);
  }
  // How it ends at either end.
  std::pair<TlsHandshake, TlsHandshake> shakeHands() {
    auto first = TlsHandshake::kGoesOn, second = TlsHandshake::kGoesOn;
    EXPECT_TRUE(eventually([&] {
      if (first == TlsHandshake::kGoesOn) first = client.shakeHands(why);
      if (second == TlsHandshake::kGoesOn) second = server.shakeHands(whyOfServer);
      return first != TlsHandshake::kGoesOn && second != TlsHandshake::kGoesOn;
    }));
    return {first, second};
  }

  ByteStream client;
  ByteStream server;
  std::string why;
  std::string whyOfServer;
};

constexpr std::pair kBothDone{TlsHandshake::kDone, TlsHandshake::kDone};

// Bytes on the way from one end to the other, in pieces of odd sizes.
struct Way {
  ByteStream& from;
  ByteStream& to;
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> came = {};
  size_t sent = 0;
  std::mt19937 random{7};

  bool move() {
    if (sent < bytes.size()) {
      const size_t head = std::min<size_t>(40, bytes.size() - sent);
      const IoSpan pieces[] = {{bytes.data() + sent, head},
                               {bytes.data() + sent + head, bytes.size() - sent - head}};
      const Transfer went = from.send(pieces);
      EXPECT_NE(went.outcome, IoOutcome::kFailed) << wordsOf(went.error);
      sent += went.bytes;
    }
    std::vector<uint8_t> room(1 + random() % 50000);
    const IoSpan pieces[] = {{room.data(), room.size() / 3},
                             {room.data() + room.size() / 3, room.size() - room.size() / 3}};
    const Transfer got = to.receive(pieces);
    EXPECT_NE(got.outcome, IoOutcome::kFailed) << wordsOf(got.error);
    came.insert(came.end(), room.begin(), room.begin() + static_cast<ptrdiff_t>(got.bytes));
    return came.size() == bytes.size();
  }
};

void expectBothWays(Ends& ends, size_t there, size_t back) {
  Way forth{ends.client, ends.server, randomBytes(there, 1)};
  Way home{ends.server, ends.client, randomBytes(back, 2)};
  EXPECT_TRUE(eventually([&] {
    const bool first = forth.move();
    return home.move() && first;
  }));
  EXPECT_EQ(forth.came, forth.bytes);
  EXPECT_EQ(home.came, home.bytes);
}

TEST(ByteStream, CarriesPlainBytes) {
  Ends ends;
  EXPECT_FALSE(ends.client.isEncrypted());
  expectBothWays(ends, 1 << 20, 3);
}

TEST(ByteStream, CarriesEncryptedBytesOfAllSizesBothWaysAtOnce) {
  STRETTO_NEEDS_OPENSSL();
  Ends ends;
  ends.encrypt();
  ASSERT_EQ(ends.shakeHands(), kBothDone) << ends.why << ", " << ends.whyOfServer;
  for (const size_t bytes : {1, 39, 40, 41, 16383, 16384, 16385, 65536, 3'000'001}) {
    expectBothWays(ends, bytes, 3'000'002 - bytes);
  }
}

TEST(ByteStream, SaysThatBytesWentOnceTheKernelHasThem) {
  STRETTO_NEEDS_OPENSSL();
  Ends ends;
  ends.encrypt();
  ASSERT_EQ(ends.shakeHands(), kBothDone);
  const std::vector<uint8_t> bytes = randomBytes(64 << 20, 3);
  size_t sent = 0;
  Transfer went{IoOutcome::kSome, 0, 0};
  while (sent < bytes.size() && went.outcome == IoOutcome::kSome) {
    const IoSpan piece{const_cast<uint8_t*>(bytes.data()) + sent, bytes.size() - sent};
    went = ends.client.send(std::span(&piece, 1));
    sent += went.bytes;
  }
  ASSERT_EQ(went.outcome, IoOutcome::kWouldBlock);
  EXPECT_FALSE(ends.client.isFlushed());
  std::vector<uint8_t> room(bytes.size());
  size_t came = 0;
  EXPECT_TRUE(eventually([&] {
    came += ends.server.receive(std::span(room).subspan(came)).bytes;
    return came >= sent;
  }));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(sent), room.begin()));
}

// The room that a socket has got is used in one call, for what was encrypted before and for the rest.
TEST(ByteStream, GoesOnInTheSameCallAfterABlock) {
  STRETTO_NEEDS_OPENSSL();
  Ends ends;
  ends.encrypt();
  ASSERT_EQ(ends.shakeHands(), kBothDone);
  std::vector<uint8_t> bytes(96 << 10);
  const IoSpan piece{bytes.data(), bytes.size()};
  while (ends.client.send(std::span(&piece, 1)).outcome == IoOutcome::kSome) {
  }
  std::vector<uint8_t> room(1 << 20);
  Transfer sent{IoOutcome::kWouldBlock, 0, 0};
  EXPECT_TRUE(eventually([&] {
    while (receiveSome(ends.server.socket(), std::span(room)).outcome == IoOutcome::kSome) {
    }
    return (sent = ends.client.send(std::span(&piece, 1))).outcome != IoOutcome::kWouldBlock;
  }));
  EXPECT_EQ(sent.bytes, bytes.size());
}

TEST(ByteStream, TellsOfWhatNoPollerTells) {
  STRETTO_NEEDS_OPENSSL();
  Ends ends;
  ends.encrypt();
  ASSERT_EQ(ends.shakeHands(), kBothDone);
  uint8_t bytes[100] = {5};
  const IoSpan piece{bytes, sizeof bytes};
  ASSERT_EQ(ends.client.send(std::span(&piece, 1)).bytes, sizeof bytes);
  uint8_t one = 0;
  ASSERT_TRUE(eventually([&] { return ends.server.receive(std::span(&one, 1)).bytes == 1; }));
  EXPECT_TRUE(ends.server.holdsMore());
  uint8_t rest[200];
  EXPECT_EQ(ends.server.receive(rest).bytes, sizeof bytes - 1);
  EXPECT_FALSE(ends.server.holdsMore());
}

TEST(ByteStream, RefusesAnotherKeyInWords) {
  STRETTO_NEEDS_OPENSSL();
  Ends ends;
  ends.encrypt(TlsKey{1, 2, 4});
  const auto [client, server] = ends.shakeHands();
  EXPECT_EQ(client, TlsHandshake::kFailed);
  EXPECT_EQ(server, TlsHandshake::kFailed);
  EXPECT_NE(ends.why.find("another secret"), std::string::npos) << ends.why;
  EXPECT_NE(ends.whyOfServer.find("another secret"), std::string::npos) << ends.whyOfServer;
}

TEST(ByteStream, RefusesWhoSpeaksPlainText) {
  STRETTO_NEEDS_OPENSSL();
  for (const TlsRole role : {TlsRole::kClient, TlsRole::kServer}) {
    Ends ends;
    ends.server.encrypt(role, kKey);
    ASSERT_EQ(testing::sendText(ends.client.socket(), "GET / HTTP/1.1\r\n\r\n").outcome, IoOutcome::kSome);
    auto state = TlsHandshake::kGoesOn;
    EXPECT_TRUE(
        eventually([&] { return (state = ends.server.shakeHands(ends.why)) != TlsHandshake::kGoesOn; }));
    EXPECT_EQ(state, TlsHandshake::kFailed);
    EXPECT_NE(ends.why.find("speaks no TLS"), std::string::npos) << ends.why;
  }
}

TEST(ByteStream, TellsOfAnEndInTheHandshakeAndAfterIt) {
  STRETTO_NEEDS_OPENSSL();
  Ends gone;
  gone.server.encrypt(TlsRole::kServer, kKey);
  gone.client.reset();
  auto state = TlsHandshake::kGoesOn;
  EXPECT_TRUE(
      eventually([&] { return (state = gone.server.shakeHands(gone.why)) != TlsHandshake::kGoesOn; }));
  EXPECT_EQ(state, TlsHandshake::kEnded);

  Ends ends;
  ends.encrypt();
  ASSERT_EQ(ends.shakeHands(), kBothDone);
  uint8_t bytes[100] = {5};
  const IoSpan piece{bytes, sizeof bytes};
  ASSERT_EQ(ends.client.send(std::span(&piece, 1)).bytes, sizeof bytes);
  ends.client.reset();
  uint8_t room[200];
  EXPECT_TRUE(eventually([&] { return ends.server.receive(room).bytes == sizeof bytes; }));
  EXPECT_TRUE(eventually([&] { return ends.server.receive(room).outcome == IoOutcome::kClosed; }));
}

TEST(ByteStream, RefusesGarbageAndTakesNothingAfterIt) {
  STRETTO_NEEDS_OPENSSL();
  Ends ends;
  ends.encrypt();
  ASSERT_EQ(ends.shakeHands(), kBothDone);
  ASSERT_EQ(testing::sendText(ends.client.socket(), "what nobody encrypted").outcome, IoOutcome::kSome);
  uint8_t room[200];
  Transfer got;
  EXPECT_TRUE(
      eventually([&] { return (got = ends.server.receive(room)).outcome != IoOutcome::kWouldBlock; }));
  EXPECT_EQ(got.outcome, IoOutcome::kFailed);
  EXPECT_EQ(got.error, EBADMSG);
  EXPECT_NE(wordsOf(got.error).find("not encrypted"), std::string::npos);
  uint8_t bytes[10] = {};
  const IoSpan piece{bytes, sizeof bytes};
  ends.client.send(std::span(&piece, 1));
  EXPECT_EQ(ends.server.receive(room).outcome, IoOutcome::kFailed);
}

// Two ends with somebody between them, who keeps all, and changes what `spoils` chooses.
class Between : public ::testing::Test {
 protected:
  void pass(const std::function<bool(size_t)>& spoils) {
    for (auto [from, to] : {std::pair(&near_.server, &far_.client), std::pair(&far_.client, &near_.server)}) {
      uint8_t bytes[4096];
      const Transfer got = from->receive(bytes);
      if (got.outcome != IoOutcome::kSome) continue;
      for (size_t i = 0; i < got.bytes; ++i) {
        heard_.push_back(bytes[i]);
        if (spoils && spoils(heard_.size())) bytes[i] ^= 0x10;
      }
      const IoSpan piece{bytes, got.bytes};
      EXPECT_EQ(to->send(std::span(&piece, 1)).bytes, got.bytes);
    }
  }
  bool shakeHands() {
    near_.client.encrypt(TlsRole::kClient, kKey);
    far_.server.encrypt(TlsRole::kServer, kKey);
    std::string why;
    auto first = TlsHandshake::kGoesOn, second = TlsHandshake::kGoesOn;
    return eventually([&] {
      pass({});
      if (first != TlsHandshake::kDone) first = near_.client.shakeHands(why);
      if (second != TlsHandshake::kDone) second = far_.server.shakeHands(why);
      return first == TlsHandshake::kDone && second == TlsHandshake::kDone;
    });
  }
  // What the server makes of the text.
  Transfer say(std::string text, std::span<uint8_t> room, const std::function<bool(size_t)>& spoils) {
    const IoSpan piece{text.data(), text.size()};
    EXPECT_EQ(near_.client.send(std::span(&piece, 1)).bytes, text.size());
    Transfer got;
    EXPECT_TRUE(eventually([&] {
      pass(spoils);
      return (got = far_.server.receive(room)).outcome != IoOutcome::kWouldBlock;
    }));
    return got;
  }

  Ends near_;
  Ends far_;
  std::vector<uint8_t> heard_;
};

TEST_F(Between, HearsNothing) {
  STRETTO_NEEDS_OPENSSL();
  ASSERT_TRUE(shakeHands());
  const std::string secret = "the weights of a model that nobody else may have";
  uint8_t room[100];
  EXPECT_EQ(say(secret, room, {}).bytes, secret.size());
  EXPECT_TRUE(contains(room, secret));
  EXPECT_GT(heard_.size(), secret.size());
  EXPECT_FALSE(contains(heard_, secret.substr(0, 8)));
}

TEST_F(Between, ChangesNothingUnseen) {
  STRETTO_NEEDS_OPENSSL();
  ASSERT_TRUE(shakeHands());
  const size_t before = heard_.size();
  uint8_t room[100];
  const Transfer got = say("pay 100 to the first", room, [&](size_t at) { return at == before + 12; });
  EXPECT_EQ(got.outcome, IoOutcome::kFailed);
  EXPECT_EQ(got.error, EBADMSG);
}

// A key is used for so many records only.
TEST(Tls, ChangesItsKeyInTime) {
  STRETTO_NEEDS_OPENSSL();
  constexpr uint64_t kRecords = 3;
  constexpr int kMessages = 20;
  std::string why;
  const TlsLibrary& library = *tlsLibrary(why);
  const testing::Pair pair = testing::connected();
  TlsSession client(library, TlsRole::kClient, kKey, kRecords);
  TlsSession server(library, TlsRole::kServer, kKey, kRecords);
  ASSERT_TRUE(eventually([&] {
    const auto first = client.shakeHands(pair.client, why);
    return server.shakeHands(pair.server, why) == TlsHandshake::kDone && first == TlsHandshake::kDone;
  })) << why;
  for (int i = 0; i < kMessages; ++i) {
    int sent = i, came = -1;
    const IoSpan from{&sent, sizeof sent}, to{&came, sizeof came};
    EXPECT_EQ(client.send(pair.client, std::span(&from, 1)).bytes, sizeof sent);
    EXPECT_TRUE(
        eventually([&] { return server.receive(pair.server, std::span(&to, 1)).bytes == sizeof came; }));
    EXPECT_EQ(came, i);
  }
  EXPECT_EQ(client.keysUsed(), 1 + (kMessages - 1) / kRecords);
}

// Functions of OpenSSL that are others for a while.
class Replaced {
 public:
  Replaced() : calls_(const_cast<platform::OpenSsl&>(*calls())), before_(calls_) {}
  ~Replaced() { calls_ = before_; }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;
  platform::OpenSsl* operator->() { return &calls_; }

  static const platform::OpenSsl* calls() {
    std::string why;
    return tlsLibrary(why)->calls;
  }

 private:
  platform::OpenSsl& calls_;
  const platform::OpenSsl before_;
};

// Of what a group without a key of the other end's own exchanges (X25519MLKEM768) there is no temporary key.
TEST(Tls, AsksForTheGroupAndNotForAKey) {
  STRETTO_NEEDS_OPENSSL();
  static decltype(platform::OpenSsl::control) real;
  real = Replaced::calls()->control;
  constexpr int kTemporaryKey = 109, kGroup = 134;
  Replaced openSsl;
  openSsl->control = [](ssl_st* session, int what, long number, void* more) {
    return what == kTemporaryKey ? 0 : real(session, what, number, more);
  };
  Ends ends;
  ends.encrypt();
  EXPECT_EQ(ends.shakeHands(), kBothDone) << ends.why << ends.whyOfServer;
  openSsl->control = [](ssl_st* session, int what, long number, void* more) {
    return what == kGroup ? 0 : real(session, what, number, more);
  };
  Ends without;
  without.encrypt();
  EXPECT_EQ(without.shakeHands(), std::pair(TlsHandshake::kFailed, TlsHandshake::kFailed));
  EXPECT_NE(without.why.find("less than was asked for"), std::string::npos) << without.why;
}

TEST(Tls, SendsNothingOnceThereIsNoNewKey) {
  STRETTO_NEEDS_OPENSSL();
  std::string why;
  const TlsLibrary& library = *tlsLibrary(why);
  const testing::Pair pair = testing::connected();
  TlsSession client(library, TlsRole::kClient, kKey, 1);
  TlsSession server(library, TlsRole::kServer, kKey, 1);
  ASSERT_TRUE(eventually([&] {
    const auto first = client.shakeHands(pair.client, why);
    return server.shakeHands(pair.server, why) == TlsHandshake::kDone && first == TlsHandshake::kDone;
  })) << why;
  int number = 1;
  const IoSpan piece{&number, sizeof number};
  EXPECT_EQ(client.send(pair.client, std::span(&piece, 1)).bytes, sizeof number);
  Replaced openSsl;
  openSsl->updateKey = [](ssl_st*, int) { return 0; };
  for (int i = 0; i < 2; ++i) {
    const Transfer sent = client.send(pair.client, std::span(&piece, 1));
    EXPECT_EQ(sent.outcome, IoOutcome::kFailed);
    EXPECT_EQ(wordsOf(sent.error), "OpenSSL made no new key");
  }
  EXPECT_EQ(client.keysUsed(), 1u);
}

TEST(Tls, WithoutMemoryNoHandshakeBegins) {
  STRETTO_NEEDS_OPENSSL();
  for (const bool session : {true, false}) {
    Replaced openSsl;
    if (session) {
      openSsl->create = [](ssl_ctx_st*) -> ssl_st* { return nullptr; };
    } else {
      openSsl->newBio = [](const bio_method_st*) -> bio_st* { return nullptr; };
    }
    Ends ends;
    ends.encrypt();
    EXPECT_EQ(ends.shakeHands(), std::pair(TlsHandshake::kFailed, TlsHandshake::kFailed));
    EXPECT_EQ(ends.why, "OpenSSL has no memory");
    EXPECT_FALSE(ends.client.holdsMore());
  }
}

TEST(Encryption, AKeyThatCannotBeDerivedOpensNothing) {
  STRETTO_NEEDS_OPENSSL();
  Replaced openSsl;
  openSsl->hmac = [](const evp_md_st*, const void*, int, const unsigned char*, size_t, unsigned char*,
                     unsigned int*) -> unsigned char* { return nullptr; };
  const uint8_t secret[] = {1};
  EXPECT_FALSE(deriveKey(secret, {true, ""}, {}, "a use", {}).has_value());
  Ends ends;
  ends.client.encrypt(TlsRole::kClient, std::nullopt);
  ends.server.encrypt(TlsRole::kServer, kKey);
  EXPECT_EQ(ends.client.shakeHands(ends.why), TlsHandshake::kFailed);
  EXPECT_NE(ends.why.find("could not derive a key"), std::string::npos) << ends.why;
}

// What was registered before OpenSSL was loaded runs after what OpenSSL registers.
TEST(EncryptionDeathTest, WorksInExitHandlersThatAreOlder) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::atexit([] {
          std::string why;
          const uint8_t secret[] = {1};
          const bool good = tlsLibrary(why) == nullptr || deriveKey(secret, {true, ""}, {}, "a use", {});
          std::_Exit(good ? 0 : 7);
        });
        std::string why;
        tlsLibrary(why);
        std::exit(5);
      },
      ::testing::ExitedWithCode(0), "");
  STRETTO_NEEDS_OPENSSL();
}

TEST(Tls, SaysWhichLibraryIsNotThere) {
  platform::LoadedOpenSsl loaded;
  std::string why;
  EXPECT_FALSE(platform::load({"libnosuchssl.so.3", "libnosuchcrypto.so.3"}, loaded, why));
  EXPECT_NE(why.find("libnosuchcrypto"), std::string::npos) << why;
  STRETTO_NEEDS_OPENSSL();
  // One that is there and is another library.
  const char* const crypto = platform::kOpenSslNames.crypto;
  EXPECT_FALSE(platform::load({crypto, crypto}, loaded, why));
  EXPECT_NE(why.find("has no TLS_method"), std::string::npos) << why;
}

// RFC 5869, A.1: the first 32 bytes.
TEST(Encryption, DerivesKeysAsTheRfcHasIt) {
  STRETTO_NEEDS_OPENSSL();
  const std::vector<uint8_t> secret(22, 0x0b);
  const uint8_t salt[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const uint8_t info[] = {0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9};
  const TlsKey wanted = {0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a, 0x90, 0x43, 0x4f,
                         0x64, 0xd0, 0x36, 0x2f, 0x2a, 0x2d, 0x2d, 0x0a, 0x90, 0xcf, 0x1a,
                         0x5a, 0x4c, 0x5d, 0xb0, 0x2d, 0x56, 0xec, 0xc4, 0xc5, 0xbf};
  EXPECT_EQ(deriveKey(secret, {}, salt, "", info), wanted);
  EXPECT_NE(deriveKey(secret, {true, "and more"}, salt, "", info), wanted);
  EXPECT_NE(deriveKey(secret, {}, salt, "for something else", info), wanted);
}

}  // namespace
}  // namespace stretto
