#include "primitives/host/norm.hpp"

#include <algorithm>
#include <cmath>

#include "platform/prefetch.hpp"
#include "primitives/host/copy.hpp"
#include "primitives/host/reduce_level.hpp"
#include "primitives/window.hpp"

namespace stretto {
namespace {

std::byte* movedBy(std::byte* place, size_t bytes) {
  return place == nullptr ? nullptr : place + bytes;
}
const std::byte* movedBy(const std::byte* place, size_t bytes) {
  return place == nullptr ? nullptr : place + bytes;
}

// Of one token, by its number in the operation.
class Token {
 public:
  Token(const Arguments& arguments, const CpuLevel::Norm& level, size_t number)
      : norm_(*arguments.norm), level_(level), number_(number), bytes_(arguments.tokenBytes()) {}

  // `sum`: another place of the sum than the user's, or null.
  void run(const std::byte* const* sources, int sourceCount, std::byte* sum) const {
    const size_t offset = number_ * bytes_;
    std::byte* const added = norm_.residualOut + offset;
    const float squares = level_.addSquares(
        {added, sum, sources, sourceCount, {movedBy(norm_.residual, offset), norm_.bias}, bytes_});
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(norm_.hidden) + norm_.epsilon);
    const NormaliseJob job{movedBy(norm_.normalised, offset), added, norm_.gamma, factor, bytes_};
    if (job.dst != nullptr) level_.normalise(job);
    if (norm_.scaling != Scaling::kNone) quantise(job);
  }

 private:
  void quantise(const NormaliseJob& job) const {
    const float most = largestOf(norm_.quantisedType);
    float scale = norm_.scales[0];
    if (norm_.scaling == Scaling::kPerToken) {
      scale = std::max(level_.largest(job) / most, kLeastScale / most);
      norm_.scales[number_] = scale;
    }
    const auto run = norm_.quantisedType == DataType::kFloat8e4m3 ? level_.toE4m3 : level_.toE5m2;
    run({norm_.quantised + number_ * norm_.hidden, job, 1.0f / scale});
  }

  const NormArguments& norm_;
  const CpuLevel::Norm& level_;
  size_t number_;
  size_t bytes_;
};

// What peers have written comes from their caches, line by line. The passes over a token do much for each
// line, and would have few of them on their way at a time: so all lines of the next token are asked for
// before the passes over this one begin.
void fetch(const NormTokens& tokens, size_t token, size_t bytes) {
  constexpr size_t kLine = 64, kMost = 16384;
  for (int source = 0; source < tokens.sourceCount; ++source) {
    const std::byte* const from = tokens.sources[source] + token * bytes;
    for (size_t at = 0; at < std::min(bytes, kMost); at += kLine) platform::prefetchToRead(from + at);
  }
}

}  // namespace

void addNorm(const Arguments& arguments, const NormTokens& tokens) {
  const NormArguments& norm = *arguments.norm;
  const CpuLevel::Norm& level = currentCpuLevel().norm[static_cast<int>(arguments.reduce.type)];
  const size_t bytes = arguments.tokenBytes();
  const std::byte* sources[kMaxRanks];
  if (tokens.many != 0) fetch(tokens, 0, bytes);
  for (size_t i = 0; i < tokens.many; ++i) {
    if (i + 1 < tokens.many) fetch(tokens, i + 1, bytes);
    for (int source = 0; source < tokens.sourceCount; ++source)
      sources[source] = tokens.sources[source] + i * bytes;
    const size_t number = tokens.first + i;
    std::byte* const wanted = movedBy(norm.reduced, number * bytes);
    std::byte* const pushed = tokens.pushedCount == 0 ? nullptr : tokens.pushed[0] + i * bytes;
    std::byte* const sum = wanted != nullptr ? wanted : pushed;
    Token(arguments, level, number).run(sources, tokens.sourceCount, sum);
    for (int place = sum == pushed ? 1 : 0; place < tokens.pushedCount; ++place)
      copyBytes(tokens.pushed[place] + i * bytes, sum, bytes);
  }
}

}  // namespace stretto
