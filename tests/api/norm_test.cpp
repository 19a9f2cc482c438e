// strettoAllReduceAddRmsNorm: every step against exact arithmetic with the bounds that stretto.h states, and
// bit by bit against an all-reduce and a norm one after the other, by every algorithm, for any tokens, any
// hidden size, and buffers that are there or not. What it refuses is in norm_calls_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "algorithms/registry.hpp"
#include "base/scoped_variable.hpp"
#include "communicator/device/layout.hpp"
#include "harness/guarded.hpp"
#include "harness/oracle.hpp"
#include "harness/ranks.hpp"
#include "harness/share.hpp"
#include "harness/staged.hpp"
#include "primitives/norm.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Descriptor;

constexpr DataType kTokenTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16};
constexpr size_t kHidden[] = {512, 513, 1, 7, 1000, 2048, 4096, 5120, 7168, 8191, 16384};
constexpr size_t kTokens[] = {1, 2, 3, 8, 17, 64, 300};
constexpr size_t kMostElements = 40000;  // of one case

// Half a unit in the last place of 1.
double unitOf(DataType type) {
  return std::ldexp(1, type == DataType::kFloat32 ? -24 : type == DataType::kFloat16 ? -11 : -8);
}
// Where a type's rounding is no part of its value any more: half its least number.
double leastOf(DataType type) {
  return type == DataType::kFloat16 ? std::ldexp(1, -25) : std::ldexp(1, -134);
}
constexpr double kFloat = 1.0 / (1 << 24);

struct NormCase {
  DataType type;
  size_t tokens, hidden;
  float epsilon;
  Scaling scaling;
  DataType quantised;
  bool hasResidual, hasBias, hasGamma, wantsNormalised, wantsReduced;
  bool residualInPlace;
  int inputIs;  // 0: nothing else; 1: normalised, 2: reduced, 3: residualOut
  size_t offset;
  const Descriptor* row;
  size_t chunkBytes;

  size_t count() const { return tokens * hidden; }
  std::string describe() const {
    return std::string(nameOf(row->algorithm)) + "/" + nameOf(row->protocol) + " " + nameOf(type) + " " +
           std::to_string(tokens) + " x " + std::to_string(hidden) + ", scaling " +
           std::to_string(static_cast<int>(scaling)) + ", input is " + std::to_string(inputIs) + ", chunk " +
           std::to_string(chunkBytes);
  }
};

// A tensor of numbers about 1, the same wherever it is made.
std::vector<char> numbers(DataType type, size_t count, uint64_t seed, double around = 0) {
  std::vector<char> all(count * sizeOf(type));
  Random random(seed);
  for (size_t i = 0; i < count; ++i) {
    const double value = around + static_cast<double>(random() % 4001) / 1000 - 2;
    putFloat(type, all.data(), i, random() % 17 == 0 ? 16 * value : value);
  }
  return all;
}

// The buffers of one rank.
class Tensors {
 public:
  Tensors(const NormCase& one, int rank)
      : one_(one),
        input_(numbers(one.type, one.count(), 1000 + static_cast<uint64_t>(rank))),
        residual_(numbers(one.type, one.count(), 7)),
        bias_(numbers(one.type, one.hidden, 8)),
        gamma_(numbers(one.type, one.hidden, 9, 1)),
        added_(bytes(), one.offset),
        normalised_(bytes(), 2 * one.offset),
        reduced_(bytes(), 3 * one.offset),
        quantised_(one.count(), one.offset),
        scales_(one.tokens, 0.125f) {}

