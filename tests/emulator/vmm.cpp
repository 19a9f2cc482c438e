// Pieces are files in memory, so that they pass between processes as the driver's do. As strict as the driver
// is said to be: what is unmapped or given back must be exactly what was mapped or reserved.
#include "emulator/vmm.hpp"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "emulator/machine.hpp"

namespace {

constexpr size_t kUnit = size_t{2} << 20;

struct Piece {
  int descriptor = -1;
  size_t bytes = 0;
  CUmemAllocationProp properties{};
  int uses = 0;  // of its holders, and of mappings
};
struct Mapped {
  size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  std::set<int> devices;  // that may use it
};
std::mutex gVmmMutex;
std::map<CUmemGenericAllocationHandle, Piece> gPieces;
std::map<CUdeviceptr, Mapped> gMapped;
std::map<CUdeviceptr, size_t> gReserved;
CUmemGenericAllocationHandle gLast = 0;

void* pointerTo(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

bool there() {
  const char* const given = std::getenv("STRETTO_EMULATED_VMM");
  return given == nullptr || *given != '0';
}

// The entry of a map by begin that holds `address`; its end if there is none.
template <typename Map, typename Bytes>
auto holding(Map& map, CUdeviceptr address, const Bytes& bytesOf) {
  auto found = map.upper_bound(address);
  if (found == map.begin()) return map.end();
  --found;
  return address - found->first < bytesOf(found->second) ? found : map.end();
}
auto mappedAt(CUdeviceptr address) {
  return holding(gMapped, address, [](const Mapped& one) { return one.bytes; });
}

void drop(CUmemGenericAllocationHandle handle) {
  const auto found = gPieces.find(handle);
  if (--found->second.uses != 0) return;
  close(found->second.descriptor);
  gPieces.erase(found);
}

CUresult result(bool fine) {
  return fine ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** name) {
  constexpr const char* kNames[] = {"CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_OUT_OF_MEMORY",
                                    "CUDA_ERROR_OPERATING_SYSTEM"};
  *name = kNames[error];
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = there() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  {
    const std::lock_guard lock(gVmmMutex);
    if (const auto found = mappedAt(address); found != gMapped.end()) {
      *base = found->first;
      *bytes = found->second.bytes;
      return CUDA_SUCCESS;
    }
  }
  *bytes = 0;
  const std::byte* const found = stretto::emulator::Machine::current().find(pointerTo(address), bytes);
  *base = reinterpret_cast<CUdeviceptr>(found);
  return result(found != nullptr);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  if (!there() || bytes == 0 || bytes % kUnit != 0) return CUDA_ERROR_INVALID_VALUE;
  Piece piece;
  piece.descriptor = memfd_create("emulated piece", MFD_CLOEXEC);
  if (piece.descriptor < 0 || ftruncate(piece.descriptor, static_cast<off_t>(bytes)) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  piece.bytes = bytes;
  piece.properties = *properties;
  piece.uses = 1;
  const std::lock_guard lock(gVmmMutex);
  *handle = ++gLast;
  gPieces[*handle] = piece;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(gVmmMutex);
  if (gPieces.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  drop(handle);
  return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = mappedAt(reinterpret_cast<CUdeviceptr>(address));
  if (found == gMapped.end()) return CUDA_ERROR_INVALID_VALUE;
  *handle = found->second.handle;
  ++gPieces[*handle].uses;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = gPieces.find(handle);
  if (found == gPieces.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.properties;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(size_t* unit, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *unit = kUnit;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* descriptor, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = gPieces.find(handle);
  if (found == gPieces.end() || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      found->second.properties.requestedHandleTypes != type) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int made = fcntl(found->second.descriptor, F_DUPFD_CLOEXEC, 0);
  std::memcpy(descriptor, &made, sizeof made);
  return made < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
// Which device it is of is not known here, nor asked.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                        CUmemAllocationHandleType type) {
  struct stat facts {};
  Piece piece;
  piece.descriptor = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(descriptor)), F_DUPFD_CLOEXEC, 0);
  if (piece.descriptor < 0 || fstat(piece.descriptor, &facts) != 0) return CUDA_ERROR_INVALID_VALUE;
  piece.bytes = static_cast<size_t>(facts.st_size);
  piece.properties = {CU_MEM_ALLOCATION_TYPE_PINNED, type, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, {}};
  piece.uses = 1;
  const std::lock_guard lock(gVmmMutex);
  *handle = ++gLast;
  gPieces[*handle] = piece;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* begin, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  if (bytes == 0 || bytes % kUnit != 0) return CUDA_ERROR_INVALID_VALUE;
  // Aligned as mapped memory must be: too much, and then what lies before and behind goes back.
  void* const all =
      mmap(nullptr, bytes + kUnit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto first = reinterpret_cast<CUdeviceptr>(all);
  *begin = (first + kUnit - 1) / kUnit * kUnit;
  if (*begin != first) munmap(all, *begin - first);
  if (*begin != first + kUnit) munmap(pointerTo(*begin + bytes), first + kUnit - *begin);
  const std::lock_guard lock(gVmmMutex);
  gReserved[*begin] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr begin, size_t bytes) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = gReserved.find(begin);
  const auto next = gMapped.lower_bound(begin);
  if (found == gReserved.end() || found->second != bytes ||
      (next != gMapped.end() && next->first < begin + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  gReserved.erase(found);
  return result(munmap(pointerTo(begin), bytes) == 0);
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const std::lock_guard lock(gVmmMutex);
  const auto piece = gPieces.find(handle);
  const auto room = holding(gReserved, at, [](size_t all) { return all; });
  if (piece == gPieces.end() || room == gReserved.end() || room->first + room->second - at < bytes ||
      bytes > piece->second.bytes || bytes % kUnit != 0 || bytes == 0 || offset != 0 ||
      mappedAt(at) != gMapped.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (mmap(pointerTo(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, piece->second.descriptor, 0) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++piece->second.uses;
  gMapped[at] = {bytes, handle, {}};
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = gMapped.find(at);
  if (found == gMapped.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  const bool fine = mmap(pointerTo(at), bytes, PROT_NONE, kFlags, -1, 0) != MAP_FAILED;
  drop(found->second.handle);
  gMapped.erase(found);
  return result(fine);
}

// Who may use it is remembered; what nobody may use traps.
CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  const std::lock_guard lock(gVmmMutex);
  for (const CUdeviceptr end = at + bytes; at < end;) {
    const auto found = gMapped.find(at);
    if (found == gMapped.end()) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) found->second.devices.insert(access[i].location.id);
    if (mprotect(pointerTo(at), found->second.bytes, PROT_READ | PROT_WRITE) != 0) {
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    at += found->second.bytes;
  }
  return CUDA_SUCCESS;
}
CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = mappedAt(address);
  if (found == gMapped.end()) return CUDA_ERROR_INVALID_VALUE;
  const bool may = found->second.devices.count(location->id) != 0;
  *flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

namespace stretto::emulator {

void* vmmFunction(const char* name) {
  const std::map<std::string_view, void*> all = {
#define STRETTO_ENTRY(function) {#function, reinterpret_cast<void*>(&function)}
      STRETTO_ENTRY(cuGetErrorName),
      STRETTO_ENTRY(cuDeviceGetAttribute),
      STRETTO_ENTRY(cuMemGetAddressRange),
      STRETTO_ENTRY(cuMemCreate),
      STRETTO_ENTRY(cuMemRelease),
      STRETTO_ENTRY(cuMemRetainAllocationHandle),
      STRETTO_ENTRY(cuMemGetAllocationPropertiesFromHandle),
      STRETTO_ENTRY(cuMemGetAllocationGranularity),
      STRETTO_ENTRY(cuMemExportToShareableHandle),
      STRETTO_ENTRY(cuMemImportFromShareableHandle),
      STRETTO_ENTRY(cuMemAddressReserve),
      STRETTO_ENTRY(cuMemAddressFree),
      STRETTO_ENTRY(cuMemMap),
      STRETTO_ENTRY(cuMemUnmap),
      STRETTO_ENTRY(cuMemSetAccess),
      STRETTO_ENTRY(cuMemGetAccess),
#undef STRETTO_ENTRY
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

int vmmDeviceAt(const void* address) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = mappedAt(reinterpret_cast<CUdeviceptr>(address));
  return found == gMapped.end() ? -1 : gPieces[found->second.handle].properties.location.id;
}

bool vmmMayUse(int device, const void* address) {
  const std::lock_guard lock(gVmmMutex);
  const auto found = mappedAt(reinterpret_cast<CUdeviceptr>(address));
  return found == gMapped.end() || found->second.devices.count(device) != 0;
}

bool vmmHolds(const void* address, size_t bytes) {
  const std::lock_guard lock(gVmmMutex);
  const auto begin = reinterpret_cast<CUdeviceptr>(address);
  for (CUdeviceptr at = begin; at < begin + bytes;) {
    const auto found = mappedAt(at);
    if (found == gMapped.end() || found->second.devices.empty()) return false;
    at = found->first + found->second.bytes;
  }
  return true;
}

size_t vmmPieces() {
  const std::lock_guard lock(gVmmMutex);
  return gPieces.size();
}
size_t vmmReservations() {
  const std::lock_guard lock(gVmmMutex);
  return gReserved.size();
}

}  // namespace stretto::emulator
