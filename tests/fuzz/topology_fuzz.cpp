// Whatever bytes come, reading a topology answers with facts or a refusal, and facts survive being written
// and read again.
#include <cstdint>
#include <cstdlib>

#include "topology/facts.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto cores = stretto::topology::parseCores(text);
  if (cores.ok()) {
    const auto again = stretto::topology::parseCores(stretto::topology::toText(cores.value()));
    if (!again.ok() || again.value() != cores.value()) abort();
  }
  const auto facts = stretto::topology::fromJson(text);
  if (facts.ok()) {
    const auto again = stretto::topology::fromJson(stretto::topology::toJson(facts.value()));
    if (!again.ok() || again.value() != facts.value()) abort();
    (void)stretto::topology::lastLevelCacheBytes(facts.value());
    (void)stretto::topology::nodeOf(facts.value(), 0);
  } else if (stretto::lastError().empty()) {
    abort();
  }
  return 0;
}
