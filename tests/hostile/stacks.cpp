// Where the ranks of a round hang, and what a process keeps: read from outside.
#include <dirent.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "conductor.hpp"
#include "stretto.h"

namespace hostile {
namespace {

// Memory of emulated GPUs is files: what memory.hpp keeps of it for later rounds, like memory of a real GPU,
// is not counted.
constexpr const char* kEmulated = "memfd:emulated";

constexpr long kMegabyte = 1024;  // in KiB

long entriesIn(const std::string& folder) {
  long count = 0;
  if (DIR* const all = opendir(folder.c_str()); all != nullptr) {
    while (const dirent* const entry = readdir(all)) {
      std::error_code error;
      const auto target = std::filesystem::read_symlink(folder + "/" + entry->d_name, error);
      count += target.string().find(kEmulated) == std::string::npos;
    }
    closedir(all);
  }
  return count - 2;
}

// KiB of the mapping that a line of /proc/PID/maps is about, if that is shared memory: its whole size,
// whether or not it has been touched.
long sharedKilobytesOf(const std::string& line) {
  unsigned long begin = 0, end = 0;
  char access[5] = {};
  if (sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) != 3 || access[3] != 's') return 0;
  const bool isDevice = line.find(kEmulated) != line.npos || line.find("/dev/nvidia") != line.npos;
  return isDevice ? 0 : static_cast<long>((end - begin) / 1024);
}

// What the descriptors of a process are, each kind once with its number.
std::string kindsOfDescriptors(pid_t process) {
  std::map<std::string, int> kinds;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", error)) {
    std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    std::erase_if(target, [](char letter) { return letter >= '0' && letter <= '9'; });
    ++kinds[target];
  }
  std::string text;
  for (const auto& [kind, count] : kinds) text += " " + kind + " x " + std::to_string(count);
  return text;
}

// By gdb, which is given half a minute.
bool traced(pid_t process, const char* file) {
  const pid_t debugger = fork();
  if (debugger == 0) {
    alarm(30);
    if (freopen(file, "a", stdout) == nullptr || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(1);
    const std::string id = std::to_string(process);
    execlp("gdb", "gdb", "-nx", "-batch", "-p", id.c_str(), "-ex", "thread apply all bt 14", nullptr);
    _exit(127);
  }
  int status = 0;
  return debugger > 0 && waitpid(debugger, &status, 0) == debugger && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

void writeWaits(pid_t process, const char* file) {
  std::ofstream out(file, std::ios::app);
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::string wait;
    std::getline(std::ifstream(task.path() / "wchan"), wait);
    out << "process " << process << " thread " << task.path().filename() << " waits in " << wait << "\n";
  }
}

// What the flight recorders of those processes say, as strettoDoctor has it: which rank is in which
// operation.
bool writeDiagnosis(const std::string& processes, const std::string& file) {
  constexpr int kTries = 4;  // what goes on may need more room the next time
  std::string json;
  size_t needed = 1 << 16;
  for (int i = 0; i < kTries && !processes.empty(); ++i) {
    json.resize(2 * needed);
    if (strettoDoctor(processes.c_str(), json.data(), json.size(), &needed) != ncclSuccess) return false;
    if (needed > json.size()) continue;
    std::ofstream(file) << json.c_str() << "\n";
    return true;
  }
  return false;
}

}  // namespace

void Conductor::showStacks() {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("hostile-" + std::to_string(plan_.seed))).string();
  const std::string stacks = file + ".stacks", diagnosis = file + ".doctor.json";
  std::string all;
  for (const Process& process : processes_) {
    if (!process.lives || process.killed || process.number < 0) continue;
    all += (all.empty() ? "" : ",") + std::to_string(process.id);
    if (!traced(process.id, stacks.c_str())) writeWaits(process.id, stacks.c_str());
  }
  const bool isDiagnosed = writeDiagnosis(all, diagnosis);
  printf("\nstacks: %s\nflight recorders: %s\n", stacks.c_str(),
         isDiagnosed ? diagnosis.c_str() : "none could be read");
  fflush(stdout);
}

int64_t nanosecondsQueued(pid_t process) {
  int64_t all = 0;
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    int64_t ran = 0, queued = 0;
    if (std::ifstream(task.path() / "schedstat") >> ran >> queued) all += queued;
  }
  return all;
}

void Beats::begin() {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return;
  for (int core = 0; core < CPU_SETSIZE && cores < kMostCores; ++core) {
    if (!CPU_ISSET(core, &mine)) continue;
    std::atomic<int64_t>& beat = last[cores];
    beat = now();
    ++cores;
    std::thread([&beat, core] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      (void)sched_setaffinity(0, sizeof one, &one);
      for (;; sleepMicroseconds(1000)) beat = now();
    }).detach();
  }
  std::thread([this] {
    for (;; sleepMicroseconds(50000)) {
      const int64_t began = now();
      fenceBegan = began;
      const bool passed = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0;
      const int64_t took = now() - began;
      if (passed) longFences += std::max<int64_t>(took - kSecond, 0);
      fenceBegan = 0;
      if (!passed) return;  // refused to all: no process waits for one either
      longestFence = std::max<int64_t>(longestFence, took);
    }
  }).detach();
}

