// How an all-reduce with RMSNorm in Lamport lines is cut among blocks of a GPU, and in which form it runs:
// said once, because the planner prices by it and the engine launches by it. Plain C++.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "algorithms/shares.hpp"
#include "primitives/cuda/whole_tokens.hpp"

namespace stretto::algorithms {

enum class NormForm : uint8_t {
  kInRegisters,  // a block's lines hold its tokens at once, and teams of threads keep them in registers
  kInLines,      // a block works on one token after the other, in rounds where its lines do not hold all
  kApart,        // an all-reduce, and then a pass that adds and normalises
};

struct TokenCut {
  Algorithm algorithm = Algorithm::kOneShot;
  int ranks = 1;
  size_t tokens = 0;
  size_t tokenBytes = 1;
  size_t payload = 0;            // of a channel's Lamport lines, bytes
  size_t chunkBytes = SIZE_MAX;  // that one round may carry

  // Blocks that share the tokens: one for each token, of a two-shot one for each owner's token. Rounded up,
  // so that no owner has two tokens of a block while there are blocks without any.
  constexpr size_t blocks(size_t most) const {
    return std::clamp<size_t>(quotientUp(tokens, owners()), 1, std::max<size_t>(1, most));
  }
  // Tokens of a block, at most, where so many take part: what withShares() gives it.
  constexpr size_t ofBlock(size_t blocks) const { return quotientUp(tokens, std::max<size_t>(1, blocks)); }

  // How many times a block goes through its lines.
  constexpr size_t rounds(size_t blocks) const {
    const size_t inLines = std::max<size_t>(1, inPlace()) * owners();
    return quotientUp(ofBlock(blocks), std::min(inLines, std::max<size_t>(1, chunkBytes / tokenBytes)));
  }
  // Where an all-reduce in the same lines goes in turns, its steps do not wait for each other, which rounds
  // of tokens do: there the norm is a pass of its own when lines do not hold a block's tokens at once.
  constexpr NormForm form(size_t blocks) const {
    const bool held = ofBlock(blocks) <= inPlace() * owners();
    if (!held && hasLamportSteps(Collective::kAllReduce, algorithm, ranks, payload)) return NormForm::kApart;
    const bool atOnce = held && rounds(blocks) <= 1;
    return atOnce && cuda::WholeTokens::holds(tokenBytes) ? NormForm::kInRegisters : NormForm::kInLines;
  }

 private:
  static constexpr size_t kLine = 16;
  static constexpr size_t quotientUp(size_t a, size_t b) { return (a + b - 1) / b; }
  constexpr size_t owners() const { return shardsOf(algorithm, ranks); }
  // Tokens that the lines of one owner hold.
  constexpr size_t inPlace() const { return payload / kLine / quotientUp(tokenBytes, kLine); }
};

}  // namespace stretto::algorithms
