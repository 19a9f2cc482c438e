// Connections from nobody: to every port on which the processes of a round listen, found as anybody can find
// them, in /proc. Strangers send garbage, frames as src/bootstrap/wire.hpp has them, and what they have heard
// others say when those came.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
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

using Spoken = std::vector<uint8_t>;

constexpr size_t kHeader = 8;
constexpr uint16_t kMark = 0x7453, kHello = 1, kJoin = 5, kMessageTypes = 17;

template <typename T>
void append(Spoken& bytes, T value) {
  for (size_t i = 0; i < sizeof value; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
}
void appendRandom(Spoken& bytes, size_t count, Draw& draw) {
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(draw.next()));
}
void appendHeader(Spoken& bytes, size_t length, uint16_t type) {
  append(bytes, static_cast<uint32_t>(length));
  append(bytes, type);
  append(bytes, kMark);
}

// What others say first on the connections that they make to a port of this machine. Needs CAP_NET_RAW.
class Ear {
 public:
  explicit Ear(int socket) : socket_(socket) {}

  void leaveOut(uint16_t port) { own_.insert(port); }
  void listen() {
    uint8_t packet[2048];
    for (int i = 0; socket_ >= 0 && i < 500; ++i) {
      sockaddr_ll from{};
      socklen_t length = sizeof from;
      const ssize_t bytes =
          recvfrom(socket_, packet, sizeof packet, MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &length);
      if (bytes < 0) return;
      // Over loopback each comes twice.
      if (from.sll_pkttype == PACKET_OUTGOING) continue;
      take(packet, std::min(static_cast<size_t>(bytes), sizeof packet), ntohs(from.sll_protocol));
    }
  }
  // What some connection to `port` began with; empty: none has been heard.
  Spoken to(uint16_t port, Draw& draw) const {
    std::vector<const Spoken*> all;
    for (const auto& [ports, spoken] : heard_) {
      if (ports.second == port) all.push_back(&spoken);
    }
    return all.empty() ? Spoken{} : *all[static_cast<size_t>(draw.below(static_cast<int>(all.size())))];
  }

 private:
  void take(const uint8_t* packet, size_t bytes, uint16_t protocol) {
    constexpr size_t kMost = 2000;
    const size_t begin = protocol == ETH_P_IP ? size_t{4} * (packet[0] & 15u) : 40;
    const uint8_t next = protocol == ETH_P_IP ? packet[9] : packet[6];
    if ((protocol != ETH_P_IP && protocol != ETH_P_IPV6) || next != IPPROTO_TCP || bytes < begin + 20) return;
    const uint8_t* const tcp = packet + begin;
    const auto port = [&](size_t at) { return static_cast<uint16_t>(tcp[at] << 8 | tcp[at + 1]); };
    const uint8_t* const said = tcp + size_t{4} * (tcp[12] >> 4);
    if (said >= packet + bytes || own_.count(port(0)) != 0) return;
    const std::pair<uint16_t, uint16_t> ports(port(0), port(2));
    const size_t count = static_cast<size_t>(packet + bytes - said);
    uint16_t type = 0, mark = 0;
    if (count >= kHeader) {
      memcpy(&type, said + 4, sizeof type);
      memcpy(&mark, said + 6, sizeof mark);
    }
    const auto at = heard_.find(ports);
    if (at == heard_.end() && (mark != kMark || type != kHello)) return;
    Spoken& spoken = heard_[ports];
    if (spoken.size() < kMost) spoken.insert(spoken.end(), said, said + count);
  }

  int socket_;
  std::set<uint16_t> own_;
  std::map<std::pair<uint16_t, uint16_t>, Spoken> heard_;
};

// Who knows the session's name and not its secret says hello as a member does.
Spoken helloOf(const Board& board, Draw& draw) {
  constexpr size_t kVersionAt = 8, kSessionAt = 32, kNonce = 16;
  uint16_t version = 0;
  uint64_t session = 0;
  memcpy(&version, board.id.internal + kVersionAt, sizeof version);
  memcpy(&session, board.id.internal + kSessionAt, sizeof session);
  Spoken hello;
  appendHeader(hello, sizeof version + sizeof session + kNonce + 1, kHello);
  append(hello, version);
  append(hello, session);
  appendRandom(hello, kNonce, draw);
  hello.push_back(0);
  return hello;
}

// What one stranger says: at first, and after it has been answered.
struct Speech {
  Spoken first, then;
};

Speech garbage(const Board& board, Draw& draw) {
  Speech speech;
  if (draw.chance(20)) return speech;
  appendRandom(speech.first, static_cast<size_t>(draw.between(1, 600)), draw);
  if (draw.chance(30)) {  // begins like one who knows the id
    memcpy(speech.first.data(), board.id.internal, std::min<size_t>(32, speech.first.size()));
  }
  return speech;
}

// Of frames of any type, some longer than they say or than may be.
Speech frames(Draw& draw) {
  Speech speech;
  for (int more = draw.between(1, 4); more > 0; --more) {
    const int pick = draw.below(10);
    const auto length = static_cast<size_t>(draw.below(300));
    appendHeader(speech.first,
                 pick == 0   ? draw.next() % UINT32_MAX
                 : pick == 1 ? length + 1
                             : length,
                 static_cast<uint16_t>(draw.between(1, kMessageTypes)));
    appendRandom(speech.first, length, draw);
  }
  return speech;
}

Speech impostor(const Board& board, Draw& draw) {
  Speech speech{helloOf(board, draw), {}};
  const auto length = static_cast<size_t>(draw.between(0, 250));
  appendHeader(speech.then, length,
               draw.chance(80) ? kJoin : static_cast<uint16_t>(draw.between(1, kMessageTypes)));
  appendRandom(speech.then, length, draw);
  return speech;
}

// All at once, or as a member says it: hello, and the rest when it has been answered.
Speech replay(const Spoken& heard, Draw& draw) {
  uint32_t length = 0;
  memcpy(&length, heard.data(), sizeof length);
  if (heard.size() < kHeader + length || draw.chance(30)) return {heard, {}};
  const auto end = heard.begin() + static_cast<ptrdiff_t>(kHeader + length);
  return {Spoken(heard.begin(), end), Spoken(end, heard.end())};
}

void say(int socket, const Spoken& bytes) {
  if (!bytes.empty()) (void)send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

uint16_t ownPortOf(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&address)->sin_port
                                            : reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
}

}  // namespace

int openEar() {
  const int ear = ::socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL));
  sockaddr_ll loopback{};
  loopback.sll_family = AF_PACKET;
  loopback.sll_protocol = htons(ETH_P_ALL);
  loopback.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
  if (ear < 0 || bind(ear, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0) return ear;
  close(ear);
  return -1;
}

void pester(Board& board, uint64_t seed, int openedEar) {
  Draw draw(seed);
  Ear ear(openedEar);
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
    ear.listen();
    for (const Port& port : ports) {
      const int socket = connectTo(port);
      if (socket < 0) continue;
      ear.leaveOut(ownPortOf(socket));
      sleepMicroseconds(draw.below(300));
      const int pick = draw.below(10);
      const Spoken heard = pick < 4 ? ear.to(port.number, draw) : Spoken{};
      board.replayed += !heard.empty();
      const Speech speech = !heard.empty() ? replay(heard, draw)
                            : pick < 6     ? impostor(board, draw)
                            : pick < 8     ? frames(draw)
                                           : garbage(board, draw);
      say(socket, speech.first);
      if (!speech.then.empty()) sleepMicroseconds(draw.below(2000));
      say(socket, speech.then);
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
