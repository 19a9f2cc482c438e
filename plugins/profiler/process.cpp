#include "profiler/process.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>

#include "profiler/chain.hpp"
#include "profiler/extras.hpp"
#include "profiler/notice.hpp"

namespace stretto::profiler {
namespace {

// All of this lives until the process is gone: threads may record while it ends.
std::atomic<Recorder*> gRecorder{nullptr};
std::atomic<uint32_t> gForkedFrom{
    0};  // in a child of a process that recorded: its pid, until the child records
alignas(std::mutex) char gMutexStorage[sizeof(std::mutex)];
pthread_key_t gThreadEnd;

std::mutex& mutex() {
  return *std::launder(reinterpret_cast<std::mutex*>(gMutexStorage));
}

void onThreadEnd(void* writer) {
  ThreadWriter::setOfThisThread(nullptr);
  auto* mine = static_cast<ThreadWriter*>(writer);
  mine->recorder().detach(mine);
}

// Only the thread that forked lives on in the child. The parent's file, threads and locks are the parent's:
// they are left where they are, and the child starts anew at its first event.
void onFork() {
  ThreadWriter::setOfThisThread(nullptr);
  new (gMutexStorage) std::mutex;
  pthread_setspecific(gThreadEnd, nullptr);
  if (gRecorder.exchange(nullptr) != nullptr) gForkedFrom.store(static_cast<uint32_t>(getppid()));
}

[[gnu::constructor]] void prepareProcess() {
  new (gMutexStorage) std::mutex;
  pthread_key_create(&gThreadEnd, onThreadEnd);
  pthread_atfork(nullptr, nullptr, onFork);
}

[[gnu::destructor]] void endProcess() {
  if (Recorder* recorder = gRecorder.load()) recorder->shutDown();
}

// Holds the mutex. `logger` hears once why there is no recording.
Recorder* make(Logger logger) {
  static std::atomic<bool> said{false};
  Settings settings = readSettings(logger);
  if (settings.directory.empty() && settings.chain.empty()) {
    if (!said.exchange(true)) {
      notice(logger, LogLevel::kInfo, "records nothing: %s is not set", variables::kDirectory.name());
    }
    return nullptr;
  }
  auto recorder = std::make_unique<Recorder>(std::move(settings));
  const Status status = recorder->start(gForkedFrom.exchange(0));
  recorder->setExtras(extras::prepare(recorder->settings(), logger));
  if (!status.ok() && !said.exchange(true)) {
    notice(logger, LogLevel::kWarn, "records nothing: %s", lastError().c_str());
  }
  // Without a file it is still good for passing calls on.
  if (!recorder->isRecording() && (recorder->extras() & kChain) == 0) return nullptr;
  if (recorder->isRecording()) notice(logger, LogLevel::kInfo, "records into %s", recorder->path().c_str());
  gRecorder.store(recorder.get(), std::memory_order_release);
  return recorder.release();
}

Recorder* get(Logger logger) {
  if (Recorder* recorder = gRecorder.load(std::memory_order_acquire)) return recorder;
  std::lock_guard lock(mutex());
  if (Recorder* recorder = gRecorder.load(std::memory_order_acquire)) return recorder;
  return make(logger);
}

Recorder::Host hostOf(const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return {};
  void* library = dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return {};
  auto* ask = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (ask == nullptr || ask(&version) != kSuccess) version = 0;
  auto* ours = reinterpret_cast<const char* (*)()>(dlsym(library, "strettoVersion"));
  const std::string stretto = ours == nullptr ? "" : ours();
  dlclose(library);
  return {static_cast<uint32_t>(version), stretto};
}

// Once: NCCL tells of every operation, and not before its Coll event which number one has.
void sayWhatCannotBe(const Recorder::Host& host, Logger logger) {
  static std::atomic<bool> said{false};
  const Parameter& every = parameters::kProfileEvery;
  if (!host.stretto.empty() || !every.isSet() || every.text() == every.fallback() || said.exchange(true))
    return;
  notice(logger, LogLevel::kWarn,
         "%s=%s leaves nothing out here: only Stretto can, and this communicator is another library's, which "
         "tells of every operation",
         every.name(), every.text().c_str());
}

}  // namespace

ThreadWriter* ThreadWriter::attachThisThread() {
  Recorder* recorder = gRecorder.load(std::memory_order_acquire);
  if (recorder == nullptr && gForkedFrom.load(std::memory_order_relaxed) != 0) recorder = get(nullptr);
  if (recorder == nullptr) return nullptr;
  ThreadWriter* writer = recorder->attach();
  pthread_setspecific(gThreadEnd, writer);
  tOfThisThread = writer;
  return writer;
}

// The mask is one word for all communicators of the process, which others look at meanwhile: it is written
// once, and last.
void initContext(void** context, int* mask, const ContextFacts& facts, Logger logger, const void* caller) {
  Recorder* recorder = get(logger);
  void* handle = nullptr;
  uint32_t types = 0;
  uint32_t chained = 0;
  if (recorder != nullptr) {
    const Recorder::Host host = hostOf(caller);
    sayWhatCannotBe(host, logger);
    handle = recorder->open(facts, host);
    if (recorder->isRecording()) types = recorder->settings().mask & typesOf(facts.abi);
    if ((recorder->extras() & kChain) != 0) chained = chain().open(handle, facts, logger);
  }
  if (context != nullptr) *context = handle;
  if (mask == nullptr) return;
  if (recorder != nullptr) {
    recorder->setMask(mask, types, chained);
  } else {
    std::atomic_ref(*mask).store(0, std::memory_order_relaxed);
  }
}

void sampleContext(void* context, uint64_t every) {
  if (Recorder* recorder = gRecorder.load(std::memory_order_acquire)) recorder->sample(context, every);
}

void finalizeContext(void* context) {
  Recorder* recorder = gRecorder.load(std::memory_order_acquire);
  if (recorder != nullptr && recorder->close(context) && (recorder->extras() & kChain) != 0)
    chain().close(context);
}

}  // namespace stretto::profiler
