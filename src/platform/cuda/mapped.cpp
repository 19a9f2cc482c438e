// The driver's virtual memory management behind mapped.hpp. A mapping is a reservation of addresses, one
// cuMemMap for each piece, and access; it is taken apart piece by piece, as it was put together.
#include "platform/cuda/mapped.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/log.hpp"
#include "platform/cuda/device.hpp"
#include "platform/cuda/driver.hpp"

namespace stretto::platform::cuda {
namespace {

constexpr auto kShareable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// Function by function as cuda.h declares them.
struct Driver {
  decltype(&::cuDeviceGetAttribute) attribute;
  decltype(&::cuMemGetAddressRange) rangeOf;
  decltype(&::cuMemCreate) create;
  decltype(&::cuMemRelease) release;
  decltype(&::cuMemRetainAllocationHandle) retain;
  decltype(&::cuMemGetAllocationPropertiesFromHandle) properties;
  decltype(&::cuMemGetAllocationGranularity) granularity;
  decltype(&::cuMemExportToShareableHandle) share;
  decltype(&::cuMemImportFromShareableHandle) import;
  decltype(&::cuMemAddressReserve) reserve;
  decltype(&::cuMemAddressFree) unreserve;
  decltype(&::cuMemMap) map;
  decltype(&::cuMemUnmap) unmap;
  decltype(&::cuMemSetAccess) allow;
  decltype(&::cuMemGetAccess) accessOf;
  decltype(&::cuGetErrorName) nameOf;
  bool whole = false;
};

Driver findDriver() {
  Driver driver{};
  driver.whole = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(driverFunction(name));
    driver.whole = driver.whole && function != nullptr;
  };
  find(driver.attribute, "cuDeviceGetAttribute");
  find(driver.rangeOf, "cuMemGetAddressRange");
  find(driver.create, "cuMemCreate");
  find(driver.release, "cuMemRelease");
  find(driver.retain, "cuMemRetainAllocationHandle");
  find(driver.properties, "cuMemGetAllocationPropertiesFromHandle");
  find(driver.granularity, "cuMemGetAllocationGranularity");
  find(driver.share, "cuMemExportToShareableHandle");
  find(driver.import, "cuMemImportFromShareableHandle");
  find(driver.reserve, "cuMemAddressReserve");
  find(driver.unreserve, "cuMemAddressFree");
  find(driver.map, "cuMemMap");
  find(driver.unmap, "cuMemUnmap");
  find(driver.allow, "cuMemSetAccess");
  find(driver.accessOf, "cuMemGetAccess");
  find(driver.nameOf, "cuGetErrorName");
  return driver;
}

const Driver& driver() {
  static const Driver found = findDriver();
  return found;
}

const char* nameOf(CUresult error) {
  const char* name = nullptr;
  return driver().nameOf(error, &name) == CUDA_SUCCESS && name != nullptr ? name : "an unknown error";
}

#define STRETTO_DRIVER_TRY(call, what)                                            \
  do {                                                                            \
    if (const CUresult error_ = (call); error_ != CUDA_SUCCESS) [[unlikely]] {    \
      return fail(Code::kSystem, "%s: the driver says %s", what, nameOf(error_)); \
    }                                                                             \
  } while (false)

CUdeviceptr addressOf(const void* memory) {
  return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(memory));
}

// While it lives the calling thread may call the driver for `device`: its interface needs a context, which a
// thread that is new to CUDA's runtime does not have yet, and no capture stands in the way.
class Entered {
 public:
  explicit Entered(int device) : current_(device), status_(current_.status()) {
    if (status_.ok()) status_ = makeContext(device);
  }
  Status status() const { return status_; }

 private:
  static Status makeContext(int device) {
    if (!driver().whole) return fail(Code::kSystem, "this driver has no virtual memory management");
    const cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess) return kOkStatus;
    (void)cudaGetLastError();
    return fail(Code::kSystem, "making device %d current: CUDA says \"%s\"", device,
                cudaGetErrorString(error));
  }

  const AmidCaptures amid_;
  const ScopedDevice current_;
  Status status_;
};

