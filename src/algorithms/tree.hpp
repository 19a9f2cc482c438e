// Trees over links: broadcast, reduce and all-reduce along a tree of any arity. Arity 1 is the pipelined
// chain, 2 the binary tree; a star has no use for it (pairs.hpp). Data moves in chunks, and a chunk goes on
// as soon as it is there, so the depth of the tree costs latency but not bandwidth.
//
// Ranks are numbered from the root: v = (rank - root) mod n; the parent of v is (v-1)/arity.
#pragma once

#include <algorithm>

#include "algorithms/link_channel.hpp"
#include "algorithms/shape.hpp"

namespace stretto::algorithms {

template <ChunkBackend B>
class Tree {
 public:
  STRETTO_ANYWHERE Tree(B& b, int root, int arity) : b_(b), root_(root) {
    const int n = b.ranks();
    const int self = rotated(b.rank(), n - root, n);
    parent_ = self == 0 ? -1 : rankOf((self - 1) / arity);
    for (int child = arity * self + 1; child <= arity * self + arity && child < n; ++child) {
      insert(rankOf(child));
    }
  }

  STRETTO_ANYWHERE bool isRoot() const { return parent_ < 0; }
  STRETTO_ANYWHERE bool isLeaf() const { return childCount_ == 0; }

  STRETTO_ANYWHERE Status sendToChildren(const std::byte* from, size_t bytes) {
    for (int child = 0; child < childCount_; ++child) {
      STRETTO_TRY(Outlet<B>(b_, children_[child]).lend(from, bytes));
    }
    return kOkStatus;
  }

  // One chunk from the parent into `to`, and on to the children.
  STRETTO_ANYWHERE Status passDown(std::byte* to, size_t bytes, bool stream) {
    Inlet<B> above(b_, parent_);
    if (isLeaf()) return above.receive(to, bytes, stream);
    if constexpr (LendingBackend<B>) {
      STRETTO_TRY(above.receive(to, bytes, false));
      return sendToChildren(to, bytes);
    }
    const std::byte* arrived = nullptr;
    STRETTO_TRY(above.await(bytes, arrived));
    STRETTO_TRY(sendToChildren(arrived, bytes));
    b_.copy(b_.coop(), to, arrived, bytes, stream);
    above.release();
    return kOkStatus;
  }

  // One chunk of this rank's input and its children's partial results, reduced in the order of their ranks:
  // to the parent, or at the root into `to`.
  STRETTO_ANYWHERE Status passUp(const ReduceSpec& spec, const std::byte* own, std::byte* to, size_t count) {
    const size_t bytes = count * sizeOf(spec.type);
    const std::byte* sources[kMaxRanks];
    sources[ownPlace_] = own;
    for (int child = 0; child < childCount_; ++child) {
      STRETTO_TRY(Inlet<B>(b_, children_[child]).await(bytes, sources[child + (child >= ownPlace_ ? 1 : 0)]));
    }
    if (isRoot()) {
      b_.reduce(b_.coop(), spec, {to}, sources, childCount_ + 1, count, false);
    } else {
      Outlet<B> above(b_, parent_);
      std::byte* place = nullptr;
      STRETTO_TRY(above.acquire(bytes, place));
      b_.reduce(b_.coop(), spec, {place}, sources, childCount_ + 1, count, false);
      above.publish();
    }
    for (int child = 0; child < childCount_; ++child) {
      Inlet<B>(b_, children_[child]).release();
    }
    return kOkStatus;
  }

 private:
  STRETTO_ANYWHERE int rankOf(int number) const { return rotated(root_, number, b_.ranks()); }
  // Keeps the children in the order of their ranks.
  STRETTO_ANYWHERE void insert(int rank) {
    int place = childCount_++;
    for (; place > 0 && children_[place - 1] > rank; --place) children_[place] = children_[place - 1];
    children_[place] = rank;
    if (rank < b_.rank()) ++ownPlace_;
  }

  B& b_;
  int root_;
  int parent_ = -1;
  int children_[kMaxRanks];
  int childCount_ = 0;  // by rank
  int ownPlace_ = 0;    // how many of them are before this rank
};

// Partial sums carry no divisor: it is applied once, where the last operand joins.
template <ChunkBackend B>
STRETTO_ANYWHERE ReduceSpec treeSpec(const Tree<B>& tree, const ReduceSpec& spec) {
  if (tree.isRoot() || spec.op != Operator::kAvg) return spec;
  return {spec.type, Operator::kSum, 1};
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status broadcastTree(B& b, const Arguments& a) {
  Tree<B> tree(b, a.root, a.arity);
  for (const Span chunk : Chunks(a.count, linkElements(b, a), a.largest)) {
    const size_t at = chunk.begin * a.elementBytes;
    const size_t bytes = chunk.size * a.elementBytes;
    if (tree.isRoot()) {
      STRETTO_TRY(tree.sendToChildren(a.send + at, bytes));
      b.copy(b.coop(), a.receive + at, a.send + at, bytes, a.stream);
    } else {
      STRETTO_TRY(tree.passDown(a.receive + at, bytes, a.stream));
    }
  }
  return kOkStatus;
}

template <ChunkBackend B>
STRETTO_ANYWHERE Status reduceTree(B& b, const Arguments& a) {
  Tree<B> tree(b, a.root, a.arity);
  const ReduceSpec spec = treeSpec(tree, a.reduce);
  for (const Span chunk : Chunks(a.count, linkElements(b, a), a.largest)) {
    const size_t at = chunk.begin * a.elementBytes;
    STRETTO_TRY(tree.passUp(spec, a.send + at, a.receive + at, chunk.size));
  }
  return kOkStatus;
}

// Reduce to rank 0 and broadcast from it, overlapped: results of early chunks come down while late ones go
// up. Where the lag keeps fewer chunks under way than a link holds nobody blocks going up.
template <ChunkBackend B>
STRETTO_ANYWHERE Status allReduceTree(B& b, const Arguments& a) {
  constexpr size_t kLag = WindowLayout::kLinkDepth / 2;
  Tree<B> tree(b, 0, a.arity);
  const ReduceSpec spec = treeSpec(tree, a.reduce);
  const Chunks chunks(a.count, linkElements(b, a), a.largest);
  const size_t lag = std::min(kLag, chunks.size());
  for (size_t turn = 0; turn < chunks.size() + lag; ++turn) {
    if (turn < chunks.size()) {
      const size_t at = chunks[turn].begin * a.elementBytes;
      STRETTO_TRY(tree.passUp(spec, a.send + at, a.receive + at, chunks[turn].size));
    }
    if (turn < lag) continue;
    const Span chunk = chunks[turn - lag];
    std::byte* const result = a.receive + chunk.begin * a.elementBytes;
    if (tree.isRoot()) {
      STRETTO_TRY(tree.sendToChildren(result, chunk.size * a.elementBytes));
    } else {
      STRETTO_TRY(tree.passDown(result, chunk.size * a.elementBytes, false));
    }
  }
  return kOkStatus;
}

}  // namespace stretto::algorithms
