#include "api/config.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/parameters.hpp"
#include "communicator/foreign.hpp"

namespace stretto::api {
namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr int kMostCtas = 1 << 16;

Status checkRange(const char* name, int value, int low, int high) {
  if (value == NCCL_CONFIG_UNDEF_INT || (value >= low && value <= high)) return kOkStatus;
  return fail(Code::kInvalidArgument, "ncclConfig_t: %s is %d; it can be %d to %d, or undefined", name, value,
              low, high);
}

}  // namespace

Result<communicator::Config> parseConfig(const ncclConfig_t* given, communicator::Config defaults) {
  if (parameters::kMaxCtas.isSet()) {
    const auto most = parameters::kMaxCtas.integer(1, kMostCtas);
    if (!most.ok()) return most.status();
    defaults.mostBlocks = static_cast<int>(most.value());
  }
  if (given == nullptr) return defaults;
  constexpr size_t kShortest = offsetof(ncclConfig_t, blocking);
  if (given->size < kShortest || given->magic != kMagic) {
    return fail(Code::kInvalidArgument,
                "ncclConfig_t: size %zu, magic %#x; start from NCCL_CONFIG_INITIALIZER (magic %#x)",
                given->size, given->size < kShortest ? 0 : given->magic, kMagic);
  }
  ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&known, given, std::min(given->size, sizeof known));
  STRETTO_TRY(checkRange("blocking", known.blocking, 0, 1));
  STRETTO_TRY(checkRange("minCTAs", known.minCTAs, 1, kMostCtas));
  STRETTO_TRY(checkRange("maxCTAs", known.maxCTAs, 1, kMostCtas));
  STRETTO_TRY(checkRange("splitShare", known.splitShare, 0, 1));
  STRETTO_TRY(checkRange("shrinkShare", known.shrinkShare, 0, 1));
  auto words = std::make_shared<communicator::ForeignConfig>();
  words->values = known;
  words->values.size = std::min(given->size, sizeof known);
  if (known.netName != nullptr) words->network = known.netName;
  if (known.commName != nullptr) words->name = known.commName;
  defaults.given = std::move(words);
  if (known.maxCTAs != NCCL_CONFIG_UNDEF_INT && !parameters::kMaxCtas.isSet())
    defaults.mostBlocks = known.maxCTAs;
  if (known.blocking != NCCL_CONFIG_UNDEF_INT) defaults.blocking = known.blocking != 0;
  if (known.commName != nullptr) defaults.name = known.commName;
  return defaults;
}

}  // namespace stretto::api
