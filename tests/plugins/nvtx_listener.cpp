// A tool that listens to NVTX, for chain_test.cpp: writes down in words what it hears.
#include <nvtx3/nvToolsExt.h>

#include <string>

extern "C" __attribute__((visibility("default"))) std::string nvtxListenerSaid;
std::string nvtxListenerSaid;

namespace {

nvtxDomainHandle_t NVTX_API createDomain(const char* name) {
  nvtxListenerSaid += std::string("domain ") + name + ";";
  return reinterpret_cast<nvtxDomainHandle_t>(&nvtxListenerSaid);
}
int NVTX_API push(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  nvtxListenerSaid += std::string("push ") + range->message.ascii + ";";
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t) {
  nvtxListenerSaid += "pop;";
  return 0;
}

void hook(NvtxFunctionTable table, unsigned size, unsigned index, NvtxFunctionPointer function) {
  if (index < size) *table[index] = function;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  hook(table, size, NVTX_CBID_CORE2_DomainCreateA, reinterpret_cast<NvtxFunctionPointer>(createDomain));
  hook(table, size, NVTX_CBID_CORE2_DomainRangePushEx, reinterpret_cast<NvtxFunctionPointer>(push));
  hook(table, size, NVTX_CBID_CORE2_DomainRangePop, reinterpret_cast<NvtxFunctionPointer>(pop));
  return 1;
}
