// A made-up host: a folder that looks like the kernel's files, removed when the test is over.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "harness/temporary_folder.hpp"
#include "topology/probe.hpp"

namespace stretto::testing {

class MadeUpHost {
 public:
  void file(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = folder_ / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  void node(int id, const std::string& cores, long kilobytes) const {
    const std::string folder = "sys/devices/system/node/node" + std::to_string(id) + "/";
    const std::string prefix = "Node " + std::to_string(id) + " ";
    file(folder + "cpulist", cores);
    file(folder + "meminfo",
         prefix + "MemTotal:       " + std::to_string(kilobytes) + " kB\n" + prefix + "MemFree:        1 kB");
  }
  struct CacheFile {
    int index;
    const char* level;
    const char* type;
    const char* size;
    std::string cores;
  };
  void cache(int core, const CacheFile& c) const {
    const std::string folder =
        "sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index" + std::to_string(c.index) + "/";
    file(folder + "level", c.level);
    file(folder + "type", c.type);
    file(folder + "size", c.size);
    file(folder + "shared_cpu_list", c.cores);
  }
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  topology::ProbeSources sources(topology::Cores usable) const {
    return {(folder_ / "sys").string(), (folder_ / "proc").string(), "made-up", std::move(usable)};
  }

 private:
  const TemporaryFolder own_{"host"};
  const std::filesystem::path folder_ = own_.path();
};

}  // namespace stretto::testing
