// Every algorithm template over any backend, by the rows of the registry. For tests that run algorithms on
// other backends than the executor does.
#pragma once

#include <string>
#include <vector>

#include "algorithms/rows.hpp"

namespace stretto::testing {

template <typename B>
struct Algorithm {
  const algorithms::Descriptor* row;
  Status (*run)(B&, const Arguments&);
  int rings = 1;
  algorithms::Directions directions = algorithms::Directions::kOneWay;
};

inline const algorithms::Descriptor* rowOf(Collective collective, algorithms::Algorithm algorithm,
                                           algorithms::Protocol protocol) {
  for (const algorithms::Descriptor& row : algorithms::allDescriptors()) {
    if (row.collective == collective && row.algorithm == algorithm && row.protocol == protocol) return &row;
  }
  return nullptr;
}

// A ring in each of its shapes, everything else as it is.
template <typename Row, typename B>
void addShapes(std::vector<Algorithm<B>>& all) {
  namespace al = algorithms;
  const al::Descriptor* row = rowOf(Row::kCollective, Row::kAlgorithm, Row::kProtocol);
  const auto add = [&](int rings, al::Directions directions) {
    all.push_back({row, Row::Code::template run<B>, rings, directions});
  };
  add(1, al::Directions::kOneWay);
  if (Row::kAlgorithm != al::Algorithm::kRing) return;
  for (const int rings : {2, 4}) add(rings, al::Directions::kOneWay);
  if (!al::gathersAlongRing(*row)) return;
  for (const int rings : {1, 2, 4}) add(rings, al::Directions::kBothWays);
}

// Of what has several ranks. LL128 lines, Lamport ones and runs are formats of one backend; their code is
// that of lines.
template <typename Row>
inline constexpr bool isForAnyBackend =
    !std::is_same_v<typename Row::Code, algorithms::OfExecutor> &&
    Row::kAlgorithm != algorithms::Algorithm::kLocal && algorithms::runsInOneHost<Row> &&
    (Row::kProtocol == algorithms::Protocol::kLL || Row::kProtocol == algorithms::Protocol::kSimple);

template <typename B>
std::vector<Algorithm<B>> everyAlgorithm() {
  std::vector<Algorithm<B>> all;
  const auto add = [&]<typename Row>() {
    if constexpr (isForAnyBackend<Row>) addShapes<Row>(all);
  };
  const auto addAll = [&]<typename... Rows>(std::tuple<Rows...>) { (add.template operator()<Rows>(), ...); };
  addAll(algorithms::Rows{});
  return all;
}

}  // namespace stretto::testing
