// Ranks as processes where there is no fork: this program is started once more for each rank, to run the same
// test again. There whatever comes before is passed over (other threads and processes of ranks), and where
// the test comes to start its processes, the new one runs its rank's body, with the board of the process that
// started it, and ends. A body sees the board through its Member alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"
#include "platform/windows/native.hpp"

namespace stretto::testing {
namespace {

using namespace platform::windows;

constexpr const char* kVariable = "STRETTO_TEST_RANK";
constexpr DWORD kKilled = 137;

// Which rank of which processes of the test this is to be, and the board of who started it.
struct Again {
  int rank = -1;
  int ordinal = -1;
  int parent = 0;
  int descriptor = -1;
};
const Again& again() {
  static const Again mine = [] {
    Again one;
    const char* const text = getenv(kVariable);
    if (text != nullptr) sscanf(text, "%d %d %d %d", &one.rank, &one.ordinal, &one.parent, &one.descriptor);
    return one;
  }();
  return mine;
}

// How many Processes the running test had begun before.
int begunBefore() {
  static const void* counted = nullptr;
  static int count = 0;
  const void* const running = ::testing::UnitTest::GetInstance()->current_test_info();
  if (running != counted) count = 0;
  counted = running;
  return count++;
}

// Open until they have been waited for.
std::map<pid_t, UniqueHandle>& started() {
  static std::map<pid_t, UniqueHandle> all;
  return all;
}

std::string ownFilter() {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(test->test_suite_name()) + "." + test->name();
}

pid_t start(const std::string& value) {
  wchar_t program[4096] = L"";
  GetModuleFileNameW(nullptr, program, 4096);
  std::wstring line = L"\"" + std::wstring(program) + L"\" --gtest_filter=" + utf16(ownFilter());
  SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
  const UniqueHandle nowhere = own(CreateFileW(L"NUL", GENERIC_WRITE, FILE_SHARE_WRITE, &inherited,
                                               OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
  STARTUPINFOW how{};
  how.cb = sizeof how;
  how.dwFlags = STARTF_USESTDHANDLES;
  how.hStdOutput = nowhere.get();
  how.hStdError = GetStdHandle(STD_ERROR_HANDLE);
  PROCESS_INFORMATION made{};
  _putenv_s(kVariable, value.c_str());
  const bool fine =
      CreateProcessW(nullptr, line.data(), nullptr, nullptr, TRUE, 0, nullptr, nullptr, &how, &made);
  _putenv_s(kVariable, "");
  EXPECT_TRUE(fine) << sentenceOf(GetLastError());
  if (!fine) return 0;
  CloseHandle(made.hThread);
  started()[static_cast<pid_t>(made.dwProcessId)] = own(made.hProcess);
  return static_cast<pid_t>(made.dwProcessId);
}

}  // namespace

bool isRankRunAgain() {
  return again().rank >= 0;
}

Processes::Processes(const Board& board, const Body& body, double seconds, int each)
    : board_(board), each_(each) {
  const int ordinal = begunBefore();
  if (isRankRunAgain()) {
    const Again& mine = again();
    if (mine.ordinal != ordinal) return;
    const Board shared(board, platform::SharedMemory::open(mine.parent, mine.descriptor, board.bytes()));
    const Watchdog watchdog("a rank's process", seconds);
    const int last = std::min(mine.rank + each, board.ranks());
    if (each > 1 && each < board.ranks())
      _putenv_s("NCCL_HOSTID", ("test-host-" + std::to_string(mine.rank / each)).c_str());
    if (each == 1) runRank(shared, body, mine.rank);
    if (each > 1) runThreads(shared, body, mine.rank, last - mine.rank);
    fflush(nullptr);
    _exit(0);
  }
  for (int rank = 0; rank < board.ranks(); rank += each) {
    char value[80];
    snprintf(value, sizeof value, "%d %d %d %d", rank, ordinal, static_cast<int>(GetCurrentProcessId()),
             board.descriptor());
    pids_.push_back(start(value));
  }
}

Processes::~Processes() {
  finish();
}

void Processes::kill(int rank) const {
  TerminateProcess(started()[pid(rank)].get(), kKilled);
}

void Processes::finish(int killed) {
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    const UniqueHandle process = std::move(started()[pids_[rank]]);
    DWORD status = ~DWORD{0};
    WaitForSingleObject(process.get(), INFINITE);  // its watchdog ends it
    GetExitCodeProcess(process.get(), &status);
    const bool wasKilled = killed == kAll || static_cast<int>(rank) == killed;
    EXPECT_EQ(status, wasKilled ? kKilled : 0) << "rank " << rank;
  }
  if (!pids_.empty()) addFailures(board_);
  pids_.clear();
}

}  // namespace stretto::testing
