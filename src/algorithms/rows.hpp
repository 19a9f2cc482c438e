// The table of algorithms: which there are, on which devices each runs, what it costs, and its code. What the
// planner reads (registry.hpp), what hosts run (executors/host/launch.cpp), which kernels are compiled
// (executors/cuda/kernels.cuh), what tests try and the table of docs/design.md all come from here.
#pragma once

#include <tuple>
#include <type_traits>

#include "algorithms/all_reduce.hpp"
#include "algorithms/costs.hpp"
#include "algorithms/direct.hpp"
#include "algorithms/local.hpp"
#include "algorithms/norm.hpp"
#include "algorithms/pairs.hpp"
#include "algorithms/push.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/ring.hpp"
#include "algorithms/rooted.hpp"
#include "algorithms/stages.hpp"
#include "algorithms/tree.hpp"

namespace stretto::algorithms {

// `Code` has a static run(backend, arguments).
template <Collective kCollectiveOf, Algorithm kAlgorithmOf, Protocol kProtocolOf, Devices kDevicesOf,
          Cost (*costOf)(int, double), typename CodeOf>
struct Row {
  static constexpr Collective kCollective = kCollectiveOf;
  static constexpr Algorithm kAlgorithm = kAlgorithmOf;
  static constexpr Protocol kProtocol = kProtocolOf;
  static constexpr Devices kDevices = kDevicesOf;
  static constexpr auto kCost = costOf;
  using Code = CodeOf;
};

// An executor does the whole operation itself: messages (executors/*/transfers), copies by copy engines
// (executors/cuda/copies.hpp), kernels that read peers' buffers (executors/cuda/pulls.hpp).
struct OfExecutor {};

// What an executor for this device instantiates.
template <typename Row, Device device>
inline constexpr bool hasCode = includes(Row::kDevices, device) &&
                                !std::is_same_v<typename Row::Code, OfExecutor>;
// Whether ranks of one host run it too.
template <typename Row>
inline constexpr bool runsInOneHost = Row::kAlgorithm != Algorithm::kStages;

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
STRETTO_CODE(AllReducePairwise, allReducePairwise);
STRETTO_CODE(ReduceScatterPushLines, reduceScatterPushLines);
STRETTO_CODE(ReduceScatterPush, reduceScatterPush);
STRETTO_CODE(ReduceScatterRing, reduceScatterRing);
STRETTO_CODE(ReduceScatterPairwise, reduceScatterPairwise);
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
STRETTO_CODE(AllReduceDirect, allReduceDirect);
STRETTO_CODE(ReduceScatterDirect, reduceScatterDirect);
STRETTO_CODE(AllGatherDirect, allGatherDirect);
STRETTO_CODE(AllToAllDirect, allToAllDirect);
STRETTO_CODE(BroadcastDirect, broadcastDirect);
STRETTO_CODE(CopyLocal, copyLocal);
STRETTO_CODE(AllReduceNormOneShot, allReduceNormOneShot);
STRETTO_CODE(AllReduceNormTwoShot, allReduceNormTwoShot);
STRETTO_CODE(AllReduceNormOneShotLines, allReduceNormOneShotLines);
STRETTO_CODE(AllReduceNormTwoShotLines, allReduceNormTwoShotLines);
STRETTO_CODE(NormLocal, normLocal);
STRETTO_CODE(AllReduceStages, allReduceStages);
STRETTO_CODE(AllGatherStages, allGatherStages);
STRETTO_CODE(BroadcastStages, broadcastStages);
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

// An all-reduce, and then the norm of its result: in a pass of its own.
template <typename Sum>
struct ThenNorm {
  template <typename B>
  static Status run(B& backend, const Arguments& arguments) {
    return allReduceNormApart<Sum>(backend, arguments);
  }
};
template <typename Code>
inline constexpr bool isThenNorm = false;
template <typename Sum>
inline constexpr bool isThenNorm<ThenNorm<Sum>> = true;

namespace table {

using C = Collective;
using A = Algorithm;
using P = Protocol;
using D = Devices;
using namespace costs;
template <typename Code>
using Binary = WithArity<Code, 2>;
template <typename Code>
using Chain = WithArity<Code, 1>;

// Of rows of one collective that are predicted to be equally fast, the first is chosen. There are rooted
// collectives as exchanges on GPUs alone: on a host their root would wait for everybody.
// clang-format off
using Rows = std::tuple<
    //  collective         algorithm     protocol        devices   cost                code
    Row<C::kAllReduce,     A::kDirect,   P::kSimple,     D::kHost, reduceDirect,       AllReduceDirect>,
    Row<C::kAllReduce,     A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kAllReduce,     A::kOneShot,  P::kLL,      D::kBoth, reduceOneShot,      AllReduceOneShotLines>,
    Row<C::kAllReduce,     A::kOneShot,  P::kLL128,       D::kCuda, reduceOneShot,      AllReduceOneShotLines>,
    Row<C::kAllReduce,     A::kOneShot,  P::kLamport,       D::kCuda, reduceOneShot,      AllReduceOneShotLines>,
    Row<C::kAllReduce,     A::kOneShot,  P::kWarpChunks,       D::kCuda, reduceOneShot,      AllReduceOneShotLines>,
    Row<C::kAllReduce,     A::kOneShot,  P::kSimple,     D::kHost, reduceOneShot,      AllReduceOneShot>,
    Row<C::kAllReduce,     A::kOneShot,  P::kPull,       D::kCuda, reducePulled,       OfExecutor>,
    Row<C::kAllReduce,     A::kOneShot,  P::kPullNosync, D::kCuda, reducePulledNosync, OfExecutor>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kLL,      D::kBoth, reduceTwoShot,      AllReduceTwoShotLines>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kLL128,       D::kCuda, reduceTwoShot,      AllReduceTwoShotLines>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kLamport,       D::kCuda, reduceTwoShot,      AllReduceTwoShotLines>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kWarpChunks,       D::kCuda, reduceTwoShot,      AllReduceTwoShotLines>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kSimple,     D::kHost, reduceTwoShot,      AllReduceTwoShot>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kCopy,       D::kCuda, reduceCopied,       OfExecutor>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kPull,       D::kCuda, reduceDirect,       OfExecutor>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kPullNosync, D::kCuda, reduceDirectNosync, OfExecutor>,
    Row<C::kAllReduce,     A::kTwoShot,  P::kPullPush,   D::kCuda, reducePulledPushed, OfExecutor>,
    Row<C::kAllReduce,     A::kRing,     P::kSimple,     D::kBoth, reduceRing,         AllReduceRing>,
    Row<C::kAllReduce,     A::kTree,     P::kSimple,     D::kHost, reduceTreeBoth,     Binary<AllReduceTree>>,
    Row<C::kAllReduce,     A::kPairwise, P::kSimple,     D::kHost, reduceOneShot,      AllReducePairwise>,
    Row<C::kAllReduce,     A::kStages,   P::kSimple,     D::kHost, ofStages,           AllReduceStages>,

