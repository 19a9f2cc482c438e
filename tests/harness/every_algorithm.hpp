// Every algorithm template over any backend, by the rows of the registry. For tests that run algorithms on
// other backends than the executor does.
#pragma once

#include <string>
#include <vector>

#include "algorithms/all_reduce.hpp"
#include "algorithms/direct.hpp"
#include "algorithms/pairs.hpp"
#include "algorithms/push.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/ring.hpp"
#include "algorithms/rooted.hpp"
#include "algorithms/tree.hpp"

namespace stretto::testing {

template <typename B>
struct Algorithm {
  const algorithms::Descriptor* row;
  Status (*run)(B&, const Arguments&);
  int rings = 1;
  algorithms::Directions directions = algorithms::Directions::kOneWay;
};

template <typename B, auto run, int arity>
Status withArity(B& backend, const Arguments& arguments) {
  Arguments shaped = arguments;
  shaped.arity = arity;
  return run(backend, shaped);
}

inline const algorithms::Descriptor* rowOf(Collective collective, algorithms::Algorithm algorithm,
                                           algorithms::Protocol protocol) {
  for (const auto rows : {algorithms::allDescriptors(), algorithms::unreducedDescriptors()}) {
    for (const algorithms::Descriptor& row : rows) {
      if (row.collective == collective && row.algorithm == algorithm && row.protocol == protocol) return &row;
    }
  }
  return nullptr;
}

template <typename B>
std::vector<Algorithm<B>> everyAlgorithm() {
  using C = Collective;
  using A = algorithms::Algorithm;
  using P = algorithms::Protocol;
  namespace al = algorithms;
  std::vector<Algorithm<B>> all;
  const auto add = [&](C collective, A algorithm, P protocol, Status (*run)(B&, const Arguments&)) {
    all.push_back({rowOf(collective, algorithm, protocol), run});
    if (!al::isRing(algorithm)) return;
    for (const int rings : {2, 4}) all.push_back({all.back().row, run, rings});
    if (!al::gathersAlongRing(*all.back().row)) return;
    for (const int rings : {1, 2, 4}) all.push_back({all.back().row, run, rings, al::Directions::kBothWays});
  };
  add(C::kAllReduce, A::kOneShot, P::kLines, al::allReduceOneShotLines<B>);
  add(C::kAllReduce, A::kOneShot, P::kChunks, al::allReduceOneShot<B>);
  add(C::kAllReduce, A::kTwoShot, P::kLines, al::allReduceTwoShotLines<B>);
  add(C::kAllReduce, A::kTwoShot, P::kChunks, al::allReduceTwoShot<B>);
  add(C::kAllReduce, A::kDirect, P::kChunks, al::allReduceDirect<B>);
  add(C::kAllReduce, A::kRing, P::kChunks, al::allReduceRing<B>);
  add(C::kAllReduce, A::kTree, P::kChunks, withArity<B, al::allReduceTree<B>, 2>);
  add(C::kReduceScatter, A::kPush, P::kLines, al::reduceScatterPushLines<B>);
  add(C::kReduceScatter, A::kPush, P::kChunks, al::reduceScatterPush<B>);
  add(C::kReduceScatter, A::kDirect, P::kChunks, al::reduceScatterDirect<B>);
  add(C::kReduceScatter, A::kRing, P::kChunks, al::reduceScatterRing<B>);
  add(C::kAllGather, A::kPush, P::kLines, al::allGatherPushLines<B>);
  add(C::kAllGather, A::kPush, P::kChunks, al::allGatherPush<B>);
  add(C::kAllGather, A::kDirect, P::kChunks, al::allGatherDirect<B>);
  add(C::kAllGather, A::kRing, P::kChunks, al::allGatherRing<B>);
  add(C::kAllToAll, A::kPush, P::kLines, al::allToAllPushLines<B>);
  add(C::kAllToAll, A::kPush, P::kChunks, al::allToAllPush<B>);
  add(C::kAllToAll, A::kDirect, P::kChunks, al::allToAllDirect<B>);
  add(C::kAllToAll, A::kPairwise, P::kChunks, al::allToAllPairwise<B>);
  add(C::kBroadcast, A::kPush, P::kLines, al::broadcastPushLines<B>);
  add(C::kBroadcast, A::kTwoShot, P::kLines, al::broadcastTwoShotLines<B>);
  add(C::kReduce, A::kPush, P::kLines, al::reducePushLines<B>);
  add(C::kReduce, A::kTwoShot, P::kLines, al::reduceTwoShotLines<B>);
  add(C::kGather, A::kPush, P::kLines, al::gatherPushLines<B>);
  add(C::kScatter, A::kPush, P::kLines, al::scatterPushLines<B>);
  add(C::kBroadcast, A::kFlat, P::kChunks, al::broadcastFlat<B>);
  add(C::kBroadcast, A::kTree, P::kChunks, withArity<B, al::broadcastTree<B>, 2>);
  add(C::kBroadcast, A::kChain, P::kChunks, withArity<B, al::broadcastTree<B>, 1>);
  add(C::kBroadcast, A::kDirect, P::kChunks, al::broadcastDirect<B>);
  add(C::kReduce, A::kFlat, P::kChunks, al::reduceFlat<B>);
  add(C::kReduce, A::kTree, P::kChunks, withArity<B, al::reduceTree<B>, 2>);
  add(C::kReduce, A::kChain, P::kChunks, withArity<B, al::reduceTree<B>, 1>);
  add(C::kGather, A::kFlat, P::kChunks, al::gatherFlat<B>);
  add(C::kScatter, A::kFlat, P::kChunks, al::scatterFlat<B>);
  return all;
}

// Those whose results are wrong.
template <typename B>
std::vector<Algorithm<B>> everyUnreduced() {
  using algorithms::Directions;
  const auto row = [](Collective collective) {
    return rowOf(collective, algorithms::Algorithm::kUnreducedRing, algorithms::Protocol::kChunks);
  };
  std::vector<Algorithm<B>> all;
  for (const int rings : {1, 2, 4}) {
    for (const Directions directions : {Directions::kOneWay, Directions::kBothWays}) {
      all.push_back({row(Collective::kAllReduce), algorithms::allReduceUnreducedRing<B>, rings, directions});
    }
    all.push_back({row(Collective::kReduceScatter), algorithms::reduceScatterUnreducedRing<B>, rings});
  }
  return all;
}

}  // namespace stretto::testing
