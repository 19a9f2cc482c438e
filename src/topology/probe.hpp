// Where the facts come from. facts() is what the rest of Stretto calls; the probe takes its roots as
// arguments so that a test can hand it a made-up machine.
#pragma once

#include <string>

#include "topology/facts.hpp"

namespace stretto::topology {

struct ProbeSources {
  std::string sys = "/sys";
  std::string proc = "/proc";
  std::string hostname;
  Cores usable;

  // This process on this host.
  static ProbeSources ofThisProcess();
};

// Never fails: what cannot be read stays empty, and without NUMA files all usable cores are node 0. GPUs are
// left out: they are slow to ask for.
Facts probe(const ProbeSources& sources = ProbeSources::ofThisProcess());

// What the driver says of GPUs, and the kernel of where they are.
std::vector<Device> probeDevices(const ProbeSources& sources = ProbeSources::ofThisProcess(),
                                 const char* nvml = "libnvidia-ml.so.1");

// The facts of this process, found once: from STRETTO_TOPO_FILE if that is set, else by probe(); written to
// STRETTO_TOPO_DUMP, GPUs included, if that is set. A file that cannot be read or written is an error, each
// time it is asked for. Any thread; the result lives as long as the process.
Result<const Facts*> facts();
// The same with GPUs, asked for at the first call.
Result<const Facts*> factsWithDevices();

// What facts() does, without the memory: for tests, and for tools that change the environment.
Result<Facts> loadFacts();

}  // namespace stretto::topology
