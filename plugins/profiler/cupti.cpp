#include "profiler/cupti.hpp"

#include <dlfcn.h>

#include <atomic>
#include <initializer_list>

#include "profiler/notice.hpp"
#include "profiler/thread_stack.hpp"

namespace stretto::profiler::cupti {
namespace {

// CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2; frameworks use the first two.
constexpr int kKind = 5;
using Push = int (*)(int kind, uint64_t id);
using Pop = int (*)(int kind, uint64_t* last);

Push gPush = nullptr;
Pop gPop = nullptr;
std::atomic<bool> gRefused{false};
thread_local ThreadStack<16> tPushed;

// Only the copy that somebody records with is of use; a new one is loaded when there is none yet.
void* findLibrary() {
  constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  for (const int mode : {RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL}) {
    for (const char* name : kNames) {
      if (void* library = dlopen(name, mode)) return library;
    }
  }
  return nullptr;
}

}  // namespace

bool prepare(Logger logger) {
  void* library = findLibrary();
  if (library != nullptr) {
    gPush = reinterpret_cast<Push>(dlsym(library, "cuptiActivityPushExternalCorrelationId"));
    gPop = reinterpret_cast<Pop>(dlsym(library, "cuptiActivityPopExternalCorrelationId"));
  }
  if (gPush != nullptr && gPop != nullptr) return true;
  notice(logger, LogLevel::kWarn, "no CUPTI correlation ids: %s",
         library == nullptr ? "there is no libcupti" : "libcupti lacks the functions");
  return false;
}

void push(uint64_t id) {
  if (gRefused.load(std::memory_order_relaxed) || tPushed.isFull()) return;
  const int result = gPush(kKind, id);
  if (result == 0) {
    tPushed.push(id);
    return;
  }
  if (!gRefused.exchange(true)) {
    notice(nullptr, LogLevel::kWarn, "no CUPTI correlation ids: CUPTI answers %d", result);
  }
}

void pop(uint64_t id) {
  uint64_t last = 0;
  for (int left = tPushed.popTo(id); left > 0; --left) gPop(kKind, &last);
}

}  // namespace stretto::profiler::cupti
