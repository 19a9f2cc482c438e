#include "platform/dynamic_library.hpp"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstring>

namespace stretto::platform {
namespace {

// Sanitizers replace functions of the C library, which RTLD_DEEPBIND would undo; they refuse it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOwnFunctionsFirst = 0;
#else
constexpr int kOwnFunctionsFirst = RTLD_DEEPBIND;
#endif

// The loader opens what a path names and would wait at a pipe. What is not there it refuses in its own words.
bool isNoLibrary(const char* name) {
  struct stat facts {};
  return name != nullptr && strchr(name, '/') != nullptr && stat(name, &facts) == 0 &&
         !S_ISREG(facts.st_mode);
}

}  // namespace

DynamicLibrary DynamicLibrary::openRaw(const char* name, int flags, std::string* why) {
  DynamicLibrary library;
  if (isNoLibrary(name)) {
    if (why != nullptr) *why = std::string(name) + " is no regular file";
    return library;
  }
  library.handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
  if (library.handle_ != nullptr || why == nullptr) return library;
  const char* const words = dlerror();
  *why = words != nullptr ? words : "the loader does not say why";
  return library;
}

DynamicLibrary DynamicLibrary::open(const std::string& name, std::string* why) {
  return openRaw(name.c_str(), 0, why);
}
DynamicLibrary DynamicLibrary::openApart(const std::string& path, std::string* why) {
  return openRaw(path.c_str(), kOwnFunctionsFirst, why);
}
DynamicLibrary DynamicLibrary::openLoaded(const std::string& path) {
  return openRaw(path.c_str(), RTLD_NOLOAD, nullptr);
}
DynamicLibrary DynamicLibrary::program(std::string* why) {
  return openRaw(nullptr, 0, why);
}

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

void DynamicLibrary::close() {
  if (handle_ != nullptr) dlclose(handle_);
  handle_ = nullptr;
}

}  // namespace stretto::platform
