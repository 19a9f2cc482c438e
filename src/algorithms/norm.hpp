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
#include "primitives/norm.hpp"

namespace stretto::algorithms {

// The tokens of an operation, as many at a time as the places of `owners` hold, and each owner's share of
// them. Few divisions, and those of 32 bits where that will do: they take long on a GPU.
class TokenChunks {
 public:
  // `inPlace`: tokens that the place of one owner holds.
  STRETTO_ANYWHERE TokenChunks(const Arguments& a, size_t inPlace, int owners)
      : owners_(static_cast<size_t>(owners)),
        tokens_(divided(a.count, a.norm->hidden)),
        most_(std::min(std::max<size_t>(1, inPlace) * owners_,
                       std::max<size_t>(1, divided(a.chunkBytes, a.tokenBytes())))) {}

  STRETTO_ANYWHERE size_t size() const {
    return tokens_ <= most_ ? (tokens_ != 0) : divided(tokens_ + most_ - 1, most_);
  }
  STRETTO_ANYWHERE TokenRun share(size_t chunk, int owner) const {
    const size_t begin = std::min(tokens_, chunk * most_);
    const size_t all = std::min(most_, tokens_ - begin);
    const size_t each = owners_ == 1 ? all : divided(all + owners_ - 1, owners_);
    const size_t first = std::min(all, static_cast<size_t>(owner) * each);
    return {begin + first, std::min(each, all - first)};
  }
  STRETTO_ANYWHERE static constexpr size_t divided(size_t a, size_t b) {
    const bool few = (a | b) >> 32 == 0;
    return few ? static_cast<uint32_t>(a) / static_cast<uint32_t>(b) : a / b;
  }

 private:
  size_t owners_;
  size_t tokens_;
  size_t most_;
};

template <SlotBackend B>
size_t tokensInSlot(const B& b, const Arguments& a) {
  return b.layout().slotBytes / a.tokenBytes();
}

// Adds and normalises `tokens`, of which the sources hold the parts; the sums go to `pushed` as well.
template <NormingBackend B>
void addNorm(B& b, const Arguments& a, TokenRun tokens, const std::byte* const* sources, int sourceCount,
             std::byte* const* pushed = nullptr, int pushedCount = 0) {
  b.addNorm(b.coop(), a, {tokens.first, tokens.many, sources, sourceCount, pushed, pushedCount});
}

template <NormingBackend B>
Status allReduceNormOneShot(B& b, const Arguments& a) {
  const TokenChunks chunks(a, tokensInSlot(b, a), 1);
  const auto own = [&](size_t chunk) { return a.send + chunks.share(chunk, 0).first * a.tokenBytes(); };
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        const Piece all{own(chunk), chunks.share(chunk, 0).many * a.tokenBytes()};
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
  const TokenChunks chunks(a, tokensInSlot(b, a), b.ranks());
  const auto part = [&](size_t chunk, int owner) {
    const TokenRun share = chunks.share(chunk, owner);
    return Piece{a.send + share.first * a.tokenBytes(), share.many * a.tokenBytes()};
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

// Readiness in the lines.
template <LineNormingBackend B>
STRETTO_ANYWHERE Status allReduceNormOneShotLines(B& b, const Arguments& a) {
  const TokenChunks chunks(a, b.tokensInLines(a), 1);
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        b.shareTokens(b.coop(), a, chunks.share(chunk, 0));
        return Status{};
      },
      [&](size_t chunk) {
        b.addNorm(b.coop(), a, chunks.share(chunk, 0), false);
        return Status{};
      });
}

template <LineNormingBackend B>
STRETTO_ANYWHERE Status allReduceNormTwoShotLines(B& b, const Arguments& a) {
  const TokenChunks chunks(a, b.tokensInLines(a), b.ranks());
  return pipeline(
      b, chunks.size(),
      [&](size_t chunk) {
        b.dealTokens(b.coop(), a, [&](int peer) { return chunks.share(chunk, peer); });
        return Status{};
      },
      [&](size_t chunk) {
        b.addNorm(b.coop(), a, chunks.share(chunk, b.rank()), true);
        return Status{};
      },
      [&](size_t chunk) {
        for (int step = 1; step < b.ranks(); ++step) {
          const int peer = rotated(b.rank(), b.ranks() - step, b.ranks());
          b.addNormOf(b.coop(), a, chunks.share(chunk, peer), peer);
        }
        return Status{};
      });
}

// Where an all-reduce of its own puts the sums: to a place that the user gave and that is written last.
template <NormingBackend B>
std::byte* bufferForSums(B& b, const Arguments& a) {
  if (a.norm->reduced != nullptr) return a.norm->reduced;
  return a.norm->normalised != nullptr ? a.norm->normalised : b.sums(a.bytes());
}

// Whether the norm writes where the input is, of which an all-reduce may have lent chunks to links.
inline bool replacesInput(const Arguments& a) {
  return a.norm->residualOut == a.send || a.norm->normalised == a.send;
}

// Normalises after an all-reduce of its own, which may be one over links.
template <typename B>
concept ApartNormingBackend = NormingBackend<B> && ChunkBackend<B>;

// `Sum` is an all-reduce, or what one rank does alone.
template <typename Sum, ApartNormingBackend B>
Status allReduceNormApart(B& b, const Arguments& a) {
  Arguments summed = a;
  summed.receive = bufferForSums(b, a);
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
