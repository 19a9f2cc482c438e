#include "executors/host/launch.hpp"

#include <array>

#include "algorithms/rows.hpp"
#include "links/net/spread_host.hpp"

namespace stretto::executors::host {
namespace {

using algorithms::Algorithm;
using algorithms::Protocol;
using links::net::SpreadHost;
static_assert(algorithms::SizesChunks<SpreadHost> && !algorithms::SizesChunks<Host>);
static_assert(algorithms::LendingBackend<SpreadHost> &&
              algorithms::LendingBackend<algorithms::Subset<SpreadHost>>);
static_assert(algorithms::KeepsClaimsOfLinks<SpreadHost>);
static_assert(algorithms::KeepsClaimsOfLinks<algorithms::Subset<SpreadHost>>);
using Table =
    std::array<std::array<std::array<Run, algorithms::kProtocols>, algorithms::kAlgorithms>, kCollectives>;

// Ranks of several hosts end an operation when what they have sent has left.
template <typename Code>
Status runSpread(Host& host, const Arguments& arguments) {
  auto& spread = static_cast<SpreadHost&>(host);
  const Status status = Code::run(spread, arguments);
  return spread.giveBack(status.ok() ? spread.finish() : status);
}

template <typename Row>
constexpr void add(Table& table, Table& spreadTable) {
  if constexpr (algorithms::hasCode<Row, algorithms::Device::kHost>) {
    const auto place = [](Table& of) -> Run& {
      return of[static_cast<size_t>(Row::kCollective)][static_cast<size_t>(Row::kAlgorithm)]
               [static_cast<size_t>(Row::kProtocol)];
    };
    if constexpr (algorithms::runsInOneHost<Row>) place(table) = Row::Code::template run<Host>;
    if constexpr (algorithms::usesLinks(Row::kAlgorithm)) place(spreadTable) = runSpread<typename Row::Code>;
  }
}

template <typename... Rows>
constexpr void addAll(Table& table, Table& spreadTable, std::tuple<Rows...>) {
  (add<Rows>(table, spreadTable), ...);
}

// For ranks of one host, and for those of several.
constexpr std::array<Table, 2> kTables = [] {
  std::array<Table, 2> tables{};
  addAll(tables[0], tables[1], algorithms::Rows{});
  return tables;
}();

}  // namespace

Run codeOf(Collective collective, Algorithm algorithm, Protocol protocol, bool spread) {
  const Run run = kTables[spread ? 1 : 0][static_cast<size_t>(collective)][static_cast<size_t>(algorithm)]
                         [static_cast<size_t>(protocol)];
  if (run == nullptr) {
    (void)fail(Code::kInternal, "no code for %s by %s with %s%s", nameOf(collective), nameOf(algorithm),
               nameOf(protocol), spread ? " between hosts" : "");
  }
  return run;
}

}  // namespace stretto::executors::host
