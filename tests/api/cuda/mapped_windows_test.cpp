// Windows in mapped memory (CUDA's virtual memory management), through nccl.h: what ncclMemAlloc gives, and
// ranges of several pieces as PyTorch's expandable segments are; ranks as threads and as processes. Where
// devices have no mapped memory that can be shared, a line on stderr says so and the test is skipped.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <stretto.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "api/cuda/sides.hpp"
#include "harness/cuda/expandable.hpp"
#include "harness/device_mode.hpp"
#include "harness/ranks.hpp"
#include "platform/cuda/mapped.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

class MappedWindows : public AmongGpus {
 protected:
  static void run(const Body& body) {
    const auto [threads, ranks] = GetParam();
    const Board board(ranks);
    std::atomic<uint64_t>& untested = board.word(0);
    const Body where = [&](Member& member) {
      const std::string why = platform::cuda::whyNotMapped(member.rank);
      if (why.empty()) return body(member);
      fprintf(stderr, "rank %d tests nothing: %s\n", member.rank, why.c_str());
      untested = 1;
    };
    threads ? asThreads(board, connected(where)) : asProcesses(board, connected(where));
    if (untested != 0) GTEST_SKIP() << "a GPU has no mapped memory that can be shared (its rank said why)";
  }
};

enum class Kind { kAllocated, kExpandable, kPrivate, kOrdinary };

