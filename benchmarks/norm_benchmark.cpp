// All-reduce with residual add and RMSNorm in one call, beside an all-reduce followed by a norm of its own,
// between two CPU ranks in two processes, in turns.
//
//   norm_benchmark [ROUNDS [HIDDEN...]]
//
// The norm of its own is this library's, on a communicator of one rank: the same vector code, so that what is
// compared is fusing and nothing else. For each number of tokens both compute the same inputs, and all bits
// of their results are compared before anything is measured. Prints, for each, microseconds of one call (the
// median of the rounds, each the fastest of three batches on rank 0), what the planner chose, and the
// quotient's median with its quartiles; at the end the geometric mean of the medians. Exits 1 where bits
// differ.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "nccl.h"
#include "stretto.h"

namespace {

constexpr int kRanks = 2;
constexpr size_t kTokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
constexpr size_t kMostTokens = 512;
constexpr size_t kElement = 2;  // bfloat16
constexpr double kBatchMicroseconds = 2000;

void require(bool right, const char* what) {
  if (right) return;
  fprintf(stderr, "norm_benchmark: %s: %s\n", what, ncclGetLastError(nullptr));
  _exit(1);
}

double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pin(int rank) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(static_cast<size_t>(rank), &mine);
  (void)sched_setaffinity(0, sizeof mine, &mine);
}

// Numbers about 1 in bfloat16: the upper half of their float.
std::vector<uint16_t> numbers(size_t count, uint32_t seed) {
  std::vector<uint16_t> all(count);
  for (uint16_t& one : all) {
    seed = seed * 1664525 + 1013904223;
    const float value = static_cast<float>(seed >> 8) / (1 << 23) - 1;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    one = static_cast<uint16_t>(bits >> 16);
  }
  return all;
}

// One rank's buffers and its two ways.
class Rank {
 public:
  Rank(int rank, ncclComm_t comm, ncclComm_t alone, size_t hidden)
      : comm_(comm),
        alone_(alone),
        input_(numbers(hidden * kMostTokens, static_cast<uint32_t>(rank) + 1)),
        residual_(numbers(hidden * kMostTokens, 99)),
        gamma_(numbers(hidden, 7)),
        sum_(hidden * kMostTokens),
        added_(hidden * kMostTokens),
        normalised_(hidden * kMostTokens) {
    step_.hidden = hidden;
    step_.type = ncclBfloat16;
    step_.epsilon = 1e-6f;
    step_.residual = residual_.data();
    step_.gamma = gamma_.data();
    step_.residualOut = added_.data();
    step_.normalised = normalised_.data();
  }

  void fused(size_t tokens) {
    step_.tokens = tokens;
    step_.input = input_.data();
    require(strettoAllReduceAddRmsNorm(&step_, comm_, nullptr) == ncclSuccess, "fused");
  }
  void parts(size_t tokens) {
    step_.tokens = tokens;
    require(ncclAllReduce(input_.data(), sum_.data(), tokens * step_.hidden, ncclBfloat16, ncclSum, comm_,
                          nullptr) == ncclSuccess,
            "all-reduce");
    step_.input = sum_.data();
    require(strettoAllReduceAddRmsNorm(&step_, alone_, nullptr) == ncclSuccess, "norm");
  }
  // Whether both have the same bits.
  bool agree(size_t tokens) {
    fused(tokens);
    const auto added = added_, normalised = normalised_;
    std::fill(added_.begin(), added_.end(), uint16_t{0});
    std::fill(normalised_.begin(), normalised_.end(), uint16_t{0});
    parts(tokens);
    const size_t bytes = tokens * step_.hidden * kElement;
    return memcmp(added.data(), added_.data(), bytes) == 0 &&
           memcmp(normalised.data(), normalised_.data(), bytes) == 0;
  }

 private:
  ncclComm_t comm_, alone_;
  std::vector<uint16_t> input_, residual_, gamma_, sum_, added_, normalised_;
  strettoAddRmsNorm_t step_ = STRETTO_ADD_RMS_NORM_INITIALIZER;
};

template <typename Call>
double batch(int calls, Call call) {
  const double began = microseconds();
  for (int i = 0; i < calls; ++i) call();
  return (microseconds() - began) / calls;
}

