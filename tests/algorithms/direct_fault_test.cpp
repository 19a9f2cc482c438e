// Algorithms that read peers' buffers in place, when a rank fails while another one still reads: the reader
// must not report success over what the failed rank's caller has written since, and the failed rank must not
// return while it is read (docs/decisions/0023-what-holds-after-a-fault.md).
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "algorithms/direct.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "harness/wrapped_host.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

constexpr int kRanks = 3;
constexpr int kReader = 0;
constexpr int kFailing = 2;
constexpr size_t kCount = 6000;
constexpr uint32_t kPoison = 0x5eadbeef;

// Stops before its n-th piece, between the look for failures and the reading, until it is released: what a
// rank does that the system has stopped there.
class Stalling : public WrappedHost {
 public:
  Stalling(Host& host, int before) : WrappedHost(host), left_(before) {}

  Status goOnReading() {
    const Status status = WrappedHost::goOnReading();
    if (status.ok() && left_-- == 0) {
      stalled.store(true);
      while (!released.load()) std::this_thread::yield();
    }
    return status;
  }

  std::atomic<bool> stalled{false};
  std::atomic<bool> released{false};

 private:
  int left_;
};

struct Form {
  const char* name;
  Status (*run)(Stalling&, const Arguments&);
  uint32_t (*expected)(int rank, size_t index);
  size_t resultBlocks;
};

uint32_t valueOf(int rank, size_t index) {
  return static_cast<uint32_t>(rank * 100000) + static_cast<uint32_t>(index);
}
uint32_t sumAt(size_t index) {
  return valueOf(0, index) + valueOf(1, index) + valueOf(2, index);
}

const Form kForms[] = {
    {"all_reduce", algorithms::allReduceDirect<Stalling>, [](int, size_t i) { return sumAt(i); }, 1},
    {"reduce_scatter", algorithms::reduceScatterDirect<Stalling>,
     [](int rank, size_t i) { return sumAt(static_cast<size_t>(rank) * kCount + i); }, 1},
    {"all_gather", algorithms::allGatherDirect<Stalling>,
     [](int, size_t i) { return valueOf(static_cast<int>(i / kCount), i % kCount); }, kRanks},
    {"all_to_all", algorithms::allToAllDirect<Stalling>,
     [](int rank, size_t i) {
       return valueOf(static_cast<int>(i / kCount), static_cast<size_t>(rank) * kCount + i % kCount);
     },
     kRanks},
    {"broadcast", algorithms::broadcastDirect<Stalling>, [](int, size_t i) { return valueOf(kFailing, i); },
     1},
};

