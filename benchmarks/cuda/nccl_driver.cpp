// The driver of every library with nccl.h's ABI: Stretto's, NVIDIA's, anybody's. The library is loaded from
// the absolute path of --library, so that a comparison differs in nothing but that path. Ranks are threads of
// this process, processes that it forks, or, under `stretto bench`, processes that were started one by one.
#include <sys/wait.h>

#include <memory>

#include "../driver.hpp"
#include "one_shot.hpp"
#include "session.hpp"

namespace stretto::bench {
namespace {

constexpr int kExitWrong = 1;
constexpr int kExitUsage = 2;

// Before the library is loaded and before CUDA starts: both read it once.
void setEnvironment(const Setup& setup) {
  for (const auto& [name, value] : setup.environment) setenv(name.c_str(), value.c_str(), 1);
  if (setup.blocks > 0) setenv("STRETTO_BLOCKS", std::to_string(setup.blocks).c_str(), 1);
  if (!setup.sharedDevice) return;
  setenv("STRETTO_SHARED_DEVICE", "2", 1);  // a kernel of each rank at a time
  // Loading a kernel at its first launch may wait for the whole GPU, and so for a rank that waits for this
  // one.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

// To the library alone: what it says to ranks of other hosts goes over loopback or a network of this one.
void pretendHost(const Setup& setup, int rank) {
  if (setup.hosts == 0) return;
  setenv("NCCL_HOSTID", ("host-" + std::to_string(rank % setup.hosts)).c_str(), 1);
}

// One process's part: the library and who watches over it, shared by its ranks and never taken down.
struct Process {
  explicit Process(const Setup& setup) : library(loadLibrary(setup.library)), watchdog(library) {
    if (setup.blocks > 0 && !knowsParameter("STRETTO_BLOCKS")) {
      throw Failure("this library has no STRETTO_BLOCKS, so the number of blocks cannot be forced");
    }
  }
  bool knowsParameter(const std::string& name) const {
    std::string text(1 << 18, ' ');
    size_t needed = 0;
    return library.parameters != nullptr &&
           library.parameters(text.data(), text.size(), &needed) == ncclSuccess &&
           text.find('"' + name + '"') != std::string::npos;
  }
  const Library library;
  Watchdog watchdog;
};

Process& processOf(const Setup& setup) {
  static Process* process = new Process(setup);  // outlives the watchdog's thread
  return *process;
}

int runRank(const Setup& setup, CrewMemory* crew, int rank) {
  Process& process = processOf(setup);
  try {
    GpuRank gpu(setup, process.library, process.watchdog, crew, rank);
    return sweep(gpu, setup) == 0 ? 0 : kExitWrong;
  } catch (const std::exception& failure) {
    Crew(crew, rank, setup.ranks, 0).giveUp(failure.what());
    process.watchdog.endAll("rank " + std::to_string(rank) + ": " + failure.what());
  }
}

template <class Function>
int runAsThreads(const Setup& setup, Function function) {
  std::vector<std::thread> threads;
  std::atomic<int> status{0};
  for (int rank = 0; rank < setup.ranks; ++rank) {
    threads.emplace_back([&status, function, rank] {
      if (const int own = function(rank); own != 0) status = own;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

int runThreads(const Setup& setup) {
  CrewMemory* crew = crewOfOneParent();
  processOf(setup);
  return runAsThreads(setup, [&setup, crew](int rank) { return runRank(setup, crew, rank); });
}

// CUDA must not be started before the fork; so nothing of the library is touched here.
int runProcesses(const Setup& setup) {
  CrewMemory* crew = crewOfOneParent();
  std::vector<pid_t> children;
  for (int rank = 0; rank < setup.ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw Failure("cannot fork");
    if (child == 0) {
      dieWithParent();
      pretendHost(setup, rank);
      int status = kExitHung;
      try {
        status = runRank(setup, crew, rank);
      } catch (const std::exception& failure) {
        fprintf(stderr, "nccl_driver: rank %d: %s\n", rank, failure.what());
        Crew(crew, rank, setup.ranks, 0).giveUp(failure.what());
      }
      fflush(nullptr);
      _exit(status);
    }
    children.push_back(child);
  }
  int worst = 0;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    const int own = WIFEXITED(status) ? WEXITSTATUS(status) : kExitHung;
    if (WIFSIGNALED(status)) {
      const auto rank = std::find(children.begin(), children.end(), ended) - children.begin();
      Crew(crew, static_cast<int>(rank), setup.ranks, 0)
          .giveUp("was ended by signal " + std::to_string(WTERMSIG(status)));
    }
    worst = std::max(worst, own);
  }
  return worst;
}

// Under `stretto bench`: one rank, asleep unless it is asked something.
int serveRank(const Setup& setup, int rank) {
  pretendHost(setup, rank);
  Channel channel(setup.folder, rank);
  if (!channel.isOpen()) throw Failure("cannot open the FIFOs in " + setup.folder);
  Process& process = processOf(setup);
  GpuRank gpu(setup, process.library, process.watchdog, crewOfFolder(setup.folder), rank);
  GpuSession session(gpu, setup, process.library, process.watchdog);
  channel.write("{\"ok\":true,\"rank\":" + std::to_string(rank) + ",\"pid\":" + std::to_string(getpid()) +
                ",\"implementation\":" + quoted(setup.name) + ",\"version\":" + quoted(gpu.version()) +
                ",\"gpu\":" + quoted(gpu.deviceName()) + "}");
  return obey(channel, session) ? 0 : kExitWrong;
}

// The orchestrator ends the whole job when one of its ranks cannot go on.
int runSession(const Setup& setup) {
  dieWithParent();
  if (!setup.threads) return serveRank(setup, setup.rank);
  processOf(setup);
  return runAsThreads(setup, [&setup](int rank) {
    try {
      return serveRank(setup, rank);
    } catch (const std::exception& failure) {
      processOf(setup).watchdog.endAll("rank " + std::to_string(rank) + ": " + failure.what());
    }
  });
}

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  Setup setup;
  const std::string mistake = parseSetup(argc, argv, &setup);
  if (!mistake.empty()) {
    fprintf(stderr, "nccl_driver: %s\n", mistake.c_str());
    return kExitUsage;
  }
  setEnvironment(setup);
  setup.maxBytes =
      std::max(setup.maxBytes, setup.sweep.most + (setup.sweep.group - 1) * apart(setup.sweep.most));
  try {
    if (!setup.folder.empty()) return runSession(setup);
    return setup.processes ? runProcesses(setup) : runThreads(setup);
  } catch (const std::exception& failure) {
    fprintf(stderr, "nccl_driver: %s\n", failure.what());
    return kExitUsage;
  }
}
