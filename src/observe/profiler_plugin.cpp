#include "observe/profiler_plugin.hpp"

#include <mutex>
#include <string>

#include "base/log.hpp"
#include "base/names.hpp"
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

// `why` grows by the reason if it cannot be opened.
DynamicLibrary tryOpen(const std::string& file, std::string& why) {
  std::string words;
  DynamicLibrary library = DynamicLibrary::open(file, &words);
  if (library.isOpen()) return library;
  if (!why.empty()) why += "; ";
  why += "no profiler plugin in " + file + ": " + words;
  return library;
}

DynamicLibrary find(const std::string& name, std::string& why) {
  if (name.empty()) return tryOpen(std::string(kPrefix) + ".so", why);
  if (equalsIgnoringCase(name, "STATIC_PLUGIN")) return DynamicLibrary::program(nullptr);
  DynamicLibrary library = tryOpen(name, why);
  if (library.isOpen() || looksLikeFile(name)) return library;
  return tryOpen(std::string(kPrefix) + "-" + name + ".so", why);
}

// The newest table that we call; none, and `why`, if there is none.
PluginTables tablesOf(const DynamicLibrary& library, const std::string& name, std::string& why) {
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
    why = std::string("profiler plugin ") + shown + " is not used: " + symbol +
          " is its newest table, and only versions 5, 6 and 7 are called";
    return {};
  }
  why = std::string("profiler plugin ") + shown + " is not used: it exports no ncclProfiler_v7, _v6 or _v5";
  return {};
}

// Who named a plugin wants to hear that it does not run; who named none need not know of the default.
void sayWhyNot(const std::string& name, const std::string& why) {
  if (name.empty()) {
    STRETTO_LOG(kInfo, kInit, "%s", why.c_str());
    return;
  }
  STRETTO_LOG(
      kWarn, kInit,
      "NCCL_PROFILER_PLUGIN=%s: %s. Nothing is profiled. Name the plugin's file by its path, or put its "
      "folder on LD_LIBRARY_PATH; NCCL_PROFILER_PLUGIN=none asks for no plugin",
      name.c_str(), why.c_str());
}

bool load(Loaded& here) {
  const std::string name = parameters::kProfilerPlugin.text();
  if (equalsIgnoringCase(name, "none")) return false;
  std::string why;
  here.library = find(name, why);
  here.tables = here.library.isOpen() ? tablesOf(here.library, name, why) : PluginTables{};
  if (here.tables.table != nullptr) return true;
  here.library.close();
  sayWhyNot(name, why);
  return false;
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
