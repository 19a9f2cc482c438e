#include "algorithms/registry.hpp"

#include <algorithm>
#include <array>

#include "algorithms/rows.hpp"
#include "primitives/window.hpp"

namespace stretto::algorithms {
namespace {

constexpr bool isInLines(Protocol protocol) {
  using P = Protocol;
  return protocol == P::kLL || protocol == P::kLL128 || protocol == P::kLamport || protocol == P::kWarpChunks;
}

// Partial sums are passed on from rank to rank.
constexpr bool passesOn(Algorithm algorithm) {
  return algorithm == Algorithm::kRing || algorithm == Algorithm::kTree || algorithm == Algorithm::kChain ||
         algorithm == Algorithm::kStages;
}

template <typename Row>
constexpr Descriptor describe() {
  return {Row::kCollective,
          Row::kAlgorithm,
          Row::kProtocol,
          Row::kDevices,
          !(reduces(Row::kCollective) && passesOn(Row::kAlgorithm)),
          isThenNorm<typename Row::Code>,
          Row::kAlgorithm == Algorithm::kDirect,
          isInLines(Row::kProtocol) ? WindowLayout::kMostLinePayload : 0,
          Row::kCost};
}

template <typename... Described>
constexpr auto describeAll(std::tuple<Described...>) {
  return std::array{describe<Described>()...};
}

constexpr auto kRows = describeAll(Rows{});

template <Device device>
constexpr auto rowsOf() {
  constexpr auto kIsThere = [](const Descriptor& row) { return includes(row.devices, device); };
  std::array<Descriptor, std::count_if(kRows.begin(), kRows.end(), kIsThere)> rows{};
  std::copy_if(kRows.begin(), kRows.end(), rows.begin(), kIsThere);
  return rows;
}
constexpr auto kHostRows = rowsOf<Device::kHost>();
constexpr auto kCudaRows = rowsOf<Device::kCuda>();

constexpr bool hasTwin(const Descriptor& row) {
  return 1 < std::count_if(kRows.begin(), kRows.end(), [&](const Descriptor& other) {
           return row.collective == other.collective && row.algorithm == other.algorithm &&
                  row.protocol == other.protocol;
         });
}
static_assert(std::none_of(kRows.begin(), kRows.end(), hasTwin), "each form has one row");

}  // namespace

const char* nameOf(Algorithm algorithm) {
  constexpr const char* kNames[] = {"local", "one_shot", "two_shot", "direct",   "ring",  "tree",
                                    "chain", "flat",     "push",     "pairwise", "stages"};
  return nameIn(kNames, algorithm);
}

const char* nameOf(Directions directions) {
  return directions == Directions::kBothWays ? "both_ways" : "one_way";
}

const char* nameOf(Protocol protocol) {
  constexpr const char* kNames[] = {"ll",   "simple", "ll128",       "lamport",  "warp_chunks",
                                    "copy", "pull",   "pull_nosync", "pull_push"};
  return nameIn(kNames, protocol);
}

// The row's is one way: n - 1 hops gather. Both ways blocks have half as far to go, rounded up.
Cost costOf(const Descriptor& row, int ranks, double bytes, Directions directions) {
  Cost cost = row.cost(ranks, bytes);
  if (gathersAlongRing(row) && directions == Directions::kBothWays) cost.hops -= (ranks - 1) / 2;
  return cost;
}

std::span<const Descriptor> descriptors(Device device) {
  if (device == Device::kHost) return kHostRows;
  return kCudaRows;
}

std::span<const Descriptor> allDescriptors() {
  return kRows;
}

}  // namespace stretto::algorithms
