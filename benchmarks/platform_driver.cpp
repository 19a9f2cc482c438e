// What this machine's platform costs, measured the same way on each: clocks, system calls, locks, wake-ups,
// sleeps, copies, first touches of pages, sockets. `stretto audit` runs it for the model that it judges ranks
// by, and for the tables of docs/audit.md; own and peer forms of a thing stand beside each other (spin lock
// and std::mutex).
//
//   platform_driver --rounds N --seconds S --bytes B
//
// Each case is measured once in every round, of which none begins after S seconds, so that what disturbs the
// machine meanwhile hits all of them alike. Buffers take B bytes at most, and 8 MB where that is less. One
// JSON line for each case at the end: {"probe", "case", "unit", "values": [one for each round]}; a value is
// null where the machine does not have the thing.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "platform_probes.hpp"

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif

namespace stretto::bench {
namespace {

// ---- Calls

double readCounter() {
#if defined(__x86_64__)
  return each([] { keep(__builtin_ia32_rdtsc()); });
#elif defined(__aarch64__)
  return each([] {
    uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    keep(ticks);
  });
#else
  return kNone;
#endif
}

double openSocket() {
  return each([] { close(socket(AF_INET, SOCK_STREAM, 0)); });
}

double pollOne() {
  const int descriptor = eventfd(0, 0);
  pollfd one{descriptor, POLLIN, 0};
  const double found = each([&] { keep(poll(&one, 1, 0)); });
  close(descriptor);
  return found;
}

double mapPage() {
  return each([] {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile char*>(page) = 1;
    munmap(page, 4096);
  });
}

double affinity() {
  cpu_set_t set;
  return each([&] { keep(sched_getaffinity(0, sizeof set, &set)); });
}

double wakeNobody() {
  static uint32_t word = 0;
  return each([] { keep(syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0)); });
}

double forkChild() {
  bool works = true;
  const double nanoseconds = each([&] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    works = works && child > 0 && waitpid(child, nullptr, 0) == child;
  });
  return works ? nanoseconds / 1000 : kNone;
}

// ---- Locks, uncontended

double posixMutex() {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  return each([] {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
  });
}

// ---- Memory: GB/s, and microseconds for each MB of first touches

constexpr char kOfNode[] = "memory of node ";

// Pages of that node alone, or false: what is measured must be what its name says.
bool bindToNode(void* memory, size_t bytes, int node) {
  constexpr int kBind = 2;  // MPOL_BIND of linux/mempolicy.h
  const unsigned long nodes = 1UL << node;
  return syscall(SYS_mbind, memory, bytes, kBind, &nodes, 8 * sizeof nodes + 1, 0) == 0;
}

// Below eight; none where the kernel does not say.
std::vector<int> nodesOfMachine() {
  std::vector<int> found;
  for (int node = 0; node < 8; ++node) {
    const std::string folder = "/sys/devices/system/node/node" + std::to_string(node);
    if (access(folder.c_str(), F_OK) == 0) found.push_back(node);
  }
  return found;
}