// Three ranks that run one form; the reader stalls before its piece `stall`.
class Trial {
 public:
  Trial(const Form& form, int stall) : form_(form), job_(kRanks, 65536, 4096, PeerAccess::kAddress) {
    for (int rank = 0; rank < kRanks; ++rank) {
      job_.host(rank).begin(7, 1);
      backends_.push_back(std::make_unique<Stalling>(job_.host(rank), rank == kReader ? stall : 1000));
      send_.emplace_back(kCount * kRanks);
      receive_.emplace_back(kCount * kRanks);
      for (size_t i = 0; i < send_.back().size(); ++i) send_.back()[i] = valueOf(rank, i);
    }
    for (int rank = 0; rank < kRanks; ++rank) threads_[rank] = std::thread([this, rank] { runOne(rank); });
  }
  ~Trial() {
    reader().released.store(true);
    for (int rank = 0; rank < kRanks; ++rank) tell(rank);
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  Stalling& reader() { return *backends_[kReader]; }
  WindowHeader& header(int rank) { return job_.host(rank).header(); }
  // What liveness does when it has heard of a loss.
  void tell(int rank) { std::atomic_ref(header(rank).abort).store(abortWord({Code::kRemote, 1})); }
  bool returned(int rank) const { return returned_[rank].load(); }
  bool waitFor(int rank) const {
    return eventually(20, [&] { return returned(rank); });
  }
  void poison(int rank) {
    std::fill(send_[rank].begin(), send_[rank].end(), kPoison);
    std::fill(receive_[rank].begin(), receive_[rank].end(), kPoison);
  }
  void expectRightIfOk(int rank) const {
    if (!status_[rank].ok()) return;
    size_t wrong = 0;
    for (size_t i = 0; i < kCount * form_.resultBlocks; ++i) {
      wrong += receive_[rank][i] != form_.expected(rank, i) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0u) << form_.name << ": rank " << rank << " reports success";
  }
  Status status(int rank) const { return status_[rank]; }

 private:
  void runOne(int rank) {
    Arguments arguments;
    arguments.send = reinterpret_cast<const std::byte*>(send_[rank].data());
    arguments.receive = reinterpret_cast<std::byte*>(receive_[rank].data());
    arguments.count = kCount;
    arguments.elementBytes = sizeof(uint32_t);
    arguments.reduce = {DataType::kUint32, Operator::kSum, kRanks};
    arguments.root = kFailing;
    arguments.chunkBytes = 16384;
    status_[rank] = form_.run(*backends_[rank], arguments);
    returned_[rank].store(true);
  }

  const Form& form_;
  Job job_;
  std::vector<std::unique_ptr<Stalling>> backends_;
  std::vector<std::vector<uint32_t>> send_;
  std::vector<std::vector<uint32_t>> receive_;
  Status status_[kRanks];
  std::atomic<bool> returned_[kRanks] = {};
  std::thread threads_[kRanks];
};

class DirectFault : public ::testing::TestWithParam<Form> {};

// Calls `look` for a run that has stalled before each of its pieces in turn.
void forEveryPiece(const Form& form, const std::function<void(Trial&)>& look) {
  for (int stall = 0;; ++stall) {
    Trial run(form, stall);
    const bool stalled = eventually(20, [&] { return run.reader().stalled.load() || run.returned(kReader); });
    ASSERT_TRUE(stalled);
    if (!run.reader().stalled.load()) {
      EXPECT_GT(stall, 0) << "the reader never looked for failures";
      EXPECT_TRUE(run.status(kReader).ok());
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the others come as far as they can
    look(run);
  }
}

TEST_P(DirectFault, AReaderDoesNotSucceedOnceItsPeerHasFailed) {
  const Watchdog watchdog("a reader of a failed peer", 120);
  forEveryPiece(GetParam(), [](Trial& run) {
    run.tell(kFailing);
    ASSERT_TRUE(run.waitFor(kFailing));
    EXPECT_FALSE(run.status(kFailing).ok());
    run.poison(kFailing);
    run.reader().released.store(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    run.tell(kReader);
    run.tell(1);
    ASSERT_TRUE(run.waitFor(kReader) && run.waitFor(1));
    run.expectRightIfOk(kReader);
    run.expectRightIfOk(1);
    EXPECT_FALSE(run.status(kReader).ok());
  });
}

TEST_P(DirectFault, WhoFailsReturnsWhenNobodyReadsItsBuffers) {
  const Watchdog watchdog("readers of a failed rank", 120);
  forEveryPiece(GetParam(), [](Trial& run) {
    run.tell(kFailing);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(run.returned(kFailing)) << "its buffers are still read";
    run.tell(kReader);
    run.reader().released.store(true);
    ASSERT_TRUE(run.waitFor(kFailing));
    EXPECT_EQ(std::atomic_ref(run.header(kReader).reading).load(), 0u);
  });
}

// What `measure` times, for a run that has stalled before each of its pieces, is less than `seconds`. The
// machine may be busy with something else, so of up to five tries for each piece the shortest counts.
void expectWithin(const Form& form, double seconds, const std::function<void(Trial&)>& measure) {
  std::vector<double> shortest;
  const auto isShort = [&](double took) { return took < seconds; };
  for (int attempt = 0; attempt < 5; ++attempt) {
    size_t piece = 0;
    forEveryPiece(form, [&](Trial& run) {
      const double began = secondsNow();
      measure(run);
      shortest.resize(std::max(shortest.size(), piece + 1), std::numeric_limits<double>::max());
      shortest[piece] = std::min(shortest[piece], secondsNow() - began);
      ++piece;
    });
    if (::testing::Test::HasFailure() || std::all_of(shortest.begin(), shortest.end(), isShort)) return;
  }
  ADD_FAILURE() << "it took " << *std::max_element(shortest.begin(), shortest.end()) << " s, not " << seconds;
}

// A reader that has found a failure, or waits for a third rank, reads nothing: the owner goes on.
TEST_P(DirectFault, WhoFailsIsNotKeptByAReaderThatWaits) {
  const Watchdog watchdog("a reader that waits", 120);
  expectWithin(GetParam(), 0.2, [](Trial& run) {
    run.tell(kFailing);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    run.reader().released.store(true);
    ASSERT_TRUE(run.waitFor(kFailing));
  });
}

TEST_P(DirectFault, ALostRankIsNotWaitedFor) {
  const Watchdog watchdog("a lost reader", 120);
  constexpr double kAllReadersAreAwaited = 0.3;
  expectWithin(GetParam(), 0.97 * kAllReadersAreAwaited, [](Trial& run) {
    for (const int rank : {1, kFailing}) {
      std::atomic_ref(run.header(rank).lost).fetch_or(uint64_t{1} << kReader);
      run.tell(rank);
    }
    ASSERT_TRUE(run.waitFor(1) && run.waitFor(kFailing));
  });
}

// Seconds that a rank waits in a process that is stopped meanwhile for `stopped`; -1 if that came too late.
double waitOfAStoppedProcess(double stopped) {
  auto* const began = static_cast<std::atomic<bool>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto* const taken = reinterpret_cast<std::atomic<double>*>(began + 64);
  const pid_t child = ::fork();
  if (child == 0) {
    Job job(2, 65536, 4096, PeerAccess::kAddress);
    job.host(0).begin(7, 1);
    std::atomic_ref(job.host(1).header().reading).store(uint64_t{1});  // for ever
    const double before = secondsNow();
    began->store(true);
    job.host(0).awaitReaders({Code::kRemote, 1});
    taken->store(secondsNow() - before);
    ::_exit(0);
  }
  EXPECT_TRUE(eventually(20, [&] { return began->load(); }));
  ::kill(child, SIGSTOP);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  double seconds = -1;
  if (WIFSTOPPED(status)) {
    std::this_thread::sleep_for(std::chrono::duration<double>(stopped));
    ::kill(child, SIGCONT);
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    seconds = taken->load();
  }
  ::munmap(began, 4096);
  return seconds;
}

// A process of several ranks that is stopped as a whole, and goes on, has given the reader no time meanwhile.
TEST(Readers, HaveTheirTimeThoughTheProcessWasStopped) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer follows threads, not processes";
  constexpr double kStopped = 1.0;
  double seconds = -1;
  for (int tries = 0; tries < 10 && seconds < 0; ++tries) seconds = waitOfAStoppedProcess(kStopped);
  EXPECT_GT(seconds, kStopped + 0.2);
}

INSTANTIATE_TEST_SUITE_P(Forms, DirectFault, ::testing::ValuesIn(kForms),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace stretto
