#include "communicator/device/own_window.hpp"

#include <atomic>
#include <cstdio>

#include "base/log.hpp"
#include "executors/cuda/engine.hpp"
#include "platform/random.hpp"

namespace stretto::communicator {

WindowOffer::State WindowOffer::read() const {
  return static_cast<State>(std::atomic_ref(const_cast<uint32_t&>(state)).load(std::memory_order_acquire));
}

OwnWindow::OwnWindow(links::DeviceEndpoint self, const stretto::cuda::Shape& shape,
                     std::shared_ptr<memory::Region> reported, size_t place)
    : self_(self), shape_(shape), shared_(std::move(reported)), place_(place) {}

WindowOffer& OwnWindow::windowOffer() const {
  return *reinterpret_cast<WindowOffer*>(shared_->data() + place_);
}

size_t OwnWindow::bytes() const {
  const std::lock_guard lock(mutex_);
  return region_ == nullptr ? 0 : region_->bytes();
}

Status OwnWindow::offer() {
  const std::lock_guard lock(mutex_);
  WindowOffer& offer = this->windowOffer();
  const auto put = [&](WindowOffer::State state) {
    std::atomic_ref(offer.state).store(state, std::memory_order_release);
  };
  if (offer.read() == WindowOffer::kOffered) return kOkStatus;
  if (offer.read() == WindowOffer::kRefused) {
    setLastError(offer.text);
    return Status{static_cast<Code>(offer.code)};
  }
  const Status status = make();
  if (status.ok()) {
    offer.endpoint = self_;
    put(WindowOffer::kOffered);
    return kOkStatus;
  }
  region_.reset();
  offer.code = static_cast<uint8_t>(status.code);
  snprintf(offer.text, sizeof offer.text, "%s", lastError().c_str());
  put(WindowOffer::kRefused);
  return status;
}

Status OwnWindow::make() {
  STRETTO_TRY(fillRandom({reinterpret_cast<uint8_t*>(&self_.token), sizeof self_.token}));
  self_.windowBytes = shape_.windowBytes();
  auto region = memory::DeviceRegion::create(self_.device, self_.windowBytes, self_.token);
  if (!region.ok()) return region.status();
  region_ = std::move(region.value());
  nameMemory(*region_, self_);
  return executors::cuda::prepareWindow(self_.device, region_->data(), shape_);
}

void nameMemory(const memory::DeviceRegion& region, links::DeviceEndpoint& endpoint) {
  const std::string before = lastError();
  const auto name = platform::cuda::nameForOthers(endpoint.device, region.data());
  if (name.ok()) {
    endpoint.name = name.value();
    endpoint.named = 1;
  } else {
    STRETTO_LOG(kInfo, kInit, "rank %d: its memory has no name for other processes: %s", endpoint.rank,
                lastError().c_str());
    setLastError(before);
  }
}

}  // namespace stretto::communicator
