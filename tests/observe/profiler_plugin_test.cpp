// How a profiler plugin is found, which of its tables is called, and when it goes. Each case runs in a
// process of its own: what could not be loaded once is not tried again.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "base/log.hpp"
#include "base/watch.hpp"
#include "harness/watchdog.hpp"
#include "observe/profiler_host.hpp"
#include "profiler/journal.hpp"

// What NCCL_PROFILER_PLUGIN=STATIC_PLUGIN finds in this program.
namespace stretto::observe::profiler {
namespace {
int gStaticInits = 0;
int ncclStaticInit(void** context, uint64_t, int* mask, const char*, int, int, int, Logger) {
  ++gStaticInits;
  *mask = 0x100;
  *context = &gStaticInits;
  return 0;
}
int staticStart(void*, void**, DescriptorV7*) {
  return 0;
}
int staticHandle(void*) {
  return 0;
}
int staticState(void*, int, ArgumentsV4*) {
  return 0;
}
}  // namespace
extern "C" {
[[gnu::visibility("default")]] extern const TableV5 ncclProfiler_v6;
const TableV5 ncclProfiler_v6{"in the program", ncclStaticInit, staticStart,
                              staticHandle,     staticState,    staticHandle};
}
}  // namespace stretto::observe::profiler

namespace stretto {
namespace {

using namespace observe::profiler;
using testing::Journal;

std::string folder() {
  return STRETTO_TEST_PROFILERS;
}
std::string plugin(int version) {
  return folder() + "/libnccl-profiler-recording-v" + std::to_string(version) + ".so";
}
std::shared_ptr<Session> open(int rank = 0) {
  return Session::open({77, "named", 2, 4, rank});
}
bool isLoaded(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

class ProfilerPlugin : public ::testing::Test {
 protected:
  // Runs `body` with the variable set, or unset; what it expects and does not get fails this test.
  void inChild(const char* variable, const std::function<void()>& body, const char* level = "INFO") {
    const testing::Watchdog watchdog("a plugin", 60);
    unlink(log_.c_str());
    unlink(debug_.c_str());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setenv("STRETTO_TEST_PROFILE_LOG", log_.c_str(), 1);
      setenv("NCCL_DEBUG", level, 1);
      setenv("NCCL_DEBUG_SUBSYS", "INIT,PROFILE", 1);
      setenv("NCCL_DEBUG_FILE", debug_.c_str(), 1);
      log::reset();
      variable == nullptr ? unsetenv("NCCL_PROFILER_PLUGIN") : setenv("NCCL_PROFILER_PLUGIN", variable, 1);
      body();
      fflush(nullptr);
      _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the child's own expectations are above";
  }
  void TearDown() override {
    unlink(log_.c_str());
    unlink(debug_.c_str());
  }
  Journal journal() const { return Journal::read(log_); }
  size_t said(const std::string& words) const {
    std::ifstream file(debug_);
    size_t count = 0;
    for (std::string line; std::getline(file, line);) count += line.find(words) != std::string::npos;
    return count;
  }
  void expectVersion(int loaded, int called) {
    const std::string path = plugin(loaded);
    inChild(path.c_str(), [&] {
      EXPECT_NE(open(), nullptr);
      EXPECT_EQ(mask(), 0u) << "the mask outlives its plugin";
      EXPECT_FALSE(isLoaded(path));
    });
    const auto inits = journal().of("init", "");
    ASSERT_EQ(inits.size(), 1u);
    EXPECT_EQ(inits[0].word("version"), std::to_string(called));
    EXPECT_EQ(said("through ncclProfiler_v" + std::to_string(called)), 1u);
    EXPECT_EQ(journal().of("finalize", "").size(), 1u);
  }

  const std::string log_ = ::testing::TempDir() + "profiler_log_" + std::to_string(getpid());
  const std::string debug_ = ::testing::TempDir() + "profiler_debug_" + std::to_string(getpid());
};

TEST_F(ProfilerPlugin, IsCalledThroughItsNewestTable) {
  for (const int version : {5, 6, 7}) expectVersion(version, version);
}

TEST_F(ProfilerPlugin, HearsWhoTheCommunicatorIs) {
  inChild(plugin(7).c_str(), [] { EXPECT_NE(open(3), nullptr); });
  const auto inits = journal().of("init", "");
  ASSERT_EQ(inits.size(), 1u);
  EXPECT_EQ(inits[0].word("comm"), "4d");
  EXPECT_EQ(inits[0].word("name"), "named");
  EXPECT_EQ(inits[0].word("nodes"), "2");
  EXPECT_EQ(inits[0].word("ranks"), "4");
  EXPECT_EQ(inits[0].word("rank"), "3");
  EXPECT_EQ(said("profiler plugin: a word from the plugin about rank 3"), 1u);
}

TEST_F(ProfilerPlugin, OfOldVersionsOnlyIsRefusedWithAWord) {
  inChild(plugin(4).c_str(), [] {
    EXPECT_EQ(open(), nullptr);
    EXPECT_EQ(open(), nullptr);
    EXPECT_FALSE(isLoaded(plugin(4)));
  });
  EXPECT_EQ(said("ncclProfiler_v4 is its newest table"), 1u) << "said once, not for every communicator";
}

// The loader reads its search path when a process starts, so these start one.
void runWithSearchPath(const std::string& path, const std::string& setting, const std::string& log) {
  const std::string command = "env -u NCCL_PROFILER_PLUGIN LD_LIBRARY_PATH=" + path + " " + setting +
                              " STRETTO_DEVICE=cpu STRETTO_TEST_PROFILE_LOG=" + log + " timeout 50 " +
                              STRETTO_TEST_EXAMPLES "/example_several_devices_per_thread > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

TEST_F(ProfilerPlugin, IsFoundByName) {
  runWithSearchPath(folder(), "NCCL_PROFILER_PLUGIN=recording-v6", log_);
  ASSERT_EQ(journal().of("init", "").size(), 2u);
  EXPECT_EQ(journal().of("init", "")[0].word("version"), "6");
}

TEST_F(ProfilerPlugin, IsFoundByItsDefaultName) {
  const std::string path = ::testing::TempDir() + "profiler_path_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  const std::string link = path + "/libnccl-profiler.so";
  ASSERT_EQ(symlink(plugin(5).c_str(), link.c_str()), 0);
  runWithSearchPath(path, "", log_);
  unlink(link.c_str());
  rmdir(path.c_str());
  ASSERT_EQ(journal().of("init", "").size(), 2u);
  EXPECT_EQ(journal().of("init", "")[0].word("version"), "5");
}

TEST_F(ProfilerPlugin, WithASlashIsTakenAsItStands) {
  inChild("/nonexistent/thing", [] { EXPECT_EQ(open(), nullptr); });
  EXPECT_EQ(said("no profiler plugin in /nonexistent/thing"), 1u);
  EXPECT_EQ(said("libnccl-profiler-"), 0u);
  inChild("libthing.so", [] { EXPECT_EQ(open(), nullptr); });
  EXPECT_EQ(said("no profiler plugin in libthing.so"), 1u);
  EXPECT_EQ(said("libnccl-profiler-"), 0u);
}

TEST_F(ProfilerPlugin, ThatWasNamedAndIsNotThereIsAWarning) {
  for (const char* name : {"/nonexistent/thing", "nonexistent"}) {
    inChild(
        name, [] { EXPECT_EQ(open(), nullptr); }, "WARN");
    EXPECT_EQ(said(std::string("WARN NCCL_PROFILER_PLUGIN=") + name + ": "), 1u) << name;
    EXPECT_EQ(said("No such file or directory"), 1u) << "why, " << name;
    EXPECT_EQ(said("NCCL_PROFILER_PLUGIN=none"), 1u) << "what to do, " << name;
  }
  // It is a plugin, but none that can be called.
  inChild(
      plugin(4).c_str(), [] { EXPECT_EQ(open(), nullptr); }, "WARN");
  EXPECT_EQ(said("WARN NCCL_PROFILER_PLUGIN=" + plugin(4)), 1u);
  EXPECT_EQ(said("ncclProfiler_v4 is its newest table"), 1u);
  // What nobody asked for is missed by nobody.
  inChild(
      nullptr, [] { EXPECT_EQ(open(), nullptr); }, "WARN");
  EXPECT_EQ(said("WARN"), 0u);
  inChild(
      "none", [] { EXPECT_EQ(open(), nullptr); }, "WARN");
  EXPECT_EQ(said("WARN"), 0u);
}

TEST_F(ProfilerPlugin, FailureIsStickyAndNeverFatal) {
  inChild("/nonexistent/plugin.so", [] {
    EXPECT_EQ(open(), nullptr);
    setenv("NCCL_PROFILER_PLUGIN", plugin(7).c_str(), 1);
    EXPECT_EQ(open(), nullptr) << "tried again";
    EXPECT_EQ(mask(), 0u);
  });
  EXPECT_EQ(said("no profiler plugin in"), 1u);
}

TEST_F(ProfilerPlugin, NoneMeansNone) {
  inChild("NoNe", [] { EXPECT_EQ(open(), nullptr); });
  EXPECT_EQ(said("profiler plugin"), 0u);
}

TEST_F(ProfilerPlugin, DefaultIsLookedFor) {
  inChild(nullptr, [] { EXPECT_EQ(open(), nullptr); });
  EXPECT_EQ(said("no profiler plugin in libnccl-profiler.so"), 1u);
}

TEST_F(ProfilerPlugin, MayBeTheProgramItself) {
  inChild("STATIC_PLUGIN", [] {
    const auto session = open();
    EXPECT_NE(session, nullptr);
    EXPECT_EQ(gStaticInits, 1);
    EXPECT_EQ(mask(), 0x100u);
  });
  inChild("STATIC", [] {
    EXPECT_EQ(open(), nullptr) << "compared as a whole";
    EXPECT_EQ(gStaticInits, 0);
  });
}

TEST_F(ProfilerPlugin, StaysUntilTheLastCommunicator) {
  inChild(plugin(7).c_str(), [] {
    EXPECT_FALSE(watch::anybody());
    auto first = open(0);
    auto second = open(1);
    first.reset();
    EXPECT_TRUE(isLoaded(plugin(7)));
    EXPECT_NE(mask(), 0u);
    EXPECT_TRUE(watch::watches(watch::kProfilerPlugin)) << "else its operations are not told of";
    second.reset();
    EXPECT_FALSE(isLoaded(plugin(7)));
    EXPECT_FALSE(watch::anybody()) << "operations still look for a plugin that is gone";
    EXPECT_EQ(mask(), 0u);
    const auto again = open(2);
    EXPECT_NE(again, nullptr);
    EXPECT_TRUE(isLoaded(plugin(7)));
  });
  EXPECT_EQ(journal().of("init", "").size(), 3u);
  EXPECT_EQ(journal().of("finalize", "").size(), 3u);
  EXPECT_EQ(said("closed after its last communicator"), 2u);
}

TEST_F(ProfilerPlugin, ThatRefusesACommunicatorIsLetGo) {
  inChild(plugin(7).c_str(), [] {
    setenv("STRETTO_TEST_PROFILE_REFUSE", "1", 1);
    EXPECT_EQ(open(), nullptr);
    EXPECT_FALSE(isLoaded(plugin(7)));
    EXPECT_FALSE(watch::anybody());
    setenv("STRETTO_TEST_PROFILE_REFUSE", "0", 1);
    EXPECT_NE(open(), nullptr) << "one refusal is not for all communicators";
  });
  EXPECT_EQ(said("init returned 3"), 1u);
}

TEST_F(ProfilerPlugin, IsLeftAloneInAForkedChild) {
  inChild(plugin(7).c_str(), [] {
    auto session = open();
    ASSERT_NE(session, nullptr);
    const pid_t child = fork();
    if (child == 0) {
      session.reset();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
  EXPECT_EQ(journal().of("finalize", "").size(), 1u) << "of the parent alone";
}

}  // namespace
}  // namespace stretto