// A rank's memory of some kind; what matters lies around middle(), in the expandable kinds the seam of two
// pieces.
class Memory {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;
  Memory(Member& member, Kind kind) : member_(member) {
    if (kind == Kind::kAllocated) {
      member.expect(ncclMemAlloc(&allocated_, kBytes), "ncclMemAlloc");
      data_ = static_cast<char*>(allocated_);
      middle_ = kBytes / 2;
    } else if (kind == Kind::kOrdinary) {
      data_ = member.device->at(1, nullptr);
      middle_ = kBytes / 2;
    } else {
      segment_ =
          std::make_unique<Expandable>(member.rank, std::vector<size_t>{1, 1, 2}, kind == Kind::kExpandable);
      data_ = segment_->data();
      middle_ = segment_->unit();
    }
  }
  ~Memory() { free(); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* data() const { return data_; }
  char* middle() const { return data_ + middle_; }
  void free() {
    if (allocated_ != nullptr) member_.expect(ncclMemFree(std::exchange(allocated_, nullptr)), "ncclMemFree");
    if (segment_ != nullptr) segment_->unmap();
  }

 private:
  Member& member_;
  void* allocated_ = nullptr;
  std::unique_ptr<Expandable> segment_;
  char* data_ = nullptr;
  size_t middle_ = 0;
};

// A window of kBytes that begins amid a piece, at no round address of the piece.
class MappedWindow {
 public:
  static constexpr size_t kBytes = size_t{1} << 20;
  MappedWindow(const Member& member, const Memory& memory)
      : member_(member), begin_(memory.middle() - kBytes / 2) {
    member.expect(ncclCommWindowRegister(member.comm, begin_, kBytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
                  "register");
    member.check(window_ != nullptr, "a handle");
  }
  ~MappedWindow() { deregister(); }
  MappedWindow(const MappedWindow&) = delete;
  MappedWindow& operator=(const MappedWindow&) = delete;

  void deregister() {
    if (window_ == nullptr) return;
    member_.expect(ncclCommWindowDeregister(member_.comm, std::exchange(window_, nullptr)), "deregister");
  }
  // Where `bytes` lie across the middle.
  char* across(size_t bytes) const { return begin_ + kBytes / 2 - bytes / 2; }

 private:
  const Member& member_;
  char* begin_;
  ncclWindow_t window_ = nullptr;
};

bool holds(const Member& member, const char* place, const std::vector<char>& wanted, const char* what) {
  member.device->synchronize();
  ncclResult_t later = ncclSuccess;
  member.expect(ncclCommGetAsyncError(member.comm, &later), "ncclCommGetAsyncError");
  if (!member.expect(later, what)) return false;
  std::vector<char> got(wanted.size());
  member.device->download(got.data(), place, got.size());
  const auto differs = std::mismatch(wanted.begin(), wanted.end(), got.begin());
  if (differs.first == wanted.end()) return true;
  member.complain("%s: byte %td of %zu", what, differs.first - wanted.begin(), wanted.size());
  return false;
}

constexpr size_t kGathered = 48000;

ncclResult_t enqueueGather(const Member& member, char* to) {
  return ncclAllGather(member.device->at(0, nullptr), to, kGathered, ncclUint8, member.comm, member.stream());
}
std::vector<char> gatheredOf(const Member& member, size_t salt) {
  std::vector<char> all;
  for (int rank = 0; rank < member.ranks(); ++rank) {
    const auto one = bytesOf(rank, kGathered, salt);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}
// An all-gather by copy engines, across the middle.
bool gather(const Member& member, const MappedWindow& window, size_t salt) {
  if (!force(member, "all_gather", "copy")) return false;
  member.device->upload(member.device->at(0, nullptr), bytesOf(member.rank, kGathered, salt).data(),
                        kGathered);
  char* const to = window.across(kGathered * static_cast<size_t>(member.ranks()));
  return member.expect(enqueueGather(member, to), "all-gather") &&
         holds(member, to, gatheredOf(member, salt), "all-gather");
}

// An all-reduce of small whole numbers, so that any order gives the same bits.
bool reduce(const Member& member, const MappedWindow& window) {
  if (!force(member, "all_reduce", "copy")) return false;
  const size_t count = size_t{4800} * static_cast<size_t>(member.ranks());
  const size_t bytes = count * sizeof(float);
  std::vector<float> mine(count), sums(count);
  for (size_t i = 0; i < count; ++i) {
    mine[i] = static_cast<float>(i % 97 + static_cast<size_t>(member.rank));
    for (int rank = 0; rank < member.ranks(); ++rank) {
      sums[i] += static_cast<float>(i % 97 + static_cast<size_t>(rank));
    }
  }
  member.device->upload(member.device->at(0, nullptr), reinterpret_cast<const char*>(mine.data()), bytes);
  std::vector<char> wanted(bytes);
  std::memcpy(wanted.data(), sums.data(), bytes);
  char* const to = window.across(bytes);
  return member.expect(ncclAllReduce(member.device->at(0, nullptr), to, count, ncclFloat, ncclSum,
                                     member.comm, member.stream()),
                       "all-reduce") &&
         holds(member, to, wanted, "all-reduce");
}

// Freed after everybody's communicator could have let go of it.
void together(const Member& member) {
  member.device->synchronize();
  member.board.meet();
}

TEST_P(MappedWindows, TakeResults) {
  for (const Kind kind : {Kind::kAllocated, Kind::kExpandable}) {
    run([kind](Member& member) {
      const Memory memory(member, kind);
      {
        const MappedWindow window(member, memory);
        if (gather(member, window, 0)) reduce(member, window);
        gather(member, window, 1);
      }
      together(member);
    });
  }
}

TEST_P(MappedWindows, MayBeOfEachRanksOwnKind) {
  run([](Member& member) {
    constexpr Kind kKinds[] = {Kind::kExpandable, Kind::kOrdinary, Kind::kAllocated};
    for (int turn = 0; turn < 3; ++turn) {
      const Memory memory(member, kKinds[(member.rank + turn) % 3]);
      {
        const MappedWindow window(member, memory);
        if (!gather(member, window, static_cast<size_t>(turn))) return;
        if (!reduce(member, window)) return;
      }
      together(member);
    }
  });
}

// Several windows lie in the same pieces.
TEST_P(MappedWindows, MayOverlap) {
  run([](Member& member) {
    const Memory memory(member, Kind::kExpandable);
    {
      const MappedWindow first(member, memory);
      MappedWindow second(member, memory);
      gather(member, second, 0);
      together(member);
      second.deregister();
      gather(member, first, 1);
    }
    together(member);
  });
}

// Memory that one rank's driver will not share: nobody's window is used, and everything goes as before.
TEST_P(MappedWindows, ThatCannotBeSharedAreRegisteredButNotUsed) {
  run([](Member& member) {
    const Memory memory(member, member.rank == 1 ? Kind::kPrivate : Kind::kExpandable);
    {
      const MappedWindow window(member, memory);
      if (!force(member, "all_gather", "copy")) return;
      char* const to = window.across(kGathered * static_cast<size_t>(member.ranks()));
      member.expect(enqueueGather(member, to), "forced copies", ncclInvalidUsage);
      if (!force(member, "all_gather", nullptr)) return;
      member.device->upload(member.device->at(0, nullptr), bytesOf(member.rank, kGathered, 5).data(),
                            kGathered);
      member.expect(enqueueGather(member, to), "all-gather");
      holds(member, to, gatheredOf(member, 5), "all-gather without copies");
    }
    together(member);
  });
}

// Its peers' mappings keep the memory, so that what still goes there harms nobody.
TEST_P(MappedWindows, MayLoseTheirMemory) {
  run([](Member& member) {
    Memory gone(member, member.rank == 0 ? Kind::kExpandable : Kind::kAllocated);
    const Memory kept(member, Kind::kAllocated);
    MappedWindow lost(member, gone);
    gather(member, lost, 0);
    together(member);
    gone.free();
    member.board.meet();
    {
      const MappedWindow window(member, kept);
      gather(member, window, 1);
      lost.deregister();
      gather(member, window, 2);
    }
    together(member);
  });
}

// Deregistering waits for what this rank has under way; the peers' results are complete when they are read.
TEST_P(MappedWindows, MayGoWhileCopiesAreUnderWay) {
  run([](Member& member) {
    const Memory memory(member, Kind::kExpandable);
    if (!force(member, "all_gather", "copy")) return;
    member.device->upload(member.device->at(0, nullptr), bytesOf(member.rank, kGathered, 3).data(),
                          kGathered);
    for (int turn = 0; turn < 5; ++turn) {
      MappedWindow window(member, memory);
      char* const to = window.across(kGathered * static_cast<size_t>(member.ranks()));
      for (int i = 0; i < 4; ++i) member.expect(enqueueGather(member, to), "all-gather");
      window.deregister();
      if (!holds(member, to, gatheredOf(member, 3), "all-gather")) break;
    }
    together(member);
  });
}

// It waits for the GPU, which here waits for a rank that does not come.
TEST_P(MappedWindows, AnAbortEndsADeregistration) {
  run([](Member& member) {
    const Memory memory(member, Kind::kExpandable);
    if (!force(member, "all_gather", "copy")) return;
    MappedWindow window(member, memory);
    char* const to = window.across(kGathered * static_cast<size_t>(member.ranks()));
    std::thread deregisters;
    if (member.rank == 0) {
      member.expect(enqueueGather(member, to), "all-gather");
      deregisters = std::thread([&] { window.deregister(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } else {
      window.deregister();
    }
    member.board.meet();
    const Canary canary;
    const double began = secondsNow();
    member.expect(ncclCommAbort(member.comm), "abort");
    if (deregisters.joinable()) deregisters.join();
    member.check(secondsNow() - began < abortLimit(canary, 1.5), "it was not ended");
    member.comm = nullptr;
    member.device->synchronize();
    member.board.meet();
  });
}

TEST_P(MappedWindows, LeaveNothingBehind) {
  run([](Member& member) {
    size_t descriptors = 0;
    size_t freeAtFirst = 0;
    constexpr int kTurns = 24;
    for (int turn = 0; turn < kTurns; ++turn) {
      const Memory memory(member, turn % 2 == 0 ? Kind::kExpandable : Kind::kAllocated);
      {
        const MappedWindow window(member, memory);
        if (turn % 8 == 0 && !gather(member, window, static_cast<size_t>(turn))) return;
      }
      together(member);
      size_t free = 0;
      size_t all = 0;
      member.check(cudaMemGetInfo(&free, &all) == cudaSuccess, "cudaMemGetInfo");
      if (turn == 3) {
        descriptors = descriptorsNow();
        freeAtFirst = free;
      }
      // Other ranks that are threads are a turn ahead at most, with a few descriptors; other programs may
      // use the GPU.
      const auto slack = static_cast<size_t>(8 * member.ranks());
      if (turn == kTurns - 1) {
        member.check(descriptorsNow() <= descriptors + slack, "descriptors are left open");
        member.check(free + (size_t{24} << 20) >= freeAtFirst, "memory of the GPU does not come back");
      }
      member.board.meet();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Among, MappedWindows, ::testing::ValuesIn(threadsAndProcesses()), nameOfAmong);

}  // namespace
}  // namespace stretto
