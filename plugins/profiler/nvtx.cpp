#include "profiler/nvtx.hpp"

#include "profiler/notice.hpp"
#include "profiler/thread_stack.hpp"

#ifdef STRETTO_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace stretto::profiler::nvtx {

#ifdef STRETTO_NVTX
namespace {

thread_local ThreadStack<64> tOpen;

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("Stretto");
  return ours;
}

// Only events that start and stop on one thread, one inside the other.
bool nests(Type type) {
  switch (type) {
    case Type::kGroupApi:
    case Type::kCollApi:
    case Type::kP2pApi:
    case Type::kKernelLaunch:
    case Type::kGroup:
    case Type::kColl:
    case Type::kP2p:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool prepare(Logger) {
  domain();
  return true;
}

void start(Type type, uint64_t id, const char* label) {
  if (!nests(type) || !tOpen.push(id)) return;
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = label;
  range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  range.payload.ullValue = id;
  nvtxDomainRangePushEx(domain(), &range);
}

void stop(uint64_t id) {
  for (int left = tOpen.popTo(id); left > 0; --left) nvtxDomainRangePop(domain());
}

#else

bool prepare(Logger logger) {
  notice(logger, LogLevel::kWarn, "no NVTX ranges: the plugin was built without NVTX's headers");
  return false;
}
void start(Type, uint64_t, const char*) {}
void stop(uint64_t) {}

#endif

}  // namespace stretto::profiler::nvtx
