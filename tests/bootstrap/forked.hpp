// Ranks for the bootstrap tests as forked processes, which report by their exit code and a page of shared
// memory. For tests/bootstrap only.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <new>
#include <vector>

#include "bootstrap/ranks.hpp"

namespace stretto::bootstrap::testing {

// A page that parent and forked children share.
template <typename T>
class SharedPage {
 public:
  SharedPage() {
    void* at = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    value_ = new (at) T();
  }
  ~SharedPage() { ::munmap(value_, sizeof(T)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_ = nullptr;
};

// An id that one process makes and the others wait for.
struct PostedId {
  std::atomic<int> posted{0};
  UniqueId id;

  void post(const UniqueId& made) {
    id = made;
    posted.store(1, std::memory_order_release);
  }
  UniqueId wait() const {
    while (posted.load(std::memory_order_acquire) == 0) ::usleep(200);
    return id;
  }
};

// Forks one process per rank; body's value is the exit code. A child that hangs is ended by its alarm. The
// background thread of an earlier test has gone by then: a child starts from a process of one thread.
class Processes {
 public:
  Processes(int ranks, const std::function<int(int)>& body, unsigned alarmSeconds = 60) {
    static const size_t kAlone = STRETTO_THREAD_SANITIZER ? 2 : 1;  // the sanitizer has a thread of its own
    EXPECT_TRUE(eventually(5, [] { return threads() <= kAlone; })) << threads() << " threads before a fork";
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::alarm(alarmSeconds);
        ::_exit(body(rank));
      }
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (size_t rank = 0; rank < pids_.size(); ++rank) wait(static_cast<int>(rank));
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  void kill(int rank) const { ::kill(pid(rank), SIGKILL); }
  // The exit code, or minus the signal that ended it.
  int wait(int rank) {
    pid_t& pid = pids_[static_cast<size_t>(rank)];
    if (pid == 0) return 0;
    int status = 0;
    ::waitpid(pid, &status, 0);
    pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace stretto::bootstrap::testing