    Row<C::kReduceScatter, A::kDirect,   P::kSimple,     D::kHost, blocksDirect,       ReduceScatterDirect>,
    Row<C::kReduceScatter, A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kReduceScatter, A::kPush,     P::kLL,      D::kBoth, blocksPush,         ReduceScatterPushLines>,
    Row<C::kReduceScatter, A::kPush,     P::kLL128,       D::kCuda, blocksPush,         ReduceScatterPushLines>,
    Row<C::kReduceScatter, A::kPush,     P::kLamport,       D::kCuda, blocksPush,         ReduceScatterPushLines>,
    Row<C::kReduceScatter, A::kPush,     P::kWarpChunks,       D::kCuda, blocksPush,         ReduceScatterPushLines>,
    Row<C::kReduceScatter, A::kPush,     P::kSimple,     D::kHost, blocksPush,         ReduceScatterPush>,
    Row<C::kReduceScatter, A::kRing,     P::kSimple,     D::kBoth, blocksRing,         ReduceScatterRing>,
    Row<C::kReduceScatter, A::kPairwise, P::kSimple,     D::kHost, blocksPush,         ReduceScatterPairwise>,

    Row<C::kAllGather,     A::kDirect,   P::kSimple,     D::kHost, blocksDirect,       AllGatherDirect>,
    Row<C::kAllGather,     A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kAllGather,     A::kPush,     P::kLL,      D::kBoth, blocksPush,         AllGatherPushLines>,
    Row<C::kAllGather,     A::kPush,     P::kLL128,       D::kCuda, blocksPush,         AllGatherPushLines>,
    Row<C::kAllGather,     A::kPush,     P::kWarpChunks,       D::kCuda, blocksPush,         AllGatherPushLines>,
    Row<C::kAllGather,     A::kPush,     P::kSimple,     D::kHost, blocksPush,         AllGatherPush>,
    Row<C::kAllGather,     A::kPush,     P::kCopy,       D::kCuda, blocksCopied,       OfExecutor>,
    Row<C::kAllGather,     A::kRing,     P::kSimple,     D::kBoth, blocksRing,         AllGatherRing>,
    Row<C::kAllGather,     A::kStages,   P::kSimple,     D::kHost, ofStages,           AllGatherStages>,