template <typename Call>
double fastest(int calls, Call call) {
  return std::min({batch(calls, call), batch(calls, call), batch(calls, call)});
}

double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(at * static_cast<double>(values.size() - 1) + 0.5)];
}

std::string chosen(ncclComm_t comm, size_t bytes, size_t hidden) {
  strettoQuestion_t question{};
  question.collective = "all_reduce_add_rms_norm";
  question.bytes = bytes;
  question.type = ncclBfloat16;
  question.hidden = hidden;
  std::string text(size_t{1} << 16, 0);
  size_t needed = 0;
  require(strettoExplain(comm, &question, text.data(), text.size(), &needed) == ncclSuccess, "explain");
  const auto field = [&](const char* key) {
    const size_t at = text.find(key, text.find("\"chosen\":{")) + strlen(key) + 3;
    return text.substr(at, text.find('"', at) - at);
  };
  return field("\"algorithm") + "/" + field("\"protocol");
}

// Both ranks run it; rank 0 prints.
double measure(Rank& rank, int number, ncclComm_t comm, size_t hidden, size_t tokens, int rounds) {
  require(rank.agree(tokens), "the bits of the two ways differ");
  const double once = fastest(8, [&] { rank.parts(tokens); });
  // Both ranks make as many calls.
  float many = static_cast<float>(std::max(1.0, kBatchMicroseconds / once));
  require(ncclAllReduce(&many, &many, 1, ncclFloat32, ncclMax, comm, nullptr) == ncclSuccess, "agree");
  const int count = static_cast<int>(many);
  std::vector<double> fused, parts, quotients;
  for (int round = 0; round < rounds; ++round) {
    fused.push_back(fastest(count, [&] { rank.fused(tokens); }));
    parts.push_back(fastest(count, [&] { rank.parts(tokens); }));
    quotients.push_back(parts.back() / fused.back());
  }
  const double middle = quantile(quotients, 0.5);
  if (number == 0) {
    printf("%6zu %6zu %10.2f %10.2f   %5.3f (%5.3f to %5.3f)  %s\n", hidden, tokens, quantile(fused, 0.5),
           quantile(parts, 0.5), middle, quantile(quotients, 0.25), quantile(quotients, 0.75),
           chosen(comm, tokens * hidden * kElement, hidden).c_str());
    fflush(stdout);
  }
  return middle;
}

void run(int number, const ncclUniqueId& id, int rounds, const std::vector<size_t>& sizes) {
  pin(number);
  ncclComm_t comm = nullptr, alone = nullptr;
  require(ncclCommInitRank(&comm, kRanks, id, number) == ncclSuccess, "init");
  ncclUniqueId own;
  require(ncclGetUniqueId(&own) == ncclSuccess && ncclCommInitRank(&alone, 1, own, 0) == ncclSuccess, "init");
  double logarithms = 0;
  double worst = 1e9;
  for (const size_t hidden : sizes) {
    Rank rank(number, comm, alone, hidden);
    for (const size_t tokens : kTokens) {
      const double quotient = measure(rank, number, comm, hidden, tokens, rounds);
      logarithms += std::log(quotient);
      worst = std::min(worst, quotient);
    }
  }
  const double rows = static_cast<double>(sizes.size() * std::size(kTokens));
  if (number == 0)
    printf("parts / fused: geometric mean %.3f, least %.3f\n", std::exp(logarithms / rows), worst);
  ncclCommDestroy(alone);
  ncclCommDestroy(comm);
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? atoi(words[1]) : 15;
  std::vector<size_t> sizes;
  for (int i = 2; i < count; ++i) sizes.push_back(strtoull(words[i], nullptr, 10));
  if (sizes.empty()) sizes = {4096, 8192};
  setenv("STRETTO_DEVICE", "cpu", 1);
  int ends[2];
  require(pipe(ends) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    ncclUniqueId id;
    require(read(ends[0], &id, sizeof id) == sizeof id, "read");
    run(1, id, rounds, sizes);
    return 0;
  }
  ncclUniqueId id;
  require(ncclGetUniqueId(&id) == ncclSuccess && write(ends[1], &id, sizeof id) == sizeof id, "id");
  printf("hidden tokens   fused us   parts us   parts / fused (quartiles)  chosen\n");
  run(0, id, rounds, sizes);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
