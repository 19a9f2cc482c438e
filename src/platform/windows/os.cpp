#include "base/os.hpp"

#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/windows/native.hpp"

#if defined(__MINGW32__)
#include <cxxabi.h>

extern "C" void* __dso_handle;

namespace {

// mingw-w64's GCC keeps a thread's thread_local objects in the value of one key of its threads library, and
// calls their destructors from that of another. At a thread's end the keys' values go in the order in which
// the keys were made. The one of destructors must be the first, or they run on memory that was freed: it is
// made here, before any thread_local object is touched. In this file, as all of the library needs it and
// linkers therefore take it.
[[gnu::constructor(101)]] void makeKeyOfDestructors() {
  abi::__cxa_thread_atexit([](void*) {}, nullptr, &__dso_handle);
}

}  // namespace
#endif

namespace stretto::os {

using namespace platform::windows;

ProcessId processId() {
  return static_cast<ProcessId>(GetCurrentProcessId());
}
int threadId() {
  return static_cast<int>(GetCurrentThreadId());
}

bool hostName(char* into, size_t bytes) {
  into[0] = 0;
  wchar_t name[256] = L"";
  DWORD length = 256;
  if (!GetComputerNameExW(ComputerNameDnsHostname, name, &length)) {
    takeError();
    return false;
  }
  const std::string text = utf8(name);
  const size_t kept = std::min(text.size(), bytes - 1);
  std::memcpy(into, text.data(), kept);
  into[kept] = 0;
  return true;
}

// The system's own call, as the C library's cannot share a file that is being written with its readers.
FILE* openFile(const std::string& path, Access access) {
  constexpr DWORD kRights[] = {GENERIC_READ, FILE_APPEND_DATA | SYNCHRONIZE, GENERIC_WRITE};
  constexpr DWORD kWays[] = {OPEN_EXISTING, OPEN_ALWAYS, CREATE_ALWAYS};
  constexpr int kFlags[] = {_O_RDONLY | _O_BINARY, _O_WRONLY | _O_APPEND | _O_BINARY, _O_WRONLY | _O_BINARY};
  constexpr const char* kModes[] = {"rb", "ab", "wb"};
  const auto which = static_cast<size_t>(access);
  const DWORD sharing = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  UniqueHandle opened = own(CreateFileW(utf16(path).c_str(), kRights[which], sharing, nullptr, kWays[which],
                                        FILE_ATTRIBUTE_NORMAL, nullptr));
  if (opened == nullptr) {
    takeError();
    return nullptr;
  }
  const int descriptor = _open_osfhandle(reinterpret_cast<intptr_t>(opened.get()), kFlags[which]);
  if (descriptor < 0) return nullptr;
  static_cast<void>(opened.release());  // the descriptor's from here on
  FILE* const file = _fdopen(descriptor, kModes[which]);
  if (file == nullptr) _close(descriptor);
  return file;
}

bool isRegularFile(FILE* file) {
  const auto handle = reinterpret_cast<HANDLE>(_get_osfhandle(_fileno(file)));
  return GetFileType(handle) == FILE_TYPE_DISK;
}

std::vector<std::string> environmentEntries() {
  std::vector<std::string> entries;
  wchar_t* const block = GetEnvironmentStringsW();
  if (block == nullptr) return entries;
  for (const wchar_t* entry = block; *entry != 0; entry += wcslen(entry) + 1) entries.push_back(utf8(entry));
  FreeEnvironmentStringsW(block);
  return entries;
}

}  // namespace stretto::os
