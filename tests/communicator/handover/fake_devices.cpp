// Two GPUs that are made up, in the place of platform/cuda and of the engine: memory of theirs is the host's,
// kernels do nothing but leave stamps, and whether one GPU reaches the other is the environment's to say
// (FAKE_REACH=0), as is whether there is pinned memory for stamps (FAKE_STAMPS=0). Enough to make
// communicators of GPU ranks on a machine without one.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "executors/cuda/engine.hpp"
#include "executors/cuda/order.hpp"
#include "platform/cuda/device.hpp"
#include "platform/cuda/mapped.hpp"

namespace {

constexpr int kDevices = 2;
thread_local int gCurrent = 0;
std::atomic<int> gStampsWanted{0};

// Whether the environment leaves this as it is.
bool isAllowed(const char* variable) {
  const char* const text = getenv(variable);
  return text == nullptr || *text != '0';
}

}  // namespace

// How often stamps were asked for.
int fakeStampsWanted() {
  return gStampsWanted;
}

// For fake_nccl, which is loaded by this program.
extern "C" [[gnu::visibility("default")]] int fakeCurrentDevice() {
  return gCurrent;
}
// As cudaSetDevice.
void fakeSetDevice(int device) {
  gCurrent = device;
}

namespace stretto::platform::cuda {

bool isBuiltIn() {
  return true;
}
int deviceCount() {
  return kDevices;
}
std::string absence() {
  return "";
}
Result<int> currentDevice() {
  return gCurrent;
}

AmidCaptures::AmidCaptures() = default;
AmidCaptures::~AmidCaptures() {
  static_cast<void>(before_);  // there is nothing to restore, and clang warns of members that nobody uses
}

ScopedDevice::ScopedDevice(int device) : before_(std::exchange(gCurrent, device)) {}
ScopedDevice::~ScopedDevice() {
  gCurrent = before_;
}
Status stayOn(int device) {
  gCurrent = device;
  return kOkStatus;
}

Result<DeviceFacts> factsOf(int device) {
  DeviceFacts facts;
  facts.uuid[0] = static_cast<uint8_t>(device + 1);
  snprintf(facts.busId, sizeof facts.busId, "0000:%02x:00.0", static_cast<unsigned>(device));
  snprintf(facts.name, sizeof facts.name, "made-up GPU");
  facts.multiprocessors = 10;
  facts.capability = 90;
  facts.memoryBytes = uint64_t{1} << 30;
  return facts;
}
bool canAccess(int from, int to) {
  return from == to || isAllowed("FAKE_REACH");
}
bool hasNvlink(int, int) {
  return true;
}
Status enablePeerAccess(int, int) {
  return kOkStatus;
}
int ordinalOf(const uint8_t (&uuid)[16]) {
  return uuid[0] - 1;
}

Result<std::byte*> allocate(int, size_t bytes) {
  return static_cast<std::byte*>(std::calloc(1, bytes));
}
void release(int, std::byte* memory) {
  std::free(memory);
}
Result<HostMapped> allocateHostMapped(int device, size_t bytes) {
  const auto memory = allocate(device, bytes);
  return HostMapped{memory.value(), memory.value()};
}
void releaseHostMapped(int device, HostMapped memory) {
  release(device, memory.host);
}

Result<IpcName> nameForOthers(int, const void*) {
  return IpcName{};
}
Result<std::byte*> openNamed(int device, const IpcName&) {
  return allocate(device, 1);
}
void closeNamed(int device, std::byte* memory) {
  release(device, memory);
}

Result<Pointed> placeOf(const void*) {
  return Pointed{Place::kManaged, 0};
}
SharingDevice::SharingDevice(int device) : device_(device) {}
SharingDevice::~SharingDevice() = default;
bool waitForDevice(int, double, const std::function<bool()>&) {
  return true;
}
Status clearNow(int, std::byte* memory, size_t bytes) {
  std::memset(memory, 0, bytes);
  return kOkStatus;
}
Status fillNow(int, std::byte* memory, uint8_t value, Rows where) {
  for (size_t row = 0; row < where.rows; ++row) std::memset(memory + row * where.pitch, value, where.bytes);
  return kOkStatus;
}
Status copyNow(void* to, const void* from, size_t bytes, void*) {
  std::memcpy(to, from, bytes);
  return kOkStatus;
}

std::string whyNotMapped(int) {
  return "made-up GPUs map nothing";
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
  return Status{Code::kSystem};
}
Result<Pieces> Pieces::behind(int, const void*, size_t) {
  return Status{Code::kSystem};
}
Status Pieces::append(int, const FileDescriptor&, size_t) {
  return Status{Code::kSystem};
}
size_t Pieces::bytes() const {
  return 0;
}
Result<FileDescriptor> Pieces::share(size_t) const {
  return Status{Code::kSystem};
}
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;
Result<Mapping> Mapping::make(std::span<const int>, const Pieces&) {
  return Status{Code::kSystem};
}
Result<Mapping> allocateMapped(int, size_t) {
  return Status{Code::kSystem};
}

}  // namespace stretto::platform::cuda