// What is mapped, of which kind; null where there is none of that.
struct Mapping {
  std::byte* at = nullptr;
  size_t bytes;
  Mapping(const std::string& kind, size_t size) : bytes(size) {
    const bool shared = kind.starts_with("shared"), reserved = kind.ends_with("reserved huge pages");
    const int file = shared ? memfd_create("audit", MFD_CLOEXEC | (reserved ? MFD_HUGETLB : 0)) : -1;
    if (shared && (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0)) {
      if (file >= 0) close(file);
      return;
    }
    void* found = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
    if (shared) close(file);
    if (found == MAP_FAILED) return;
    at = static_cast<std::byte*>(found);
    madvise(found, size, MADV_DONTFORK);  // forking is measured too, of a small process
    if (kind.ends_with("huge pages asked for")) madvise(found, size, MADV_HUGEPAGE);
    if (!shared && kind.ends_with("small pages")) madvise(found, size, MADV_NOHUGEPAGE);
    const size_t number = kind.find(kOfNode);
    if (number == kind.npos || bindToNode(found, size, atoi(kind.c_str() + number + strlen(kOfNode)))) return;
    munmap(found, size);
    at = nullptr;
  }
  ~Mapping() {
    if (at != nullptr) munmap(at, bytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

double firstTouch(const std::string& kind, size_t bytes) {
  const Mapping mapping(kind, bytes);
  if (mapping.at == nullptr) return kNone;
  const auto began = Clock::now();
  for (size_t i = 0; i < bytes; i += 4096) mapping.at[i] = std::byte{1};
  return since(began) * 1e6 / (static_cast<double>(bytes) / (1 << 20));
}

// A target of some kind for a source, touched: the first touch is measured elsewhere.
struct Copy {
  const Mapping& from;
  Mapping to;
  Copy(const std::string& kind, const Mapping& source) : from(source), to(kind, source.bytes) {
    if (to.at == nullptr || from.at == nullptr) return;
    memset(from.at, 1, from.bytes);
    memset(to.at, 2, to.bytes);
  }
  double rate(const std::function<void(std::byte*, const std::byte*, size_t)>& move) const {
    if (to.at == nullptr || from.at == nullptr) return kNone;
    const double nanoseconds = each([&] { move(to.at, from.at, to.bytes); });
    return static_cast<double>(to.bytes) / nanoseconds;
  }
};

// As one process reads another's memory; of the own one, as every kernel allows it.
double readProcess(const Copy& copy) {
  bool works = true;
  const double rate = copy.rate([&](std::byte* to, const std::byte* from, size_t bytes) {
    const iovec here{to, bytes}, there{const_cast<std::byte*>(from), bytes};
    works = works && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
    if (!works) usleep(1000);
  });
  return works ? rate : kNone;
}

// All allowed cores at once, as far as the memory goes, each with buffers of its own: GB/s of all together.
double copyOnAllCores(const Sizes& sizes) {
  const std::vector<int> cores = allowedCores();
  const size_t used = std::min(cores.size(), sizes.threads);
  std::vector<double> rates(used);
  std::vector<std::thread> threads;
  threads.reserve(used);
  std::atomic<size_t> ready{0};
  std::atomic<bool> refused{false};
  const auto copyOnOne = [&](size_t i) {
    pinTo(cores[i]);
    const Mapping source("private", sizes.large / 2);
    const Copy copy("private", source);
    ++ready;
    while (ready < used && !refused) std::this_thread::yield();
    if (!refused) rates[i] = copy.rate(plainCopy);
  };
  try {
    for (size_t i = 0; i < used; ++i) threads.emplace_back(copyOnOne, i);
  } catch (const std::system_error&) {
    refused = true;  // RLIMIT_NPROC
  }
  for (std::thread& thread : threads) thread.join();
  return refused ? kNone : std::accumulate(rates.begin(), rates.end(), 0.0);
}

// ---- Sockets: GB/s one way

double socketRate(bool tcp, size_t bytes, int buffer) {
  DescriptorEnds ends;
  int pair[2];
  if (!(tcp ? connectTcp(pair) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)) return kNone;
  for (const int side : {0, 1}) ends.in[side] = ends.out[side] = pair[side];
  for (const int end : pair) {
    if (buffer == 0) break;
    setsockopt(end, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(end, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  }
  const size_t total = std::max<size_t>(size_t{16} << 20, 2 * bytes);
  const std::vector<char> message(bytes, 1);
  std::vector<char> text(bytes);
  std::thread sender([&] {
    for (size_t sent = 0; sent < total;) {
      const ssize_t put = write(pair[0], message.data(), bytes);
      if (put <= 0) break;
      sent += static_cast<size_t>(put);
    }
    shutdown(pair[0], SHUT_WR);
  });
  size_t received = 0;
  const auto began = Clock::now();
  for (ssize_t got; (got = read(pair[1], text.data(), bytes)) > 0;) received += static_cast<size_t>(got);
  const double seconds = since(began);
  sender.join();
  return received >= total ? static_cast<double>(received) / seconds / 1e9 : kNone;
}

// ---- The list

void addCalls(Cases& all) {
  const auto add = [&](const char* name, auto call) { all.push_back({"calls", name, "ns", call, {}}); };
  add("clock_gettime(MONOTONIC)", [] {
    timespec now;
    return each([&] { keep(clock_gettime(CLOCK_MONOTONIC, &now)); });
  });
  add("the processor's counter", readCounter);
  add("getpid, as a system call", [] { return each([] { keep(syscall(SYS_getpid)); }); });
  add("sched_getaffinity", affinity);
  add("poll, 1 descriptor, timeout 0", pollOne);
  add("futex wake of nobody", wakeNobody);
  add("socket create and close", openSocket);
  add("map, touch and unmap a page", mapPage);
  add("dlsym", [] { return each([] { keep(dlsym(RTLD_DEFAULT, "getpid")); }); });
  add("getenv", [] { return each([] { keep(getenv("STRETTO_TIMEOUT")); }); });
}

void addLocks(Cases& all) {
  const auto add = [&](const char* name, auto call) { all.push_back({"locks", name, "ns", call, {}}); };
  add("spin lock", spinLock);
  add("std::mutex", standardMutex);
  add("pthread_mutex", posixMutex);
  add("atomic add", [] { return each([] { keep(word.fetch_add(1)); }); });
  add("atomic compare and swap", compareAndSwap);
  add("fence", [] { return each([] { std::atomic_thread_fence(std::memory_order_seq_cst); }); });
  add("load, acquire", [] { return each([] { keep(word.load(std::memory_order_acquire)); }); });
  add("store, release", [] { return each([] { word.store(1, std::memory_order_release); }); });
}

void addWakes(Cases& all) {
  const auto add = [&](const std::string& probe, const std::string& name, std::function<double()> call) {
    all.push_back({probe, name, "us", std::move(call), {}});
  };
  add("threads", "thread create and join", startThread);
  add("threads", "fork and wait", forkChild);
  for (const int microseconds : {50, 1000}) {
    add("threads", "sleep of " + std::to_string(microseconds) + " us",
        [=] { return sleepFor(microseconds); });
  }
  const std::vector<int> cores = allowedCores();
  for (size_t i = 1; i < cores.size() && i < 8; ++i) {
    const std::string pair =
        "cache line, core " + std::to_string(cores[0]) + " to " + std::to_string(cores[i]);
    add("wake", pair, [core = cores[i]] {
      SpinEnds ends;
      return pingPong(ends, core, 20);
    });
  }
  const int last = cores.size() > 1 ? cores[1] : cores[0];
  add("wake", "futex", [last] {
    FutexEnds ends;
    return pingPong(ends, last, 5);
  });
  add("wake", "std::condition_variable", [last] {
    ConditionEnds ends;
    return pingPong(ends, last, 5);
  });
  for (const char* kind : {"eventfd", "pipe", "AF_UNIX socket", "TCP loopback", "TCP loopback, polled"}) {
    if (cores.size() == 1 && std::string(kind).ends_with("polled")) continue;
    add("wake", kind, [=] { return wakeByDescriptor(kind, last); });
  }
}

void addMemory(Cases& all, const Sizes& sizes) {
  const auto rate = [&](const std::string& name, std::function<double()> call) {
    all.push_back({"copy", name, "GB/s", std::move(call), {}});
  };
  static const Mapping smallSource("private", size_t{256} << 10), source("private", sizes.large);
  static const Copy small("private", smallSource), large("private", source), shared("shared", source),
      huge("shared, huge pages asked for", source);
  const std::string size = ", " + std::to_string(sizes.large >> 20) + " MB";
  rate("memcpy, 256 KB", [] { return small.rate(plainCopy); });
  rate("memcpy" + size, [] { return large.rate(plainCopy); });
  rate("memcpy, all cores at once", [=] { return copyOnAllCores(sizes); });
  rate("read" + size, [] { return large.rate(sumUp); });
  rate("write" + size, [] { return large.rate(fill); });
  rate("memcpy into shared memory", [] { return shared.rate(plainCopy); });
  rate("memcpy into shared memory, huge pages asked for", [] { return huge.rate(plainCopy); });
  for (const int node : nodesOfMachine()) {
    const std::string where = kOfNode + std::to_string(node);
    rate("memcpy into shared " + where, [where] {
      const Copy copy("shared " + where, source);
      return copy.rate(plainCopy);
    });
  }
  rate("process_vm_readv" + size, [] { return readProcess(large); });
  const size_t touched = std::min(sizes.large, size_t{8} << 20);
  for (const char* kind : {"private, small pages", "private, huge pages asked for", "shared",
                           "shared, huge pages asked for", "shared, reserved huge pages"}) {
    all.push_back({"first touch", kind, "us/MB", [=] { return firstTouch(kind, touched); }, {}});
  }
}

void addSockets(Cases& all) {
  for (const bool tcp : {false, true}) {
    for (const int kilobytes : {64, 256, 1024, 4096}) {
      const std::string name =
          std::string(tcp ? "TCP" : "AF_UNIX") + ", writes of " + std::to_string(kilobytes) + " KB";
      const auto bytes = static_cast<size_t>(kilobytes) << 10;
      all.push_back({"socket", name, "GB/s", [=] { return socketRate(tcp, bytes, 0); }, {}});
      if (tcp) {
        all.push_back({"socket",
                       name + ", buffers of 4 MB",
                       "GB/s",
                       [=] { return socketRate(tcp, bytes, 4 << 20); },
                       {}});
      }
    }
  }
}

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  if (!parsePlatformCommand(argc, argv)) {
    fprintf(stderr,
            "platform_driver: started by `stretto audit`, not by hand (--rounds N --seconds S "
            "--bytes B)\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Cases all;
  addCalls(all);
  addLocks(all);
  addWakes(all);
  addMemory(all, Sizes(strtoull(argv[6], nullptr, 10)));
  addSockets(all);
  measureAll(all, argv);
  return 0;
}
