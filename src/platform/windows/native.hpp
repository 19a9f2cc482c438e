// What the files of this folder share: the system's header, its errors as errno, handles that close
// themselves, and text in both encodings.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
// In this order: Winsock before windows.h, which would bring its predecessor, and the others after that.
// clang-format off
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>
#include <bcrypt.h>
#include <iphlpapi.h>
#include <mstcpip.h>
#include <psapi.h>
#include <tlhelp32.h>
#include <winternl.h>
// clang-format on

#include <memory>
#include <string>
#include <type_traits>

namespace stretto::platform::windows {

// The errno that says the same as an error of the system or of Winsock; EIO if none does.
int errnoOf(DWORD error);
// Puts GetLastError() into errno.
void takeError();
// The system's sentence about an error.
std::string sentenceOf(DWORD error);

struct CloseHandleOf {
  void operator()(HANDLE handle) const { CloseHandle(handle); }
};
using UniqueHandle = std::unique_ptr<std::remove_pointer_t<HANDLE>, CloseHandleOf>;
// None for both values by which calls say that there is none.
inline UniqueHandle own(HANDLE handle) {
  return UniqueHandle(handle == INVALID_HANDLE_VALUE ? nullptr : handle);
}

// Core b of processor group g has the number 64 g + b.
inline constexpr int kInGroup = 64;

// UTF-8, as all of the library has it, and UTF-16, as the system has it.
std::wstring utf16(const std::string& text);
std::string utf8(const std::wstring& text);

}  // namespace stretto::platform::windows