  strettoAddRmsNorm_t step() {
    strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
    step.tokens = one_.tokens;
    step.hidden = one_.hidden;
    step.type = static_cast<ncclDataType_t>(one_.type);
    step.epsilon = one_.epsilon;
    step.input = placeOfInput();
    step.bias = one_.hasBias ? bias_.data() : nullptr;
    step.gamma = one_.hasGamma ? gamma_.data() : nullptr;
    step.residualOut = added_.data();
    step.residual = one_.hasResidual ? residual_.data() : nullptr;
    if (one_.hasResidual && one_.residualInPlace) {
      memcpy(added_.data(), residual_.data(), bytes());
      step.residual = added_.data();
    }
    step.normalised = one_.wantsNormalised ? normalised_.data() : nullptr;
    step.reduced = one_.wantsReduced ? reduced_.data() : nullptr;
    step.scaling = static_cast<strettoScale_t>(one_.scaling);
    step.quantisedType = static_cast<ncclDataType_t>(one_.quantised);
    step.quantised = quantised_.data();
    step.scales = scales_.data();
    return step;
  }
  // The operation, wherever the rank has its data.
  bool run(const Member& member, ncclComm_t comm, const char* what) {
    return run(member, comm, step(), what);
  }
  bool run(const Member& member, ncclComm_t comm, strettoAddRmsNorm_t step, const char* what) {
    Staged staged(member);
    const size_t token = bias_.size(), all = bytes();
    step.normalised = staged.of(step.normalised, all, kGuard);
    step.reduced = staged.of(step.reduced, all, kGuard);
    step.residualOut = staged.of(step.residualOut, all, kGuard);
    step.input = staged.of(step.input, all, one_.inputIs != 0 ? kGuard : 0);
    step.residual = staged.of(step.residual, all, step.residual == added_.data() ? kGuard : 0);
    step.bias = staged.of(step.bias, token);
    step.gamma = staged.of(step.gamma, token);
    step.quantised = staged.of(step.quantised, one_.count(), kGuard);
    step.scales = staged.of(step.scales, scales_.size() * sizeof(float));
    return staged.run([&](cudaStream_t stream) {
      return member.expect(strettoAllReduceAddRmsNorm(&step, comm, stream), what);
    });
  }
  std::string harm() const {
    return added_.harm() + normalised_.harm() + reduced_.harm() + quantised_.harm();
  }

  const std::vector<char>& input() const { return input_; }
  const std::vector<char>& residual() const { return residual_; }
  const std::vector<char>& bias() const { return bias_; }
  const std::vector<char>& gamma() const { return gamma_; }
  const Guarded& added() const { return added_; }
  const Guarded& normalised() const { return normalised_; }
  const Guarded& reduced() const { return reduced_; }
  const Guarded& quantised() const { return quantised_; }
  const std::vector<float>& scales() const { return scales_; }
  // All results, one after the other.
  std::vector<char> results() const {
    std::vector<char> all(added_.data(), added_.data() + bytes());
    const auto append = [&](bool wanted, const char* from, size_t size) {
      if (wanted) all.insert(all.end(), from, from + size);
    };
    append(one_.wantsNormalised, normalised_.data(), bytes());
    append(one_.wantsReduced, reduced_.data(), bytes());
    append(one_.scaling != Scaling::kNone, quantised_.data(), one_.count());
    append(one_.scaling != Scaling::kNone, reinterpret_cast<const char*>(scales_.data()), 4 * one_.tokens);
    return all;
  }

 private:
  static constexpr size_t kGuard = 64;

  size_t bytes() const { return one_.count() * sizeOf(one_.type); }
  const void* placeOfInput() {
    char* const place = one_.inputIs == 1   ? normalised_.data()
                        : one_.inputIs == 2 ? reduced_.data()
                        : one_.inputIs == 3 ? added_.data()
                                            : nullptr;
    if (place == nullptr) return input_.data();
    memcpy(place, input_.data(), bytes());
    return place;
  }

  const NormCase& one_;
  std::vector<char> input_, residual_, bias_, gamma_;
  Guarded added_, normalised_, reduced_, quantised_;
  std::vector<float> scales_;
};

// ---- Against exact arithmetic -----------------------------------------------------------------------------

// Complains of the first value that is farther from `exact` than `bound`.
bool within(const Member& member, const NormCase& one, const char* what, size_t i, double got, double exact,
            double bound) {
  if (std::fabs(got - exact) <= bound) return true;
  member.complain("%s: %s[%zu] is %.9g, exactly %.9g, and may be off by %.3g", one.describe().c_str(), what,
                  i, got, exact, bound);
  return false;
}

