#include "observe/profiler_plugin.hpp"

#include <strings.h>

#include <mutex>
#include <string>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "platform/dynamic_library.hpp"
#include "platform/fork.hpp"

namespace stretto::observe::profiler {
namespace {

using platform::DynamicLibrary;

constexpr const char* kPrefix = "libnccl-profiler";

struct Loaded {
  std::mutex mutex;
  DynamicLibrary library;
  PluginTables tables;
  int users = 0;
  bool failed = false;
  uint32_t generation = platform::forkGeneration();
};
// Never destroyed: communicators may outlive static objects.
Loaded& loaded() {
  static auto* instance = new Loaded;
  return *instance;
}

// A forked child begins anew, with its own environment; what its parent had loaded is left alone.
void forgetParents(Loaded& here) {
  if (here.generation == platform::forkGeneration()) return;
  here.generation = platform::forkGeneration();
  if (here.library.isOpen()) new DynamicLibrary(std::move(here.library));  // never closed
  here.tables = {};
  here.users = 0;
  here.failed = false;
}

bool looksLikeFile(const std::string& name) {
  const bool isLibrary = name.starts_with("lib") && name.ends_with(".so");
  return isLibrary || name.find('/') != std::string::npos;
}

DynamicLibrary tryOpen(const std::string& file) {
  std::string why;
  DynamicLibrary library = DynamicLibrary::open(file, &why);
  if (!library.isOpen()) STRETTO_LOG(kInfo, kInit, "no profiler plugin in %s: %s", file.c_str(), why.c_str());
  return library;
}

DynamicLibrary find(const std::string& name) {
  if (name.empty()) return tryOpen(std::string(kPrefix) + ".so");
  if (strcasecmp(name.c_str(), "STATIC_PLUGIN") == 0) return DynamicLibrary::program(nullptr);
  DynamicLibrary library = tryOpen(name);
  if (library.isOpen() || looksLikeFile(name)) return library;
  return tryOpen(std::string(kPrefix) + "-" + name + ".so");
}

// The newest table that we call; none, with a word about it, if there is none.
PluginTables tablesOf(const DynamicLibrary& library, const std::string& name) {
  const char* const shown = name.empty() ? "libnccl-profiler.so" : name.c_str();
  const char* const newest = "ncclProfiler_v7";
  for (const char* symbol : {newest, "ncclProfiler_v6", "ncclProfiler_v5"}) {
    const auto* const table = static_cast<const TableV5*>(library.symbol(symbol));
    if (table == nullptr) continue;
    const void* const stamped = symbol == newest ? library.symbol(kStampedTable) : nullptr;
    STRETTO_LOG(kInfo, kInit, "profiler plugin %s (%s): called through %s", shown,
                table->name != nullptr ? table->name : "without a name", symbol);
    return {table, static_cast<const StampedTable*>(stamped)};
  }
  for (const char* symbol : {"ncclProfiler_v4", "ncclProfiler_v3", "ncclProfiler_v2", "ncclProfiler_v1"}) {
    if (library.symbol(symbol) == nullptr) continue;
    STRETTO_LOG(
        kInfo, kInit,
        "profiler plugin %s is not used: %s is its newest table, and only versions 5, 6 and 7 are called",
        shown, symbol);
    return {};
  }
  STRETTO_LOG(kInfo, kInit, "profiler plugin %s is not used: it exports no ncclProfiler_v7, _v6 or _v5",
              shown);
  return {};
}

bool load(Loaded& here) {
  const std::string name = parameters::kProfilerPlugin.text();
  if (strcasecmp(name.c_str(), "none") == 0) return false;
  here.library = find(name);
  here.tables = here.library.isOpen() ? tablesOf(here.library, name) : PluginTables{};
  if (here.tables.table == nullptr) here.library.close();
  return here.tables.table != nullptr;
}

}  // namespace

PluginTables acquirePlugin() {
  Loaded& here = loaded();
  forgetParents(here);
  if (here.failed) return {};
  if (here.users == 0 && !load(here)) {
    here.failed = true;
    return {};
  }
  ++here.users;
  return here.tables;
}

void releasePlugin() {
  Loaded& here = loaded();
  if (--here.users > 0) return;
  STRETTO_LOG(kInfo, kInit, "profiler plugin %s: closed after its last communicator",
              here.tables.table->name != nullptr ? here.tables.table->name : "without a name");
  here.tables = {};
  here.library.close();
}

PluginLock::PluginLock() {
  loaded().mutex.lock();
}
PluginLock::~PluginLock() {
  loaded().mutex.unlock();
}

}  // namespace stretto::observe::profiler
