// libnccl-profiler-jsonl.so: a profiler plugin of the plain kind, to compare ours with: every callback writes
// a line of JSON under a lock, by fprintf, at once. It asks for the events of STRETTO_TRACE_EVENTS (4095 by
// default) and writes one file a process into STRETTO_TRACE_DIR; without that it asks for nothing.
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <mutex>

#include "platform/clock.hpp"
#include "profiler/abi.hpp"
#include "profiler/settings.hpp"

namespace stretto::profiler {
namespace {

std::mutex gMutex;
std::FILE* gFile = nullptr;  // by the first init, until the process ends
std::atomic<uint64_t> gEvents{0};

uint64_t now() {
  return platform::monotonicNanoseconds();
}
uint64_t number(const void* handle) {
  return reinterpret_cast<uint64_t>(handle);
}
const char* orNone(const char* text) {
  return text == nullptr ? "" : text;
}

template <typename... Values>
void line(const char* form, Values... values) {
  const std::lock_guard lock(gMutex);
  if (gFile != nullptr) fprintf(gFile, form, values...);
}

bool openFile() {
  const std::lock_guard lock(gMutex);
  if (gFile != nullptr) return true;
  const std::string folder = variables::kDirectory.text();
  if (folder.empty()) return false;
  gFile = fopen((folder + "/" + std::to_string(getpid()) + ".jsonl").c_str(), "we");
  return gFile != nullptr;
}

template <int Abi>
int init(void** context, uint64_t communicator, int* mask, const char*, int, int, int rank, Logger) {
  const bool writes = openFile();
  *mask = writes ? static_cast<int>(readEvents(4095, nullptr) & typesOf(Abi)) : 0;
  *context = reinterpret_cast<void*>(uint64_t{1});
  line("{\"ts\":%" PRIu64 ",\"call\":\"init\",\"comm\":\"%" PRIx64 "\",\"rank\":%d}\n", now(), communicator,
       rank);
  return kSuccess;
}

void writeColl(uint64_t id, const DescriptorV7& d) {
  line("{\"ts\":%" PRIu64 ",\"call\":\"start\",\"type\":\"Coll\",\"id\":%" PRIu64 ",\"parent\":%" PRIu64
       ",\"seq\":%" PRIu64
       ",\"func\":\"%s\",\"count\":%zu,\"datatype\":\"%s\",\"algo\":\"%s\",\"proto\":"
       "\"%s\",\"channels\":%d,\"root\":%d}\n",
       now(), id, number(d.parent), d.coll.sequence, orNone(d.coll.function), d.coll.count,
       orNone(d.coll.dataType), orNone(d.coll.algorithm), orNone(d.coll.protocol), d.coll.channels,
       d.coll.root);
}

void writeP2p(uint64_t id, const DescriptorV7& d) {
  line("{\"ts\":%" PRIu64 ",\"call\":\"start\",\"type\":\"P2p\",\"id\":%" PRIu64 ",\"parent\":%" PRIu64
       ",\"func\":\"%s\",\"count\":%zu,\"datatype\":\"%s\",\"peer\":%d,\"channels\":%d}\n",
       now(), id, number(d.parent), orNone(d.p2p.function), d.p2p.count, orNone(d.p2p.dataType), d.p2p.peer,
       d.p2p.channels);
}

void writeCall(uint64_t id, const DescriptorV7& d, const char* type) {
  // Function, count and type lie at the same places in both descriptors.
  line("{\"ts\":%" PRIu64 ",\"call\":\"start\",\"type\":\"%s\",\"id\":%" PRIu64 ",\"parent\":%" PRIu64
       ",\"func\":\"%s\",\"count\":%zu,\"datatype\":\"%s\"}\n",
       now(), type, id, number(d.parent), orNone(d.collApi.function), d.collApi.count,
       orNone(d.collApi.dataType));
}

int start(void*, void** handle, DescriptorV7* d) {
  const uint64_t id = gEvents.fetch_add(1, std::memory_order_relaxed) + 1;
  *handle = reinterpret_cast<void*>(id);
  switch (d->type) {
    case bit(Type::kColl):
      writeColl(id, *d);
      break;
    case bit(Type::kP2p):
      writeP2p(id, *d);
      break;
    case bit(Type::kCollApi):
      writeCall(id, *d, "CollApi");
      break;
    case bit(Type::kP2pApi):
      writeCall(id, *d, "P2pApi");
      break;
    case bit(Type::kKernelCh):
      line("{\"ts\":%" PRIu64 ",\"call\":\"start\",\"type\":\"KernelCh\",\"id\":%" PRIu64
           ",\"parent\":%" PRIu64 ",\"channel\":%d,\"gpu\":%" PRIu64 "}\n",
           now(), id, number(d->parent), d->kernelCh.channel, d->kernelCh.gpuNs);
      break;
    default:
      line("{\"ts\":%" PRIu64 ",\"call\":\"start\",\"type\":%" PRIu64 ",\"id\":%" PRIu64
           ",\"parent\":%" PRIu64 "}\n",
           now(), d->type, id, number(d->parent));
  }
  return kSuccess;
}

int stop(void* handle) {
  line("{\"ts\":%" PRIu64 ",\"call\":\"stop\",\"id\":%" PRIu64 "}\n", now(), number(handle));
  return kSuccess;
}

int state(void* handle, int state, ArgumentsV4*) {
  line("{\"ts\":%" PRIu64 ",\"call\":\"state\",\"id\":%" PRIu64 ",\"state\":%d}\n", now(), number(handle),
       state);
  return kSuccess;
}

int finalize(void*) {
  line("{\"ts\":%" PRIu64 ",\"call\":\"finalize\"}\n", now());
  const std::lock_guard lock(gMutex);
  if (gFile != nullptr) fflush(gFile);
  return kSuccess;
}

}  // namespace
}  // namespace stretto::profiler

using namespace stretto::profiler;
STRETTO_PROFILER_EXPORT TableV5 ncclProfiler_v5 = {"StrettoJsonl", init<5>, start, stop, state, finalize};
STRETTO_PROFILER_EXPORT TableV5 ncclProfiler_v6 = {"StrettoJsonl", init<6>, start, stop, state, finalize};
STRETTO_PROFILER_EXPORT TableV5 ncclProfiler_v7 = {"StrettoJsonl", init<7>, start, stop, state, finalize};
