// What Windows costs, case by case as ../platform_driver.cpp has it for Linux, and in the same lines. It
// calls the library's platform layer where there is one for a thing, and the system beside it.
//
//   platform_driver.exe --rounds N --seconds S --bytes B
#include <winsock2.h>
// clang-format off
#include <ws2tcpip.h>
#include <windows.h>
// clang-format on

#include "../platform_common.hpp"
#include "platform/clock.hpp"
#include "platform/cores.hpp"
#include "platform/futex.hpp"
#include "platform/machine.hpp"
#include "platform/shared_memory.hpp"

namespace stretto::bench {

std::vector<int> allowedCores() {
  return platform::usableCoreNumbers(platform::kMostCores);
}

void pinTo(int core) {
  platform::bindThisThread({core});
}

namespace {

using platform::MemoryWish;
using platform::SharedMemory;

// ---- Calls and locks

void addCalls(Cases& all) {
  const auto add = [&](const char* name, std::function<double()> call) {
    all.push_back({"calls", name, "ns", std::move(call), {}});
  };
  add("monotonicNanoseconds", [] { return each([] { keep(platform::monotonicNanoseconds()); }); });
  add("the processor's counter", [] { return each([] { keep(platform::ticks()); }); });
  add("GetThreadGroupAffinity, as a system call", [] {
    GROUP_AFFINITY affinity;
    return each([&] { keep(GetThreadGroupAffinity(GetCurrentThread(), &affinity)); });
  });
  add("futex wake of nobody", [] {
    static uint32_t nobody = 0;
    return each([] { platform::futexWake(&nobody); });
  });
  add("map, touch and unmap a page", [] {
    return each([] {
      void* const page = VirtualAlloc(nullptr, 4096, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
      *static_cast<volatile char*>(page) = 1;
      VirtualFree(page, 0, MEM_RELEASE);
    });
  });
  add("GetProcAddress", [] {
    const HMODULE kernel = GetModuleHandleW(L"kernel32.dll");
    return each([&] { keep(GetProcAddress(kernel, "GetCurrentProcessId")); });
  });
  add("getenv", [] { return each([] { keep(getenv("STRETTO_TIMEOUT")); }); });
}

double readersAndWritersLock() {
  static SRWLOCK lock = SRWLOCK_INIT;
  return each([] {
    AcquireSRWLockExclusive(&lock);
    ReleaseSRWLockExclusive(&lock);
  });
}

double criticalSection() {
  static CRITICAL_SECTION section;
  static const bool isReady = (InitializeCriticalSection(&section), true);
  return each([] {
    keep(isReady);
    EnterCriticalSection(&section);
    LeaveCriticalSection(&section);
  });
}

void addLocks(Cases& all) {
  const auto add = [&](const char* name, std::function<double()> call) {
    all.push_back({"locks", name, "ns", std::move(call), {}});
  };
  add("spin lock", spinLock);
  add("std::mutex", standardMutex);
  add("SRWLOCK", readersAndWritersLock);
  add("CRITICAL_SECTION", criticalSection);
  add("atomic add", [] { return each([] { keep(word.fetch_add(1)); }); });
  add("atomic compare and swap", compareAndSwap);
  add("fence", [] { return each([] { std::atomic_thread_fence(std::memory_order_seq_cst); }); });
}

// ---- Wake-ups

// The library's own sleeping, on words of a segment, which threads of other processes could wake as well, or
// of this process alone, where WaitOnAddress serves.
struct FutexEnds {
  explicit FutexEnds(std::byte* at)
      : words{new (at) std::atomic<uint32_t>(0), new (at + 64) std::atomic<uint32_t>(0)} {}
  std::atomic<uint32_t>* words[2];
  uint32_t seen[2] = {0, 0};
  static uint32_t* address(std::atomic<uint32_t>* one) { return reinterpret_cast<uint32_t*>(one); }
  void give(int side) {
    words[1 - side]->fetch_add(1);
    platform::futexWake(address(words[1 - side]));
  }
  void take(int side) {
    ++seen[side];
    for (uint32_t now; (now = words[side]->load()) != seen[side];)
      platform::futexWait(address(words[side]), now, 1'000'000);
  }
};

double wakeByFutex(bool isShared, int core) {
  auto segment = isShared ? SharedMemory::create("audit", 4096) : SharedMemory::createPrivate(4096);
  if (!segment.ok()) return kNone;
  FutexEnds ends(segment.value().data());
  return pingPong(ends, core, 5);
}

struct EventEnds {
  HANDLE events[2] = {CreateEventW(nullptr, FALSE, FALSE, nullptr),
                      CreateEventW(nullptr, FALSE, FALSE, nullptr)};
  EventEnds() = default;
  EventEnds(const EventEnds&) = delete;
  EventEnds& operator=(const EventEnds&) = delete;
  ~EventEnds() {
    for (const HANDLE event : events) CloseHandle(event);
  }
  void give(int side) { SetEvent(events[1 - side]); }
  void take(int side) { WaitForSingleObject(events[side], INFINITE); }
};

// Eight bytes through handles: side s reads from in[s] and writes to out[s].
struct PipeEnds {
  HANDLE in[2] = {nullptr, nullptr}, out[2] = {nullptr, nullptr};
  bool made = CreatePipe(&in[0], &out[1], nullptr, 0) && CreatePipe(&in[1], &out[0], nullptr, 0);
  PipeEnds() = default;
  PipeEnds(const PipeEnds&) = delete;
  PipeEnds& operator=(const PipeEnds&) = delete;
  ~PipeEnds() {
    for (const HANDLE end : {in[0], in[1], out[0], out[1]}) {
      if (end != nullptr) CloseHandle(end);
    }
  }
  void give(int side) {
    const uint64_t one = 1;
    DWORD done = 0;
    keep(WriteFile(out[side], &one, sizeof one, &done, nullptr));
  }
  void take(int side) {
    uint64_t got = 0;
    DWORD done = 0;
    keep(ReadFile(in[side], &got, sizeof got, &done, nullptr));
  }
};

double wakeByPipe(int core) {
  PipeEnds ends;
  return ends.made ? pingPong(ends, core, 5) : kNone;
}

// A connected pair over loopback.
struct TcpPair {
  SOCKET ends[2] = {INVALID_SOCKET, INVALID_SOCKET};
  bool made = false;
  TcpPair() {
    const SOCKET listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int length = sizeof address;
    auto* const general = reinterpret_cast<sockaddr*>(&address);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    made = bind(listener, general, length) == 0 && listen(listener, 1) == 0 &&
           getsockname(listener, general, &length) == 0 && connect(ends[0], general, length) == 0;
    if (made) ends[1] = accept(listener, nullptr, nullptr);
    made = made && ends[1] != INVALID_SOCKET;
    closesocket(listener);
    const BOOL yes = TRUE;
    for (const SOCKET end : ends)
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, reinterpret_cast<const char*>(&yes), sizeof yes);
  }
  TcpPair(const TcpPair&) = delete;
  TcpPair& operator=(const TcpPair&) = delete;
  ~TcpPair() {
    for (const SOCKET end : ends) {
      if (end != INVALID_SOCKET) closesocket(end);
    }
  }
  void give(int side) {
    const uint64_t one = 1;
    keep(send(ends[side], reinterpret_cast<const char*>(&one), sizeof one, 0));
  }
  void take(int side) {
    uint64_t got;
    keep(recv(ends[side], reinterpret_cast<char*>(&got), sizeof got, MSG_WAITALL));
  }
};

double wakeByTcp(int core) {
  TcpPair ends;
  return ends.made ? pingPong(ends, core, 5) : kNone;
}

void addWakes(Cases& all) {
  const auto add = [&](const char* probe, const std::string& name, std::function<double()> call) {
    all.push_back({probe, name, "us", std::move(call), {}});
  };
  add("threads", "thread create and join", startThread);
  for (const int microseconds : {50, 1000}) {
    add("threads", "sleep of " + std::to_string(microseconds) + " us",
        [=] { return sleepFor(microseconds); });
  }
  const std::vector<int> cores = allowedCores();
  const int last = cores.size() > 1 ? cores[1] : cores[0];
  if (cores.size() > 1) {
    add("wake", "cache line, core " + std::to_string(cores[0]) + " to " + std::to_string(last), [last] {
      SpinEnds ends;
      return pingPong(ends, last, 20);
    });
  }
  add("wake", "futex of shared memory", [last] { return wakeByFutex(true, last); });
  add("wake", "futex of this process (WaitOnAddress)", [last] { return wakeByFutex(false, last); });
  add("wake", "std::condition_variable", [last] {
    ConditionEnds ends;
    return pingPong(ends, last, 5);
  });
  add("wake", "event", [last] {
    EventEnds ends;
    return pingPong(ends, last, 5);
  });
  add("wake", "pipe", [last] { return wakeByPipe(last); });
  add("wake", "TCP loopback", [last] { return wakeByTcp(last); });
}

// ---- Memory: GB/s, and microseconds for each MB of first touches

// Memory as it was wished, or none: what is measured must be what its name says.
SharedMemory map(bool isShared, size_t bytes, const MemoryWish& wish) {
  auto memory =
      isShared ? SharedMemory::create("audit", bytes, wish) : SharedMemory::createPrivate(bytes, wish);
  if (!memory.ok() || !memory.value().refused().empty()) return {};
  return std::move(memory.value());
}

double firstTouch(bool isShared, const MemoryWish& wish, size_t bytes) {
  const SharedMemory memory = map(isShared, bytes, wish);
  if (memory.data() == nullptr) return kNone;
  const auto began = Clock::now();
  for (size_t i = 0; i < bytes; i += 4096) memory.data()[i] = std::byte{1};
  return since(began) * 1e6 / (static_cast<double>(bytes) / (1 << 20));
}

// From private memory; touched, as the first touch is measured elsewhere.
double rate(bool isShared, const MemoryWish& wish, size_t bytes,
            const std::function<void(std::byte*, const std::byte*, size_t)>& move) {
  const SharedMemory from = map(false, bytes, {}), to = map(isShared, bytes, wish);
  if (from.data() == nullptr || to.data() == nullptr) return kNone;
  memset(from.data(), 1, bytes);
  memset(to.data(), 2, bytes);
  return static_cast<double>(bytes) / each([&] { move(to.data(), from.data(), bytes); });
}

void readThisProcess(std::byte* to, const std::byte* from, size_t bytes) {
  keep(platform::readProcess(os::processId(), to, from, bytes));
}

void addMemory(Cases& all, const Sizes& sizes) {
  const auto add = [&](const std::string& name, std::function<double()> call) {
    all.push_back({"copy", name, "GB/s", std::move(call), {}});
  };
  const std::string size = ", " + std::to_string(sizes.large >> 20) + " MB";
  const size_t bytes = sizes.large;
  const MemoryWish huge{.hugePages = true};
  add("memcpy, 256 KB", [] { return rate(false, {}, size_t{256} << 10, plainCopy); });
  add("memcpy" + size, [=] { return rate(false, {}, bytes, plainCopy); });
  add("read" + size, [=] { return rate(false, {}, bytes, sumUp); });
  add("write" + size, [=] { return rate(false, {}, bytes, fill); });
  add("memcpy into shared memory", [=] { return rate(true, {}, bytes, plainCopy); });
  add("memcpy into shared memory, large pages", [=] { return rate(true, huge, bytes, plainCopy); });
  for (const auto& node : platform::describeMachine().nodes) {
    const MemoryWish there{.node = node.id};
    add("memcpy into shared memory of node " + std::to_string(node.id),
        [=] { return rate(true, there, bytes, plainCopy); });
  }
  add("ReadProcessMemory" + size, [=] { return rate(false, {}, bytes, readThisProcess); });
  const size_t touched = std::min(bytes, size_t{8} << 20);
  for (const bool isShared : {false, true}) {
    const std::string kind = isShared ? "shared" : "private";
    all.push_back({"first touch", kind, "us/MB", [=] { return firstTouch(isShared, {}, touched); }, {}});
    all.push_back({"first touch",
                   kind + ", large pages",
                   "us/MB",
                   [=] { return firstTouch(isShared, huge, touched); },
                   {}});
  }
}

// ---- Sockets: GB/s one way

double socketRate(size_t bytes) {
  const TcpPair pair;
  if (!pair.made) return kNone;
  const size_t total = std::max<size_t>(size_t{16} << 20, 2 * bytes);
  const std::vector<char> message(bytes, 1);
  std::vector<char> text(bytes);
  std::thread sender([&] {
    for (size_t sent = 0; sent < total;) {
      const int put = send(pair.ends[0], message.data(), static_cast<int>(bytes), 0);
      if (put <= 0) break;
      sent += static_cast<size_t>(put);
    }
    shutdown(pair.ends[0], SD_SEND);
  });
  size_t received = 0;
  const auto began = Clock::now();
  for (int got; (got = recv(pair.ends[1], text.data(), static_cast<int>(bytes), 0)) > 0;)
    received += static_cast<size_t>(got);
  const double seconds = since(began);
  sender.join();
  return received >= total ? static_cast<double>(received) / seconds / 1e9 : kNone;
}

void addSockets(Cases& all) {
  for (const int kilobytes : {64, 256, 1024, 4096}) {
    all.push_back({"socket",
                   "TCP, writes of " + std::to_string(kilobytes) + " KB",
                   "GB/s",
                   [=] { return socketRate(static_cast<size_t>(kilobytes) << 10); },
                   {}});
  }
}

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  WSADATA facts;
  if (!parsePlatformCommand(argc, argv) || WSAStartup(MAKEWORD(2, 2), &facts) != 0) {
    fprintf(stderr, "platform_driver: --rounds N --seconds S --bytes B\n");
    return 2;
  }
  Cases all;
  addCalls(all);
  addLocks(all);
  addWakes(all);
  addMemory(all, Sizes(strtoull(argv[6], nullptr, 10)));
  addSockets(all);
  measureAll(all, argv);
  return 0;
}