bool sumsAreRight(const Member& member, const NormCase& one, const Tensors& tensors,
                  const std::vector<char>& reduced) {
  std::vector<std::vector<char>> inputs;
  for (int rank = 0; rank < member.ranks(); ++rank)
    inputs.push_back(numbers(one.type, one.count(), 1000 + static_cast<uint64_t>(rank)));
  const double unit = unitOf(one.type);
  for (size_t i = 0; i < one.count(); ++i) {
    double exact = 0, magnitudes = 0;
    for (const auto& input : inputs) {
      exact += valueAt(one.type, input.data(), i);
      magnitudes += std::fabs(valueAt(one.type, input.data(), i));
    }
    const double sum = valueAt(one.type, reduced.data(), i);
    const double sumBound = (member.ranks() - 1) * kFloat * magnitudes + unit * std::fabs(exact);
    if (!within(member, one, "reduced", i, sum, exact, sumBound * (1 + 2 * unit) + leastOf(one.type)))
      return false;
    const double residual = one.hasResidual ? valueAt(one.type, tensors.residual().data(), i) : 0;
    const double bias = one.hasBias ? valueAt(one.type, tensors.bias().data(), i % one.hidden) : 0;
    const double added = sum + residual + bias;
    const double bound = 2 * kFloat * (std::fabs(sum) + std::fabs(residual) + std::fabs(bias)) +
                         unit * std::fabs(added) + leastOf(one.type);
    if (!within(member, one, "residualOut", i, valueAt(one.type, tensors.added().data(), i), added,
                bound * (1 + 2 * unit)))
      return false;
  }
  return true;
}

bool normIsRight(const Member& member, const NormCase& one, const Tensors& tensors,
                 const std::vector<char>& normalised) {
  const double relative = (static_cast<double>(one.hidden) / 64 + 16) * kFloat + unitOf(one.type);
  for (size_t token = 0; token < one.tokens; ++token) {
    double squares = 0;
    const auto added = [&](size_t i) {
      return valueAt(one.type, tensors.added().data(), token * one.hidden + i);
    };
    for (size_t i = 0; i < one.hidden; ++i) squares += added(i) * added(i);
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(one.hidden) + static_cast<double>(one.epsilon));
    for (size_t i = 0; i < one.hidden; ++i) {
      const double gamma = one.hasGamma ? valueAt(one.type, tensors.gamma().data(), i) : 1;
      const double exact = added(i) * factor * gamma;
      const size_t at = token * one.hidden + i;
      if (!within(member, one, "normalised", at, valueAt(one.type, normalised.data(), at), exact,
                  std::fabs(exact) * relative * (1 + 2 * unitOf(one.type)) + leastOf(one.type)))
        return false;
    }
  }
  return true;
}

// Exactly: what is quantised has been rounded.
bool codesAreRight(const Member& member, const NormCase& one, const Tensors& tensors,
                   const std::vector<char>& normalised) {
  const Format format = formatOf(one.quantised);
  const float most = largestOf(one.quantised);
  for (size_t token = 0; token < one.tokens; ++token) {
    float scale = 0.125f;
    const auto value = [&](size_t i) {
      return static_cast<float>(valueAt(one.type, normalised.data(), token * one.hidden + i));
    };
    if (one.scaling == Scaling::kPerToken) {
      float largest = 0;
      for (size_t i = 0; i < one.hidden; ++i) largest = std::max(largest, std::fabs(value(i)));
      scale = std::max(largest / most, kLeastScale / most);
      if (tensors.scales()[token] != scale) {
        member.complain("%s: the scale of token %zu is %.9g and should be %.9g", one.describe().c_str(),
                        token, static_cast<double>(tensors.scales()[token]), static_cast<double>(scale));
        return false;
      }
    }
    const float inverse = 1.0f / scale;
    for (size_t i = 0; i < one.hidden; ++i) {
      const float scaled = value(i) * inverse;
      const auto got = static_cast<uint8_t>(tensors.quantised().data()[token * one.hidden + i]);
      if (got == encode(format, static_cast<double>(scaled))) continue;
      member.complain("%s: token %zu, element %zu: %.9g is not 0x%02x", one.describe().c_str(), token, i,
                      static_cast<double>(scaled), got);
      return false;
    }
  }
  return true;
}

