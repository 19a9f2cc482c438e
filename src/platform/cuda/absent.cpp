// A library built without CUDA: no device, and everything that would need one says so.
#include "platform/cuda/device.hpp"
#include "platform/cuda/mapped.hpp"

namespace stretto::platform::cuda {
namespace {

constexpr const char* kWhy = "this library was built without CUDA";

Status refuse(const char* what) {
  return fail(Code::kInvalidUsage, "%s: %s", what, kWhy);
}

}  // namespace

bool isBuiltIn() {
  return false;
}
int deviceCount() {
  return 0;
}
std::string absence() {
  return kWhy;
}
Result<int> currentDevice() {
  return refuse("the current device");
}

AmidCaptures::AmidCaptures() = default;
AmidCaptures::~AmidCaptures() {
  static_cast<void>(before_);  // there is nothing to restore, and clang warns of members that nobody uses
}

ScopedDevice::ScopedDevice(int) : status_(refuse("a device")) {}
ScopedDevice::~ScopedDevice() {
  static_cast<void>(before_);
}
Status stayOn(int) {
  return refuse("a device");
}

Result<DeviceFacts> factsOf(int) {
  return refuse("a device");
}
bool canAccess(int, int) {
  return false;
}
bool hasNvlink(int, int) {
  return false;
}
Status enablePeerAccess(int, int) {
  return refuse("access between devices");
}
int ordinalOf(const uint8_t (&)[16]) {
  return -1;
}

Result<std::byte*> allocate(int, size_t) {
  return refuse("device memory");
}
void release(int, std::byte*) {}
Result<HostMapped> allocateHostMapped(int, size_t) {
  return refuse("pinned memory");
}
void releaseHostMapped(int, HostMapped) {}
SharingDevice::SharingDevice(int device) : device_(device) {}
SharingDevice::~SharingDevice() {
  static_cast<void>(device_);
}  // nothing is kept without CUDA

Result<IpcName> nameForOthers(int, const void*) {
  return refuse("a name of device memory");
}
Result<std::byte*> openNamed(int, const IpcName&) {
  return refuse("device memory of another process");
}
void closeNamed(int, std::byte*) {}

Result<Pointed> placeOf(const void*) {
  return Pointed{};
}
bool waitForDevice(int, double, const std::function<bool()>&) {
  return true;
}
Status clearNow(int, std::byte*, size_t) {
  return refuse("device memory");
}
Status fillNow(int, std::byte*, uint8_t, Rows) {
  return refuse("device memory");
}
Status copyNow(void*, const void*, size_t, void*) {
  return refuse("a copy between devices");
}

std::string whyNotMapped(int) {
  return kWhy;
}
bool isMapped(int, const void*) {
  return false;
}
bool mayUse(int, const void*) {
  return true;
}
Pieces::Pieces(Pieces&&) noexcept = default;
Pieces& Pieces::operator=(Pieces&&) noexcept = default;
Pieces::~Pieces() = default;
Result<Pieces> Pieces::create(int, size_t) {
  return refuse("mapped memory");
}
Result<Pieces> Pieces::behind(int, const void*, size_t) {
  return refuse("mapped memory");
}
Status Pieces::append(int, const FileDescriptor&, size_t) {
  return refuse("mapped memory");
}
size_t Pieces::bytes() const {
  return 0;
}
Result<FileDescriptor> Pieces::share(size_t) const {
  return refuse("mapped memory");
}
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;
Result<Mapping> Mapping::make(std::span<const int>, const Pieces&) {
  return refuse("mapped memory");
}
Result<Mapping> allocateMapped(int, size_t) {
  return refuse("mapped memory");
}

}  // namespace stretto::platform::cuda
