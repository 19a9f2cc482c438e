// Where the ranks of a round hang, and what a process keeps: read from outside.
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "conductor.hpp"

namespace hostile {
namespace {

// Memory of emulated GPUs is files: what memory.hpp keeps of it for later rounds, like memory of a real GPU,
// is not counted.
constexpr const char* kEmulated = "memfd:emulated";

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

}  // namespace

void Conductor::showStacks() {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("hostile-" + std::to_string(plan_.seed) + ".stacks"))
          .string();
  for (const Process& process : processes_) {
    if (!process.lives || process.killed || process.number < 0) continue;
    if (!traced(process.id, file.c_str())) writeWaits(process.id, file.c_str());
  }
  printf("\nstacks: %s\n", file.c_str());
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

void LeakWatch::begin(pid_t process) {
  *this = LeakWatch{};
  process_ = process;
}

LeakWatch::Counts LeakWatch::measure() const {
  const std::string folder = "/proc/" + std::to_string(process_);
  Counts counts{};
  counts.descriptors = entriesIn(folder + "/fd");
  counts.threads = entriesIn(folder + "/task");
  std::ifstream maps(folder + "/maps");
  for (std::string line; std::getline(maps, line);) {
    counts.mappings += line.find("memfd:") != line.npos && line.find(kEmulated) == line.npos;
  }
  long pages = 0, resident = 0, shared = 0;
  std::ifstream(folder + "/statm") >> pages >> resident >> shared;
  counts.kilobytes = (resident - shared) * (sysconf(_SC_PAGESIZE) / 1024);
  return counts;
}

// The least of many rounds is compared with the least of many before: what ends a little later than its round
// is no leak. The library keeps handles of the last thousand communicators, so memory counts from then on.
std::string LeakWatch::look(uint64_t seed) {
  constexpr long kWindow = 25, kWarm = 500;
  const Counts counts = measure();
  const bool fresh = rounds_ % kWindow == 0;
  const auto lower = [&](long& least, long value) { least = fresh ? value : std::min(least, value); };
  lower(recent_.descriptors, counts.descriptors);
  lower(recent_.threads, counts.threads);
  lower(recent_.mappings, counts.mappings);
  lower(recent_.kilobytes, counts.kilobytes);
  const bool keeps = counts.descriptors > first_.descriptors || counts.mappings > first_.mappings;
  if (rounds_ >= kWindow && since_ == 0 && keeps) since_ = seed;
  if (!keeps) since_ = 0;
  if (++rounds_ % kWindow != 0) return "";
  if (rounds_ == kWindow) first_ = recent_;
  if (rounds_ == kWarm) base_ = recent_;
  const auto more = [&](const Counts& now) {
    // The bootstrap's thread with its three descriptors stays while a session waits for ranks that will not
    // come, which is until STRETTO_INIT_TIMEOUT.
    return now.descriptors > first_.descriptors + 3 || now.threads > first_.threads + 2 ||
           now.mappings > first_.mappings + 2;
  };
  // Something may still be on its way out.
  Counts rest = recent_;
  for (int64_t until = now() + 3 * kSecond; !told_ && more(rest) && now() < until; rest = measure()) {
    sleepMicroseconds(20000);
  }
  // A megabyte, and what a slope of a kilobyte a round comes to.
  const bool grows = rounds_ > kWarm && recent_.kilobytes > base_.kilobytes + 1024 + (rounds_ - kWarm) / 8;
  if (told_ || (!more(rest) && !grows)) return "";
  if (more(rest)) recent_ = rest;
  told_ = true;
  return text();
}

std::string LeakWatch::text() const {
  char text[300];
  snprintf(text, sizeof text,
           "a process that has run %ld rounds had %ld descriptors, %ld threads, %ld shared mappings after "
           "the first, "
           "%ld KiB after 500; now %ld, %ld, %ld, %ld KiB; the first descriptor of them since round %llu",
           rounds_, first_.descriptors, first_.threads, first_.mappings, base_.kilobytes, recent_.descriptors,
           recent_.threads, recent_.mappings, recent_.kilobytes, static_cast<unsigned long long>(since_));
  return text + (told_ ? ":" + kindsOfDescriptors(process_) : "");
}

}  // namespace hostile
