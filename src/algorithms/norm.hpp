// All-reduce with residual add and RMSNorm: what tensor parallelism does between two layers of a transformer.
//
//   one-shot   push all tokens to everyone; reduce, add and normalise each token in one pass: one hop
//   two-shot   each rank reduces its share of the tokens, pushes the sums, and adds and normalises the tokens
//              of all: two hops
//   apart      any all-reduce that keeps the order of ranks, then a pass over its result
//
// What travels is the sum, not what comes of it: each rank adds its own residual, and writes it in full
// anyway, so that it needs the sum alone, which is half the bytes of the residual and the normalised tokens
// (docs/decisions/0035-all-reduce-with-norm.md).
//
// All reduce in rank order and work on one token at a time, so the bits are those of the all-reduce and the
// norm one after the other, whatever the number of tokens. The normalised tokens or the sums may lie where
// the input is: a rank writes a token only after it has pushed and read its input.
#pragma once

#include "algorithms/exchange.hpp"
#include "algorithms/link_channel.hpp"

namespace stretto::algorithms {

// The tokens of an operation, as many at a time as `owners` slots hold, and each owner's share of them.
class TokenChunks {
 public:
  TokenChunks(const Arguments& a, size_t slotBytes, int owners)
      : owners_(static_cast<size_t>(owners)),
        chunks_(a.count / a.norm->hidden, mostTokens(a, slotBytes, static_cast<size_t>(owners))) {}

  size_t size() const { return chunks_.size(); }
  Span share(size_t chunk, int owner) const {
    const Span all = chunks_[chunk];
    const Span part = Split(all.size, owners_)[static_cast<size_t>(owner)];
    return {all.begin + part.begin, part.size};
  }

 private:
  static size_t mostTokens(const Arguments& a, size_t slotBytes, size_t owners) {
    const size_t inSlots = std::max<size_t>(1, slotBytes / a.tokenBytes()) * owners;
    return std::min(inSlots, std::max<size_t>(1, a.chunkBytes / a.tokenBytes()));
  }

  size_t owners_;
  Chunks chunks_;
};

// Adds and normalises `tokens`, of which the sources hold the parts; the sums go to `pushed` as well.
template <NormingBackend B>
void addNorm(B& b, const Arguments& a, Span tokens, const std::byte* const* sources, int sourceCount,
             std::byte* const* pushed = nullptr, int pushedCount = 0) {
  b.addNorm(b.coop(), a, {tokens.begin, tokens.size, sources, sourceCount, pushed, pushedCount});
}

template <NormingBackend B>
Status allReduceNormOneShot(B& b, const Arguments& a) {
  const TokenChunks chunks(a, b.layout().slotBytes, 1);
  const auto own = [&](size_t chunk) { return a.send + chunks.share(chunk, 0).begin * a.tokenBytes(); };
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        const Piece all{own(chunk), chunks.share(chunk, 0).size * a.tokenBytes()};
        pushAll(b, Phase::kScatter, [&](int) { return all; });
        return kOkStatus;
      },
      [&](size_t chunk) {
        STRETTO_TRY(waitAll(b, Phase::kScatter));
        addNorm(b, a, chunks.share(chunk, 0), Sources<B>(b, own(chunk)).at, b.ranks());
        return kOkStatus;
      });
}

template <NormingBackend B>
Status allReduceNormTwoShot(B& b, const Arguments& a) {
  const TokenChunks chunks(a, b.layout().slotBytes, b.ranks());
  const auto part = [&](size_t chunk, int owner) {
    const Span share = chunks.share(chunk, owner);
    return Piece{a.send + share.begin * a.tokenBytes(), share.size * a.tokenBytes()};
  };
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        pushAll(b, Phase::kScatter, [&](int peer) { return part(chunk, peer); });
        return kOkStatus;
      },
      [&](size_t chunk) {
        STRETTO_TRY(waitAll(b, Phase::kScatter));
        std::byte* pushed[kMaxRanks];
        for (int step = 1; step < b.ranks(); ++step)
          pushed[step - 1] = b.slotAt(rotated(b.rank(), step, b.ranks()), Phase::kGather);
        addNorm(b, a, chunks.share(chunk, b.rank()), Sources<B>(b, part(chunk, b.rank()).from).at, b.ranks(),
                pushed, b.ranks() - 1);
        signalAll(b, Phase::kGather);
        return kOkStatus;
      },
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
          STRETTO_TRY(b.wait(b.coop(), peer, b.mailboxFrom(peer, Phase::kGather), b.epoch()));
          const std::byte* const sums = b.slotFrom(peer, Phase::kGather);
          addNorm(b, a, chunks.share(chunk, peer), &sums, 1);
        }
        return kOkStatus;
      });
}

// Where an all-reduce of its own puts the sums: to a place that the user gave and that is written last.
template <NormingBackend B>
std::byte* placeOfSums(B& b, const Arguments& a) {
  if (a.norm->reduced != nullptr) return a.norm->reduced;
  return a.norm->normalised != nullptr ? a.norm->normalised : b.sums(a.bytes());
}

// Whether the norm writes where the input is, of which an all-reduce may have lent chunks to links.
inline bool replacesInput(const Arguments& a) {
  return a.norm->residualOut == a.send || a.norm->normalised == a.send;
}

// `Sum` is an all-reduce, or what one rank does alone.
template <typename Sum, NormingBackend B>
Status allReduceNormApart(B& b, const Arguments& a) {
  Arguments summed = a;
  summed.receive = placeOfSums(b, a);
  STRETTO_TRY(Sum::run(b, summed));
  if (replacesInput(a)) STRETTO_TRY(awaitAllLeft(b, 0));
  NormArguments norm = *a.norm;
  norm.reduced = nullptr;  // it has been written
  Arguments rest = a;
  rest.norm = &norm;
  const std::byte* const sums = summed.receive;
  addNorm(b, rest, {0, a.count / a.norm->hidden}, &sums, 1);
  return kOkStatus;
}

// One rank: the input is the sum.
template <NormingBackend B>
Status normLocal(B& b, const Arguments& a) {
  addNorm(b, a, {0, a.count / a.norm->hidden}, &a.send, 1);
  return kOkStatus;
}

}  // namespace stretto::algorithms