int64_t Beats::stalled(int64_t time) const {
  const int64_t began = fenceBegan;
  return longFences + (began == 0 ? 0 : std::max<int64_t>(time - began - kSecond, 0));
}

int64_t RoundClock::begin(const Beats& beats) {
  began_ = now();
  stalledBefore_ = beats.stalled(began_);
  return began_;
}

int64_t Beats::lateness(int64_t time) const {
  int64_t most = 0;
  for (int i = 0; i < cores; ++i) most = std::max(most, time - last[i]);
  return most;
}

long heapInUse(bool trims) {
  if (trims) malloc_trim(0);
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<long>((heap.uordblks + heap.hblkhd) / 1024);
}

void LeakWatch::begin(pid_t process, const std::atomic<long>& heap, bool byResident) {
  *this = LeakWatch{};
  process_ = process;
  heap_ = &heap;
  byResident_ = byResident;
}

LeakWatch::Counts LeakWatch::measure() const {
  const std::string folder = "/proc/" + std::to_string(process_);
  Counts counts{};
  counts.descriptors = entriesIn(folder + "/fd");
  counts.threads = entriesIn(folder + "/task");
  std::ifstream maps(folder + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const long kilobytes = sharedKilobytesOf(line);
    counts.mappings += kilobytes > 0;
    counts.shared += kilobytes;
  }
  long pages = 0, resident = 0, shared = 0;
  std::ifstream(folder + "/statm") >> pages >> resident >> shared;
  counts.heap = *heap_;
  counts.resident = (resident - shared) * (sysconf(_SC_PAGESIZE) / 1024);
  return counts;
}

// The least of many rounds is compared with the least of the first ones: what ends a little later than its
// round is no leak. On a GPU CUDA makes what it needs at first use: heap is compared with what was after more
// rounds there.
std::string LeakWatch::look(uint64_t seed) {
  constexpr long kWindow = 25, kWarmOnDevice = 150;
  const Counts counts = measure();
  const bool fresh = rounds_ % kWindow == 0;
  for (long Counts::*const one : kCounts) {
    recent_.*one = fresh ? counts.*one : std::min(recent_.*one, counts.*one);
  }
  const bool keeps = counts.descriptors > first_.descriptors || counts.mappings > first_.mappings;
  if (rounds_ >= kWindow && since_ == 0 && keeps) since_ = seed;
  if (!keeps) since_ = 0;
  if (++rounds_ % kWindow != 0) return "";
  if (rounds_ == kWindow) first_ = recent_;
  if (!byResident_ && rounds_ <= kWarmOnDevice) {
    first_.heap = recent_.heap;
    first_.resident = recent_.resident;
  }
  // Something may still be on its way out.
  Counts rest = recent_;
  for (int64_t until = now() + 3 * kSecond; !told_ && isMore(rest) && now() < until; rest = measure()) {
    sleepMicroseconds(20000);
  }
  for (long Counts::*const one : kCounts) {
    recent_.*one = std::min(recent_.*one, rest.*one);
    grown_.*one = std::max(grown_.*one, recent_.*one - first_.*one);
  }
  if (told_ || !isMore(rest)) return "";
  told_ = true;
  return text();
}

bool LeakWatch::isMore(const Counts& now) const {
  // The bootstrap's thread with its three descriptors stays while a session waits for ranks that will not
  // come, which is until STRETTO_INIT_TIMEOUT.
  return now.descriptors > first_.descriptors + 3 || now.threads > first_.threads + 2 ||
         now.mappings > first_.mappings + 2 || now.shared > first_.shared + kMegabyte ||
         now.heap > first_.heap + kMegabyte || (byResident_ && now.resident > first_.resident + kMegabyte);
}

std::string LeakWatch::text() const {
  const auto counted = [](const Counts& of) {
    char text[160];
    snprintf(text, sizeof text,
             "%ld descriptors, %ld threads, %ld shared mappings of %ld KiB, a heap of %ld KiB, "
             "%ld KiB of its own",
             of.descriptors, of.threads, of.mappings, of.shared, of.heap, of.resident);
    return std::string(text);
  };
  const std::string text = "a process that has run " + std::to_string(rounds_) + " rounds had " +
                           counted(first_) + " at first; now " + counted(recent_) +
                           "; the first descriptor or mapping of them since round " + std::to_string(since_);
  return text + (told_ ? ":" + kindsOfDescriptors(process_) : "");
}

}  // namespace hostile
