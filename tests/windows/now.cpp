#include "harness/now.hpp"

#include "platform/windows/native.hpp"

namespace stretto::testing {

using namespace platform::windows;

size_t threadsNow() {
  const UniqueHandle all = own(CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0));
  size_t count = 0;
  THREADENTRY32 one{};
  one.dwSize = sizeof one;
  for (BOOL more = Thread32First(all.get(), &one); more; more = Thread32Next(all.get(), &one)) {
    if (one.th32OwnerProcessID == GetCurrentProcessId()) ++count;
  }
  return count;
}
size_t descriptorsNow() {
  DWORD count = 0;
  GetProcessHandleCount(GetCurrentProcess(), &count);
  return count;
}
// Views and allocations.
size_t mappingsNow() {
  size_t count = 0;
  MEMORY_BASIC_INFORMATION facts{};
  for (const char* at = nullptr; VirtualQuery(at, &facts, sizeof facts) != 0;
       at = static_cast<const char*>(facts.BaseAddress) + facts.RegionSize) {
    if (facts.State != MEM_FREE) ++count;
  }
  return count;
}

}  // namespace stretto::testing
