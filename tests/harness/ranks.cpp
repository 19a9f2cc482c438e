#include "harness/ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "harness/watchdog.hpp"
#include "primitives/window.hpp"

namespace stretto::testing {
namespace {

constexpr double kMostMeeting = 100;

}  // namespace

void addFailures(const Board& board) {
  for (int rank = 0; rank < board.ranks(); ++rank) {
    const std::string text = board.complaints(rank);
    if (!text.empty()) ADD_FAILURE() << "rank " << rank << " of " << board.ranks() << ":\n" << text;
  }
}

// Ranks are in host memory, also where there are GPUs, unless the test is run for GPUs.
static const bool chosenHost = [] {
  if (!testsOnDevice()) return setenv("STRETTO_DEVICE", "cpu", 0) == 0;
  setenv("STRETTO_DEVICE", "cuda", 1);
  setenv("STRETTO_TIMEOUT", "60", 0);
  // Kernels of ranks that share a device wait for each other: none may be held up, or loaded while others
  // run.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  return setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) == 0;
}();

bool testsOnDevice() {
  const char* asked = getenv("STRETTO_TEST_DEVICE");
  return asked != nullptr && strcmp(asked, "cuda") == 0;
}
bool testsInGraphs() {
  const char* asked = getenv("STRETTO_TEST_GRAPH");
  return asked != nullptr && strcmp(asked, "1") == 0;
}

bool testsBetweenHosts() {
  const char* asked = getenv("STRETTO_LINK");
  return asked != nullptr && strcmp(asked, "net") == 0;
}

int testedHosts() {
  const char* asked = getenv("STRETTO_TEST_HOSTS");
  return asked == nullptr ? 1 : std::max(1, atoi(asked));
}

bool eventually(double seconds, const std::function<bool()>& condition) {
  const double deadline = secondsNow() + seconds;
  while (!condition()) {
    if (secondsNow() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

Held Held::now() {
  return {threadsNow(), descriptorsNow(), mappingsNow()};
}
bool comesToRest(Held& held) {
  return eventually(10, [&] {
    const Held before = std::exchange(held, Held::now());
    if (before == held) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return false;
  });
}

Canary::Canary()
    : thread_([this] {
        constexpr double kNap = 0.005;
        while (!ending_) {
          const double start = secondsNow();
          std::this_thread::sleep_for(std::chrono::duration<double>(kNap));
          worst_ = std::max(worst_.load(), secondsNow() - start - kNap);
        }
      }) {}
Canary::~Canary() {
  ending_ = true;
  thread_.join();
}
double Canary::limit(double seconds) const {
  return seconds + 5 * worst_;
}

// ---- Board ------------------------------------------------------------------------------------------------

struct Board::Header {
  static constexpr size_t kText = 4000;
  std::atomic<uint64_t> arrived{0};
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> departed{0};
  std::atomic<uint64_t> words[16] = {};
  ncclUniqueId id;
  struct Text {
    std::atomic<uint64_t> used{0};  // by one rank's threads, one at a time
    char text[kText] = {};
  };
  // Behind it: one for each rank, zeroed.
  Text& textOf(int rank) { return reinterpret_cast<Text*>(this + 1)[rank]; }
  static size_t bytesFor(int ranks) { return sizeof(Header) + sizeof(Text) * static_cast<size_t>(ranks); }
};

Board::Board(int ranks, size_t bytesPerRank)
    : ranks_(ranks),
      bytesPerRank_((bytesPerRank + 4095) / 4096 * 4096),
      bytes_((Header::bytesFor(ranks) + 4095) / 4096 * 4096 + bytesPerRank_ * static_cast<size_t>(ranks)),
      memory_(platform::SharedMemory::create("board", bytes_)) {
  if (!memory_.ok()) throw std::bad_alloc();
  new (data()) Header;
}

Board::Board(const Board& first, Result<platform::SharedMemory> memory)
    : ranks_(first.ranks_),
      bytesPerRank_(first.bytesPerRank_),
      bytes_(first.bytes_),
      memory_(std::move(memory)) {
  if (!memory_.ok()) throw std::bad_alloc();
}

Board::~Board() = default;

std::byte* Board::data() const {
  return memory_.value().data();
}

Board::Header& Board::header() const {
  return *reinterpret_cast<Header*>(data());
}
std::byte* Board::area(int rank) const {
  return data() + bytes_ - bytesPerRank_ * static_cast<size_t>(ranks_ - rank);
}
std::atomic<uint64_t>& Board::word(int index) const {
  return header().words[index];
}

bool Board::meet() const {
  Header& here = header();
  const uint64_t generation = here.generation.load(std::memory_order_acquire);
  if (here.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint64_t>(ranks_)) {
    here.arrived.store(0, std::memory_order_relaxed);
    here.generation.store(generation + 1, std::memory_order_release);
    return true;
  }
  const double deadline = secondsNow() + kMostMeeting;
  for (int look = 0; here.generation.load(std::memory_order_acquire) == generation; ++look) {
    if (here.departed.load(std::memory_order_acquire) != 0 || secondsNow() > deadline) {
      return here.generation.load(std::memory_order_acquire) != generation;  // it may have come, then left
    }
    look < 50 ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void Board::leave() const {
  header().departed.fetch_add(1, std::memory_order_acq_rel);
}

bool Board::shareId(int rank, ncclUniqueId* id) const {
  if (rank == 0 && ncclGetUniqueId(&header().id) != ncclSuccess) {
    complain(rank, std::string("ncclGetUniqueId: ") + ncclGetLastError(nullptr));
    leave();
  }
  if (!meet()) return false;
  *id = header().id;
  return meet();  // the next id may be made
}

void Board::complain(int rank, const std::string& text) const {
  auto& place = header().textOf(rank);
  const uint64_t used = place.used.load(std::memory_order_relaxed);
  const size_t room = Header::kText - 1 - used;
  const std::string line = text + "\n";
  const size_t taken = std::min(room, line.size());
  std::memcpy(place.text + used, line.data(), taken);
  place.used.store(used + taken, std::memory_order_release);
}

std::string Board::complaints(int rank) const {
  const auto& place = header().textOf(rank);
  return {place.text, place.used.load(std::memory_order_acquire)};
}

// ---- Member -----------------------------------------------------------------------------------------------

void Member::complain(const char* format, ...) const {
  char text[1200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  board.complain(rank, text);
}

bool Member::expect(ncclResult_t got, const char* what, ncclResult_t wanted) const {
  if (got == wanted) return true;
  complain("%s: %s, not %s: %s", what, ncclGetErrorString(got), ncclGetErrorString(wanted),
           ncclGetLastError(comm));
  return false;
}

void Member::expectError(const char* what, const std::vector<std::string>& parts) const {
  const std::string text = ncclGetLastError(comm);
  for (const std::string& part : parts) {
    if (text.find(part) != std::string::npos) continue;
    complain("%s: the error does not say \"%s\": %s", what, part.c_str(), text.c_str());
  }
}

bool Member::check(bool condition, const char* what) const {
  if (!condition) complain("%s", what);
  return condition;
}

Body connected(Body body) {
  return [body = std::move(body)](Member& member) {
    ncclUniqueId id;
    if (testsOnDevice() && member.device == nullptr) member.device = OnDevice::make(member.rank);
    if (!member.check(member.board.shareId(member.rank, &id), "no unique id")) return;
    if (!member.expect(ncclCommInitRank(&member.comm, member.ranks(), id, member.rank), "init")) return;
    body(member);
    if (member.comm != nullptr) member.expect(ncclCommDestroy(member.comm), "destroy");
  };
}

// ---- Threads and processes --------------------------------------------------------------------------------

void runRank(const Board& board, const Body& body, int rank) {
  Member member{rank, board};
  try {
    body(member);
  } catch (const std::exception& error) {
    member.complain("%s", error.what());
  }
  board.leave();
}

void runThreads(const Board& board, const Body& body, int first, int count) {
  std::vector<std::thread> threads;
  for (int rank = first; rank < first + count; ++rank) {
    threads.emplace_back([&board, &body, rank] { runRank(board, body, rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

void asThreads(const Board& board, const Body& body, double seconds) {
  if (isRankRunAgain()) return;
  if (testsOnDevice()) {
    Processes(board, body, seconds, board.ranks()).finish();
    return;
  }
  const Watchdog watchdog("ranks as threads", seconds);
  runThreads(board, body, 0, board.ranks());
  addFailures(board);
}

void asThreads(int ranks, const Body& body, double seconds) {
  asThreads(Board(ranks), body, seconds);
}

void asProcesses(const Board& board, const Body& body, double seconds) {
  Processes(board, body, seconds).finish();
}

void asProcesses(int ranks, const Body& body, double seconds) {
  asProcesses(Board(ranks), body, seconds);
}

}  // namespace stretto::testing
