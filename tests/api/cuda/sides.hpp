// What tests between registered windows of GPUs have in common: ranks as threads and as processes, each with
// a GPU of its own, and their buffers.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "harness/cuda/endings.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"

namespace stretto::testing {

constexpr size_t kWindowBytes = size_t{8} << 20;

struct Among {
  bool threads;
  int ranks;
};

class AmongGpus : public ::testing::TestWithParam<Among> {
 protected:
  void SetUp() override {
    if (devicesThere() < GetParam().ranks) GTEST_SKIP() << "there is no GPU for every rank";
  }
  static void run(const Body& body) {
    const auto [threads, ranks] = GetParam();
    threads ? asThreads(ranks, connected(body)) : asProcesses(ranks, connected(body));
  }
};

inline std::vector<Among> threadsAndProcesses() {
  std::vector<Among> all;
  for (const bool threads : {true, false}) {
    for (const int ranks : {2, 3, 4}) all.push_back({threads, ranks});
  }
  return all;
}

inline std::string nameOfAmong(const ::testing::TestParamInfo<Among>& suite) {
  return (suite.param.threads ? "Threads" : "Processes") + std::to_string(suite.param.ranks);
}

// A rank's input, and a window for its results; another for the input if that is `shared`.
class Side {
 public:
  explicit Side(Member& member, bool shared = false) : member_(member) {
    registerAt(results(0), &window_);
    if (shared) registerAt(input(), &inputWindow_);
  }
  void deregister() {
    member_.expect(ncclCommWindowDeregister(member_.comm, window_), "deregister");
    window_ = nullptr;
  }

  char* input() const { return member_.device->at(0, nullptr); }
  char* results(size_t offset) const { return member_.device->at(1, nullptr) + offset; }

  void upload(char* to, const std::vector<char>& bytes) const {
    if (!bytes.empty()) member_.device->upload(to, bytes.data(), bytes.size());
  }
  std::vector<char> download(const char* from, size_t bytes) const {
    std::vector<char> got(bytes);
    if (bytes != 0) member_.device->download(got.data(), from, bytes);
    return got;
  }
  // That `place` holds it, once all that was enqueued is done.
  bool holds(const char* place, const std::vector<char>& wanted, const char* what) const {
    member_.device->synchronize();
    ncclResult_t later = ncclSuccess;
    member_.expect(ncclCommGetAsyncError(member_.comm, &later), "ncclCommGetAsyncError");
    if (!member_.expect(later, what)) return false;
    const std::vector<char> got = download(place, wanted.size());
    const auto differs = std::mismatch(wanted.begin(), wanted.end(), got.begin());
    if (differs.first == wanted.end()) return true;
    member_.complain("%s: byte %td of %zu", what, differs.first - wanted.begin(), wanted.size());
    return false;
  }

 private:
  void registerAt(char* begin, ncclWindow_t* window) const {
    member_.expect(ncclCommWindowRegister(member_.comm, begin, kWindowBytes, window, NCCL_WIN_COLL_SYMMETRIC),
                   "register");
  }

  Member& member_;
  ncclWindow_t window_ = nullptr;
  ncclWindow_t inputWindow_ = nullptr;
};

// Makes a collective go by copies or by lines; null: by what the planner chooses.
inline bool force(const Member& member, const char* collective, const char* protocol, size_t chunk = 0) {
  // Two ranks have no two-shots in lines.
  const bool inOneShot = member.ranks() == 2 && protocol != nullptr && strcmp(protocol, "lines") == 0;
  const char* const algorithm = protocol == nullptr                     ? nullptr
                                : strcmp(collective, "all_reduce") != 0 ? "push"
                                : inOneShot                             ? "one_shot"
                                                                        : "two_shot";
  return member.expect(strettoCommForce(member.comm, collective, algorithm, protocol, chunk, 0), collective);
}

// What `rank` has, of any kind; `salt` tells operations apart.
inline std::vector<char> bytesOf(int rank, size_t bytes, size_t salt) {
  std::vector<char> all(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    all[i] = static_cast<char>(i * 7 + i / 251 + static_cast<size_t>(rank) * 31 + salt * 3);
  }
  return all;
}

// That ranks disagreed ended the operation, with both sides' words on every rank; nobody is told of it before
// all have called.
inline void expectDisagreement(Member& member, std::vector<std::string> words,
                               const std::vector<std::string>& sides) {
  if (!member.board.meet()) return;
  member.check(streamEnds(member, 30), "a disagreement hangs");
  member.check(eventually(2, [&] { return errorOf(member) != ncclSuccess; }), "no error");
  member.expect(errorOf(member), "the error", ncclInvalidUsage);
  words.insert(words.end(), sides.begin(), sides.end());
  member.expectError("the disagreement", words);
}
// Rank 0 has enqueued what waits for the others, which do not come: aborting ends it.
inline void expectAbortEnds(Member& member) {
  if (member.rank != 0) member.board.meet();
  const Canary canary;
  const double began = secondsNow();
  member.expect(ncclCommAbort(member.comm), "abort");
  member.comm = nullptr;
  if (member.rank != 0) return;
  member.check(secondsNow() - began < abortLimit(canary, 1.5), "the abort took long");
  member.check(streamEnds(member, abortLimit(canary, 2)), "kernels went on after the abort");
  member.board.meet();
}
inline void abort(Member& member) {
  member.board.meet();  // nobody frees what a copy may still go to
  member.expect(ncclCommAbort(member.comm), "abort");
  member.comm = nullptr;
  member.board.meet();
}

}  // namespace stretto::testing
