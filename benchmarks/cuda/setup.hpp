// nccl_driver's command line. With --folder it is started by `stretto bench` and obeys its commands
// (../driver.hpp); without, it measures what the line names and prints one JSON line for each result.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../request.hpp"
#include "seat.hpp"

namespace stretto::bench {

// How long a measurement takes and what it holds; one-shot mode alone.
struct Sweep {
  std::vector<std::string> collectives = {"all_reduce"};
  std::vector<std::string> types = {"bfloat16"};
  std::string op = "sum";
  size_t least = 1024;
  size_t most = 1024;
  size_t factor = 2;
  bool inPlace = false;
  size_t group = 1;  // operations of each call, in one group, each with buffers of its own
  bool graph = true;
  bool eager = false;
  double budgetMilliseconds = 100;  // of timed replays at each size
};

// What the planner of the library is told to take; Stretto alone understands it.
struct Forced {
  std::string algorithm;
  std::string protocol;
  size_t chunkBytes = 0;
  int blocks = 0;
};
// ALGORITHM[:PROTOCOL[:CHUNK[:BLOCKS]]]; an empty part is the planner's.
bool parseForced(const std::string& text, Forced* forced);
std::vector<std::string> split(const std::string& text, char separator);

struct Setup {
  std::string library;
  std::string name = "nccl";
  std::string folder;  // empty: one-shot
  int rank = 0;        // of the process that is one rank: with a folder
  int ranks = 2;
  bool threads = false;       // with a folder: this process is all ranks, as threads
  bool processes = false;     // one-shot: ranks are forked processes, not threads
  bool sharedDevice = false;  // all ranks on GPU 0
  int hosts = 0;  // that processes say they are on, in turns (NCCL_HOSTID); 0: the one they are on
  bool window = false;
  double timeout = 60;
  size_t maxBytes = 0;
  int blocks = 0;  // of everything, by STRETTO_BLOCKS
  std::vector<std::pair<std::string, std::string>> environment;
  Forced forced;
  Sweep sweep;
  Seats seats;
};

// Returns what is wrong with the command line, or nothing.
std::string parseSetup(int argc, char** argv, Setup* setup);

}  // namespace stretto::bench