namespace stretto::executors::cuda {
namespace {

class Idle final : public Engine {
 public:
  Status wantWindows() override { return kOkStatus; }
  Status launch(const Launch& launch, StreamHandle) override {
    ++done_;
    launched_.channels = launched_.stamps = launched_.kernels = 0;
    if (launch.algorithm == algorithms::Algorithm::kLocal) return kOkStatus;
    const std::lock_guard lock(mutex_);
    const int channels = std::min(launch.blocks, kMostStamps);
    launched_ = {launched_.number + 1, channels, stamped_ ? channels : 0, 1};
    for (int block = 0; block < launched_.stamps; ++block) stamps_.push_back({block, launched_.number, 5, 6});
    return kOkStatus;
  }
  bool mayShare(const Launch&) const override { return false; }
  bool joins(std::span<const Launch>, const Launch&) const override { return false; }
  Status launchTogether(std::span<const Launch>, StreamHandle) override { return kOkStatus; }
  Status launchTransfers(std::span<const DeviceTransfer>, uint64_t, StreamHandle) override {
    return kOkStatus;
  }
  Status launchSignal(const DeviceSignal&, StreamHandle) override { return kOkStatus; }
  Status launchWait(int, uint32_t, uint64_t, StreamHandle) override { return kOkStatus; }
  void abort(uint32_t) override {}
  Report report() const override { return {}; }
  std::array<stretto::cuda::LongLook, stretto::cuda::kAwaited> longLooks() const override { return {}; }
  KernelCounts finished() const override { return {done_.load(), 0}; }
  Status wantStamps() override {
    ++gStampsWanted;
    if (!isAllowed("FAKE_STAMPS")) return fail(Code::kSystem, "made-up GPU: no pinned memory");
    stamped_ = true;
    return kOkStatus;
  }
  Status useWindows(std::byte* const*) override { return kOkStatus; }
  Launched lastLaunch() const override { return launched_; }
  Launched lastOf(size_t) const override { return launched_; }
  Launched lastTransfers(int, bool) const override { return {}; }
  size_t takeStamps(std::span<KernelStamp> stamps, uint64_t&) override {
    const std::lock_guard lock(mutex_);
    size_t taken = 0;
    for (; taken < stamps.size() && !stamps_.empty(); stamps_.pop_front()) stamps[taken++] = stamps_.front();
    return taken;
  }

 private:
  std::atomic<uint64_t> done_{0};
  Launched launched_;
  bool stamped_ = false;
  std::mutex mutex_;
  std::deque<KernelStamp> stamps_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const Setup&) {
  return std::unique_ptr<Engine>(std::make_unique<Idle>());
}
Status prepareWindow(int, std::byte*, const stretto::cuda::Shape&) {
  return kOkStatus;
}
Result<int> mostResidentBlocks(int) {
  return 132;
}

Order::~Order() = default;
Result<uint64_t> Order::captureOf(StreamHandle) {
  return uint64_t{0};
}
Status Order::before(StreamHandle, uint64_t) {
  return kOkStatus;
}
Status Order::after(StreamHandle, uint64_t) {
  return kOkStatus;
}
bool Order::ended() const {
  return true;
}
Status Order::join(StreamHandle, StreamHandle) {
  return kOkStatus;
}

}  // namespace stretto::executors::cuda
