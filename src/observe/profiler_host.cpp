#include "observe/profiler_host.hpp"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/log.hpp"
#include "base/watch.hpp"
#include "observe/profiler_plugin.hpp"
#include "platform/fork.hpp"

namespace stretto::observe::profiler {

// The int behind the pointer that plugins are given; they may write it as long as they are loaded.
int internal::gMask = 0;

namespace {

int gSessions = 0;  // by PluginLock

// The function that plugins log with, filtered as our own lines are.
void logForPlugin(int level, unsigned long subsystems, const char*, int, const char* format, ...) {
  const auto kind = static_cast<log::Subsystem>(subsystems);
  const auto grave = static_cast<log::Level>(level);
  if (format == nullptr || level < 1 || !log::enabled(grave, kind)) return;
  char text[1200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  log::write(grave, kind, "profiler plugin: %s", text);
}

// After each change of gSessions. The mask is nobody's when no communicator is left.
void noteSessions() {
  watch::set(watch::kProfilerPlugin, gSessions > 0);
  if (gSessions == 0) std::atomic_ref(internal::gMask).store(0, std::memory_order_relaxed);
}

}  // namespace

Session::Session(const PluginTables& tables, void* context, int rank)
    : table_(tables.table),
      stamped_(tables.stamped),
      context_(context),
      rank_(rank),
      forkGeneration_(platform::forkGeneration()) {
  std::memset(&blank_, 0, sizeof blank_);  // padding and all of the union too: plugins copy it
  blank_.rank = rank;
}

std::shared_ptr<Session> Session::open(const SessionIdentity& identity) {
  const PluginLock lock;
  const PluginTables tables = acquirePlugin();
  if (tables.table == nullptr) return nullptr;
  void* context = nullptr;
  const char* const name = identity.name.empty() ? nullptr : identity.name.c_str();
  const int outcome = tables.table->init(&context, identity.communicator, &internal::gMask, name,
                                         identity.nodes, identity.ranks, identity.rank, logForPlugin);
  if (outcome != 0) {
    STRETTO_LOG(kInfo, kInit,
                "rank %d: the profiler plugin's init returned %d; this communicator is not profiled",
                identity.rank, outcome);
    noteSessions();
    releasePlugin();
    return nullptr;
  }
  if (identity.every > 1 && tables.stamped != nullptr) (void)tables.stamped->sample(context, identity.every);
  ++gSessions;
  noteSessions();
  STRETTO_LOG(kInfo, kInit, "rank %d: the profiler plugin wants events %#x, of 1 in %" PRIu64 " operations",
              identity.rank, mask(), identity.every);
  return std::shared_ptr<Session>(new Session(tables, context, identity.rank));
}

// In a forked child the plugin's threads and files are the parent's: it is left alone.
Session::~Session() {
  if (forkGeneration_ != platform::forkGeneration()) return;
  const PluginLock lock;
  if (context_ != nullptr) table_->finalize(context_);
  --gSessions;
  noteSessions();
  releasePlugin();
}

}  // namespace stretto::observe::profiler
