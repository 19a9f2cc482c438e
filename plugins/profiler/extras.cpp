#include "profiler/extras.hpp"

#include "profiler/chain.hpp"
#include "profiler/cupti.hpp"
#include "profiler/nvtx.hpp"
#include "profiler/thread_writer.hpp"

namespace stretto::profiler::extras {

uint8_t prepare(const Settings& settings, Logger logger) {
  uint8_t on = 0;
  if (!settings.chain.empty() && chain().load(settings.chain.c_str(), logger)) on |= kChain;
  if (settings.nvtx && nvtx::prepare(logger)) on |= kNvtx;
  if (settings.cupti && cupti::prepare(logger)) on |= kCupti;
  return on;
}

void start(uint8_t which, const Started& event) {
  if ((which & kNvtx) != 0) nvtx::start(event.type, event.id, event.label);
  if ((which & kCupti) != 0 && event.type == Type::kKernelLaunch) cupti::push(event.id);
  if ((which & kChain) != 0) chain().start(event);
}

void stop(uint8_t which, uint64_t id) {
  if ((which & kChain) != 0) chain().stop(id);
  if ((which & kCupti) != 0 && ThreadWriter::typeOf(id) == Type::kKernelLaunch) cupti::pop(id);
  if ((which & kNvtx) != 0) nvtx::stop(id);
}

void state(uint8_t which, uint64_t id, int state, void* arguments) {
  if ((which & kChain) != 0) chain().state(id, state, arguments);
}

}  // namespace stretto::profiler::extras
