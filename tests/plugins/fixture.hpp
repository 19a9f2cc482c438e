// What the tests of the profiler plugin share: a fresh copy of the plugin for each test (it stays loaded and
// keeps its recording for as long as the process lives, so one test's would be the next one's), a directory
// and the variables.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "canned_calls.hpp"
#include "harness/temporary_folder.hpp"
#include "harness/watchdog.hpp"
#include "recording.hpp"

namespace stretto::testing {

class ProfilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set("STRETTO_TRACE_DIR", directory_);
    set("STRETTO_TRACE_EVENTS", "all");
    logged().clear();
  }
  void TearDown() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

  // A library of its own, with nothing recorded yet.
  void* load(const char* library = STRETTO_PROFILER) {
    const std::string copy = folder_ + "/plugin" + std::to_string(copies_++) + ".so";
    std::filesystem::copy_file(library, copy);
    void* loaded = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(loaded, nullptr) << dlerror();
    return loaded;
  }
  template <int Abi>
  const TableOf<Abi>& table(void* library) {
    const auto* found = loadTable<Abi>(library);
    EXPECT_NE(found, nullptr) << "ncclProfiler_v" << Abi;
    return *found;
  }

  RecordingFileContents read() const {
    const auto files = listRecordings(directory_);
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? RecordingFileContents{} : readRecording(files[0]);
  }

  // What the plugin told NCCL's logger: level and text.
  static std::vector<std::pair<int, std::string>>& logged() {
    static std::vector<std::pair<int, std::string>> all;
    return all;
  }
  static void logger(int level, unsigned long, const char*, int, const char* text, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, text);
    vsnprintf(line, sizeof line, text, arguments);
    va_end(arguments);
    logged().emplace_back(level, line);
  }

  // Runs `body` in a child that then leaves at once; what it returns is its exit status.
  template <typename Body>
  static int inChild(Body&& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  const TemporaryFolder own_{"profiler"};
  const std::string folder_ = own_.path();
  const std::string directory_ = own_ / "run";
  Watchdog watchdog_{"a test of the profiler plugin", 120};

 private:
  std::vector<std::string> names_;
  int copies_ = 0;
};

}  // namespace stretto::testing
