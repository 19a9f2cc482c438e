#include "platform/openssl.hpp"

namespace stretto::platform {
namespace {

// Takes functions from a library until one is not there.
class Finder {
 public:
  Finder(const DynamicLibrary& library, const char* file, std::string& why)
      : library_(library), file_(file), why_(why) {}
  template <typename Function>
  Finder& take(const char* name, Function*& function) {
    if (!good_) return *this;
    function = reinterpret_cast<Function*>(library_.symbol(name));
    good_ = function != nullptr;
    if (!good_) why_ = std::string(file_) + " has no " + name;
    return *this;
  }
  bool good() const { return good_; }

 private:
  const DynamicLibrary& library_;
  const char* const file_;
  std::string& why_;
  bool good_ = true;
};

bool takeCrypto(Finder&& from, OpenSsl& to) {
  return from.take("OPENSSL_init_crypto", to.initialise)
      .take("OpenSSL_version_num", to.versionNumber)
      .take("OpenSSL_version", to.versionText)
      .take("ERR_get_error", to.nextError)
      .take("ERR_clear_error", to.clearErrors)
      .take("ERR_error_string_n", to.errorText)
      .take("BIO_get_new_index", to.newBioIndex)
      .take("BIO_meth_new", to.newBioMethod)
      .take("BIO_meth_set_write_ex", to.setBioWrite)
      .take("BIO_meth_set_read_ex", to.setBioRead)
      .take("BIO_meth_set_ctrl", to.setBioControl)
      .take("BIO_new", to.newBio)
      .take("BIO_set_data", to.setBioData)
      .take("BIO_get_data", to.bioData)
      .take("BIO_set_init", to.setBioReady)
      .take("BIO_set_flags", to.setBioFlags)
      .take("BIO_clear_flags", to.clearBioFlags)
      .take("EVP_sha256", to.sha256)
      .take("HMAC", to.hmac)
      .good();
}

bool takeContext(Finder& from, OpenSsl& to) {
  return from.take("TLS_method", to.method)
      .take("SSL_CTX_new", to.newContext)
      .take("SSL_CTX_set_options", to.setOptions)
      .take("SSL_CTX_ctrl", to.controlContext)
      .take("SSL_CTX_set_ciphersuites", to.setCipherSuites)
      .take("SSL_CTX_set_num_tickets", to.setTickets)
      .take("SSL_CTX_set_psk_find_session_callback", to.setFindSession)
      .take("SSL_CTX_set_psk_use_session_callback", to.setUseSession)
      .good();
}

bool takeSsl(Finder&& from, OpenSsl& to) {
  return takeContext(from, to) && from.take("SSL_new", to.create)
                                      .take("SSL_free", to.destroy)
                                      .take("SSL_set_bio", to.setBios)
                                      .take("SSL_set_verify", to.setVerify)
                                      .take("SSL_set_connect_state", to.beClient)
                                      .take("SSL_set_accept_state", to.beServer)
                                      .take("SSL_set_ex_data", to.setData)
                                      .take("SSL_get_ex_data", to.data)
                                      .take("SSL_do_handshake", to.handshake)
                                      .take("SSL_read_ex", to.read)
                                      .take("SSL_write_ex", to.write)
                                      .take("SSL_pending", to.pending)
                                      .take("SSL_get_error", to.error)
                                      .take("SSL_key_update", to.updateKey)
                                      .take("SSL_session_reused", to.isResumed)
                                      .take("SSL_version", to.version)
                                      .take("SSL_ctrl", to.control)
                                      .take("SSL_CIPHER_find", to.findCipher)
                                      .take("SSL_get_current_cipher", to.cipher)
                                      .take("SSL_SESSION_new", to.newSession)
                                      .take("SSL_SESSION_free", to.freeSession)
                                      .take("SSL_SESSION_set1_master_key", to.setMasterKey)
                                      .take("SSL_SESSION_set_cipher", to.setCipher)
                                      .take("SSL_SESSION_set_protocol_version", to.setVersion)
                                      .good();
}

}  // namespace

bool load(const OpenSslNames& names, LoadedOpenSsl& into, std::string& why) {
  into.crypto = DynamicLibrary::open(names.crypto, &why);
  if (!into.crypto.isOpen()) return false;
  into.ssl = DynamicLibrary::open(names.ssl, &why);
  if (!into.ssl.isOpen()) return false;
  if (!takeCrypto(Finder(into.crypto, names.crypto, why), into.calls)) return false;
  if (!takeSsl(Finder(into.ssl, names.ssl, why), into.calls)) return false;
  constexpr unsigned long kMajor = 3;
  if (into.calls.versionNumber() >> 28 == kMajor) return true;
  why = std::string(names.crypto) + " is " + into.calls.versionText(0) + ", not OpenSSL 3";
  return false;
}

}  // namespace stretto::platform
