#include "executors/host/launch.hpp"

#include <array>

#include "algorithms/all_reduce.hpp"
#include "algorithms/direct.hpp"
#include "algorithms/pairs.hpp"
#include "algorithms/push.hpp"
#include "algorithms/ring.hpp"
#include "algorithms/tree.hpp"

namespace stretto::executors::host {
namespace {

using algorithms::Algorithm;
using algorithms::Protocol;
using Run = Status (*)(Host&, const Arguments&);

// One rank: what is sent is what is received, divided by nothing and reduced with nobody.
Status copyLocal(Host& host, const Arguments& a) {
  host.copy(host.coop(), a.receive, a.send, a.bytes(), a.stream);
  return kOkStatus;
}

template <auto algorithm, int arity>
Status withArity(Host& host, const Arguments& a) {
  Arguments shaped = a;
  shaped.arity = arity > 0 ? arity : host.ranks() - 1;
  return algorithm(host, shaped);
}

struct Row {
  Collective collective;
  Algorithm algorithm;
  Protocol protocol;
  Run run;
};

using C = Collective;
using A = Algorithm;
using P = Protocol;
namespace al = algorithms;

constexpr Row kRows[] = {
    {C::kAllReduce, A::kLocal, P::kChunks, copyLocal},
    {C::kAllReduce, A::kOneShot, P::kLines, al::allReduceOneShotLines<Host>},
    {C::kAllReduce, A::kOneShot, P::kChunks, al::allReduceOneShot<Host>},
    {C::kAllReduce, A::kTwoShot, P::kChunks, al::allReduceTwoShot<Host>},
    {C::kAllReduce, A::kDirect, P::kChunks, al::allReduceDirect<Host>},
    {C::kAllReduce, A::kRing, P::kChunks, al::allReduceRing<Host>},
    {C::kAllReduce, A::kTree, P::kChunks, withArity<al::allReduceTree<Host>, 2>},
    {C::kReduceScatter, A::kLocal, P::kChunks, copyLocal},
    {C::kReduceScatter, A::kPush, P::kLines, al::reduceScatterPushLines<Host>},
    {C::kReduceScatter, A::kPush, P::kChunks, al::reduceScatterPush<Host>},
    {C::kReduceScatter, A::kDirect, P::kChunks, al::reduceScatterDirect<Host>},
    {C::kReduceScatter, A::kRing, P::kChunks, al::reduceScatterRing<Host>},
    {C::kAllGather, A::kLocal, P::kChunks, copyLocal},
    {C::kAllGather, A::kPush, P::kLines, al::allGatherPushLines<Host>},
    {C::kAllGather, A::kPush, P::kChunks, al::allGatherPush<Host>},
    {C::kAllGather, A::kDirect, P::kChunks, al::allGatherDirect<Host>},
    {C::kAllGather, A::kRing, P::kChunks, al::allGatherRing<Host>},
    {C::kAllToAll, A::kLocal, P::kChunks, copyLocal},
    {C::kAllToAll, A::kPush, P::kLines, al::allToAllPushLines<Host>},
    {C::kAllToAll, A::kPush, P::kChunks, al::allToAllPush<Host>},
    {C::kAllToAll, A::kDirect, P::kChunks, al::allToAllDirect<Host>},
    {C::kAllToAll, A::kPairwise, P::kChunks, al::allToAllPairwise<Host>},
    {C::kBroadcast, A::kLocal, P::kChunks, copyLocal},
    {C::kBroadcast, A::kFlat, P::kChunks, withArity<al::broadcastTree<Host>, 0>},
    {C::kBroadcast, A::kTree, P::kChunks, withArity<al::broadcastTree<Host>, 2>},
    {C::kBroadcast, A::kChain, P::kChunks, withArity<al::broadcastTree<Host>, 1>},
    {C::kBroadcast, A::kDirect, P::kChunks, al::broadcastDirect<Host>},
    {C::kReduce, A::kLocal, P::kChunks, copyLocal},
    {C::kReduce, A::kFlat, P::kChunks, withArity<al::reduceTree<Host>, 0>},
    {C::kReduce, A::kTree, P::kChunks, withArity<al::reduceTree<Host>, 2>},
    {C::kReduce, A::kChain, P::kChunks, withArity<al::reduceTree<Host>, 1>},
    {C::kGather, A::kLocal, P::kChunks, copyLocal},
    {C::kGather, A::kFlat, P::kChunks, al::gatherFlat<Host>},
    {C::kScatter, A::kLocal, P::kChunks, copyLocal},
    {C::kScatter, A::kFlat, P::kChunks, al::scatterFlat<Host>},
};

using Table = std::array<std::array<std::array<Run, al::kProtocols>, al::kAlgorithms>, kCollectives>;

constexpr Table makeTable() {
  Table table{};
  for (const Row& row : kRows) {
    table[static_cast<size_t>(row.collective)][static_cast<size_t>(row.algorithm)]
         [static_cast<size_t>(row.protocol)] = row.run;
  }
  return table;
}
constexpr Table kTable = makeTable();

}  // namespace

Status launch(Host& host, Collective collective, Algorithm algorithm, Protocol protocol,
              const Arguments& arguments) {
  const Run run =
      kTable[static_cast<size_t>(collective)][static_cast<size_t>(algorithm)][static_cast<size_t>(protocol)];
  if (run == nullptr) [[unlikely]] {
    return fail(Code::kInternal, "no code for %s by %s with %s", nameOf(collective), nameOf(algorithm),
                nameOf(protocol));
  }
  return run(host, arguments);
}

}  // namespace stretto::executors::host