// ---- Against the parts ------------------------------------------------------------------------------------

// The norm of `reduced` alone: the same call on a communicator of one rank.
bool runAlone(const Member& member, ncclComm_t alone, const std::vector<char>& reduced, Tensors& tensors) {
  strettoAddRmsNorm_t step = tensors.step();
  step.input = reduced.data();
  step.reduced = nullptr;
  return tensors.run(member, alone, step, "the norm alone");
}

// In place.
bool runAllReduce(const Member& member, const NormCase& one, std::vector<char>& values) {
  Staged staged(member);
  char* const place = staged.of(values.data(), values.size());
  return staged.run([&](cudaStream_t stream) {
    return member.expect(ncclAllReduce(place, place, one.count(), static_cast<ncclDataType_t>(one.type),
                                       ncclSum, member.comm, stream),
                         "the all-reduce");
  });
}

bool sameBits(const Member& member, const NormCase& one, const char* what, const char* got,
              const char* wanted, size_t bytes) {
  if (memcmp(got, wanted, bytes) == 0) return true;
  size_t at = 0;
  while (got[at] == wanted[at]) ++at;
  member.complain("%s: %s differs from that of the parts, at byte %zu of %zu", one.describe().c_str(), what,
                  at, bytes);
  return false;
}

NormCase plain(const NormCase& one) {
  NormCase other = one;
  other.inputIs = 0;
  other.wantsNormalised = true;
  return other;
}

// The operation, forced to a row, then its parts. `alone`: a communicator of this rank. False when no further
// case makes sense.
bool runNormCase(const Member& member, ncclComm_t alone, const NormCase& one) {
  if (member.ranks() > 1 &&
      !member.expect(strettoCommForce(member.comm, "all_reduce_add_rms_norm", nameOf(one.row->algorithm),
                                      nameOf(one.row->protocol), one.chunkBytes, 0),
                     one.describe().c_str()))
    return false;
  Tensors tensors(one, member.rank);
  if (!tensors.run(member, member.comm, one.describe().c_str())) return false;
  if (!tensors.harm().empty()) member.complain("%s %s", one.describe().c_str(), tensors.harm().c_str());

  std::vector<char> reduced = tensors.input();
  if (!runAllReduce(member, one, reduced)) return false;
  const NormCase parts = plain(one);
  Tensors apart(parts, member.rank);
  if (!runAlone(member, alone, reduced, apart)) return false;
  const size_t bytes = reduced.size();
  bool right = sameBits(member, one, "residualOut", tensors.added().data(), apart.added().data(), bytes);
  if (one.wantsReduced)
    right &= sameBits(member, one, "reduced", tensors.reduced().data(), reduced.data(), bytes);
  const std::vector<char> normalised(apart.normalised().data(), apart.normalised().data() + bytes);
  if (one.wantsNormalised)
    right &= sameBits(member, one, "normalised", tensors.normalised().data(), normalised.data(), bytes);
  right =
      right && sumsAreRight(member, one, tensors, reduced) && normIsRight(member, one, tensors, normalised);
  if (right && one.scaling != Scaling::kNone) right = codesAreRight(member, one, tensors, normalised);
  return right && member.board.meet();
}

// ---- Cases ------------------------------------------------------------------------------------------------

