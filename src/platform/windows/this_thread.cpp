#include "platform/this_thread.hpp"

#include "platform/windows/native.hpp"

namespace stretto::platform {

// SetThreadDescription is younger than the oldest Windows that this runs on, and than some headers.
void nameThisThread(const char* name) {
  using Describe = HRESULT(WINAPI*)(HANDLE thread, PCWSTR name);
  const HMODULE kernel = GetModuleHandleW(L"kernel32.dll");
  static const auto describe =
      reinterpret_cast<Describe>(reinterpret_cast<void*>(GetProcAddress(kernel, "SetThreadDescription")));
  if (describe != nullptr) describe(GetCurrentThread(), windows::utf16(name).c_str());
}

}  // namespace stretto::platform
