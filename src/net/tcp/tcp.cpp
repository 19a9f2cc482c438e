#include "net/tcp/tcp.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "net/tcp/listener.hpp"
#include "net/tcp/wire.hpp"

namespace stretto::net::tcp {
namespace {

constexpr int kMostConnections = 65536;

class TcpNet final : public Net {
 public:
  explicit TcpNet(const Settings& settings) : settings_(settings) {}

  const char* name() const override { return "tcp"; }
  int devices() const override { return settings_.merge ? 1 : static_cast<int>(settings_.interfaces.size()); }
  Result<Properties> properties(int device) const override;
  Result<std::unique_ptr<Listener>> listen(int device) override;
  Result<std::unique_ptr<Connecting>> connect(int device, const Handle& handle) override;

 private:
  Result<std::vector<NetworkInterface>> interfacesOf(int device) const;

  const Settings settings_;
};

Result<std::vector<NetworkInterface>> TcpNet::interfacesOf(int device) const {
  if (device < 0 || device >= devices()) {
    return fail(Code::kInvalidArgument, "net/tcp has %d devices, and no device %d", devices(), device);
  }
  if (settings_.merge) return settings_.interfaces;
  return std::vector<NetworkInterface>{settings_.interfaces[static_cast<size_t>(device)]};
}

Result<Properties> TcpNet::properties(int device) const {
  const auto interfaces = interfacesOf(device);
  if (!interfaces.ok()) return interfaces.status();
  Properties properties;
  for (const NetworkInterface& one : interfaces.value()) {
    properties.name += (properties.name.empty() ? "" : "+") + one.name;
    properties.bitsPerSecond += one.bitsPerSecond;
  }
  Hash hash;
  hash.add(properties.name.data(), properties.name.size());
  properties.guid = hash.value();
  properties.pciPath = interfaces.value().front().pciPath;
  properties.mostConnections = kMostConnections;
  properties.mostGrouped = kMostGrouped;
  properties.mostBytes = kMostMessage;
  properties.gathers = true;
  properties.tellsEnd = true;
  return properties;
}

Result<std::unique_ptr<Listener>> TcpNet::listen(int device) {
  closeIdle();
  auto interfaces = interfacesOf(device);
  if (!interfaces.ok()) return interfaces.status();
  return TcpListener::create(settings_, std::move(interfaces.value()));
}

Result<std::unique_ptr<Connecting>> TcpNet::connect(int device, const Handle& handle) {
  closeIdle();
  const auto interfaces = interfacesOf(device);
  if (!interfaces.ok()) return interfaces.status();
  Rendezvous where;
  if (!decode(handle, where)) {
    return fail(Code::kInvalidArgument,
                "a handle is none of net/tcp: the peer uses another net, or another "
                "version of it");
  }
  auto connecting = std::make_unique<TcpConnecting>(settings_, interfaces.value(), where);
  STRETTO_TRY(connecting->begin());
  return std::unique_ptr<Connecting>(std::move(connecting));
}

}  // namespace

std::unique_ptr<Net> open(const Settings& settings) {
  return std::make_unique<TcpNet>(settings);
}

Result<std::unique_ptr<Net>> open(const Encryption& encryption) {
  const auto settings = settingsOfEnvironment(encryption);
  if (!settings.ok()) return settings.status();
  return open(settings.value());
}

}  // namespace stretto::net::tcp
