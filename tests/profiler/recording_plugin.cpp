// A profiler plugin that writes down every call it gets, one line each, to the file STRETTO_TEST_PROFILE_LOG
// names: `key=value` words, handles and contexts as small numbers. STRETTO_TEST_PROFILE_MASK is the mask it
// asks for (default: everything), STRETTO_TEST_PROFILE_REFUSE=1 makes init fail, and events of the types of
// STRETTO_TEST_PROFILE_DECLINE it does not take: their calls are `declined`. Built once per version of
// the interface, with symbols of old versions only, and with strettoProfiler_v2, which writes down as `at`
// when each call is said to have happened.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "observe/profiler_abi.hpp"

#ifdef STRETTO_TEST_PROFILER_STAMPED
#define STRETTO_TEST_PROFILER_VERSION 7
#endif

namespace {

using namespace stretto::observe::profiler;

thread_local const uint64_t* tAt = nullptr;  // within a call of strettoProfiler_v2

std::atomic<int*> gMask{nullptr};
std::atomic<uintptr_t> gHandles{0};
std::atomic<uintptr_t> gContexts{0};

// One write a line, so that lines of threads do not mix and nothing is lost when the process ends.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...) {
  static const int file = [] {
    const char* const path = getenv("STRETTO_TEST_PROFILE_LOG");
    return path == nullptr ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }();
  char line[700];
  int length = snprintf(line, sizeof line, "tid=%ld ", syscall(SYS_gettid));
  if (tAt != nullptr) {
    const size_t room = sizeof line - static_cast<size_t>(length);
    length += snprintf(line + length, room, "at=%llu ", static_cast<unsigned long long>(*tAt));
  }
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof line - static_cast<size_t>(length) - 1, format, arguments);
  va_end(arguments);
  line[length++] = '\n';
  if (file >= 0 && write(file, line, static_cast<size_t>(length)) != length) abort();
}

unsigned long number(const void* handle) {
  return reinterpret_cast<unsigned long>(handle);
}
unsigned long long wide(uint64_t value) {
  return value;
}

// Nothing for most calls. Older versions' descriptors end before it. (No std::string: the C++ library's
// unique symbols would keep this plugin loaded, and tests see it go.)
struct TagInWords {
  char text[32] = "";

  explicit TagInWords(const uint64_t& tag) {
    if (STRETTO_TEST_PROFILER_VERSION >= 7 && tag != 0) snprintf(text, sizeof text, " tag=%llu", wide(tag));
  }
};

// What NCCL's sockets say of themselves in version 1, as a plugin of NCCL's reads it.
struct SocketEvent {
  uint8_t type;
  union {
    struct {
      int fd;
      int op;
      size_t length;
    } socket;
  };
};

int start(void* context, void** handle, DescriptorV7* descriptor) {
  const char* const declined = getenv("STRETTO_TEST_PROFILE_DECLINE");
  const bool takes = declined == nullptr || (descriptor->type & strtoull(declined, nullptr, 10)) == 0;
  const uintptr_t id = takes ? ++gHandles : 0;
  *handle = reinterpret_cast<void*>(id);
  char more[400] = "";
  const DescriptorV7& d = *descriptor;
  switch (d.type) {
    case bit(Type::kGroupApi):
      snprintf(more, sizeof more, "event=GroupApi captured=%d depth=%d", d.groupApi.graphCaptured,
               d.groupApi.depth);
      break;
    case bit(Type::kCollApi):
      snprintf(more, sizeof more, "event=CollApi func=%s count=%zu type=%s root=%d stream=%#lx captured=%d%s",
               d.collApi.function, d.collApi.count, d.collApi.dataType, d.collApi.root,
               number(d.collApi.stream), d.collApi.graphCaptured, TagInWords(d.collApi.userTag).text);
      break;
    case bit(Type::kP2pApi):
      snprintf(more, sizeof more, "event=P2pApi func=%s count=%zu type=%s", d.p2pApi.function, d.p2pApi.count,
               d.p2pApi.dataType);
      break;
    case bit(Type::kKernelLaunch):
      snprintf(more, sizeof more, "event=KernelLaunch");
      break;
    case bit(Type::kGroup):
      snprintf(more, sizeof more, "event=Group");
      break;
    case bit(Type::kColl):
      snprintf(more, sizeof more,
               "event=Coll group=%lu seq=%llu func=%s count=%zu type=%s root=%d channels=%d algo=%s "
               "proto=%s%s",
               number(d.coll.parentGroup), wide(d.coll.sequence), d.coll.function, d.coll.count,
               d.coll.dataType, d.coll.root, d.coll.channels, d.coll.algorithm, d.coll.protocol,
               TagInWords(d.coll.userTag).text);
      break;
    case bit(Type::kP2p):
      snprintf(more, sizeof more, "event=P2p group=%lu func=%s count=%zu type=%s peer=%d channels=%d",
               number(d.p2p.parentGroup), d.p2p.function, d.p2p.count, d.p2p.dataType, d.p2p.peer,
               d.p2p.channels);
      break;
    case bit(Type::kProxyOp):
      snprintf(more, sizeof more, "event=ProxyOp pid=%d channel=%d peer=%d steps=%d chunk=%d send=%d",
               d.proxyOp.pid, d.proxyOp.channel, d.proxyOp.peer, d.proxyOp.steps, d.proxyOp.chunkBytes,
               d.proxyOp.isSend);
      break;
    case bit(Type::kProxyStep):
      snprintf(more, sizeof more, "event=ProxyStep step=%d", d.proxyStep.step);
      break;
    case bit(Type::kNetPlugin): {
      SocketEvent event;
      memcpy(&event, d.netPlugin.data, sizeof event);
      snprintf(more, sizeof more, "event=NetPlugin plugin=%llx socketEvent=%d fd=%d op=%d length=%zu",
               wide(static_cast<uint64_t>(d.netPlugin.id)), event.type, event.socket.fd, event.socket.op,
               event.socket.length);
      break;
    }
    case bit(Type::kProxyCtrl):
      snprintf(more, sizeof more, "event=ProxyCtrl");
      break;
    case bit(Type::kKernelCh):
      snprintf(more, sizeof more, "event=KernelCh channel=%d timer=%llu", d.kernelCh.channel,
               wide(d.kernelCh.gpuNs));
      break;
    default:
      snprintf(more, sizeof more, "event=unknown:%llx", wide(d.type));
  }
  say("call=%s ctx=%lu h=%lu parent=%lu rank=%d %s", takes ? "start" : "declined", number(context),
      static_cast<unsigned long>(id), number(d.parent), d.rank, more);
  return 0;
}

