// The rows of the registry that run on every backend, and the code of each. Executors instantiate the code
// for their backend; nothing else does.
#pragma once

#include <tuple>

#include "algorithms/all_reduce.hpp"
#include "algorithms/pairs.hpp"
#include "algorithms/push.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/ring.hpp"
#include "algorithms/rooted.hpp"
#include "algorithms/tree.hpp"

namespace stretto::algorithms {

// `Code` has a static run(backend, arguments).
template <Collective kCollectiveOf, Algorithm kAlgorithmOf, Protocol kProtocolOf, typename CodeOf>
struct Row {
  static constexpr Collective kCollective = kCollectiveOf;
  static constexpr Algorithm kAlgorithm = kAlgorithmOf;
  static constexpr Protocol kProtocol = kProtocolOf;
  using Code = CodeOf;
};

// A function template as a type.
#define STRETTO_CODE(Name, function)                                             \
  struct Name {                                                                  \
    template <typename B>                                                        \
    STRETTO_ANYWHERE static Status run(B& backend, const Arguments& arguments) { \
      return function(backend, arguments);                                       \
    }                                                                            \
  }

STRETTO_CODE(AllReduceOneShotLines, allReduceOneShotLines);
STRETTO_CODE(AllReduceOneShot, allReduceOneShot);
STRETTO_CODE(AllReduceTwoShot, allReduceTwoShot);
STRETTO_CODE(AllReduceTwoShotLines, allReduceTwoShotLines);
STRETTO_CODE(AllReduceRing, allReduceRing);
STRETTO_CODE(AllReduceTree, allReduceTree);
STRETTO_CODE(ReduceScatterPushLines, reduceScatterPushLines);
STRETTO_CODE(ReduceScatterPush, reduceScatterPush);
STRETTO_CODE(ReduceScatterRing, reduceScatterRing);
STRETTO_CODE(AllReduceUnreducedRing, allReduceUnreducedRing);
STRETTO_CODE(ReduceScatterUnreducedRing, reduceScatterUnreducedRing);
STRETTO_CODE(AllGatherPushLines, allGatherPushLines);
STRETTO_CODE(AllGatherPush, allGatherPush);
STRETTO_CODE(AllGatherRing, allGatherRing);
STRETTO_CODE(AllToAllPushLines, allToAllPushLines);
STRETTO_CODE(AllToAllPush, allToAllPush);
STRETTO_CODE(AllToAllPairwise, allToAllPairwise);
STRETTO_CODE(BroadcastPushLines, broadcastPushLines);
STRETTO_CODE(BroadcastTwoShotLines, broadcastTwoShotLines);
STRETTO_CODE(ReducePushLines, reducePushLines);
STRETTO_CODE(ReduceTwoShotLines, reduceTwoShotLines);
STRETTO_CODE(GatherPushLines, gatherPushLines);
STRETTO_CODE(ScatterPushLines, scatterPushLines);
STRETTO_CODE(BroadcastTree, broadcastTree);
STRETTO_CODE(ReduceTree, reduceTree);
STRETTO_CODE(BroadcastFlat, broadcastFlat);
STRETTO_CODE(ReduceFlat, reduceFlat);
STRETTO_CODE(GatherFlat, gatherFlat);
STRETTO_CODE(ScatterFlat, scatterFlat);
#undef STRETTO_CODE

// A tree of `arity` children per rank.
template <typename Code, int arity>
struct WithArity {
  template <typename B>
  STRETTO_ANYWHERE static Status run(B& backend, const Arguments& arguments) {
    Arguments shaped = arguments;
    shaped.arity = arity;
    return Code::run(backend, shaped);
  }
};

using PortableRows =
    std::tuple<Row<Collective::kAllReduce, Algorithm::kOneShot, Protocol::kLines, AllReduceOneShotLines>,
               Row<Collective::kAllReduce, Algorithm::kOneShot, Protocol::kChunks, AllReduceOneShot>,
               Row<Collective::kAllReduce, Algorithm::kTwoShot, Protocol::kLines, AllReduceTwoShotLines>,
               Row<Collective::kAllReduce, Algorithm::kTwoShot, Protocol::kChunks, AllReduceTwoShot>,
               Row<Collective::kAllReduce, Algorithm::kRing, Protocol::kChunks, AllReduceRing>,
               Row<Collective::kAllReduce, Algorithm::kTree, Protocol::kChunks, WithArity<AllReduceTree, 2>>,
               Row<Collective::kReduceScatter, Algorithm::kPush, Protocol::kLines, ReduceScatterPushLines>,
               Row<Collective::kReduceScatter, Algorithm::kPush, Protocol::kChunks, ReduceScatterPush>,
               Row<Collective::kReduceScatter, Algorithm::kRing, Protocol::kChunks, ReduceScatterRing>,
               Row<Collective::kAllGather, Algorithm::kPush, Protocol::kLines, AllGatherPushLines>,
               Row<Collective::kAllGather, Algorithm::kPush, Protocol::kChunks, AllGatherPush>,
               Row<Collective::kAllGather, Algorithm::kRing, Protocol::kChunks, AllGatherRing>,
               Row<Collective::kAllToAll, Algorithm::kPush, Protocol::kLines, AllToAllPushLines>,
               Row<Collective::kAllToAll, Algorithm::kPush, Protocol::kChunks, AllToAllPush>,
               Row<Collective::kAllToAll, Algorithm::kPairwise, Protocol::kChunks, AllToAllPairwise>,
               Row<Collective::kBroadcast, Algorithm::kPush, Protocol::kLines, BroadcastPushLines>,
               Row<Collective::kBroadcast, Algorithm::kTwoShot, Protocol::kLines, BroadcastTwoShotLines>,
               Row<Collective::kReduce, Algorithm::kPush, Protocol::kLines, ReducePushLines>,
               Row<Collective::kReduce, Algorithm::kTwoShot, Protocol::kLines, ReduceTwoShotLines>,
               Row<Collective::kGather, Algorithm::kPush, Protocol::kLines, GatherPushLines>,
               Row<Collective::kScatter, Algorithm::kPush, Protocol::kLines, ScatterPushLines>,
               Row<Collective::kBroadcast, Algorithm::kFlat, Protocol::kChunks, BroadcastFlat>,
               Row<Collective::kBroadcast, Algorithm::kTree, Protocol::kChunks, WithArity<BroadcastTree, 2>>,
               Row<Collective::kBroadcast, Algorithm::kChain, Protocol::kChunks, WithArity<BroadcastTree, 1>>,
               Row<Collective::kReduce, Algorithm::kFlat, Protocol::kChunks, ReduceFlat>,
               Row<Collective::kReduce, Algorithm::kTree, Protocol::kChunks, WithArity<ReduceTree, 2>>,
               Row<Collective::kReduce, Algorithm::kChain, Protocol::kChunks, WithArity<ReduceTree, 1>>,
               Row<Collective::kGather, Algorithm::kFlat, Protocol::kChunks, GatherFlat>,
               Row<Collective::kScatter, Algorithm::kFlat, Protocol::kChunks, ScatterFlat>>;

// Whose results are wrong (unreducedDescriptors()).
using UnreducedRows = std::tuple<
    Row<Collective::kAllReduce, Algorithm::kUnreducedRing, Protocol::kChunks, AllReduceUnreducedRing>,
    Row<Collective::kReduceScatter, Algorithm::kUnreducedRing, Protocol::kChunks,
        ReduceScatterUnreducedRing>>;

}  // namespace stretto::algorithms