bool has(CUdevice_attribute attribute, int device) {
  int value = 0;
  return driver().attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

CUmemAllocationProp propertiesFor(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = kShareable;
  properties.allocFlags.gpuDirectRDMACapable =
      has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) ? 1 : 0;
  return properties;
}

// That other processes may have the piece, and that it is memory of `device`.
Status checkPiece(unsigned long long handle, int device) {
  CUmemAllocationProp properties{};
  STRETTO_DRIVER_TRY(driver().properties(&properties, handle), "what a piece of mapped memory is");
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.location.id != device) {
    return fail(Code::kInvalidUsage, "a part of the buffer is no memory of GPU %d", device);
  }
  if ((properties.requestedHandleTypes & kShareable) != 0) return kOkStatus;
  return fail(Code::kInvalidUsage,
              "the buffer is mapped memory that was made without a file descriptor to share it by "
              "(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)");
}

}  // namespace

std::string whyNotMapped(int device) {
  if (!driver().whole) return "this driver has no virtual memory management";
  if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device)) {
    return "the GPU has no virtual memory management";
  }
  if (has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device)) return {};
  return "the GPU's mapped memory cannot be shared by file descriptors";
}

bool isMapped(int device, const void* address) {
  if (!driver().whole) return false;
  const Entered entered(device);
  CUmemGenericAllocationHandle handle = 0;
  if (!entered.status().ok() || driver().retain(&handle, const_cast<void*>(address)) != CUDA_SUCCESS) {
    return false;
  }
  (void)driver().release(handle);
  return true;
}

bool mayUse(int device, const void* address) {
  if (!isMapped(device, address)) return true;
  CUmemLocation where{};
  where.type = CU_MEM_LOCATION_TYPE_DEVICE;
  where.id = device;
  unsigned long long access = 0;
  return driver().accessOf(&access, &where, addressOf(address)) == CUDA_SUCCESS &&
         access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

// ---- Pieces -----------------------------------------------------------------------------------------------

Pieces::Pieces(Pieces&& other) noexcept
    : pieces_(std::exchange(other.pieces_, {})), offset_(std::exchange(other.offset_, 0)) {}

Pieces& Pieces::operator=(Pieces&& other) noexcept {
  std::swap(pieces_, other.pieces_);
  std::swap(offset_, other.offset_);
  return *this;
}

Pieces::~Pieces() {
  for (const Piece& piece : pieces_) (void)driver().release(piece.handle);
}

Result<Pieces> Pieces::create(int device, size_t bytes) {
  const Entered entered(device);
  STRETTO_TRY(entered.status());
  const CUmemAllocationProp properties = propertiesFor(device);
  size_t unit = 0;
  STRETTO_DRIVER_TRY(driver().granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                     "the unit of mapped memory");
  const size_t whole = (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
  unsigned long long handle = 0;
  if (const CUresult error = driver().create(&handle, whole, &properties, 0); error != CUDA_SUCCESS) {
    return fail(Code::kSystem, "%zu bytes of memory of device %d: the driver says %s", whole, device,
                nameOf(error));
  }
  Pieces pieces;
  pieces.pieces_.push_back({handle, whole});
  return pieces;
}

Result<Pieces> Pieces::behind(int device, const void* begin, size_t bytes) {
  const Entered entered(device);
  STRETTO_TRY(entered.status());
  Pieces pieces;
  const CUdeviceptr end = addressOf(begin) + bytes;
  for (CUdeviceptr at = addressOf(begin); pieces.count() == 0 || at < end;) {
    unsigned long long handle = 0;
    STRETTO_DRIVER_TRY(driver().retain(&handle, reinterpret_cast<void*>(at)),
                       "the buffer does not lie in mapped memory as a whole");
    pieces.pieces_.push_back({handle, 0});
    STRETTO_TRY(checkPiece(handle, device));
    CUdeviceptr first = 0;
    size_t length = 0;
    STRETTO_DRIVER_TRY(driver().rangeOf(&first, &length, at), "where a piece of mapped memory begins");
    if (pieces.count() == 1) pieces.offset_ = at - first;
    pieces.pieces_.back().bytes = length;
    at = first + length;
  }
  return pieces;
}

Status Pieces::append(int device, const FileDescriptor& descriptor, size_t bytes) {
  const Entered entered(device);
  STRETTO_TRY(entered.status());
  unsigned long long handle = 0;
  void* const shared = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor.get()));
  STRETTO_DRIVER_TRY(driver().import(&handle, shared, kShareable), "mapped memory of another process");
  pieces_.push_back({handle, bytes});
  return kOkStatus;
}