std::vector<const Descriptor*> normRowsFor(int ranks) {
  std::vector<const Descriptor*> rows;
  const auto device = testsOnDevice() ? algorithms::Device::kCuda : algorithms::Device::kHost;
  for (const Descriptor& row : algorithms::descriptors(device)) {
    const bool isLocal = row.algorithm == algorithms::Algorithm::kLocal;
    const bool savesNothing =
        testsOnDevice() && ranks == 2 && row.algorithm == algorithms::Algorithm::kTwoShot;
    const bool isReached =
        (!testsBetweenHosts() || isLocal || algorithms::usesLinks(row.algorithm)) && !savesNothing;
    if (row.collective == Collective::kAllReduceAddRmsNorm && isLocal == (ranks == 1) && isReached)
      rows.push_back(&row);
  }
  return rows;
}

// Elements of the largest token whose lines a GPU has room for, where they are of whole tokens.
size_t mostHidden(const Descriptor& row, DataType type, int ranks) {
  const bool inLines = row.protocol == algorithms::Protocol::kLamport;
  return inLines ? communicator::deviceShape(ranks, 1).layout.lamportRegion / sizeOf(type) : SIZE_MAX;
}

NormCase draw(const Descriptor& row, DataType type, int ranks, Random& random) {
  const auto chance = [&] { return random() % 2 == 0; };
  NormCase one{};
  one.row = &row;
  one.type = type;
  one.hidden = kHidden[random() % std::size(kHidden)];
  one.tokens = kTokens[random() % std::size(kTokens)];
  const bool isBounded = row.mostBytes != 0 && !testsOnDevice();
  const size_t most = isBounded ? row.mostBytes / sizeOf(type) : kMostElements;
  one.hidden = std::min({one.hidden, most, mostHidden(row, type, ranks)});
  one.tokens = std::clamp<size_t>(most / one.hidden, 1, one.tokens);
  one.epsilon = chance() ? 1e-6f : 1e-5f;
  one.scaling = static_cast<Scaling>(random() % 3);
  one.quantised = chance() ? DataType::kFloat8e4m3 : DataType::kFloat8e5m2;
  one.hasResidual = random() % 4 != 0;
  one.hasBias = random() % 4 == 0;
  one.hasGamma = random() % 4 != 0;
  one.wantsNormalised = random() % 4 != 0;
  one.wantsReduced = random() % 3 == 0;
  one.inputIs = static_cast<int>(random() % 4);
  if ((one.inputIs == 1 && !one.wantsNormalised) || (one.inputIs == 2 && !one.wantsReduced)) one.inputIs = 0;
  one.residualInPlace = one.inputIs != 3 && chance();
  one.offset = random() % 3 == 0 ? 0 : random() % 64 / sizeOf(type) * sizeOf(type);
  const bool hasSlots = row.protocol == algorithms::Protocol::kSimple && !row.normApart &&
                        row.algorithm != algorithms::Algorithm::kLocal;
  one.chunkBytes = hasSlots && random() % 3 == 0 ? 65536 : 0;
  return one;
}

std::vector<NormCase> drawAll(int ranks, int rounds) {
  std::vector<NormCase> cases;
  Random random(static_cast<uint64_t>(ranks) + 5);
  for (int round = 0; round < rounds; ++round) {
    for (const Descriptor* row : normRowsFor(ranks)) {
      for (const DataType type : kTokenTypes) cases.push_back(draw(*row, type, ranks, random));
    }
  }
  return cases;
}

ncclComm_t commAlone(const Member& member) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  member.expect(ncclGetUniqueId(&id), "an id");
  member.expect(ncclCommInitRank(&comm, 1, id, 0), "a communicator of one rank");
  return comm;
}

int roundsOf(int usual) {
  return isShortened() ? 1 : usual;
}

class Norm : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (testsOnDevice() && !deviceThere()) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(Norm, IsTheSumOfItsPartsByEveryAlgorithm) {
  const int ranks = GetParam();
  const std::vector<NormCase> cases = drawAll(ranks, roundsOf(ranks <= 2 ? 5 : 2));
  ASSERT_FALSE(cases.empty());
  const ScopedVariable inRankOrder("STRETTO_DETERMINISTIC", "1");  // the all-reduce that it is compared with
  asThreads(ranks, connected([&](Member& member) {
              const ncclComm_t alone = commAlone(member);
              for (const NormCase& one : cases) {
                if (!runNormCase(member, alone, one)) break;
              }
              member.expect(ncclCommDestroy(alone), "destroy");
            }),
            300);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Norm, ::testing::Range(1, 9));

