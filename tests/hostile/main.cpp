// The hostile test: rounds of random operations and random faults, for as long as it is told. README.md says
// how to use it.
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "conductor.hpp"
#include "memory.hpp"

namespace hostile {
namespace {

constexpr const char* kUsage =
    "usage: hostile [--seconds S] [--faults N] [--seed SEED] [--jobs N] [--kinds kill,abort,...] [--ranks "
    "N]\n"
    "               [--layout threads|processes|mixed] [--device host|cuda] [--json FILE] [--verbose]\n"
    "               [--link auto|net: net has ranks of one host speak as those of several do]\n"
    "               [--slow N: ranks may take N times as long, say on an emulated GPU]\n"
    "       hostile --round SEED [--repeat N] [the same --kinds, --layout, --ranks, --link, --device as in "
    "the "
    "run]\n"
    "Ends with 1 if anything was wrong. kinds: ";

[[noreturn]] void usage() {
  fprintf(stderr, "%s", kUsage);
  for (int i = 0; i < kKinds; ++i) fprintf(stderr, "%s%s", i == 0 ? "" : ",", nameOf(static_cast<Kind>(i)));
  fprintf(stderr, "\n");
  exit(2);
}

bool apply(Options& options, int letter) {
  switch (letter) {
    case 's':
      options.seconds = atof(optarg);
      return options.seconds > 0;
    case 'f':
      options.faults = atol(optarg);
      return options.faults > 0;
    case 'S':
      options.seed = strtoull(optarg, nullptr, 10);
      return true;
    case 'r':
      options.round = strtoull(optarg, nullptr, 10);
      options.oneRound = true;
      return true;
    case 'n':
      options.repeat = atoi(optarg);
      return options.repeat > 0;
    case 'j':
      options.jobs = atoi(optarg);
      return options.jobs > 0 && options.jobs <= 64;
    case 'k':
      options.kinds = optarg;
      return true;
    case 'l':
      options.layout = optarg;
      return options.layout == "threads" || options.layout == "processes" || options.layout == "mixed";
    case 'R':
      options.ranks = atoi(optarg);
      return options.ranks >= 2 && options.ranks <= kMaxRanks;
    case 'd':
      options.device = strcmp(optarg, "cuda") == 0;
      return options.device || strcmp(optarg, "host") == 0;
    case 'L':
      options.net = strcmp(optarg, "net") == 0;
      return options.net || strcmp(optarg, "auto") == 0;
    case 'o':
      options.json = optarg;
      return true;
    case 'w':
      options.slow = atoi(optarg);
      return options.slow > 0 && options.slow <= 10;
    case 'v':
      options.verbose = true;
      return true;
    default:
      return false;
  }
}

Options parse(int argc, char** argv) {
  constexpr option kLong[] = {{"seconds", required_argument, nullptr, 's'},
                              {"faults", required_argument, nullptr, 'f'},
                              {"seed", required_argument, nullptr, 'S'},
                              {"round", required_argument, nullptr, 'r'},
                              {"repeat", required_argument, nullptr, 'n'},
                              {"jobs", required_argument, nullptr, 'j'},
                              {"kinds", required_argument, nullptr, 'k'},
                              {"layout", required_argument, nullptr, 'l'},
                              {"ranks", required_argument, nullptr, 'R'},
                              {"device", required_argument, nullptr, 'd'},
                              {"json", required_argument, nullptr, 'o'},
                              {"slow", required_argument, nullptr, 'w'},
                              {"link", required_argument, nullptr, 'L'},
                              {"verbose", no_argument, nullptr, 'v'},
                              {nullptr, 0, nullptr, 0}};
  Options options;
  options.seed = std::random_device{}();
  for (int letter = 0; (letter = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
    if (!apply(options, letter)) usage();
  }
  if (optind != argc) usage();
  if (options.seconds == 0 && options.faults == 0) options.seconds = 60;
  return options;
}

// Timeouts so long that whatever depends on one shows as a hang.
void setEnvironment(const Options& options) {
  setenv("STRETTO_INIT_TIMEOUT", "120", 1);
  setenv("STRETTO_TIMEOUT", "120", 1);
  setenv("STRETTO_DEVICE", options.device ? "cuda" : "cpu", 1);
  if (options.net) setenv("STRETTO_LINK", "net", 1);
  if (!options.device) return;
  setenv("STRETTO_SHARED_DEVICE", "1", 0);
  // Processes share the GPU by MPS, which has 96 connections for all of them together. Threads of one need
  // many.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", options.layout == "processes" ? "8" : "32", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

bool enough(const Options& options, const Totals& totals, int64_t began) {
  if (totals.stop) return true;
  if (options.faults > 0 && totals.allFaults >= options.faults) return true;
  return options.seconds > 0 && static_cast<double>(now() - began) * 1e-9 >= options.seconds;
}

// One of the jobs, in a process of its own: every `jobs`-th seed.
void conduct(const Options& options, Totals& totals, int job, int64_t began) {
  Conductor conductor(options, totals);
  for (uint64_t i = 0;
       options.oneRound ? i < static_cast<uint64_t>(options.repeat) : !enough(options, totals, began); ++i) {
    Draw draw(options.seed * 1000003 + i * static_cast<uint64_t>(options.jobs) + static_cast<uint64_t>(job));
    conductor.round(options.oneRound ? options.round : draw.next() % 1000000000000);
  }
  if (options.verbose) printf("\njob %d: %s\n", job, conductor.leaks().text().c_str());
  fflush(stdout);
}

void progress(const Totals& totals, int64_t began) {
  std::string text;
  for (size_t i = 0; i < kKinds; ++i) {
    if (totals.faults[i] > 0) {
      text += std::string(" ") + nameOf(static_cast<Kind>(i)) + " " + std::to_string(totals.faults[i]);
    }
  }
  printf("%s%.0f s: %ld rounds, %ld faults, %ld rounds failed;%s%s", isatty(STDOUT_FILENO) ? "\r\033[K" : "",
         static_cast<double>(now() - began) * 1e-9, totals.allRounds.load(), totals.allFaults.load(),
         totals.allFailures.load(), text.c_str(), isatty(STDOUT_FILENO) ? "" : "\n");
  fflush(stdout);
}

void printTable(const Totals& totals) {
  printf("\n%-14s %8s %8s", "kind", "rounds", "faults");
  for (const char* name : kWrongNames) printf(" %10s", name);
  printf("\n");
  for (size_t i = 0; i < kKinds; ++i) {
    if (totals.rounds[i] == 0) continue;
    printf("%-14s %8ld %8ld", nameOf(static_cast<Kind>(i)), totals.rounds[i].load(), totals.faults[i].load());
    for (const auto& wrong : totals.wrong[i]) printf(" %10ld", wrong.load());
    printf("\n");
  }
}

void writeKinds(FILE* file, const Totals& totals) {
  bool first = true;
  fprintf(file, ",\n\"kinds\":[");
  for (size_t i = 0; i < kKinds; ++i) {
    if (totals.rounds[i] == 0) continue;
    fprintf(file, "%s\n{\"kind\":\"%s\",\"rounds\":%ld,\"faults\":%ld", first ? "" : ",",
            nameOf(static_cast<Kind>(i)), totals.rounds[i].load(), totals.faults[i].load());
    for (size_t wrong = 0; wrong < kWrongs; ++wrong) {
      fprintf(file, ",\"%s\":%ld", kWrongNames[wrong], totals.wrong[i][wrong].load());
    }
    fprintf(file, "}");
    first = false;
  }
  fprintf(file, "]");
}

// How far the limits were stretched: README.md says what each number is.
void writeWaits(FILE* file, const Totals& totals) {
  constexpr const char* kNames[kBounds] = {"fault", "fault_host_stopped_or_disagreement", "late_peers",
                                           "no_fault"};
  const auto seconds = [](const std::atomic<int64_t>& time) { return static_cast<double>(time) * 1e-9; };
  fprintf(file, ",\n\"waits\":[");
  for (size_t i = 0; i < kBounds; ++i) {
    const Waits& one = totals.waits[i];
    fprintf(file,
            "%s\n{\"waits\":\"%s\",\"limit_s\":%.0f,\"told\":%ld,\"longest_told_s\":%.3f,"
            "\"longest_wait_s\":%.3f,\"largest_limit_s\":%.3f,\"beyond_limit\":%ld}",
            i == 0 ? "" : ",", kNames[i], seconds(kLimits[i]), one.told.load(), seconds(one.longestTold),
            seconds(one.longest), seconds(one.largestLimit), one.beyond.load());
  }
  fprintf(file, "],\n\"aborts\":{\"limit_s\":1,\"longest_s\":%.3f,\"longest_running_s\":%.3f},",
          seconds(totals.longestAbort), seconds(totals.longestRunning));
  fprintf(file,
          "\n\"machine\":{\"worst_gap_s\":%.3f,\"longest_death_s\":%.3f,\"longest_fence_s\":%.3f},"
          "\n\"replayed_handshakes\":%ld",
          seconds(totals.worstGap), seconds(totals.longestDeath), seconds(totals.beats.longestFence),
          totals.replayed.load());
}

void writeGrown(FILE* file, const Totals& totals) {
  constexpr const char* kNames[] = {"descriptors", "threads",  "shared_mappings",
                                    "shared_kib",  "heap_kib", "resident_kib"};
  fprintf(file, ",\n\"grown\":{");
  for (size_t i = 0; i < std::size(kNames); ++i) {
    fprintf(file, "%s\"%s\":%ld", i == 0 ? "" : ",", kNames[i], totals.grown[i].load());
  }
  fprintf(file, "}");
}

bool writeJson(const Options& options, const Totals& totals, double seconds) {
  FILE* const file = fopen(options.json.c_str(), "w");
  if (file == nullptr) return false;
  fprintf(file,
          "{\"schema\":\"stretto.hostile/2\",\"seed\":%llu,\"link\":\"%s\",\"jobs\":%d,\"seconds\":%.1f,"
          "\"rounds\":%ld,\"faults\":%ld,\"failed\":%ld",
          static_cast<unsigned long long>(options.seed), options.net ? "net" : "auto", options.jobs, seconds,
          totals.allRounds.load(), totals.allFaults.load(), totals.allFailures.load());
  writeKinds(file, totals);
  writeWaits(file, totals);
  writeGrown(file, totals);
  fprintf(file, "}\n");
  return fclose(file) == 0;
}

std::vector<pid_t> startJobs(const Options& options, Totals& totals, int64_t began) {
  std::vector<pid_t> jobs;
  const pid_t parent = getpid();
  for (int job = 0; job < (options.oneRound ? 1 : options.jobs); ++job) {
    const pid_t id = fork();
    if (id == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() == parent) conduct(options, totals, job, began);
      _exit(0);
    }
    jobs.push_back(id);
  }
  return jobs;
}

// Asked by a child, since CUDA does not survive a fork.
bool hasDevice() {
  const pid_t id = fork();
  if (id == 0) {
    const std::unique_ptr<Memory> memory = deviceMemory();
    _exit(memory != nullptr && memory->open() ? 0 : 1);
  }
  int status = 1;
  return id > 0 && waitpid(id, &status, 0) == id && status == 0;
}

int run(const Options& options) {
  void* const memory =
      mmap(nullptr, sizeof(Totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  Totals& totals = *static_cast<Totals*>(memory);
  setEnvironment(options);
  if (options.device && !hasDevice()) {
    fprintf(stderr, "hostile: no GPU, or built without CUDA: leave --device cuda out\n");
    return 2;
  }
  if (const int ear = openEar(); ear >= 0) {
    close(ear);
  } else {
    printf("strangers hear nobody here (that needs CAP_NET_RAW): no handshake is replayed\n");
  }
  printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  fflush(stdout);
  const int64_t began = now();
  std::vector<pid_t> jobs = startJobs(options, totals, began);
  totals.beats.begin();
  bool crashed = false;
  const int turn = isatty(STDOUT_FILENO) ? 10 : 100;
  for (int tick = 1; !jobs.empty(); ++tick) {
    sleepMicroseconds(100000);
    std::erase_if(jobs, [&](pid_t job) {
      int status = 0;
      const bool ended = waitpid(job, &status, WNOHANG) == job;
      crashed = crashed || (ended && status != 0);
      return ended;
    });
    if (tick % turn == 0 && !options.oneRound) progress(totals, began);
  }
  progress(totals, began);
  printTable(totals);
  const double seconds = static_cast<double>(now() - began) * 1e-9;
  printf("%ld faults in %.0f s, seed %llu\n", totals.allFaults.load(), seconds,
         static_cast<unsigned long long>(options.seed));
  if (!options.json.empty() && !writeJson(options, totals, seconds)) return 2;
  if (crashed) printf("a conductor crashed\n");
  return crashed || totals.allFailures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace hostile

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  return hostile::run(hostile::parse(argc, argv));
}
