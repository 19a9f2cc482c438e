#include "platform/dynamic_library.hpp"

#include <iterator>

#include "platform/windows/native.hpp"

namespace stretto::platform {
namespace {

using namespace windows;

enum Way { kAsLoaderLooks, kByPath, kIfLoaded };

HMODULE load(const char* name, int way) {
  HMODULE module = nullptr;
  if (name == nullptr || way == kIfLoaded) {
    GetModuleHandleExW(0, name == nullptr ? nullptr : utf16(name).c_str(), &module);
    return module;
  }
  std::wstring path = utf16(name);
  for (wchar_t& c : path) c = c == L'/' ? L'\\' : c;
  return LoadLibraryExW(path.c_str(), nullptr, way == kByPath ? LOAD_WITH_ALTERED_SEARCH_PATH : 0);
}

void* functionOf(HMODULE module, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(module, name));
}

}  // namespace

DynamicLibrary DynamicLibrary::openRaw(const char* name, int way, std::string* why) {
  DynamicLibrary library;
  library.handle_ = load(name, way);
  if (library.handle_ == nullptr && why != nullptr) {
    const DWORD error = GetLastError();
    *why = std::string(name == nullptr ? "the program" : name) + ": " + sentenceOf(error);
  }
  return library;
}

DynamicLibrary DynamicLibrary::open(const std::string& name, std::string* why) {
  return openRaw(name.c_str(), kAsLoaderLooks, why);
}
// Functions of a library are always found by its own name: there is nothing to keep apart.
DynamicLibrary DynamicLibrary::openApart(const std::string& path, std::string* why) {
  return openRaw(path.c_str(), kByPath, why);
}
DynamicLibrary DynamicLibrary::openLoaded(const std::string& path) {
  return openRaw(path.c_str(), kIfLoaded, nullptr);
}
DynamicLibrary DynamicLibrary::program(std::string* why) {
  return openRaw(nullptr, kIfLoaded, why);
}

void* DynamicLibrary::symbol(const char* name) const {
  const auto module = static_cast<HMODULE>(handle_);
  if (module == nullptr) return nullptr;
  if (module != GetModuleHandleW(nullptr)) return functionOf(module, name);
  // The program stands for all that is loaded with it, as on other systems.
  HMODULE all[512];
  DWORD bytes = 0;
  if (!K32EnumProcessModules(GetCurrentProcess(), all, sizeof all, &bytes)) return functionOf(module, name);
  const size_t count = bytes / sizeof all[0];
  for (size_t i = 0; i < count && i < std::size(all); ++i) {
    if (void* const found = functionOf(all[i], name)) return found;
  }
  return nullptr;
}

void DynamicLibrary::close() {
  if (handle_ != nullptr) FreeLibrary(static_cast<HMODULE>(handle_));
  handle_ = nullptr;
}

}  // namespace stretto::platform