// ---- Whatever the number of tokens ------------------------------------------------------------------------

// The bits of a token are those that it has alone, by the planner's own choice for each number of tokens.
TEST_P(Norm, OfATokenDoesNotDependOnTheOthers) {
  const int ranks = GetParam();
  if (ranks > 4) GTEST_SKIP() << "two to four ranks show it";
  NormCase many{};
  many.type = DataType::kBfloat16;
  many.hidden = 4096;
  many.epsilon = 1e-6f;
  many.hasResidual = many.hasGamma = many.wantsNormalised = true;
  many.scaling = Scaling::kPerToken;
  many.quantised = DataType::kFloat8e4m3;
  const Descriptor* row = normRowsFor(ranks).front();
  many.row = row;
  asThreads(ranks, connected([&](Member& member) {
              for (const size_t tokens : {2, 5, 33, 150}) {
                NormCase one = many;
                one.tokens = tokens;
                Tensors all(one, member.rank);
                if (!all.run(member, member.comm, "all tokens")) return;
                const size_t last = tokens - 1, offset = last * one.hidden * 2;
                NormCase alone = many;
                alone.tokens = 1;
                Tensors single(alone, member.rank);
                strettoAddRmsNorm_t step = single.step();
                step.input = all.input().data() + offset;
                step.residual = all.residual().data() + offset;
                if (!single.run(member, member.comm, step, "one token")) return;
                const size_t bytes = one.hidden * 2;
                sameBits(member, one, "residualOut", all.added().data() + offset, single.added().data(),
                         bytes);
                sameBits(member, one, "normalised", all.normalised().data() + offset,
                         single.normalised().data(), bytes);
                sameBits(member, one, "quantised", all.quantised().data() + last * one.hidden,
                         single.quantised().data(), one.hidden);
                member.check(all.scales()[last] == single.scales()[0], "the scales differ");
              }
            }));
}

// ---- Groups, streams --------------------------------------------------------------------------------------

TEST(NormCalls, RunInGroupsAndOnHostStreams) {
  if (testsOnDevice()) GTEST_SKIP() << "host streams; of GPUs see tests/api/cuda/norm_replays_test.cpp";
  asThreads(2, connected([](Member& member) {
              NormCase one{};
              one.type = DataType::kFloat32;
              one.tokens = 5;
              one.hidden = 513;
              one.hasResidual = one.wantsNormalised = true;
              Tensors now(one, member.rank), grouped(one, member.rank), streamed(one, member.rank);
              const strettoAddRmsNorm_t first = now.step();
              member.expect(strettoAllReduceAddRmsNorm(&first, member.comm, nullptr), "at once");
              {
                strettoAddRmsNorm_t step = grouped.step();
                std::vector<float> other(100, 1);
                ncclGroupStart();
                member.expect(strettoAllReduceAddRmsNorm(&step, member.comm, nullptr), "in a group");
                member.expect(ncclAllReduce(other.data(), other.data(), 100, ncclFloat32, ncclSum,
                                            member.comm, nullptr),
                              "beside it");
                step = {};  // the call has taken all that it needs
                member.expect(ncclGroupEnd(), "the group");
                member.check(other[99] == 2, "the other operation is wrong");
              }
              cudaStream_t stream = nullptr;
              member.expect(strettoStreamCreate(&stream), "a stream");
              strettoAddRmsNorm_t step = streamed.step();
              member.expect(strettoAllReduceAddRmsNorm(&step, member.comm, stream), "on a stream");
              step = {};
              member.expect(strettoStreamSynchronize(stream), "wait");
              member.expect(strettoStreamDestroy(stream), "destroy");
              member.check(grouped.results() == now.results(), "in a group it computes something else");
              member.check(streamed.results() == now.results(), "on a stream it computes something else");
            }));
}

}  // namespace
}  // namespace stretto
