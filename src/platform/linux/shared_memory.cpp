#include "platform/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace stretto::platform {
namespace {

Result<std::byte*> mapShared(int descriptor, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (address == MAP_FAILED) {
    return failErrno("cannot map %zu bytes of shared memory", bytes);
  }
  return static_cast<std::byte*>(address);
}

// The kernel's word for transparent huge pages, of the kind of memory that a file is about: the one in
// brackets of "always madvise [never]". Empty where it does not say.
std::string policyOf(const char* path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path, "re"), fclose);
  char text[256] = "";
  if (file == nullptr || fgets(text, sizeof text, file.get()) == nullptr) return {};
  const char* const begin = strchr(text, '[');
  const char* const end = begin == nullptr ? nullptr : strchr(begin, ']');
  return end == nullptr ? std::string() : std::string(begin + 1, end);
}

void refuse(std::string* refused, const std::string& what) {
  *refused += (refused->empty() ? "" : "; ") + what;
}

// Advice, which the kernel follows as far as it has such pages.
void wantHugePages(void* data, size_t bytes, bool isShared, std::string* refused) {
  constexpr const char* kShared = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  constexpr const char* kPrivate = "/sys/kernel/mm/transparent_hugepage/enabled";
  const char* const path = isShared ? kShared : kPrivate;
  const std::string policy = policyOf(path);
  if (policy == "never" || policy == "deny") {
    return refuse(refused, std::string("no huge pages: ") + path + " says " + policy);
  }
  if (madvise(data, bytes, MADV_HUGEPAGE) != 0)
    refuse(refused, std::string("no huge pages: ") + strerror(errno));
}

// For pages that are taken from here on. Preferred, not demanded: a node that is full must not end the rank.
void preferNode(void* data, size_t bytes, int node, std::string* refused) {
  constexpr int kPreferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h
  constexpr size_t kMostNodes = 1024, kBits = 8 * sizeof(unsigned long);
  unsigned long nodes[kMostNodes / kBits] = {};
  const auto number = static_cast<size_t>(node);
  if (number < kMostNodes) {
    nodes[number / kBits] = 1UL << (number % kBits);
    if (syscall(SYS_mbind, data, bytes, kPreferred, nodes, kMostNodes + 1, 0) == 0) return;
  } else {
    errno = EINVAL;
  }
  refuse(refused, "not of NUMA node " + std::to_string(node) + ": " + strerror(errno));
}

std::string grant(std::byte* data, size_t bytes, bool isShared, const MemoryWish& wish) {
  std::string refused;
  if (wish.hugePages) wantHugePages(data, bytes, isShared, &refused);
  if (wish.node >= 0) preferNode(data, bytes, wish.node, &refused);
  return refused;
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (descriptor_ >= 0) close(descriptor_);
}

void SharedMemory::closeDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

Result<SharedMemory> SharedMemory::create(const char* label, size_t bytes, const MemoryWish& wish) {
  SharedMemory memory;
  memory.descriptor_ = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory.descriptor_ < 0 || fchmod(memory.descriptor_, 0600) != 0 ||
      ftruncate(memory.descriptor_, static_cast<off_t>(bytes)) != 0 ||
      fcntl(memory.descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return failErrno("cannot make %zu bytes of shared memory (%s)", bytes, label);
  }
  auto mapped = mapShared(memory.descriptor_, bytes);
  if (!mapped.ok()) return mapped.status();
  memory.data_ = mapped.value();
  memory.size_ = bytes;
  memory.refused_ = grant(memory.data_, bytes, true, wish);
  return memory;
}

Result<SharedMemory> SharedMemory::createPrivate(size_t bytes, const MemoryWish& wish) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return failErrno("cannot allocate %zu bytes", bytes);
  }
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(address);
  memory.size_ = bytes;
  memory.refused_ = grant(memory.data_, bytes, false, wish);
  return memory;
}

Result<SharedMemory> SharedMemory::createFile(const std::string& path, size_t bytes) {
  SharedMemory memory;
  memory.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (memory.descriptor_ < 0 || ftruncate(memory.descriptor_, static_cast<off_t>(bytes)) != 0) {
    const Status status = failErrno("cannot make the file %s", path.c_str());
    if (memory.descriptor_ >= 0) unlink(path.c_str());
    return status;
  }
  if (const int refused = posix_fallocate(memory.descriptor_, 0, static_cast<off_t>(bytes)); refused != 0) {
    unlink(path.c_str());
    errno = refused;
    return failErrno("cannot take %zu bytes for %s", bytes, path.c_str());
  }
  auto mapped = mapShared(memory.descriptor_, bytes);
  if (!mapped.ok()) {
    unlink(path.c_str());
    return mapped.status();
  }
  memory.data_ = mapped.value();
  memory.size_ = bytes;
  return memory;
}

Result<SharedMemory> SharedMemory::open(os::ProcessId owner, int descriptor, size_t bytes) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", static_cast<int>(owner), descriptor);
  const int opened = ::open(path, O_RDWR | O_CLOEXEC);
  if (opened < 0) {
    const bool hasEnded = errno == ENOENT;  // a process that has died has no descriptors any more
    const Status status =
        failErrno("cannot open the shared memory of process %d (%s)", static_cast<int>(owner), path);
    return hasEnded ? Status{Code::kRemote} : status;
  }
  struct stat facts {};
  const bool right = fstat(opened, &facts) == 0 && facts.st_size == static_cast<off_t>(bytes);
  auto mapped = right ? mapShared(opened, bytes) : Result<std::byte*>(Status{Code::kInternal});
  close(opened);  // the mapping keeps the segment
  if (!right) {
    return fail(Code::kInternal, "the shared memory of process %d is %lld bytes, not %zu",
                static_cast<int>(owner), static_cast<long long>(facts.st_size), bytes);
  }
  if (!mapped.ok()) return mapped.status();
  SharedMemory memory;
  memory.data_ = mapped.value();
  memory.size_ = bytes;
  return memory;
}

bool readProcess(os::ProcessId process, void* destination, const void* remote, size_t bytes) {
  auto* to = static_cast<std::byte*>(destination);
  auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(remote));
  while (bytes > 0) {
    iovec local{to, bytes};
    iovec other{from, bytes};
    const ssize_t moved = process_vm_readv(process, &local, 1, &other, 1, 0);
    if (moved <= 0) return false;
    to += moved;
    from += moved;
    bytes -= static_cast<size_t>(moved);
  }
  return true;
}

bool writeProcess(os::ProcessId process, void* remote, const void* source, size_t bytes) {
  auto* to = static_cast<std::byte*>(remote);
  auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(source));
  while (bytes > 0) {
    iovec local{from, bytes};
    iovec other{to, bytes};
    const ssize_t moved = process_vm_writev(process, &local, 1, &other, 1, 0);
    if (moved <= 0) return false;
    to += moved;
    from += moved;
    bytes -= static_cast<size_t>(moved);
  }
  return true;
}

}  // namespace stretto::platform
