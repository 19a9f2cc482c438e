#include "memory/device_region.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace stretto::memory {
namespace {

// Never destroyed: communicators may be, after static objects were.
struct Regions {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<DeviceRegion>> byToken;
};
Regions& regions() {
  static auto* all = new Regions;
  return *all;
}

}  // namespace

DeviceRegion::~DeviceRegion() {
  {
    std::lock_guard lock(regions().mutex);
    regions().byToken.erase(token_);
  }
  if (owned_) platform::cuda::release(device_, data_);
}

std::shared_ptr<DeviceRegion> DeviceRegion::enter(DeviceRegion* made) {
  std::shared_ptr<DeviceRegion> region(made);
  std::lock_guard lock(regions().mutex);
  regions().byToken.emplace(region->token_, region);
  return region;
}

Result<std::shared_ptr<DeviceRegion>> DeviceRegion::create(int device, size_t bytes, uint64_t token) {
  const auto memory = platform::cuda::allocate(device, bytes);
  if (!memory.ok()) return memory.status();
  return enter(new DeviceRegion(device, memory.value(), bytes, token, true));
}

std::shared_ptr<DeviceRegion> DeviceRegion::borrow(int device, std::byte* data, size_t bytes,
                                                   uint64_t token) {
  return enter(new DeviceRegion(device, data, bytes, token, false));
}

std::shared_ptr<DeviceRegion> DeviceRegion::find(uint64_t token) {
  std::lock_guard lock(regions().mutex);
  const auto found = regions().byToken.find(token);
  return found == regions().byToken.end() ? nullptr : found->second.lock();
}

DeviceImport::DeviceImport(DeviceImport&& other) noexcept
    : device_(other.device_), base_(std::exchange(other.base_, nullptr)), offset_(other.offset_) {}

DeviceImport& DeviceImport::operator=(DeviceImport&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(base_, other.base_);
  std::swap(offset_, other.offset_);
  return *this;
}

DeviceImport::~DeviceImport() {
  if (base_ != nullptr) platform::cuda::closeNamed(device_, base_);
}

Result<DeviceImport> DeviceImport::open(int device, const platform::cuda::IpcName& name) {
  const auto base = platform::cuda::openNamed(device, name);
  if (!base.ok()) return base.status();
  DeviceImport import;
  import.device_ = device;
  import.base_ = base.value();
  import.offset_ = name.offset;
  return import;
}

}  // namespace stretto::memory
