// Names as users type them, back to values. Used by the planner only.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "planner/plan.hpp"

namespace stretto::planner {

inline std::optional<Collective> collectiveNamed(std::string_view name) {
  for (int i = 0; i < kCollectives; ++i) {
    if (name == nameOf(static_cast<Collective>(i))) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

inline std::optional<Algorithm> algorithmNamed(std::string_view name) {
  for (int i = 0; i < algorithms::kAlgorithms; ++i) {
    if (name == algorithms::nameOf(static_cast<Algorithm>(i))) return static_cast<Algorithm>(i);
  }
  return std::nullopt;
}

// What protocols were called before they had the field's names.
inline constexpr std::pair<std::string_view, Protocol> kOldProtocolNames[] = {
    {"lines", Protocol::kLL},
    {"chunks", Protocol::kSimple},
    {"wide", Protocol::kLL128},
    {"bare", Protocol::kLamport},
    {"runs", Protocol::kWarpChunks}};

inline std::optional<Protocol> protocolNamed(std::string_view name) {
  for (const auto& [old, protocol] : kOldProtocolNames) {
    if (name == old) return protocol;
  }
  for (int i = 0; i < algorithms::kProtocols; ++i) {
    if (name == algorithms::nameOf(static_cast<Protocol>(i))) return static_cast<Protocol>(i);
  }
  return std::nullopt;
}

// Both ends of a message must be planned alike, so a receive is planned as the send that it meets.
constexpr Collective plannedAs(Collective collective) {
  return collective == Collective::kReceive ? Collective::kSend : collective;
}

}  // namespace stretto::planner
