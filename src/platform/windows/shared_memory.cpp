#include "platform/shared_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "platform/windows/native.hpp"
#include "platform/windows/segment.hpp"

namespace stretto::platform {
namespace {

using namespace windows;

DWORD high(uint64_t bytes) {
  return static_cast<DWORD>(bytes >> 32);
}
DWORD low(uint64_t bytes) {
  return static_cast<DWORD>(bytes);
}

// Handles have 32 bits that count.
HANDLE handleOf(int descriptor) {
  return reinterpret_cast<HANDLE>(static_cast<intptr_t>(descriptor));
}
int descriptorOf(HANDLE handle) {
  return static_cast<int>(reinterpret_cast<intptr_t>(handle));
}

void unmap(std::byte* data) {
  MEMORY_BASIC_INFORMATION facts{};
  if (VirtualQuery(data, &facts, sizeof facts) == 0) return;
  if (facts.Type == MEM_MAPPED) {
    UnmapViewOfFile(facts.AllocationBase);
  } else {
    VirtualFree(facts.AllocationBase, 0, MEM_RELEASE);
  }
}

Status failLast(const char* what, size_t bytes) {
  takeError();
  return failErrno("%s %zu bytes", what, bytes);
}

// A handle of `owner`'s, as this process's own.
Result<UniqueHandle> duplicate(os::ProcessId owner, int descriptor) {
  const UniqueHandle process = own(OpenProcess(PROCESS_DUP_HANDLE, FALSE, static_cast<DWORD>(owner)));
  HANDLE ours = nullptr;
  if (process != nullptr && DuplicateHandle(process.get(), handleOf(descriptor), GetCurrentProcess(), &ours,
                                            0, FALSE, DUPLICATE_SAME_ACCESS)) {
    return own(ours);
  }
  const DWORD error = GetLastError();
  // A process that has ended has no handles any more, or is not there.
  const bool hasEnded = error == ERROR_INVALID_PARAMETER || error == ERROR_INVALID_HANDLE;
  errno = errnoOf(error);
  const Status status =
      failErrno("cannot open the shared memory of process %d (handle %d)", owner, descriptor);
  return hasEnded ? Status{Code::kRemote} : status;
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) unmap(data_);
  closeDescriptor();
}

void SharedMemory::closeDescriptor() {
  if (descriptor_ >= 0) CloseHandle(handleOf(descriptor_));
  descriptor_ = -1;
}

Result<SharedMemory> SharedMemory::create(const char* label, size_t bytes) {
  const uint64_t whole = SegmentHeader::kBytes + uint64_t{bytes};
  UniqueHandle section = own(
      CreateFileMappingW(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE, high(whole), low(whole), nullptr));
  void* const view =
      section == nullptr ? nullptr : MapViewOfFile(section.get(), FILE_MAP_ALL_ACCESS, 0, 0, whole);
  if (view == nullptr) {
    takeError();
    return failErrno("cannot make %zu bytes of shared memory (%s)", bytes, label);
  }
  auto* const header = new (view) SegmentHeader;
  header->bytes = bytes;
  header->magic = SegmentHeader::kMagic;
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(view) + SegmentHeader::kBytes;
  memory.size_ = bytes;
  memory.descriptor_ = descriptorOf(section.release());
  return memory;
}

Result<SharedMemory> SharedMemory::createPrivate(size_t bytes) {
  void* const address = VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (address == nullptr) return failLast("cannot allocate", bytes);
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(address);
  memory.size_ = bytes;
  return memory;
}

// The folder's rights hold for the file. A new file's blocks are zero, and are taken by its length.
Result<SharedMemory> SharedMemory::createFile(const std::string& path, size_t bytes) {
  const DWORD sharing = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const UniqueHandle file = own(CreateFileW(utf16(path).c_str(), GENERIC_READ | GENERIC_WRITE, sharing,
                                            nullptr, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr));
  if (file == nullptr) {
    takeError();
    return failErrno("cannot make the file %s", path.c_str());
  }
  const UniqueHandle section =
      own(CreateFileMappingW(file.get(), nullptr, PAGE_READWRITE, high(bytes), low(bytes), nullptr));
  void* const view =
      section == nullptr ? nullptr : MapViewOfFile(section.get(), FILE_MAP_ALL_ACCESS, 0, 0, bytes);
  if (view == nullptr) {
    takeError();
    const Status status = failErrno("cannot take %zu bytes for %s", bytes, path.c_str());
    DeleteFileW(utf16(path).c_str());
    return status;
  }
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(view);
  memory.size_ = bytes;
  return memory;
}

Result<SharedMemory> SharedMemory::open(os::ProcessId owner, int descriptor, size_t bytes) {
  const auto section = duplicate(owner, descriptor);
  if (!section.ok()) return section.status();
  const size_t whole = SegmentHeader::kBytes + bytes;
  void* const view = MapViewOfFile(section.value().get(), FILE_MAP_ALL_ACCESS, 0, 0, whole);
  if (view == nullptr) return failLast("cannot map another process's", bytes);
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(view) + SegmentHeader::kBytes;
  memory.size_ = bytes;
  const auto& header = *static_cast<const SegmentHeader*>(view);
  if (header.magic == SegmentHeader::kMagic && header.bytes == bytes) return memory;
  return fail(Code::kInternal, "the shared memory of process %d is %llu bytes, not %zu", owner,
              static_cast<unsigned long long>(header.bytes), bytes);
}

bool readProcess(os::ProcessId process, void* destination, const void* remote, size_t bytes) {
  const UniqueHandle opened = own(OpenProcess(PROCESS_VM_READ, FALSE, static_cast<DWORD>(process)));
  SIZE_T done = 0;
  if (opened != nullptr && ReadProcessMemory(opened.get(), remote, destination, bytes, &done) &&
      done == bytes)
    return true;
  takeError();
  return false;
}

// In pieces that one pipe holds: Wine 8 sends what is written through one, and ends a process whose piece
// does not fit.
bool writeProcess(os::ProcessId process, void* remote, const void* source, size_t bytes) {
  constexpr DWORD kRights = PROCESS_VM_WRITE | PROCESS_VM_OPERATION;
  constexpr size_t kPiece = 32768;
  const UniqueHandle opened = own(OpenProcess(kRights, FALSE, static_cast<DWORD>(process)));
  size_t at = 0;
  SIZE_T done = 0;
  while (opened != nullptr && at < bytes &&
         WriteProcessMemory(opened.get(), static_cast<std::byte*>(remote) + at,
                            static_cast<const std::byte*>(source) + at, std::min(kPiece, bytes - at),
                            &done)) {
    at += done;
  }
  if (opened != nullptr && at == bytes) return true;
  takeError();
  return false;
}

}  // namespace stretto::platform
