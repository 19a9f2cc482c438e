#include "base/os.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace stretto::os {

ProcessId processId() {
  return ::getpid();
}
int threadId() {
  return ::gettid();
}

bool hostName(char* into, size_t bytes) {
  into[0] = into[bytes - 1] = 0;
  return ::gethostname(into, bytes - 1) == 0 || errno == ENAMETOOLONG;  // then it is cut
}

FILE* openFile(const std::string& path, Access access) {
  constexpr int kFlags[] = {O_RDONLY, O_WRONLY | O_APPEND | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC};
  constexpr const char* kModes[] = {"r", "a", "w"};
  const auto which = static_cast<size_t>(access);
  const int opened = ::open(path.c_str(), kFlags[which] | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (opened < 0) return nullptr;
  // What it refers to is this process's own, so nobody else's reads and writes change by this.
  if (access == Access::kAppend) ::fcntl(opened, F_SETFL, ::fcntl(opened, F_GETFL) & ~O_NONBLOCK);
  FILE* const file = ::fdopen(opened, kModes[which]);
  if (file == nullptr) ::close(opened);
  return file;
}

bool isRegularFile(FILE* file) {
  struct stat facts {};
  return ::fstat(::fileno(file), &facts) == 0 && S_ISREG(facts.st_mode);
}

std::vector<std::string> environmentEntries() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace stretto::os
