#include "platform/loaded_files.hpp"

#include <algorithm>
#include <iterator>

#include "platform/windows/native.hpp"

namespace stretto::platform {
namespace {

using namespace windows;

void addOnce(std::vector<std::string>& all, const std::string& one) {
  if (!one.empty() && std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

std::string fileOf(HMODULE module) {
  wchar_t path[4096] = L"";
  return utf8(std::wstring(path, GetModuleFileNameW(module, path, std::size(path))));
}

std::string folderOf(const std::string& path) {
  return path.substr(0, std::min(path.find_last_of("\\/"), path.size()));
}

// Volume and index, by which the system knows a file.
bool indexOf(const std::string& path, BY_HANDLE_FILE_INFORMATION& facts) {
  const DWORD sharing = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const UniqueHandle file = own(CreateFileW(utf16(path).c_str(), 0, sharing, nullptr, OPEN_EXISTING,
                                            FILE_FLAG_BACKUP_SEMANTICS, nullptr));
  return file != nullptr && GetFileInformationByHandle(file.get(), &facts);
}

}  // namespace

std::vector<std::string> mappedFiles() {
  HMODULE all[512];
  DWORD bytes = 0;
  std::vector<std::string> files;
  if (!K32EnumProcessModules(GetCurrentProcess(), all, sizeof all, &bytes)) return files;
  const size_t count = std::min(bytes / sizeof all[0], std::size(all));
  for (size_t i = 0; i < count; ++i) addOnce(files, fileOf(all[i]));
  return files;
}

// The program's folder, the system's, and those of PATH.
std::vector<std::string> librarySearchPath() {
  std::vector<std::string> folders;
  addOnce(folders, folderOf(fileOf(nullptr)));
  wchar_t system[MAX_PATH] = L"";
  addOnce(folders, utf8(std::wstring(system, GetSystemDirectoryW(system, MAX_PATH))));
  std::wstring path(32768, 0);
  path.resize(GetEnvironmentVariableW(L"PATH", path.data(), static_cast<DWORD>(path.size())));
  const std::string text = utf8(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    addOnce(folders, text.substr(at, end - at));
    at = end + 1;
  }
  return folders;
}

// Without the function's name, which the system does not know. No address would be the program.
CodePlace placeOfCode(const void* code) {
  HMODULE module = nullptr;
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (code == nullptr || !GetModuleHandleExW(flags, static_cast<const wchar_t*>(code), &module)) return {};
  return {fileOf(module), ""};
}

std::string ownFile() {
  return placeOfCode(reinterpret_cast<const void*>(&ownFile)).file;
}

bool sameFile(const std::string& a, const std::string& b) {
  BY_HANDLE_FILE_INFORMATION first{};
  BY_HANDLE_FILE_INFORMATION second{};
  return indexOf(a, first) && indexOf(b, second) &&
         first.dwVolumeSerialNumber == second.dwVolumeSerialNumber &&
         first.nFileIndexHigh == second.nFileIndexHigh && first.nFileIndexLow == second.nFileIndexLow;
}

bool isFile(const std::string& path) {
  const DWORD attributes = GetFileAttributesW(utf16(path).c_str());
  return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) == 0;
}

}  // namespace stretto::platform
