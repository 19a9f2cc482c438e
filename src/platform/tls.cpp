#include "platform/tls.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "base/log.hpp"

namespace stretto {
namespace {

constexpr size_t kRecordBytes = 16 << 10;    // that TLS takes into one record
constexpr size_t kMostAtOnce = 64 << 10;     // that are encrypted for one call of the kernel
constexpr size_t kMostPromised = 256 << 10;  // then the caller hears that some were sent
constexpr size_t kFirstRoom = 4 << 10;       // for what comes; more once that much comes at a time
constexpr size_t kMostRoom = 64 << 10;
constexpr unsigned char kIdentity[] = "stretto";  // each connection has a key of its own: it needs no name
constexpr int kTls13 = 0x0304;
constexpr unsigned char kCipherId[] = {0x13, 0x01};
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";
// What all of OpenSSL 3 have: later ones begin with groups that cost more bytes, for a secrecy that the key
// gives already. Where a policy of the machine takes X25519 away, the other is left.
constexpr const char* kGroups[] = {"X25519:P-256", "P-256"};

// Of OpenSSL's headers.
constexpr int kBioSourceSink = 0x0400, kBioFlush = 11, kBioRead = 0x01, kBioRetry = 0x08;
constexpr int kWantRead = 2;
constexpr int kControlMode = 33, kControlCache = 44, kControlGroups = 92, kControlLeast = 123,
              kControlMost = 124, kControlGroup = 134;
constexpr long kModeReleaseBuffers = 0x10;
constexpr uint64_t kNoTicket = uint64_t{1} << 14, kNoRenegotiation = uint64_t{1} << 30;
constexpr int kVerifyPeer = 1;
constexpr int kUpdateOwnKey = 0;
constexpr uint64_t kNoExitHandler = 0x00080000;

constexpr Transfer kBlocked{IoOutcome::kWouldBlock, 0, 0};
constexpr Transfer kNoKey{IoOutcome::kFailed, 0, EPROTO};
constexpr Transfer kForged{IoOutcome::kFailed, 0, EBADMSG};
constexpr Transfer kNoMemory{IoOutcome::kFailed, 0, ENOMEM};
constexpr Transfer kNoSocket{IoOutcome::kFailed, 0, EBADF};

}  // namespace

// What OpenSSL calls, within a call of a TlsSession's. Nothing is thrown through its frames.
struct TlsCallbacks {
  static int write(bio_st* bio, const char* from, size_t bytes, size_t* taken) {
    TlsSession& self = of(bio);
    const auto* const encrypted = reinterpret_cast<const uint8_t*>(from);
    try {
      self.out_.insert(self.out_.end(), encrypted, encrypted + bytes);
    } catch (const std::bad_alloc&) {
      self.lacksMemory_ = true;
      return 0;
    }
    *taken = bytes;
    return 1;
  }

  // That the socket's end has come is kept from OpenSSL, which would take it for an attack: whether it is one
  // is the frames' matter, which are encrypted and say goodbye.
  static int read(bio_st* bio, char* to, size_t bytes, size_t* got) {
    TlsSession& self = of(bio);
    self.ssl_.clearBioFlags(bio, kBioRead | kBioRetry);
    auto& in = self.in_;
    try {
      if (in.begin == in.end && !self.refill()) {
        self.ssl_.setBioFlags(bio, kBioRead | kBioRetry);
        return 0;
      }
    } catch (const std::bad_alloc&) {
      self.lacksMemory_ = true;
      return 0;
    }
    *got = std::min(bytes, in.end - in.begin);
    std::memcpy(to, in.bytes.data() + in.begin, *got);
    in.begin += *got;
    return 1;
  }

  static long control(bio_st*, int what, long, void*) { return what == kBioFlush ? 1 : 0; }

  static int find(ssl_st* session, const unsigned char*, size_t, ssl_session_st** found) {
    *found = sessionOf(session);
    return *found != nullptr ? 1 : 0;
  }
  static int use(ssl_st* session, const evp_md_st*, const unsigned char** identity, size_t* bytes,
                 ssl_session_st** found) {
    *identity = kIdentity;
    *bytes = sizeof kIdentity - 1;
    *found = sessionOf(session);
    return *found != nullptr ? 1 : 0;
  }

