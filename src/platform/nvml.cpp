// The library's functions, structures and numbers are those of its reference manual (NVML API, version 2 and
// later of the entry points).
#include "platform/nvml.hpp"

#include <algorithm>
#include <cstdio>

#include "platform/dynamic_library.hpp"

namespace stretto::platform::nvml {
namespace {

using Handle = void*;
constexpr int kSuccess = 0;
constexpr unsigned kMostDevices = 64;
constexpr unsigned kMostLinks = 18;

struct PciInfo {
  char busIdLegacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pciDeviceId;
  unsigned pciSubSystemId;
  char busId[32];
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency;
  unsigned type;
  int outcome;
  union {
    double real;
    unsigned number;
    unsigned long long large;
  } value;
};
constexpr unsigned kLinkSpeedField = 90;  // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
constexpr unsigned kUnsignedType = 1;
constexpr unsigned kRemoteGpu = 0, kRemoteSwitch = 2;

// The functions used here, of a library that is held open; shut down at the end.
class Library {
 public:
  explicit Library(const char* name, std::string& why) : library_(DynamicLibrary::open(name, &why)) {
    if (!library_.isOpen()) return;
    const bool whole = load(init_, "nvmlInit_v2") && load(shutdown_, "nvmlShutdown") &&
                       load(error_, "nvmlErrorString") && load(count_, "nvmlDeviceGetCount_v2") &&
                       load(byIndex_, "nvmlDeviceGetHandleByIndex_v2") && load(name_, "nvmlDeviceGetName") &&
                       load(uuid_, "nvmlDeviceGetUUID") && load(pci_, "nvmlDeviceGetPciInfo_v3") &&
                       load(memory_, "nvmlDeviceGetMemoryInfo") &&
                       load(linkState_, "nvmlDeviceGetNvLinkState") &&
                       load(remotePci_, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    if (!whole) {
      why = std::string(name) + " lacks functions";
      return;
    }
    load(remoteType_, "nvmlDeviceGetNvLinkRemoteDeviceType");  // since driver 470
    load(fields_, "nvmlDeviceGetFieldValues");
    const int outcome = init_();
    ready_ = outcome == kSuccess;
    if (!ready_) why = std::string(name) + " says \"" + error_(outcome) + "\"";
  }
  ~Library() {
    if (ready_) shutdown_();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool ready() const { return ready_; }
  unsigned count() const {
    unsigned count = 0;
    return count_(&count) == kSuccess ? std::min(count, kMostDevices) : 0;
  }
  bool describe(unsigned index, Device& device) const;

 private:
  template <typename Function>
  bool load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(library_.symbol(name));
    return function != nullptr;
  }
  std::string otherEnd(Handle handle, unsigned link) const;
  int speed(Handle handle) const;

  DynamicLibrary library_;
  bool ready_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*byIndex_)(unsigned, Handle*) = nullptr;
  int (*name_)(Handle, char*, unsigned) = nullptr;
  int (*uuid_)(Handle, char*, unsigned) = nullptr;
  int (*pci_)(Handle, PciInfo*) = nullptr;
  int (*memory_)(Handle, Memory*) = nullptr;
  int (*linkState_)(Handle, unsigned, unsigned*) = nullptr;
  int (*remotePci_)(Handle, unsigned, PciInfo*) = nullptr;
  int (*remoteType_)(Handle, unsigned, unsigned*) = nullptr;
  int (*fields_)(Handle, int, FieldValue*) = nullptr;
};

// As the kernel writes it: four digits of the domain, and small letters.
std::string busIdOf(const PciInfo& pci) {
  char text[32];
  snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
  return text;
}

std::string Library::otherEnd(Handle handle, unsigned link) const {
  unsigned type = kRemoteGpu;
  if (remoteType_ != nullptr && remoteType_(handle, link, &type) == kSuccess && type == kRemoteSwitch) {
    return kSwitch;
  }
  PciInfo pci{};
  if (type != kRemoteGpu || remotePci_(handle, link, &pci) != kSuccess) return {};
  return busIdOf(pci);
}

int Library::speed(Handle handle) const {
  FieldValue field{};
  field.field = kLinkSpeedField;
  if (fields_ == nullptr || fields_(handle, 1, &field) != kSuccess || field.outcome != kSuccess) return 0;
  return field.type == kUnsignedType ? static_cast<int>(std::min(field.value.number, 1000000u)) : 0;
}

bool Library::describe(unsigned index, Device& device) const {
  Handle handle = nullptr;
  PciInfo pci{};
  if (byIndex_(index, &handle) != kSuccess || pci_(handle, &pci) != kSuccess) return false;
  device.busId = busIdOf(pci);
  char text[97] = "";
  if (name_(handle, text, sizeof text - 1) == kSuccess) device.name = text;
  if (uuid_(handle, text, sizeof text - 1) == kSuccess) device.uuid = text;
  Memory memory{};
  if (memory_(handle, &memory) == kSuccess) device.memoryBytes = memory.total;
  const int each = speed(handle);
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned active = 0;
    if (linkState_(handle, link, &active) != kSuccess || active == 0) continue;
    const std::string to = otherEnd(handle, link);
    auto known = std::find_if(device.links.begin(), device.links.end(),
                              [&](const NvlinksTo& links) { return links.to == to; });
    if (known == device.links.end()) known = device.links.insert(known, {to, 0, each});
    ++known->count;
  }
  return true;
}

}  // namespace

std::vector<Device> devices(std::string* why, const char* name) {
  std::string reason;
  std::vector<Device> found;
  const Library library(name, reason);
  for (unsigned index = 0; library.ready() && index < library.count(); ++index) {
    if (Device device; library.describe(index, device)) found.push_back(std::move(device));
  }
  if (why != nullptr) *why = reason;
  return found;
}

}  // namespace stretto::platform::nvml
