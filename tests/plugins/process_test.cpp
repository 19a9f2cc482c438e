// What needs processes of its own: killed ones, forked ones, exits, a full disk, and what a callback asks of
// the kernel.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "fixture.hpp"

extern char** environ;

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// Counts what the plugin takes from the heap: its calls are resolved to this one.
namespace {
std::atomic<uint64_t> gAllocations{0};
}
extern "C" void* __libc_malloc(size_t);
extern "C" void* malloc(size_t bytes) {
  gAllocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
#else
namespace {
std::atomic<uint64_t> gAllocations{0};
}
#endif

namespace stretto::testing {
namespace {

using profiler::Type;

class ProfilerProcess : public ProfilerTest {
 protected:
  void open() {
    table_ = &table<5>(load());
    callInit<5>(*table_, &context_, &mask_, {"comm", 5, 1, 2, 0}, nullptr);
  }
  void* start(Type type = Type::kColl, const char* function = nullptr) {
    auto d = describe<5>(type, nullptr, 0);
    if (type == Type::kColl) d.coll.function = function;
    void* handle = nullptr;
    table_->start(context_, &handle, &d);
    return handle;
  }
  pid_t drive(const char* ranks, const char* operations, const char* abi) {
    const char* arguments[] = {STRETTO_TRACE_DRIVER, STRETTO_PROFILER, ranks, operations, abi, nullptr};
    pid_t child = -1;
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    EXPECT_EQ(posix_spawn(&child, arguments[0], &quiet, nullptr, const_cast<char**>(arguments), environ), 0);
    posix_spawn_file_actions_destroy(&quiet);
    return child;
  }

  const TableOf<5>* table_ = nullptr;
  void* context_ = nullptr;
  int mask_ = -1;
};

TEST_F(ProfilerProcess, KilledKeepsWhatItRecorded) {
  const pid_t child = drive("2", "100000000", "5");
  uint64_t segments = 0;
  while (segments < 8) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (!std::filesystem::exists(directory_)) continue;
    const auto files = listRecordings(directory_);
    if (files.empty()) continue;
    format::Header header{};
    std::ifstream(files[0], std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
    segments = header.segments;
  }
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto contents = read();
  EXPECT_EQ(contents.header.state, 0);
  EXPECT_EQ(std::string(contents.header.error), "");
  const auto starts = contents.of(format::Kind::kStart);
  EXPECT_GT(starts.size(), 5000u);
  // At most what was open when it died has no stop: a few events on each of the four threads.
  EXPECT_LE(starts.size() - contents.of(format::Kind::kStop).size(), 40u);
  EXPECT_GE(contents.anchors.size(), 1u);
}

TEST_F(ProfilerProcess, ExitClosesTheFile) {
  int status = 0;
  waitpid(drive("2", "20", "7"), &status, 0);
  ASSERT_EQ(status, 0);
  const auto contents = read();
  EXPECT_EQ(contents.header.state, 1);
  EXPECT_EQ(contents.header.abi, 7u);
  // Nothing is left of what was made ready.
  EXPECT_EQ(contents.fileBytes,
            format::kHeaderBytes + contents.header.segments * contents.header.segmentBytes);
  EXPECT_EQ(contents.of(format::Kind::kStart, 1).size(), 40u);
}

TEST_F(ProfilerProcess, AForkedChildHasAFileOfItsOwn) {
  open();
  start();
  const auto before = read();
  const int status = inChild([&] {
    table_->stop(start());
    return listRecordings(directory_).size() == 2 ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  start();
  const auto files = listRecordings(directory_);
  ASSERT_EQ(files.size(), 2u);
  RecordingFileContents parent = readRecording(files[0]);
  RecordingFileContents child = readRecording(files[1]);
  if (parent.header.pid != static_cast<uint32_t>(getpid())) std::swap(parent, child);
  EXPECT_EQ(parent.of(format::Kind::kStart).size(), 2u);
  EXPECT_EQ(parent.of(format::Kind::kStop).size(), 0u);
  ASSERT_EQ(child.forks.size(), 1u);
  EXPECT_EQ(child.forks[0].parentPid, parent.header.pid);
  EXPECT_NE(child.header.tag, parent.header.tag);
  ASSERT_EQ(child.of(format::Kind::kStart).size(), 1u);
  EXPECT_EQ(child.of(format::Kind::kStop).size(), 1u);
  // It went on with its parent's communicator, and says so.
  ASSERT_EQ(child.foreign.size(), 1u);
  EXPECT_EQ(child.foreign[0].tag, parent.header.tag);
  EXPECT_EQ(child.foreign[0].foreignNumber, 0u);
  EXPECT_EQ(child.of(format::Kind::kStart)[0].record().context, child.foreign[0].number);
}

TEST_F(ProfilerProcess, AForkedChildThatRecordsNothingLeavesNoTrace) {
  open();
  start();
  const pid_t child = fork();
  if (child == 0) exit(0);  // with everything that runs at exit
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto contents = read();
  EXPECT_EQ(contents.header.state, 0);
  EXPECT_EQ(contents.of(format::Kind::kStart).size(), 1u);
  EXPECT_NE(start(), nullptr);
}

// A mount namespace in which this process is root; false where that is not allowed.
bool ownMounts() {
  const std::string user = "0 " + std::to_string(getuid()) + " 1";
  const std::string group = "0 " + std::to_string(getgid()) + " 1";
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  const auto say = [](const char* file, const std::string& text) {
    return static_cast<bool>(std::ofstream(file) << text << std::flush);
  };
  return say("/proc/self/setgroups", "deny") && say("/proc/self/uid_map", user) &&
         say("/proc/self/gid_map", group);
}

// From here on any system call of this thread but write ends the process. (Seccomp's strict mode would do,
// but it also takes the time-stamp counter away.)
bool forbidSystemCalls() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program{sizeof rules / sizeof rules[0], rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(ProfilerProcess, CallbacksMakeNoSystemCallsAndTakeNoMemoryInAChild) {
  const int status = inChild([&] {
    int ends[2];
    if (pipe(ends) != 0) return 2;
    open();
    std::thread([&] {
      for (int i = 0; i < 100; ++i) table_->stop(start(Type::kColl, "AllReduce"));
      const uint64_t before = gAllocations.load();
      if (!forbidSystemCalls()) return;
      for (int i = 0; i < 1000; ++i) {
        void* handle = start(Type::kColl, "AllReduce");
        table_->state(handle, 1, nullptr);
        table_->stop(handle);
      }
      const char verdict = gAllocations.load() == before ? 'y' : 'n';
      [[maybe_unused]] const ssize_t wrote = write(ends[1], &verdict, 1);
      while (true) platform::relax();
    }).detach();
    pollfd answer{ends[0], POLLIN, 0};
    char verdict = '-';
    if (poll(&answer, 1, 10000) == 1 && ::read(ends[0], &verdict, 1) != 1) return 3;
    const auto contents = read();
    if (contents.of(format::Kind::kStart).size() != 1100) return 4;
    return verdict == 'y' ? 0 : verdict == 'n' ? 5 : 6;
  });
  EXPECT_EQ(status, 0);
}

// A disk of one megabyte, in a mount namespace of its own.
TEST_F(ProfilerProcess, AFullDiskEndsTheRecordingAndNotTheChild) {
  std::filesystem::create_directory(directory_);
  constexpr int kNotAllowed = 77;
  const int status = inChild([&] {
    if (!ownMounts()) return kNotAllowed;
    if (mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=1m") != 0) return kNotAllowed;
    open();
    uint64_t given = 0;
    for (int i = 0; i < 20000; ++i) given += start() != nullptr;
    const auto contents = read();
    if (std::string(contents.header.error) != "the disk is full") return 1;
    if (contents.of(format::Kind::kStart).size() != given || given < 1000) return 2;
    if (contents.header.dropped != 20000 - given) return 3;
    table_->finalize(context_);
    return contents.fileBytes <= 1u << 20 ? 0 : 4;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(status, 0);
}

TEST_F(ProfilerProcess, AReadOnlyDiskIsSaidInAChild) {
  std::filesystem::create_directory(directory_);
  constexpr int kNotAllowed = 77;
  const int status = inChild([&] {
    if (!ownMounts()) return kNotAllowed;
    if (mount("tmpfs", directory_.c_str(), "tmpfs", MS_RDONLY, "size=1m") != 0) return kNotAllowed;
    open();
    return mask_ == 0 && context_ == nullptr && start() == nullptr ? 0 : 1;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(status, 0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// It is loaded into programs of containers, whose C library may be older and whose C++ runtime is another.
TEST_F(ProfilerProcess, AsksForNoRuntimeThatAProgramMayLack) {
  std::ifstream file(STRETTO_PROFILER, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  ASSERT_GT(bytes.size(), 100000u);
  for (const char* name : {"arc4random", "GLIBCXX_", "CXXABI_", "libstdc++.so", "libgcc_s.so"}) {
    EXPECT_EQ(bytes.find(std::string(1, 0) + name), std::string::npos) << name;
  }
}
#endif

}  // namespace
}  // namespace stretto::testing
