#include "memory/device_region.hpp"

#include <utility>

#include "memory/by_token.hpp"

namespace stretto::memory {

DeviceRegion::~DeviceRegion() {
  ByToken<DeviceRegion>::all().remove(token_);
  if (owned_) platform::cuda::release(device_, data_);
}

std::shared_ptr<DeviceRegion> DeviceRegion::enter(DeviceRegion* made) {
  std::shared_ptr<DeviceRegion> region(made);
  ByToken<DeviceRegion>::all().add(region->token_, region);
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
  return ByToken<DeviceRegion>::all().find(token);
}

DeviceImport::DeviceImport(DeviceImport&& other) noexcept
    : device_(other.device_),
      base_(std::exchange(other.base_, nullptr)),
      offset_(other.offset_),
      mapping_(std::move(other.mapping_)) {}

DeviceImport& DeviceImport::operator=(DeviceImport&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(base_, other.base_);
  std::swap(offset_, other.offset_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

DeviceImport::~DeviceImport() {
  if (base_ != nullptr && !isMapped()) platform::cuda::closeNamed(device_, base_);
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

Result<DeviceImport> DeviceImport::map(int device, const platform::cuda::Pieces& pieces, uint64_t offset,
                                       uint64_t bytes) {
  const uint64_t all = pieces.bytes();
  if (offset > all || all - offset < bytes) {
    return fail(Code::kInternal, "%llu bytes at byte %llu of %llu of mapped memory",
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offset),
                static_cast<unsigned long long>(all));
  }
  auto mapping = platform::cuda::Mapping::make({&device, 1}, pieces);
  if (!mapping.ok()) return mapping.status();
  DeviceImport import;
  import.device_ = device;
  import.base_ = mapping.value().data();
  import.offset_ = offset;
  import.mapping_ = std::move(mapping.value());
  return import;
}

}  // namespace stretto::memory