int stop(void* handle) {
  say("call=stop h=%lu", number(handle));
  return 0;
}

int record(void* handle, int state, ArgumentsV4* arguments) {
  switch (state) {
    case kKernelChStop:
      say("call=state h=%lu state=%d timer=%llu", number(handle), state, wide(arguments->kernelCh.gpuNs));
      break;
    case kReplayed:
      say("call=state h=%lu state=%d number=%llu", number(handle), state, wide(arguments->replayed.number));
      break;
    case kCtrlAppendEnd:
      say("call=state h=%lu state=%d appended=%d", number(handle), state, arguments->proxyCtrl.appended);
      break;
    case kStepSendWait:
    case kStepRecvGpuWait:
      say("call=state h=%lu state=%d bytes=%zu", number(handle), state, arguments->proxyStep.bytes);
      break;
    default:
      say("call=state h=%lu state=%d args=%d", number(handle), state, arguments != nullptr);
  }
  return 0;
}

int ncclInit(void** context, uint64_t communicator, int* mask, const char* name, int nodes, int ranks,
             int rank, Logger logger) {
  const char* const refuse = getenv("STRETTO_TEST_PROFILE_REFUSE");
  if (refuse != nullptr && *refuse == '1') return 3;
  const char* const wanted = getenv("STRETTO_TEST_PROFILE_MASK");
  __atomic_store_n(mask, wanted == nullptr ? 0xffff : atoi(wanted), __ATOMIC_RELAXED);
  gMask = mask;
  const uintptr_t id = ++gContexts;
  *context = reinterpret_cast<void*>(id);
  say("call=init ctx=%lu version=%d comm=%llx name=%s nodes=%d ranks=%d rank=%d",
      static_cast<unsigned long>(id), STRETTO_TEST_PROFILER_VERSION, wide(communicator),
      name == nullptr ? "(null)" : name, nodes, ranks, rank);
  logger(3, 0x4000, __FILE__, __LINE__, "a word from the plugin about rank %d", rank);
  return 0;
}

int finalize(void* context) {
  say("call=finalize ctx=%lu", number(context));
  return 0;
}

template <typename Call>
[[maybe_unused]] int stamped(uint64_t at, Call&& call) {
  tAt = &at;
  const int result = call();
  tAt = nullptr;
  return result;
}

constexpr TableV5 kTable{"recording", ncclInit, start, stop, record, finalize};

}  // namespace

// Later than init, as plugins may: through the pointer they were given.
extern "C" [[gnu::visibility("default")]] void recordingSetMask(int mask) {
  if (int* const place = gMask; place != nullptr) __atomic_store_n(place, mask, __ATOMIC_RELAXED);
}

extern "C" {
#define STRETTO_TABLE(version)                                                 \
  [[gnu::visibility("default")]] extern const TableV5 ncclProfiler_v##version; \
  const TableV5 ncclProfiler_v##version = kTable
#if STRETTO_TEST_PROFILER_VERSION <= 4
STRETTO_TABLE(3);
STRETTO_TABLE(4);
#else
STRETTO_TABLE(5);
#if STRETTO_TEST_PROFILER_VERSION >= 6
STRETTO_TABLE(6);
#endif
#if STRETTO_TEST_PROFILER_VERSION >= 7
STRETTO_TABLE(7);
#endif
#ifdef STRETTO_TEST_PROFILER_STAMPED
[[gnu::visibility("default")]] extern const StampedTable strettoProfiler_v2;
const StampedTable strettoProfiler_v2{
    [](void* context, void** handle, DescriptorV7* descriptor, uint64_t at) {
      return stamped(at, [&] { return start(context, handle, descriptor); });
    },
    [](void* handle, uint64_t at) { return stamped(at, [&] { return stop(handle); }); },
    [](void* handle, int state, ArgumentsV4* arguments, uint64_t at) {
      return stamped(at, [&] { return record(handle, state, arguments); });
    },
    [](void* context, uint64_t every) {
      say("call=sample ctx=%lu every=%llu", number(context), wide(every));
      return 0;
    }};
#endif
#endif
}
