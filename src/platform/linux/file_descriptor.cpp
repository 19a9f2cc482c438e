#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

#include "platform/socket.hpp"

namespace stretto {
namespace {

// Which descriptors a forked child must close. A plain bitmap under a mutex that fork() also takes, so that
// the child's copy is always consistent; never freed, because descriptors may outlive static objects.
struct ForkTable {
  std::mutex mutex;
  std::vector<bool> open;
};

void lockForFork();
void unlockInParent();
void closeInChild();

ForkTable& forkTable() {
  static ForkTable* const table = [] {
    auto* made = new ForkTable;
    made->open.resize(1024);
    return made;
  }();
  static const int registered = pthread_atfork(lockForFork, unlockInParent, closeInChild);
  static_cast<void>(registered);
  return *table;
}

void lockForFork() {
  forkTable().mutex.lock();
}

void unlockInParent() {
  forkTable().mutex.unlock();
}

// Runs in the child before fork() returns there; close() is all it may call.
void closeInChild() {
  ForkTable& table = forkTable();
  for (size_t fd = 0; fd < table.open.size(); ++fd) {
    if (table.open[fd]) {
      ::close(static_cast<int>(fd));
      table.open[fd] = false;
    }
  }
  table.mutex.unlock();
}

}  // namespace

FileDescriptor FileDescriptor::create(const std::function<int()>& open) {
  ForkTable& table = forkTable();
  FileDescriptor made;
  std::lock_guard lock(table.mutex);
  const int fd = open();
  if (fd < 0) {
    return made;
  }
  const auto index = static_cast<size_t>(fd);
  if (index >= table.open.size()) {
    table.open.resize(std::max(index + 1, table.open.size() * 2));
  }
  table.open[index] = true;
  made.fd_ = fd;
  made.generation_ = platform::forkGeneration();
  return made;
}

void FileDescriptor::reset() {
  if (fd_ < 0) {
    return;
  }
  ForkTable& table = forkTable();
  const int error = errno;
  std::lock_guard lock(table.mutex);
  if (const int fd = get(); fd >= 0) {
    ::close(fd);
    table.open[static_cast<size_t>(fd)] = false;
  }
  fd_ = -1;
  errno = error;
}

}  // namespace stretto
