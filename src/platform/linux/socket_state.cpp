#include "platform/socket_state.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

namespace stretto {

SocketState stateOf(const FileDescriptor& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  SocketState state;
  constexpr uint32_t kNone = ~0u;
  if (info.tcpi_min_rtt != kNone) state.roundTripSeconds = info.tcpi_min_rtt * 1e-6;
  state.bytesPerSecond = static_cast<double>(info.tcpi_delivery_rate);
  state.sentAgain = info.tcpi_total_retrans;
  state.unanswered = std::max<uint32_t>(info.tcpi_retransmits, info.tcpi_probes);
  state.silentSeconds = info.tcpi_last_ack_recv * 1e-3;
  return state;
}

size_t bytesQueued(const FileDescriptor& socket) {
  int bytes = 0;
  return ::ioctl(socket.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

void breakWhenSilent(const FileDescriptor& socket, double seconds) {
  const int on = 1;
  const int each = 1;
  const int probes = std::max(1, static_cast<int>(seconds) - 1);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &each, sizeof each);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &each, sizeof each);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void confirmLazily(const FileDescriptor& socket) {
  const int off = 0;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

}  // namespace stretto