 private:
  static inline const platform::OpenSsl* ssl = nullptr;
  friend const TlsLibrary* tlsLibrary(std::string& why);

  static TlsSession& of(bio_st* bio) { return *static_cast<TlsSession*>(ssl->bioData(bio)); }

  // A session as if one had been before, with the key that both know.
  static ssl_session_st* sessionOf(ssl_st* session) {
    const auto& self = *static_cast<TlsSession*>(ssl->data(session, 0));
    ssl_session_st* const made = ssl->newSession();
    const ssl_cipher_st* const cipher = ssl->findCipher(session, kCipherId);
    if (made != nullptr && cipher != nullptr && self.key_.has_value() &&
        ssl->setMasterKey(made, self.key_->data(), self.key_->size()) == 1 &&
        ssl->setCipher(made, cipher) == 1 && ssl->setVersion(made, kTls13) == 1) {
      return made;
    }
    ssl->freeSession(made);
    return nullptr;
  }
};

namespace {

bool hasGroups(const platform::OpenSsl& ssl, ssl_ctx_st* context) {
  return std::any_of(std::begin(kGroups), std::end(kGroups), [&](const char* groups) {
    return ssl.controlContext(context, kControlGroups, 0, const_cast<char*>(groups)) == 1;
  });
}

ssl_ctx_st* contextOf(const platform::OpenSsl& ssl) {
  ssl_ctx_st* const context = ssl.newContext(ssl.method());
  if (context == nullptr || ssl.controlContext(context, kControlLeast, kTls13, nullptr) != 1 ||
      ssl.controlContext(context, kControlMost, kTls13, nullptr) != 1 ||
      ssl.setCipherSuites(context, kCipherName) != 1 || ssl.setTickets(context, 0) != 1 ||
      !hasGroups(ssl, context)) {
    return nullptr;
  }
  ssl.setOptions(context, kNoTicket | kNoRenegotiation);
  ssl.controlContext(context, kControlCache, 0, nullptr);
  ssl.controlContext(context, kControlMode, kModeReleaseBuffers, nullptr);
  ssl.setFindSession(context, TlsCallbacks::find);
  ssl.setUseSession(context, TlsCallbacks::use);
  return context;
}

const bio_method_st* pipeOf(const platform::OpenSsl& ssl) {
  bio_method_st* const method = ssl.newBioMethod(ssl.newBioIndex() | kBioSourceSink, "stretto");
  if (method == nullptr) return nullptr;
  ssl.setBioWrite(method, TlsCallbacks::write);
  ssl.setBioRead(method, TlsCallbacks::read);
  ssl.setBioControl(method, TlsCallbacks::control);
  return method;
}

}  // namespace

// Never unloaded, and not taken down by OpenSSL at the exit: this library's own handler runs later than
// OpenSSL's would, and still sends goodbyes.
const TlsLibrary* tlsLibrary(std::string& why) {
  struct Loaded {
    platform::LoadedOpenSsl openSsl;
    TlsLibrary library;
    std::string why;
  };
  static const Loaded* const loaded = [] {
    auto* const made = new Loaded;
    if (!platform::load(platform::kOpenSslNames, made->openSsl, made->why)) return made;
    const platform::OpenSsl& ssl = made->openSsl.calls;
    TlsCallbacks::ssl = &ssl;
    ssl.initialise(kNoExitHandler, nullptr);  // what it says of failure, the next call says as well
    made->library = {&ssl, contextOf(ssl), pipeOf(ssl)};
    if (made->library.context == nullptr || made->library.pipe == nullptr) {
      made->why = std::string(ssl.versionText(0)) + " cannot do TLS 1.3 with " + kCipherName;
      ssl.clearErrors();
      return made;
    }
    STRETTO_LOG(
        kInfo, kInit,
        "connections between processes are encrypted: TLS 1.3, %s with a pre-shared key, %s; bytes are "
        "copied to be encrypted, so nothing is sent without a copy",
        kCipherName, ssl.versionText(0));
    return made;
  }();
  why = loaded->why;
  return why.empty() ? &loaded->library : nullptr;
}

TlsSession::TlsSession(const TlsLibrary& library, TlsRole role, const std::optional<TlsKey>& key,
                       uint64_t recordsOfAKey)
    : ssl_(*library.calls), key_(key), recordsOfAKey_(recordsOfAKey) {
  if (!key_) return;  // shakeHands() says so, as of what follows
  session_ = ssl_.create(library.context);
  bio_st* const bio = session_ != nullptr ? ssl_.newBio(library.pipe) : nullptr;
  if (bio == nullptr) {
    ssl_.destroy(std::exchange(session_, nullptr));
    ssl_.clearErrors();
    return;
  }
  ssl_.setBioData(bio, this);
  ssl_.setBioReady(bio, 1);
  ssl_.setBios(session_, bio, bio);
  ssl_.setData(session_, 0, this);
  role == TlsRole::kServer ? ssl_.beServer(session_) : ssl_.beClient(session_);
  if (role == TlsRole::kServer) return;
  // Nobody has a certificate: who shows one instead of using the key is refused.
  ssl_.setVerify(session_, kVerifyPeer, nullptr);
}

// A forked child does not know in which state another thread has left it.
TlsSession::~TlsSession() {
  if (generation_ == platform::forkGeneration()) ssl_.destroy(session_);
}

// Whether there is something new to decrypt.
bool TlsSession::refill() {
  if (!mayRefill_ || receivingEnded_) return false;
  const size_t room = in_.bytes.size();
  if (in_.end == room && room < kMostRoom) in_.bytes.resize(room == 0 ? kFirstRoom : 4 * room);
  const Transfer got = receiveSome(*socket_, std::span<uint8_t>(in_.bytes));
  in_.begin = in_.end = 0;
  if (got.outcome == IoOutcome::kSome) in_.end = got.bytes;
  if (got.outcome == IoOutcome::kClosed || got.outcome == IoOutcome::kFailed) receivingEnded_ = got;
  return got.outcome == IoOutcome::kSome;
}

// Whether the kernel has it all.
bool TlsSession::flush(const FileDescriptor& socket) {
  while (flushed_ < out_.size()) {
    const IoSpan piece{out_.data() + flushed_, out_.size() - flushed_};
    const Transfer sent = sendSome(socket, std::span(&piece, 1));
    if (sent.outcome != IoOutcome::kSome) {
      if (sent.outcome != IoOutcome::kWouldBlock) sendingEnded_ = sent;
      return false;
    }
    flushed_ += sent.bytes;
  }
  out_.clear();
  flushed_ = 0;
  return true;
}

std::string TlsSession::whyNot() const {
  if (lacksMemory_) return "there is no memory";
  const unsigned long error = ssl_.nextError();
  char text[256] = "it does not say why";
  if (error != 0) ssl_.errorText(error, text, sizeof text);
  return text;
}

// What OpenSSL was told, once more: that it took the key and no certificate, and exchanged keys beside it.
bool TlsSession::isAsWanted(std::string& why) const {
  const bool isForward = ssl_.control(session_, kControlGroup, 0, nullptr) > 0;
  const bool good = isForward && ssl_.isResumed(session_) == 1 && ssl_.version(session_) == kTls13 &&
                    ssl_.cipher(session_) == ssl_.findCipher(session_, kCipherId);
  if (!good) why = "TLS has agreed on less than was asked for";
  return good;
}

TlsHandshake TlsSession::shakeHands(const FileDescriptor& socket, std::string& why) {
  const std::lock_guard lock(mutex_);
  if (session_ == nullptr || !socket.valid()) {
    why = !key_                 ? "OpenSSL could not derive a key"
          : session_ == nullptr ? "OpenSSL has no memory"
                                : "the socket is closed";
    return TlsHandshake::kFailed;
  }
  socket_ = &socket;
  mayRefill_ = true;
  ssl_.clearErrors();
  const int state = ssl_.handshake(session_);
  const bool goesOn = state != 1 && ssl_.error(session_, state) == kWantRead;
  const bool isFlushed = flush(socket);
  if (state == 1) {
    if (!isAsWanted(why)) return TlsHandshake::kFailed;
    if (isFlushed) return TlsHandshake::kDone;
  } else if (!goesOn) {
    why =
        "the TLS handshake failed: the other end speaks no TLS, has another secret, or somebody between "
        "changes what is sent (" +
        whyNot() + ")";
    ssl_.clearErrors();
    return TlsHandshake::kFailed;
  }
  if (!receivingEnded_ && !sendingEnded_) return TlsHandshake::kGoesOn;
  why = "it ended the connection in the TLS handshake";
  return TlsHandshake::kEnded;
}

// What is said of a session that OpenSSL does not go on with.
Transfer TlsSession::broken() const {
  ssl_.clearErrors();
  return lacksMemory_ ? kNoMemory : kForged;
}

bool TlsSession::encryptOne(const void* from, size_t bytes) {
  ssl_.clearErrors();
  if (records_ == recordsOfAKey_) {
    if (ssl_.updateKey(session_, kUpdateOwnKey) != 1) {  // not one record more with the old key
      sendingEnded_ = kNoKey;
      ssl_.clearErrors();
      return false;
    }
    records_ = 0;
    ++keysUsed_;
  }
  ++records_;
  size_t sent = 0;
  if (ssl_.write(session_, from, bytes, &sent) == 1 && sent == bytes) return true;
  sendingEnded_ = broken();  // but for memory, only what came can have broken it
  return false;
}

// As many bytes as a record has of the pieces from `at` in the first one on, one behind the other.
size_t TlsSession::join(std::span<const IoSpan> pieces, size_t at) {
  joined_.clear();
  for (const IoSpan& piece : pieces) {
    const auto* const from = static_cast<const uint8_t*>(piece.data) + at;
    const size_t bytes = std::min(piece.bytes - at, kRecordBytes - joined_.size());
    joined_.insert(joined_.end(), from, from + bytes);
    at = 0;
  }
  return joined_.size();
}

// How many bytes of them, from `at` on, are in out_ now.
size_t TlsSession::encrypt(std::span<const IoSpan> pieces, size_t at) {
  size_t all = 0;
  while (all < kMostAtOnce) {
    while (!pieces.empty() && at >= pieces.front().bytes) {
      at -= pieces.front().bytes;
      pieces = pieces.subspan(1);
    }
    if (pieces.empty()) break;
    const void* from = static_cast<const uint8_t*>(pieces.front().data) + at;
    size_t bytes = std::min(pieces.front().bytes - at, kRecordBytes);
    if (bytes < kRecordBytes && pieces.size() > 1) {
      bytes = join(pieces, at);
      from = joined_.data();
    }
    if (!encryptOne(from, bytes)) break;
    all += bytes;
    at += bytes;
  }
  return all;
}

Transfer TlsSession::send(const FileDescriptor& socket, std::span<const IoSpan> pieces) {
  if (!socket.valid()) return kNoSocket;
  const std::lock_guard lock(mutex_);
  if (!sendingEnded_ && flush(socket) && promised_ < kMostPromised) {
    socket_ = &socket;
    mayRefill_ = false;
    promised_ += encrypt(pieces, promised_);
    flush(socket);
  }
  if (sendingEnded_) return *sendingEnded_;
  if (!out_.empty()) return kBlocked;
  return {IoOutcome::kSome, std::exchange(promised_, 0), 0};
}

Transfer TlsSession::receive(const FileDescriptor& socket, std::span<const IoSpan> pieces) {
  if (!socket.valid()) return kNoSocket;
  const std::lock_guard lock(mutex_);
  socket_ = &socket;
  mayRefill_ = true;
  size_t all = 0;
  for (const IoSpan& piece : pieces) {
    for (size_t at = 0; at < piece.bytes;) {
      size_t got = 0;
      ssl_.clearErrors();
      const int state = ssl_.read(session_, static_cast<uint8_t*>(piece.data) + at, piece.bytes - at, &got);
      if (state != 1) {
        if (ssl_.error(session_, state) != kWantRead) receivingEnded_ = broken();
        if (!out_.empty()) flush(socket);  // OpenSSL may have had something to say
        if (all > 0) return {IoOutcome::kSome, all, 0};
        return receivingEnded_.value_or(kBlocked);
      }
      at += got;
      all += got;
      mayRefill_ = false;  // one call of the kernel: others have their turn
    }
  }
  return {IoOutcome::kSome, all, 0};
}

bool TlsSession::holdsMore() const {
  const std::lock_guard lock(mutex_);
  return session_ != nullptr && (in_.begin < in_.end || ssl_.pending(session_) > 0);
}

bool TlsSession::isFlushed() const {
  const std::lock_guard lock(mutex_);
  return out_.empty();
}

}  // namespace stretto
