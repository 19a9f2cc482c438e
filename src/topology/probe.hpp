// Where the facts come from. facts() is what the rest of Stretto calls; the probe takes its roots as
// arguments so that a test can hand it a made-up machine.
#pragma once

#include <string>

#include "topology/facts.hpp"

namespace stretto::topology {

struct Sources {
  std::string sys = "/sys";
  std::string proc = "/proc";
  std::string hostname;
  Cores usable;

  // This process on this host.
  static Sources ofThisProcess();
};

// Never fails: what cannot be read stays empty, and without NUMA files all usable cores are node 0.
Facts probe(const Sources& sources = Sources::ofThisProcess());

// The facts of this process, found once: from STRETTO_TOPO_FILE if that is set, else by probe(); written to
// STRETTO_TOPO_DUMP if that is set. A file that cannot be read or written is an error, each time it is asked
// for. Any thread; the result lives as long as the process.
Result<const Facts*> facts();

// What facts() does, without the memory: for tests, and for tools that change the environment.
Result<Facts> loadFacts();

}  // namespace stretto::topology
