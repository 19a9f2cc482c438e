// What platform_driver shares: timing of the best of some stretches, cores, and threads or descriptors that
// hand a turn to each other.
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

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace stretto::bench {

using Clock = std::chrono::steady_clock;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastSeconds = 0.0002;

inline double since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

template <class T>
void keep(T const& value) {
  asm volatile("" : : "g"(value) : "memory");
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Nanoseconds of one call: the best of five stretches, each of as many calls as take a fifth of a
// millisecond, so that a stretch that the scheduler interrupted does not count.
template <class F>
double each(F call) {
  double best = kNone;
  size_t calls = 1;
  for (int stretches = 0; stretches < 5;) {
    const auto began = Clock::now();
    for (size_t i = 0; i < calls; ++i) call();
    const double seconds = since(began);
    if (seconds < kLeastSeconds && stretches == 0) {
      calls *= 4;
      continue;
    }
    best = std::fmin(best, seconds / static_cast<double>(calls) * 1e9);
    ++stretches;
  }
  return best;
}

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

// ---- Wake-ups: microseconds one way, between a thread on the first core and one on another

// Two ends that take turns. give(side) hands the turn to the other side; take(side) waits for it.
// Microseconds one way, of the best stretch of `rounds`; as many stretches as a few milliseconds hold, so
// that a core that another program sits on does not take seconds.
template <class Ends>
double pingPong(Ends& ends, int core, int rounds) {
  constexpr double kSeconds = 0.05;
  constexpr int kMostStretches = 200;
  const std::vector<int> cores = allowedCores();
  std::atomic<bool> over{false};
  std::thread other([&] {
    pinTo(core);
    while (true) {
      ends.take(1);
      if (over) return;
      ends.give(1);
    }
  });
  double best = kNone;
  const auto ask = [&] {
    pinTo(cores.front());
    const auto start = Clock::now();
    for (int stretch = 0; stretch < kMostStretches && (stretch == 0 || since(start) < kSeconds); ++stretch) {
      const auto began = Clock::now();
      for (int i = 0; i < rounds; ++i) {
        ends.give(0);
        ends.take(0);
      }
      best = std::fmin(best, since(began));
    }
  };
  const auto end = [&] {
    over = true;
    ends.give(0);
    other.join();
  };
  try {
    std::thread(ask).join();
  } catch (...) {
    end();
    throw;  // RLIMIT_NPROC
  }
  end();
  return best / (2.0 * rounds) * 1e6;
}

struct alignas(64) Line {
  std::atomic<uint32_t> turn{0};
};

struct SpinEnds {
  Line lines[2];
  uint32_t seen[2] = {0, 0};
  void give(int side) { lines[1 - side].turn.fetch_add(1, std::memory_order_release); }
  void take(int side) {
    ++seen[side];
    while (lines[side].turn.load(std::memory_order_acquire) != seen[side]) relax();
  }
};

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

struct ConditionEnds {
  std::mutex mutex;
  std::condition_variable changed;
  int turns[2] = {0, 0};
  void give(int side) {
    const std::lock_guard<std::mutex> held(mutex);
    ++turns[1 - side];
    changed.notify_all();
  }
  void take(int side) {
    std::unique_lock<std::mutex> held(mutex);
    changed.wait(held, [&] { return turns[side] > 0; });
    --turns[side];
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
