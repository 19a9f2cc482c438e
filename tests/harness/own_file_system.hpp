// File systems that one process has for its own, so that what others leave there does not matter to a test.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <string>

namespace stretto::testing {

// A file system of so many KB on `folder`, which nobody but this process and its children sees; false where
// that is not allowed. For a process of one thread.
inline bool mountOwn(const std::string& folder, int kilobytes) {
  const std::string options = "mode=0700,size=" + std::to_string(kilobytes) + "k";
  return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", folder.c_str(), "tmpfs", 0, options.c_str()) == 0;
}

}  // namespace stretto::testing