    Row<C::kAllToAll,      A::kDirect,   P::kSimple,     D::kHost, blocksDirect,       AllToAllDirect>,
    Row<C::kAllToAll,      A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kAllToAll,      A::kPush,     P::kLL,      D::kBoth, blocksPush,         AllToAllPushLines>,
    Row<C::kAllToAll,      A::kPush,     P::kLL128,       D::kCuda, blocksPush,         AllToAllPushLines>,
    Row<C::kAllToAll,      A::kPush,     P::kWarpChunks,       D::kCuda, blocksPush,         AllToAllPushLines>,
    Row<C::kAllToAll,      A::kPush,     P::kSimple,     D::kHost, blocksPush,         AllToAllPush>,
    Row<C::kAllToAll,      A::kPush,     P::kCopy,       D::kCuda, blocksCopied,       OfExecutor>,
    Row<C::kAllToAll,      A::kPairwise, P::kSimple,     D::kBoth, blocksPairwise,     AllToAllPairwise>,

    Row<C::kBroadcast,     A::kDirect,   P::kSimple,     D::kHost, rootedDirect,       BroadcastDirect>,
    Row<C::kBroadcast,     A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kBroadcast,     A::kTwoShot,  P::kLL,      D::kCuda, rootedTwoShot,      BroadcastTwoShotLines>,
    Row<C::kBroadcast,     A::kTwoShot,  P::kLL128,       D::kCuda, rootedTwoShot,      BroadcastTwoShotLines>,
    Row<C::kBroadcast,     A::kTwoShot,  P::kWarpChunks,       D::kCuda, rootedTwoShot,      BroadcastTwoShotLines>,
    Row<C::kBroadcast,     A::kPush,     P::kLL,      D::kCuda, rootedPush,         BroadcastPushLines>,
    Row<C::kBroadcast,     A::kPush,     P::kLL128,       D::kCuda, rootedPush,         BroadcastPushLines>,
    Row<C::kBroadcast,     A::kPush,     P::kWarpChunks,       D::kCuda, rootedPush,         BroadcastPushLines>,
    Row<C::kBroadcast,     A::kPush,     P::kCopy,       D::kCuda, rootedCopied,       OfExecutor>,
    Row<C::kBroadcast,     A::kFlat,     P::kSimple,     D::kBoth, rootedFlat,         BroadcastFlat>,
    Row<C::kBroadcast,     A::kTree,     P::kSimple,     D::kHost, rootedTree,         Binary<BroadcastTree>>,
    Row<C::kBroadcast,     A::kChain,    P::kSimple,     D::kBoth, rootedChain,        Chain<BroadcastTree>>,
    Row<C::kBroadcast,     A::kStages,   P::kSimple,     D::kHost, ofStages,           BroadcastStages>,

    Row<C::kReduce,        A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kReduce,        A::kTwoShot,  P::kLL,      D::kCuda, rootedTwoShot,      ReduceTwoShotLines>,
    Row<C::kReduce,        A::kTwoShot,  P::kLL128,       D::kCuda, rootedTwoShot,      ReduceTwoShotLines>,
    Row<C::kReduce,        A::kTwoShot,  P::kWarpChunks,       D::kCuda, rootedTwoShot,      ReduceTwoShotLines>,
    Row<C::kReduce,        A::kPush,     P::kLL,      D::kCuda, rootedPush,         ReducePushLines>,
    Row<C::kReduce,        A::kPush,     P::kLL128,       D::kCuda, rootedPush,         ReducePushLines>,
    Row<C::kReduce,        A::kPush,     P::kWarpChunks,       D::kCuda, rootedPush,         ReducePushLines>,
    Row<C::kReduce,        A::kFlat,     P::kSimple,     D::kBoth, rootedFlat,         ReduceFlat>,
    Row<C::kReduce,        A::kTree,     P::kSimple,     D::kHost, rootedTree,         Binary<ReduceTree>>,
    Row<C::kReduce,        A::kChain,    P::kSimple,     D::kBoth, rootedChain,        Chain<ReduceTree>>,

