// OpenSSL 3 of this machine, loaded when the first connection is to be encrypted: the library neither links
// nor needs it otherwise. The prototypes are our own, of what tls.cpp uses; OpenSSL keeps them as long as its
// libraries are called *.so.3. For platform/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "platform/dynamic_library.hpp"

// OpenSSL's own names of what only it can see into.
struct bio_st;
struct bio_method_st;
struct evp_md_st;
struct ssl_cipher_st;
struct ssl_ctx_st;
struct ssl_method_st;
struct ssl_session_st;
struct ssl_st;

namespace stretto::platform {

// As this system's loader finds them.
struct OpenSslNames {
  const char* ssl;
  const char* crypto;
};
extern const OpenSslNames kOpenSslNames;

struct OpenSslCrypto {
  int (*initialise)(uint64_t options, const void* settings);
  unsigned long (*versionNumber)();
  const char* (*versionText)(int what);
  unsigned long (*nextError)();
  void (*clearErrors)();
  void (*errorText)(unsigned long error, char* to, size_t bytes);
  int (*newBioIndex)();
  bio_method_st* (*newBioMethod)(int type, const char* name);
  int (*setBioWrite)(bio_method_st*, int (*)(bio_st*, const char*, size_t, size_t*));
  int (*setBioRead)(bio_method_st*, int (*)(bio_st*, char*, size_t, size_t*));
  int (*setBioControl)(bio_method_st*, long (*)(bio_st*, int, long, void*));
  bio_st* (*newBio)(const bio_method_st*);
  void (*setBioData)(bio_st*, void*);
  void* (*bioData)(bio_st*);
  void (*setBioReady)(bio_st*, int);
  void (*setBioFlags)(bio_st*, int);
  void (*clearBioFlags)(bio_st*, int);
  const evp_md_st* (*sha256)();
  unsigned char* (*hmac)(const evp_md_st*, const void* key, int keyBytes, const unsigned char* data,
                         size_t bytes, unsigned char* to, unsigned int* toBytes);
};

struct OpenSslTls {
  using FindSession = int (*)(ssl_st*, const unsigned char* identity, size_t bytes, ssl_session_st**);
  using UseSession = int (*)(ssl_st*, const evp_md_st*, const unsigned char** identity, size_t* bytes,
                             ssl_session_st**);

  const ssl_method_st* (*method)();
  ssl_ctx_st* (*newContext)(const ssl_method_st*);
  uint64_t (*setOptions)(ssl_ctx_st*, uint64_t);
  long (*controlContext)(ssl_ctx_st*, int, long, void*);
  int (*setCipherSuites)(ssl_ctx_st*, const char*);
  int (*setTickets)(ssl_ctx_st*, size_t);
  void (*setFindSession)(ssl_ctx_st*, FindSession);
  void (*setUseSession)(ssl_ctx_st*, UseSession);
  ssl_st* (*create)(ssl_ctx_st*);
  void (*destroy)(ssl_st*);
  void (*setBios)(ssl_st*, bio_st* read, bio_st* write);
  void (*setVerify)(ssl_st*, int mode, void* callback);
  void (*beClient)(ssl_st*);
  void (*beServer)(ssl_st*);
  int (*setData)(ssl_st*, int index, void*);
  void* (*data)(const ssl_st*, int index);
  int (*handshake)(ssl_st*);
  int (*read)(ssl_st*, void* to, size_t bytes, size_t* got);
  int (*write)(ssl_st*, const void* from, size_t bytes, size_t* sent);
  int (*pending)(const ssl_st*);
  int (*error)(const ssl_st*, int returned);
  int (*updateKey)(ssl_st*, int kind);
  int (*isResumed)(const ssl_st*);
  int (*version)(const ssl_st*);
  long (*control)(ssl_st*, int, long, void*);
  const ssl_cipher_st* (*findCipher)(ssl_st*, const unsigned char* id);
  const ssl_cipher_st* (*cipher)(const ssl_st*);
  ssl_session_st* (*newSession)();
  void (*freeSession)(ssl_session_st*);
  int (*setMasterKey)(ssl_session_st*, const unsigned char* key, size_t bytes);
  int (*setCipher)(ssl_session_st*, const ssl_cipher_st*);
  int (*setVersion)(ssl_session_st*, int version);
};

// Of libcrypto, and of libssl.
struct OpenSsl : OpenSslCrypto, OpenSslTls {};

// The libraries, and what was found in them.
struct LoadedOpenSsl {
  DynamicLibrary ssl;
  DynamicLibrary crypto;
  OpenSsl calls{};
};
// False, and why not, if they are not there, lack a function or are of another version.
bool load(const OpenSslNames& names, LoadedOpenSsl& into, std::string& why);

}  // namespace stretto::platform
