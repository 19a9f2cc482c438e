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

void refuse(std::string* refused, const std::string& what) {
  *refused += (refused->empty() ? "" : "; ") + what;
}

// Large pages need the right to lock memory. A user who was given it has it in every process, switched off;
// so it is switched on, for as long as the process lives. 0: there are none, and why is said.
size_t largePage(std::string* refused) {
  const size_t bytes = GetLargePageMinimum();
  HANDLE opened = nullptr;
  TOKEN_PRIVILEGES wanted{};
  wanted.PrivilegeCount = 1;
  wanted.Privileges[0].Attributes = SE_PRIVILEGE_ENABLED;
  if (bytes == 0) {
    refuse(refused, "no large pages: this processor or system has none");
    return 0;
  }
  const bool isOpen = OpenProcessToken(GetCurrentProcess(), TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &opened);
  const UniqueHandle token = own(isOpen ? opened : nullptr);
  // It succeeds without having switched anything on, and says so by the error alone.
  if (token != nullptr &&
      LookupPrivilegeValueW(nullptr, L"SeLockMemoryPrivilege", &wanted.Privileges[0].Luid) &&
      AdjustTokenPrivileges(token.get(), FALSE, &wanted, 0, nullptr, nullptr) &&
      GetLastError() == ERROR_SUCCESS)
    return bytes;
  refuse(refused, "no large pages: this user has no right to lock memory (SeLockMemoryPrivilege)");
  return 0;
}

size_t roundedUp(size_t bytes, size_t page) {
  return (bytes + page - 1) / page * page;
}

// The node for the system's calls. One that is not there is said, as the system may take it without a word.
DWORD nodeFor(const MemoryWish& wish, std::string* refused) {
  ULONG highest = 0;
  if (wish.node < 0) return NUMA_NO_PREFERRED_NODE;
  if (GetNumaHighestNodeNumber(&highest) && static_cast<ULONG>(wish.node) <= highest)
    return static_cast<DWORD>(wish.node);
  refuse(refused, "not of NUMA node " + std::to_string(wish.node) + ": there is none of that number");
  return NUMA_NO_PREFERRED_NODE;
}

// A section and its view, of large pages or of others.
struct Section {
  UniqueHandle handle;
  void* view = nullptr;
};

Section makeSection(uint64_t whole, DWORD node, bool hasLargePages) {
  const DWORD kind = hasLargePages ? SEC_COMMIT | SEC_LARGE_PAGES : SEC_COMMIT;
  const DWORD access = hasLargePages ? FILE_MAP_ALL_ACCESS | FILE_MAP_LARGE_PAGES : FILE_MAP_ALL_ACCESS;
  Section made{own(CreateFileMappingNumaW(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE | kind, high(whole),
                                          low(whole), nullptr, node))};
  if (made.handle != nullptr)
    made.view = MapViewOfFileExNuma(made.handle.get(), access, 0, 0, whole, nullptr, node);
  return made;
}

// Large pages that cannot be had (memory is in too small pieces) are done without.
Section makeSection(size_t bytes, const MemoryWish& wish, std::string* refused) {
  const uint64_t whole = SegmentHeader::kBytes + uint64_t{bytes};
  const DWORD node = nodeFor(wish, refused);
  if (const size_t page = wish.hugePages ? largePage(refused) : 0; page != 0) {
    Section large = makeSection(roundedUp(whole, page), node, true);
    if (large.view != nullptr) return large;
    refuse(refused, "no large pages: " + sentenceOf(GetLastError()));
  }
  return makeSection(whole, node, false);
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

Result<SharedMemory> SharedMemory::create(const char* label, size_t bytes, const MemoryWish& wish) {
  SharedMemory memory;
  Section section = makeSection(bytes, wish, &memory.refused_);
  if (section.view == nullptr) {
    takeError();
    return failErrno("cannot make %zu bytes of shared memory (%s)", bytes, label);
  }
  auto* const header = new (section.view) SegmentHeader;
  header->bytes = bytes;
  header->magic = SegmentHeader::kMagic;
  memory.data_ = static_cast<std::byte*>(section.view) + SegmentHeader::kBytes;
  memory.size_ = bytes;
  memory.descriptor_ = descriptorOf(section.handle.release());
  return memory;
}

Result<SharedMemory> SharedMemory::createPrivate(size_t bytes, const MemoryWish& wish) {
  constexpr DWORD kKind = MEM_RESERVE | MEM_COMMIT;
  SharedMemory memory;
  const DWORD node = nodeFor(wish, &memory.refused_);
  const auto allocate = [&](size_t size, DWORD kind) {
    return VirtualAllocExNuma(GetCurrentProcess(), nullptr, size, kind, PAGE_READWRITE, node);
  };
  void* address = nullptr;
  if (const size_t page = wish.hugePages ? largePage(&memory.refused_) : 0; page != 0) {
    address = allocate(roundedUp(bytes, page), kKind | MEM_LARGE_PAGES);
    if (address == nullptr) refuse(&memory.refused_, "no large pages: " + sentenceOf(GetLastError()));
  }
  if (address == nullptr) address = allocate(bytes, kKind);
  if (address == nullptr) return failLast("cannot allocate", bytes);
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