size_t Pieces::bytes() const {
  return std::accumulate(pieces_.begin(), pieces_.end(), size_t{0},
                         [](size_t sum, const Piece& piece) { return sum + piece.bytes; });
}

Result<FileDescriptor> Pieces::share(size_t index) const {
  CUresult error = CUDA_SUCCESS;
  FileDescriptor made = FileDescriptor::create([&] {
    int descriptor = -1;
    error = driver().share(&descriptor, pieces_[index].handle, kShareable, 0);
    if (error == CUDA_SUCCESS) (void)::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return error == CUDA_SUCCESS ? descriptor : -1;
  });
  if (made.valid()) return made;
  return fail(Code::kSystem, "a descriptor of mapped memory: the driver says %s (ulimit -n?)", nameOf(error));
}

// ---- Mappings ---------------------------------------------------------------------------------------------

Mapping::Mapping(Mapping&& other) noexcept {
  *this = std::move(other);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ == nullptr) return;
  const Entered entered(device_);
  bool fine = entered.status().ok();
  std::byte* at = data_;
  for (const size_t bytes : mapped_) {
    fine = driver().unmap(addressOf(at), bytes) == CUDA_SUCCESS && fine;
    at += bytes;
  }
  fine = driver().unreserve(addressOf(data_), bytes_) == CUDA_SUCCESS && fine;
  if (fine) return;
  STRETTO_LOG(kWarn, kAlloc, "device %d did not take back the mapping of %zu bytes at %p", device_, bytes_,
              static_cast<void*>(data_));
}

Result<Mapping> Mapping::make(std::span<const int> devices, const Pieces& pieces) {
  const Entered entered(devices.front());
  STRETTO_TRY(entered.status());
  Mapping mapping;
  const size_t bytes = pieces.bytes();
  CUdeviceptr begin = 0;
  STRETTO_DRIVER_TRY(driver().reserve(&begin, bytes, 0, 0, 0), "addresses for mapped memory");
  mapping.device_ = devices.front();
  mapping.data_ = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(begin));
  mapping.bytes_ = bytes;
  CUdeviceptr at = begin;
  for (const Pieces::Piece& piece : pieces.pieces_) {
    STRETTO_DRIVER_TRY(driver().map(at, piece.bytes, 0, piece.handle, 0), "a mapping of memory");
    mapping.mapped_.push_back(piece.bytes);
    at += piece.bytes;
  }
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    CUmemAccessDesc& one = access.emplace_back();
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = device;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  STRETTO_DRIVER_TRY(driver().allow(begin, bytes, access.data(), access.size()), "access to mapped memory");
  return mapping;
}

Result<Mapping> allocateMapped(int device, size_t bytes) {
  auto pieces = Pieces::create(device, bytes);
  if (!pieces.ok()) return pieces.status();
  std::vector<int> devices = {device};
  for (int peer = 0; peer < deviceCount(); ++peer) {
    if (peer != device && canAccess(peer, device)) devices.push_back(peer);
  }
  auto mapping = Mapping::make(devices, pieces.value());
  if (!mapping.ok()) return mapping.status();
  STRETTO_TRY(clearNow(device, mapping.value().data(), mapping.value().bytes()));
  return mapping;
}

}  // namespace stretto::platform::cuda
