// Connections from nobody: to every port on which the processes of a round listen, found as anybody can find
// them, in /proc.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "conductor.hpp"

namespace hostile {
namespace {

struct Port {
  int family;
  uint16_t number;
  bool operator<(const Port& other) const { return number < other.number; }
};

std::set<std::string> socketsOf(int process) {
  std::set<std::string> inodes;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", error)) {
    const std::string link = std::filesystem::read_symlink(entry.path(), error).string();
    if (link.rfind("socket:[", 0) == 0) inodes.insert(link.substr(8, link.size() - 9));
  }
  return inodes;
}

// Of what listens, the ports of these sockets.
void addPorts(const char* table, int family, const std::set<std::string>& inodes, std::set<Port>& ports) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip, inode;
    fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    if (state != "0A" || inodes.count(inode) == 0) continue;
    ports.insert(
        {family, static_cast<uint16_t>(std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16))});
  }
}

int connectTo(const Port& port) {
  const int socket = ::socket(port.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  if (port.family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port.number);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port.number);
    address.sin6_addr = in6addr_loopback;
    (void)connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  return socket;
}

}  // namespace

void pester(const Board& board, uint64_t seed) {
  Draw draw(seed);
  std::set<int> held;
  for (int turn = 0; turn < 4000; ++turn) {
    std::set<Port> ports;
    for (int i = -1; i < kMaxRanks; ++i) {
      const int process = i < 0 ? board.makerProcess.load() : board.ranks[i].process.load();
      if (process <= 0) continue;
      const std::set<std::string> inodes = socketsOf(process);
      addPorts("/proc/net/tcp", AF_INET, inodes, ports);
      addPorts("/proc/net/tcp6", AF_INET6, inodes, ports);
    }
    for (const Port& port : ports) {
      const int socket = connectTo(port);
      if (socket < 0) continue;
      sleepMicroseconds(draw.below(300));
      uint8_t garbage[600];
      for (uint8_t& byte : garbage) byte = static_cast<uint8_t>(draw.next());
      if (draw.chance(30)) memcpy(garbage, board.id.internal, 32);  // begins like one who knows the id
      if (draw.chance(80))
        (void)send(socket, garbage, static_cast<size_t>(draw.between(1, 600)), MSG_NOSIGNAL);
      if (draw.chance(20) && held.size() < 40) {
        held.insert(socket);
        continue;
      }
      const linger hard{1, 0};
      if (draw.chance(50)) (void)setsockopt(socket, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
      close(socket);
    }
    sleepMicroseconds(500);
  }
}

}  // namespace hostile
