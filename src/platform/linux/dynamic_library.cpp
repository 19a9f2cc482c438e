#include "platform/dynamic_library.hpp"

#include <dlfcn.h>

#include <utility>

namespace stretto::platform {

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

DynamicLibrary DynamicLibrary::openRaw(const char* name, std::string* why) {
  DynamicLibrary library;
  library.handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ != nullptr || why == nullptr) return library;
  const char* const words = dlerror();
  *why = words != nullptr ? words : "the loader does not say why";
  return library;
}

DynamicLibrary DynamicLibrary::open(const std::string& name, std::string* why) {
  return openRaw(name.c_str(), why);
}
DynamicLibrary DynamicLibrary::program(std::string* why) {
  return openRaw(nullptr, why);
}

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

void DynamicLibrary::close() {
  if (handle_ != nullptr) dlclose(handle_);
  handle_ = nullptr;
}

}  // namespace stretto::platform
