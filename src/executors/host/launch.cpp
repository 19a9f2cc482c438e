#include "executors/host/launch.hpp"

#include <array>

#include "algorithms/rows.hpp"

namespace stretto::executors::host {
namespace {

using algorithms::Algorithm;
using algorithms::Protocol;
using Table =
    std::array<std::array<std::array<Run, algorithms::kProtocols>, algorithms::kAlgorithms>, kCollectives>;

template <typename Row>
constexpr void add(Table& table) {
  if constexpr (algorithms::hasCode<Row, algorithms::Device::kHost>) {
    table[static_cast<size_t>(Row::kCollective)][static_cast<size_t>(Row::kAlgorithm)]
         [static_cast<size_t>(Row::kProtocol)] = Row::Code::template run<Host>;
  }
}

template <typename... Rows>
constexpr void addAll(Table& table, std::tuple<Rows...>) {
  (add<Rows>(table), ...);
}

constexpr Table kTable = [] {
  Table table{};
  addAll(table, algorithms::Rows{});
  return table;
}();

}  // namespace

Run codeOf(Collective collective, Algorithm algorithm, Protocol protocol) {
  const Run run =
      kTable[static_cast<size_t>(collective)][static_cast<size_t>(algorithm)][static_cast<size_t>(protocol)];
  if (run == nullptr) {
    (void)fail(Code::kInternal, "no code for %s by %s with %s", nameOf(collective), nameOf(algorithm),
               nameOf(protocol));
  }
  return run;
}

}  // namespace stretto::executors::host
