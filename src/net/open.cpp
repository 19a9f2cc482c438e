#include "net/open.hpp"

#include <string>

#include "base/log.hpp"
#include "base/names.hpp"
#include "base/parameters.hpp"
#include "net/plugin/plugin.hpp"
#include "net/tcp/tcp.hpp"
#include "platform/encryption.hpp"

namespace stretto::net {
namespace {

constexpr double kSecondsOfInit = 30;

bool isOurs(const std::string& wanted) {
  for (const char* name : {"", "Socket", "tcp", "Stretto"}) {
    if (equalsIgnoringCase(wanted, name)) return true;
  }
  return false;
}

// The first plugin of a comma list that works. Null, and why each does not, if none does.
std::unique_ptr<Net> firstThatWorks(const std::string& list, const std::string& wanted, std::string& why) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string name = list.substr(at, end - at);
    at = end + 1;
    if (name.empty() || equalsIgnoringCase(name, "none")) continue;
    std::string reason;
    auto net = plugin::open(name, wanted, kSecondsOfInit, reason);
    if (net != nullptr) return net;
    why += (why.empty() ? "" : "; ") + name + ": " + reason;
  }
  return nullptr;
}

Result<std::shared_ptr<Net>> openOurs(const Encryption& encryption) {
  auto net = tcp::open(encryption);
  if (!net.ok()) return net.status();
  return std::shared_ptr<Net>(std::move(net.value()));
}

// What plugins of others send is theirs to encrypt, and they are not asked to: where our own sockets must, no
// plugin is used.
Result<std::shared_ptr<Net>> openEncrypted(const Encryption& encryption, const std::string& wanted) {
  const std::string plugin = parameters::kNetPlugin.isSet() ? parameters::kNetPlugin.text() : "none";
  if (!equalsIgnoringCase(plugin, "none") || !isOurs(wanted)) {
    return fail(
        Code::kInvalidUsage,
        "connections are to be encrypted (STRETTO_TLS=1 or ncclSetEncryption), which the net plugin of "
        "NCCL_NET_PLUGIN=%s, NCCL_NET=%s would not do: unset the two, or do without encryption",
        plugin.c_str(), wanted.c_str());
  }
  return openOurs(encryption);
}

}  // namespace

Result<std::shared_ptr<Net>> open() {
  const auto encryption = encryptionOfProcess();
  if (!encryption.ok()) return encryption.status();
  return open(encryption.value());
}

Result<std::shared_ptr<Net>> open(const Encryption& encryption) {
  const std::string wanted = parameters::kNet.text();
  const bool named = parameters::kNetPlugin.isSet();
  if (encryption.on) return openEncrypted(encryption, wanted);
  std::string why;
  if (auto net = firstThatWorks(parameters::kNetPlugin.text(), wanted, why)) {
    return std::shared_ptr<Net>(std::move(net));
  }
  // Who named a plugin wants to hear that it does not run; who named none need not know of the default.
  if (!why.empty() && named) {
    STRETTO_LOG(kWarn, kNet, "NCCL_NET_PLUGIN=%s: no net plugin can be used (%s)",
                parameters::kNetPlugin.text().c_str(), why.c_str());
  } else if (!why.empty()) {
    STRETTO_LOG(kInfo, kNet, "no net plugin: %s", why.c_str());
  }
  if (!isOurs(wanted)) {
    return fail(Code::kInvalidUsage,
                "NCCL_NET=%s: there is no net of this name (%s); name its plugin with "
                "NCCL_NET_PLUGIN, or unset NCCL_NET for TCP",
                wanted.c_str(), why.c_str());
  }
  return openOurs(encryption);
}

}  // namespace stretto::net
