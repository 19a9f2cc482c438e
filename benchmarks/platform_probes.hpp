// Cores of Linux, and threads or descriptors that hand a turn to each other by its calls: for
// platform_driver.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform_common.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace stretto::bench {

inline std::vector<int> allowedCores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

inline void pinTo(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

struct FutexEnds : SpinEnds {
  void give(int side) {
    SpinEnds::give(side);
    syscall(SYS_futex, &lines[1 - side].turn, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  void take(int side) {
    ++seen[side];
    for (uint32_t now; (now = lines[side].turn.load(std::memory_order_acquire)) != seen[side];) {
      syscall(SYS_futex, &lines[side].turn, FUTEX_WAIT, now, nullptr, nullptr, 0);
    }
  }
};

// Eight bytes through descriptors: side s reads from in[s] and writes to out[s].
struct DescriptorEnds {
  int in[2] = {-1, -1};
  int out[2] = {-1, -1};
  bool polls = false;
  ~DescriptorEnds() {
    for (const int side : {0, 1}) {
      close(in[side]);
      if (out[side] != in[side]) close(out[side]);
    }
  }
  void give(int side) {
    const uint64_t one = 1;
    keep(write(out[side], &one, sizeof one));
  }
  void take(int side) {
    uint64_t got;
    while (read(in[side], &got, sizeof got) < 0 && polls) relax();
  }
};

// A connected pair over loopback; false where there is no loopback.
inline bool connectTcp(int (&ends)[2]) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto* general = reinterpret_cast<sockaddr*>(&address);
  const bool made = bind(listener, general, length) == 0 && listen(listener, 1) == 0 &&
                    getsockname(listener, general, &length) == 0 && connect(ends[0], general, length) == 0;
  ends[1] = made ? accept(listener, nullptr, nullptr) : -1;
  close(listener);
  const int yes = 1;
  for (const int end : ends) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (!made) close(ends[0]);
  return made;
}

inline double wakeByDescriptor(const std::string& kind, int core) {
  DescriptorEnds ends;
  int pair[2] = {-1, -1};
  if (kind == "eventfd") {
    for (const int side : {0, 1}) ends.in[side] = ends.out[1 - side] = eventfd(0, 0);
  } else if (kind == "pipe") {
    for (const int side : {0, 1}) {
      if (pipe(pair) != 0) return kNone;
      ends.in[side] = pair[0];
      ends.out[1 - side] = pair[1];
    }
  } else {
    const bool tcp = kind != "AF_UNIX socket";
    if (!(tcp ? connectTcp(pair) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)) return kNone;
    for (const int side : {0, 1}) ends.in[side] = ends.out[side] = pair[side];
  }
  ends.polls = kind == "TCP loopback, polled";
  if (ends.polls) {
    for (const int end : pair) fcntl(end, F_SETFL, O_NONBLOCK);
  }
  return pingPong(ends, core, 5);
}

}  // namespace stretto::bench
