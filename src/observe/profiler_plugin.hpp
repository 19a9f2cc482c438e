// The process's profiler plugin: found by NCCL's rules, shared by all communicators, unloaded after the last.
// For profiler_host.cpp alone; what others ask is there.
#pragma once

#include "observe/profiler_abi.hpp"

namespace stretto::observe::profiler {

struct PluginTables {
  const TableV5* table = nullptr;         // null: there is no plugin
  const StampedTable* stamped = nullptr;  // only with version 7
};

// Counted. The first use of the process looks for the plugin that NCCL_PROFILER_PLUGIN names: as it stands,
// then as libnccl-profiler-<name>.so if it is neither a path nor a library's file name; libnccl-profiler.so
// if it is unset; in the program itself for STATIC_PLUGIN; nowhere for none. The newest of the versions 7, 6
// and 5 that it exports is used. When that fails it is said in the log, once, as a warning if the variable
// names a plugin, and not tried again: no table from there on. To be called, as the plugin's init and
// finalize are, with pluginLock() held.
PluginTables acquirePlugin();
// One less. After the last the plugin is closed and its tables are dead; a later use loads it again.
void releasePlugin();

// Held around loading, init and finalize, so that plugins see these one at a time.
class PluginLock {
 public:
  PluginLock();
  ~PluginLock();
  PluginLock(const PluginLock&) = delete;
  PluginLock& operator=(const PluginLock&) = delete;
};

}  // namespace stretto::observe::profiler