    Row<C::kGather,        A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kGather,        A::kPush,     P::kLL,      D::kCuda, rootedPush,         GatherPushLines>,
    Row<C::kGather,        A::kPush,     P::kLL128,       D::kCuda, rootedPush,         GatherPushLines>,
    Row<C::kGather,        A::kPush,     P::kWarpChunks,       D::kCuda, rootedPush,         GatherPushLines>,
    Row<C::kGather,        A::kFlat,     P::kSimple,     D::kBoth, rootedFlat,         GatherFlat>,
    Row<C::kScatter,       A::kLocal,    P::kSimple,     D::kBoth, local,              CopyLocal>,
    Row<C::kScatter,       A::kPush,     P::kLL,      D::kCuda, rootedPush,         ScatterPushLines>,
    Row<C::kScatter,       A::kPush,     P::kLL128,       D::kCuda, rootedPush,         ScatterPushLines>,
    Row<C::kScatter,       A::kPush,     P::kWarpChunks,       D::kCuda, rootedPush,         ScatterPushLines>,
    Row<C::kScatter,       A::kFlat,     P::kSimple,     D::kBoth, rootedFlat,         ScatterFlat>,

    Row<C::kAllReduceAddRmsNorm, A::kLocal,    P::kSimple, D::kBoth, local,         NormLocal>,
    Row<C::kAllReduceAddRmsNorm, A::kOneShot,  P::kSimple, D::kHost, normOneShot,   AllReduceNormOneShot>,
    Row<C::kAllReduceAddRmsNorm, A::kOneShot,  P::kLamport, D::kCuda, normOneShot,  AllReduceNormOneShotLines>,
    Row<C::kAllReduceAddRmsNorm, A::kOneShot,  P::kLL,     D::kCuda, normApart<reduceOneShot>, ThenNorm<AllReduceOneShotLines>>,
    Row<C::kAllReduceAddRmsNorm, A::kOneShot,  P::kLL128,  D::kCuda, normApart<reduceOneShot>, ThenNorm<AllReduceOneShotLines>>,
    Row<C::kAllReduceAddRmsNorm, A::kOneShot,  P::kWarpChunks, D::kCuda, normApart<reduceOneShot>, ThenNorm<AllReduceOneShotLines>>,
    Row<C::kAllReduceAddRmsNorm, A::kTwoShot,  P::kSimple, D::kHost, normTwoShot,   AllReduceNormTwoShot>,
    Row<C::kAllReduceAddRmsNorm, A::kTwoShot,  P::kLamport, D::kCuda, normTwoShot,  AllReduceNormTwoShotLines>,
    Row<C::kAllReduceAddRmsNorm, A::kTwoShot,  P::kLL,     D::kCuda, normApart<reduceTwoShot>, ThenNorm<AllReduceTwoShotLines>>,
    Row<C::kAllReduceAddRmsNorm, A::kTwoShot,  P::kLL128,  D::kCuda, normApart<reduceTwoShot>, ThenNorm<AllReduceTwoShotLines>>,
    Row<C::kAllReduceAddRmsNorm, A::kTwoShot,  P::kWarpChunks, D::kCuda, normApart<reduceTwoShot>, ThenNorm<AllReduceTwoShotLines>>,
    Row<C::kAllReduceAddRmsNorm, A::kDirect,   P::kSimple, D::kHost, normApart<reduceDirect>, ThenNorm<AllReduceDirect>>,
    Row<C::kAllReduceAddRmsNorm, A::kPairwise, P::kSimple, D::kHost, normApart<reduceOneShot>, ThenNorm<AllReducePairwise>>,

    Row<C::kSend,          A::kFlat,     P::kSimple,     D::kBoth, rootedFlat,         OfExecutor>,
    Row<C::kReceive,       A::kFlat,     P::kSimple,     D::kBoth, rootedFlat,         OfExecutor>>;
// clang-format on

}  // namespace table

using table::Rows;

}  // namespace stretto::algorithms
