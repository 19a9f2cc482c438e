#include "executors/host/launch.hpp"

#include <array>

#include "algorithms/direct.hpp"
#include "algorithms/rows.hpp"

namespace stretto::executors::host {
namespace {

using algorithms::Algorithm;
using algorithms::Protocol;

// One rank: what is sent is what is received, divided by nothing and reduced with nobody.
Status copyLocal(Host& host, const Arguments& a) {
  host.copy(host.coop(), a.receive, a.send, a.bytes(), a.stream);
  return kOkStatus;
}

struct HostRow {
  Collective collective;
  Algorithm algorithm;
  Protocol protocol;
  Run run;
};

using A = Algorithm;
using P = Protocol;

// What the host runs besides the rows of every backend.
constexpr HostRow kHostRows[] = {
    {Collective::kAllReduce, A::kDirect, P::kChunks, algorithms::allReduceDirect<Host>},
    {Collective::kReduceScatter, A::kDirect, P::kChunks, algorithms::reduceScatterDirect<Host>},
    {Collective::kAllGather, A::kDirect, P::kChunks, algorithms::allGatherDirect<Host>},
    {Collective::kAllToAll, A::kDirect, P::kChunks, algorithms::allToAllDirect<Host>},
    {Collective::kBroadcast, A::kDirect, P::kChunks, algorithms::broadcastDirect<Host>},
};

using Table =
    std::array<std::array<std::array<Run, algorithms::kProtocols>, algorithms::kAlgorithms>, kCollectives>;

constexpr Run& at(Table& table, Collective collective, Algorithm algorithm, Protocol protocol) {
  return table[static_cast<size_t>(collective)][static_cast<size_t>(algorithm)]
              [static_cast<size_t>(protocol)];
}

template <typename... Rows>
constexpr void addPortable(Table& table, std::tuple<Rows...>) {
  ((at(table, Rows::kCollective, Rows::kAlgorithm, Rows::kProtocol) = Rows::Code::template run<Host>), ...);
}

constexpr Table makeTable() {
  Table table{};
  addPortable(table, algorithms::PortableRows{});
  addPortable(table, algorithms::UnreducedRows{});
  for (const HostRow& row : kHostRows) at(table, row.collective, row.algorithm, row.protocol) = row.run;
  for (int i = 0; i < kCollectives; ++i) {
    at(table, static_cast<Collective>(i), A::kLocal, P::kChunks) = copyLocal;
  }
  return table;
}
constexpr Table kTable = makeTable();

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
