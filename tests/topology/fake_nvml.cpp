// A management library of three made-up GPUs: two on switches, the third linked to the second directly; a
// fourth does not answer. FAKE_NVML_OLD: without the functions that drivers before 470 lack;
// FAKE_NVML_REFUSES: a library without a driver.
#include <cstdio>
#include <cstring>

namespace {

constexpr unsigned kGpus = 4, kDead = 3;
constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6, kNoDriver = 9;
int gStarted = 0;

struct PciInfo {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int outcome;
  unsigned long long value;
};

struct FabricInfo {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};
constexpr int kOtherSocket = 3;
constexpr unsigned char kJoining = 2, kJoined = 3;

unsigned indexOf(void* handle) {
  return static_cast<unsigned>(reinterpret_cast<unsigned long>(handle)) - 1;
}
int place(unsigned index, PciInfo* pci) {
  *pci = {};
  pci->bus = 0x1b + index;
  snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
  return kSuccess;
}
bool onSwitch(unsigned index, unsigned link) {
  return index < 2 && link < 18;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
int nvmlInit_v2() {
#ifdef FAKE_NVML_REFUSES
  return kNoDriver;
#else
  ++gStarted;
  return kSuccess;
#endif
}
int nvmlShutdown() {
  return --gStarted >= 0 ? kSuccess : kNotFound;
}
const char* nvmlErrorString(int code) {
  return code == kNoDriver ? "Driver Not Loaded" : "something else";
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12080;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kGpus;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return index == kDead ? kNotFound : kSuccess;
}
int nvmlDeviceGetName(void*, char* name, unsigned length) {
  return snprintf(name, length, "Example GPU") > 0 ? kSuccess : kNotFound;
}
int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned length) {
  return snprintf(uuid, length, "GPU-%u", indexOf(handle)) > 0 ? kSuccess : kNotFound;
}
int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* pci) {
  return place(indexOf(handle), pci);
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {1000, 900, 100};
  return kSuccess;
}
// GPU 0 and 1: 18 links to switches. GPU 2: two links, to GPU 1; a third is down.
int nvmlDeviceGetNvLinkState(void* handle, unsigned link, unsigned* active) {
  const unsigned index = indexOf(handle);
  *active = onSwitch(index, link) || (index == 2 && link < 2) ? 1 : 0;
  return index == 2 && link > 2 ? kNotSupported : kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* handle, unsigned, PciInfo* pci) {
  return place(indexOf(handle) == 2 ? 1 : 7, pci);
}
// GPU 0 and 1 read each other; the third is on another socket.
int nvmlDeviceGetP2PStatus(void* handle, void* other, int, int* status) {
  *status = indexOf(handle) < 2 && indexOf(other) < 2 ? 0 : kOtherSocket;
  return kSuccess;
}
// The second is still joining its switches.
int nvmlDeviceGetGpuFabricInfo(void* handle, FabricInfo* info) {
  *info = {};
  info->state = indexOf(handle) == 1 ? kJoining : kJoined;
  return onSwitch(indexOf(handle), 0) ? kSuccess : kNotSupported;
}
// The third has been given less power and a lower clock than it comes with; its driver says nothing of
// memory.
int nvmlDeviceGetApplicationsClock(void* handle, int type, unsigned* clock) {
  *clock = indexOf(handle) == 2 ? 1200 : 1980;
  return type == 1 ? kSuccess : kNotSupported;
}
int nvmlDeviceGetDefaultApplicationsClock(void*, int type, unsigned* clock) {
  *clock = 1980;
  return type == 1 ? kSuccess : kNotSupported;
}
int nvmlDeviceGetPowerManagementLimit(void* handle, unsigned* milliwatts) {
  *milliwatts = indexOf(handle) == 2 ? 400000 : 700000;
  return kSuccess;
}
int nvmlDeviceGetPowerManagementDefaultLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return kSuccess;
}
#ifndef FAKE_NVML_OLD
int nvmlDeviceGetNvLinkRemoteDeviceType(void* handle, unsigned link, unsigned* type) {
  *type = onSwitch(indexOf(handle), link) ? 2 : 0;
  return kSuccess;
}
int nvmlDeviceGetFieldValues(void* handle, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    values[i].outcome = values[i].field == 90 && indexOf(handle) != 2 ? kSuccess : kNotSupported;
    values[i].type = 1;
    values[i].value = 26562;
  }
  return kSuccess;
}
#endif
}
