// All-reduce with residual add and RMSNorm by the kernels, among emulated GPUs: the bits of the host backend,
// by every form that ranks on GPUs have, for any tokens, any hidden size, and buffers that are there or not.
// Several operations follow each other without a pause.
#include <gtest/gtest.h>

#include <cstring>

#include "algorithms/shares.hpp"
#include "emulator/ranks.hpp"
#include "harness/oracle.hpp"
#include "planner/choose.hpp"
#include "planner/cuda_model.hpp"
#include "primitives/cuda/whole_tokens.hpp"
#include "primitives/host/norm.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;
using algorithms::Descriptor;
using emulator::Buffer;
using emulator::Machine;
using emulator::Ranks;

constexpr DataType kTypes[] = {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat32};

// What one operation is like; all ranks have the same, but for their inputs.
struct NormShape {
  DataType type = DataType::kBfloat16;
  size_t tokens = 1, hidden = 1;
  Scaling scaling = Scaling::kNone;
  DataType quantised = DataType::kFloat8e4m3;
  bool hasResidual = true, hasBias = false, hasGamma = true, wantsNormalised = true, wantsReduced = false;
  int inputIs = 0;  // 1: normalised, 2: reduced, 3: residualOut
  bool residualInPlace = false;
  size_t offset = 0;  // of all buffers, in bytes,
  int oddRank = -1;   // or, if it is a rank, of that one's

  size_t count() const { return tokens * hidden; }
  size_t bytes() const { return count() * sizeOf(type); }
  std::string describe() const {
    return std::string(nameOf(type)) + " " + std::to_string(tokens) + " x " + std::to_string(hidden) +
           ", scaling " + std::to_string(static_cast<int>(scaling)) + ", input is " +
           std::to_string(inputIs) + ", offset " + std::to_string(offset);
  }
};

NormShape draw(Random& random, DataType type, size_t mostToken) {
  constexpr size_t kHidden[] = {512, 513, 1, 7, 100, 1000, 2048, 4096, 5120, 7168, 8191, 16384};
  constexpr size_t kTokens[] = {1, 2, 3, 8, 17, 40};
  constexpr size_t kMost = 20000;
  NormShape shape{type, 0, 0};
  const auto chance = [&](uint64_t of) { return random() % of == 0; };
  do {
    shape.hidden = kHidden[random() % std::size(kHidden)];
  } while (shape.hidden * sizeOf(type) > mostToken);
  shape.tokens = std::clamp<size_t>(kMost / shape.hidden, 1, kTokens[random() % std::size(kTokens)]);
  shape.scaling = static_cast<Scaling>(random() % 3);
  shape.quantised = chance(2) ? DataType::kFloat8e4m3 : DataType::kFloat8e5m2;
  shape.hasResidual = !chance(4);
  shape.hasBias = chance(3);
  shape.hasGamma = !chance(4);
  shape.wantsNormalised = !chance(4);
  shape.wantsReduced = chance(3);
  shape.inputIs = static_cast<int>(random() % 4);
  if ((shape.inputIs == 1 && !shape.wantsNormalised) || (shape.inputIs == 2 && !shape.wantsReduced))
    shape.inputIs = 0;
  shape.residualInPlace = shape.inputIs != 3 && chance(2);
  shape.offset = chance(2) ? 0 : random() % 64 / sizeOf(type) * sizeOf(type);
  return shape;
}

std::vector<char> numbers(DataType type, size_t count, uint64_t seed) {
  std::vector<char> all(count * sizeOf(type));
  Random random(seed);
  for (size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(random() % 4001) / 1000 - 2;
    putFloat(type, all.data(), i, random() % 17 == 0 ? 16 * value : value);
  }
  return all;
}

// The buffers of one rank, and what must be in them afterwards.
class Tensors {
 public:
  Tensors(Machine& machine, const NormShape& shape, int rank, uint64_t seed)
      : shape_(shape),
        input_(numbers(shape.type, shape.count(), seed * 100 + static_cast<uint64_t>(rank))),
        residual_(numbers(shape.type, shape.count(), seed + 7)),
        bias_(numbers(shape.type, shape.hidden, seed + 8)),
        gamma_(numbers(shape.type, shape.hidden, seed + 9)),
        offset_(shape.oddRank < 0 || shape.oddRank == rank ? shape.offset : 0),
        places_{buffer(machine, shape.bytes()),      buffer(machine, shape.bytes()),
                buffer(machine, shape.bytes()),      buffer(machine, shape.bytes()),
                buffer(machine, shape.bytes()),      buffer(machine, gamma_.size()),
                buffer(machine, gamma_.size()),      buffer(machine, shape.count()),
                Buffer(machine, 4 * shape.tokens, 0)} {
    put(kResidual, residual_);
    put(kBias, bias_);
    put(kGamma, gamma_);
    if (shape.hasResidual && shape.residualInPlace) put(kAdded, residual_);
    std::memcpy(input(), input_.data(), input_.size());
    const float scale = 0.125f;
    std::memcpy(at(kScales), &scale, sizeof scale);
  }

  std::byte* input() const {
    constexpr int kPlaces[] = {kInput, kNormalised, kReduced, kAdded};
    return at(kPlaces[shape_.inputIs]);
  }
  NormArguments norm() const {
    NormArguments norm{};
    norm.hidden = shape_.hidden;
    norm.residual = !shape_.hasResidual ? nullptr : at(shape_.residualInPlace ? kAdded : kResidual);
    norm.bias = shape_.hasBias ? at(kBias) : nullptr;
    norm.gamma = shape_.hasGamma ? at(kGamma) : nullptr;
    norm.residualOut = at(kAdded);
    norm.normalised = shape_.wantsNormalised ? at(kNormalised) : nullptr;
    norm.reduced = shape_.wantsReduced ? at(kReduced) : nullptr;
    norm.epsilon = 1e-6f;
    norm.scaling = shape_.scaling;
    norm.quantisedType = shape_.quantised;
    if (shape_.scaling != Scaling::kNone) {
      norm.quantised = at(kQuantised);
      norm.scales = reinterpret_cast<float*>(at(kScales));
    }
    return norm;
  }
  const std::vector<char>& inputs() const { return input_; }

  // What the host backend makes of the inputs of all ranks.
  std::string compare(const std::vector<const std::byte*>& sources) const {
    std::vector<char> added(shape_.bytes()), normalised(shape_.bytes()), reduced(shape_.bytes()),
        quantised(shape_.count());
    std::vector<float> scales(shape_.tokens, 0.125f);
    NormArguments norm = this->norm();
    const auto placeOf = [](std::vector<char>& of) { return reinterpret_cast<std::byte*>(of.data()); };
    const auto read = [](const std::vector<char>& of) {
      return reinterpret_cast<const std::byte*>(of.data());
    };
    if (norm.residual != nullptr) norm.residual = read(residual_);
    if (norm.bias != nullptr) norm.bias = read(bias_);
    if (norm.gamma != nullptr) norm.gamma = read(gamma_);
    norm.residualOut = placeOf(added);
    if (norm.normalised != nullptr) norm.normalised = placeOf(normalised);
    if (norm.reduced != nullptr) norm.reduced = placeOf(reduced);
    norm.quantised = placeOf(quantised);
    norm.scales = scales.data();
    Arguments arguments;
    arguments.count = shape_.count();
    arguments.elementBytes = sizeOf(shape_.type);
    arguments.reduce.type = shape_.type;
    arguments.norm = &norm;
    addNorm(arguments, {0, shape_.tokens, sources.data(), static_cast<int>(sources.size()), nullptr, 0});
    std::string wrong = differs("residualOut", kAdded, added.data(), added.size());
    if (shape_.wantsNormalised) wrong += differs("normalised", kNormalised, normalised.data(), added.size());
    if (shape_.wantsReduced) wrong += differs("reduced", kReduced, reduced.data(), added.size());
    if (shape_.scaling != Scaling::kNone) {
      wrong += differs("quantised", kQuantised, quantised.data(), quantised.size());
      wrong += differs("scales", kScales, reinterpret_cast<const char*>(scales.data()),
                       shape_.scaling == Scaling::kPerToken ? 4 * shape_.tokens : 4);
    }
    for (const Buffer& place : places_) {
      if (!place.isGuarded()) wrong += "; writes beyond a buffer";
    }
    return wrong;
  }

 private:
  enum Place { kInput, kResidual, kAdded, kNormalised, kReduced, kBias, kGamma, kQuantised, kScales };

  Buffer buffer(Machine& machine, size_t bytes) const { return {machine, bytes, offset_}; }
  std::byte* at(int place) const { return places_[static_cast<size_t>(place)].data(); }
  void put(int place, const std::vector<char>& bytes) { std::memcpy(at(place), bytes.data(), bytes.size()); }
  std::string differs(const char* what, int place, const char* wanted, size_t bytes) const {
    const auto* const got = reinterpret_cast<const char*>(at(place));
    if (std::memcmp(got, wanted, bytes) == 0) return {};
    size_t byte = 0;
    while (got[byte] == wanted[byte]) ++byte;
    return std::string("; ") + what + " differs at byte " + std::to_string(byte) + " of " +
           std::to_string(bytes);
  }

  const NormShape shape_;
  const std::vector<char> input_, residual_, bias_, gamma_;
  const size_t offset_;
  const std::vector<Buffer> places_;
};

struct NormStep {
  NormShape shape;
  std::vector<Tensors> tensors;
};

class NormCourse {
 public:
  static constexpr int kChannels = 4;
  NormCourse(const Descriptor& row, int ranks, uint64_t seed)
      : row_(row), machine_({seed, true}), ranks_(machine_, ranks, kChannels), random_(seed) {}

  void add(const NormShape& shape, int blocks = 0) {
    planner::Request request{Collective::kAllReduceAddRmsNorm, shape.type, Operator::kSum, shape.bytes(),
                             ranks_.size()};
    request.tokenBytes = shape.hidden * sizeOf(shape.type);
    planner::Forced forced;
    ASSERT_TRUE(forced
                    .force("all_reduce_add_rms_norm", algorithms::nameOf(row_.algorithm),
                           algorithms::nameOf(row_.protocol), 0, blocks)
                    .ok())
        << lastError();
    const auto plan = planner::choose(request, ranks_.planned(), planner::Table(), forced);
    ASSERT_TRUE(plan.ok()) << shape.describe() << ": " << lastError();
    form_ =
        planner::normFormOf(row_, request, ranks_.planned(), {plan.value().blocks, plan.value().chunkBytes});
    before_ = ranks_.stream(0)->tasks.size();
    NormStep& step = steps_.emplace_back(NormStep{shape, {}});
    for (int rank = 0; rank < ranks_.size(); ++rank)
      step.tensors.emplace_back(machine_, shape, rank, steps_.size());
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Tensors& tensors = step.tensors[static_cast<size_t>(rank)];
      const NormArguments norm = tensors.norm();
      executors::cuda::Launch launch;
      launch.collective = row_.collective;
      launch.algorithm = row_.algorithm;
      launch.protocol = row_.protocol;
      launch.blocks = plan.value().blocks;
      launch.tag = 0x1000 + steps_.size();
      launch.sequence = steps_.size();
      launch.arguments.send = tensors.input();
      launch.arguments.receive = norm.residualOut;
      launch.arguments.count = shape.count();
      launch.arguments.elementBytes = sizeOf(shape.type);
      launch.arguments.reduce = {shape.type, Operator::kSum, static_cast<uint32_t>(ranks_.size())};
      launch.arguments.chunkBytes = plan.value().chunkBytes;
      launch.arguments.norm = &norm;
      ASSERT_TRUE(ranks_.engine(rank).launch(launch, ranks_.stream(rank)).ok()) << lastError();
    }
  }
  void draw(DataType type) {
    const bool isWhole = row_.protocol == algorithms::Protocol::kLamport;
    const size_t most = isWhole ? ranks_.planned().lamportBytes / 16 * 16 : SIZE_MAX;
    add(stretto::draw(random_, type, most), isWhole ? 1 + static_cast<int>(random_() % 4) : 0);
  }
  // Of what was added last, on every rank alike: kernels, and the threads of a block of the last of them.
  struct Launched {
    planner::NormForm form;  // that was priced
    size_t kernels;
    unsigned threads;
  };
  Launched last() {
    const auto& tasks = ranks_.stream(0)->tasks;
    return {form_, tasks.size() - before_, tasks.back().grid->size.threads};
  }
  const planner::Machine& planned() const { return ranks_.planned(); }
  void check() {
    const std::string wrong = ranks_.run();
    ASSERT_EQ(wrong, "");
    for (const NormStep& step : steps_) {
      std::vector<const std::byte*> sources;
      for (const Tensors& tensors : step.tensors)
        sources.push_back(reinterpret_cast<const std::byte*>(tensors.inputs().data()));
      for (const Tensors& tensors : step.tensors)
        ASSERT_EQ(tensors.compare(sources), "") << step.shape.describe();
    }
  }

 private:
  const Descriptor& row_;
  Machine machine_;
  Ranks ranks_;
  Random random_;
  std::vector<NormStep> steps_;
  planner::NormForm form_{};  // of the last step
  size_t before_ = 0;         // tasks of a rank's stream, when the last step was added
};

std::vector<Descriptor> rowsOf(int ranks) {
  std::vector<Descriptor> rows;
  for (const Descriptor& row : algorithms::descriptors(algorithms::Device::kCuda)) {
    const bool isLocal = row.algorithm == algorithms::Algorithm::kLocal;
    const bool isForMany = row.algorithm == algorithms::Algorithm::kTwoShot;
    if (row.collective != Collective::kAllReduceAddRmsNorm || isLocal != (ranks == 1)) continue;
    if (ranks > 2 || !isForMany) rows.push_back(row);
  }
  return rows;
}

class NormAmong : public ::testing::TestWithParam<int> {};

TEST_P(NormAmong, EveryFormHasTheBitsOfTheHost) {
  const int ranks = GetParam();
  for (const Descriptor& row : rowsOf(ranks)) {
    SCOPED_TRACE(std::string(algorithms::nameOf(row.algorithm)) + "/" + algorithms::nameOf(row.protocol));
    for (uint64_t seed = 1; seed <= (row.normApart ? 1u : 3u); ++seed) {
      NormCourse course(row, ranks, 50 * static_cast<uint64_t>(ranks) + seed);
      for (const DataType type : kTypes) course.draw(type);
      if (HasFatalFailure()) return;
      course.check();
      if (HasFatalFailure()) return;
    }
  }
}

// Tokens that a block does not keep whole, many that share a block's lines, and rounds of them, between two
// ranks an all-reduce in their place.
TEST_P(NormAmong, LargeAndManyTokensHaveTheBitsOfTheHost) {
  const int ranks = GetParam();
  if (ranks > 3) GTEST_SKIP() << "one to three ranks show it";
  const std::vector<Descriptor> rows = rowsOf(ranks);
  NormCourse course(rows.front(), ranks, 7);
  course.add({DataType::kBfloat16, 300, 512, Scaling::kPerToken}, 2);
  if (ranks < 3) {
    course.add({DataType::kFloat32, 2, 16384, Scaling::kPerToken}, 1);
    course.add({DataType::kBfloat16, 3, 16384, Scaling::kPerTensor, DataType::kFloat8e5m2}, 1);
    course.add({DataType::kFloat16, 1, 16383}, 4);
  }
  if (HasFatalFailure()) return;
  course.check();
}

// Tokens that teams of threads keep in registers: of any length, several of a block, and where a rank cannot
// do so, whose buffers are not aligned.
TEST_P(NormAmong, TokensInRegistersHaveTheBitsOfTheHost) {
  const int ranks = GetParam();
  if (ranks > 4) GTEST_SKIP() << "four ranks show it";
  const size_t most = ranks == 1 ? SIZE_MAX : size_t{66 << 10} / (ranks == 2 ? 1 : 8);
  for (const Descriptor& row : rowsOf(ranks)) {
    if (row.normApart) continue;
    for (const DataType type : kTypes) {
      SCOPED_TRACE(std::string(algorithms::nameOf(row.algorithm)) + ", " + nameOf(type));
      NormCourse course(row, ranks, 11);
      const auto add = [&](NormShape shape, int blocks) {
        const size_t token = shape.hidden * sizeOf(type);
        if (token > most || !stretto::cuda::WholeTokens::holds(token)) return;
        course.add(shape, ranks == 1 ? 0 : blocks);
      };
      add({.type = type, .tokens = 1, .hidden = 4096}, 1);
      add({.type = type, .tokens = 3, .hidden = 8192}, 2);
      add({.type = type, .tokens = 3, .hidden = 1000, .residualInPlace = true}, 1);
      add({.type = type, .tokens = 9, .hidden = 512, .inputIs = 1}, 1);
      add({.type = type, .tokens = 17, .hidden = 8, .inputIs = 3}, 3);
      add({.type = type, .tokens = 5, .hidden = 7168, .offset = 64}, 4);
      add({.type = type, .tokens = 4, .hidden = 520, .offset = 8, .oddRank = 0}, 1);
      if (HasFatalFailure()) return;
      course.check();
      if (HasFatalFailure()) return;
    }
  }
}

// Up to as many tokens as all channels' lines hold, and one more.
TEST_P(NormAmong, WhatIsLaunchedIsWhatWasPriced) {
  using Form = planner::NormForm;
  const int ranks = GetParam();
  if (ranks < 2 || ranks > 4) GTEST_SKIP() << "two to four ranks show it";
  for (const Descriptor& row : rowsOf(ranks)) {
    if (row.normApart) continue;
    SCOPED_TRACE(algorithms::nameOf(row.algorithm));
    constexpr size_t kToken = 1024;
    NormCourse course(row, ranks, 17);
    const size_t most = course.planned().lamportBytes / kToken * algorithms::shardsOf(row.algorithm, ranks) *
                        NormCourse::kChannels;
    for (const size_t tokens : {size_t{1}, size_t{7}, most - 1, most, most + 1}) {
      course.add({.type = DataType::kBfloat16, .tokens = tokens, .hidden = kToken / 2});
      if (HasFatalFailure()) return;
      const auto [form, kernels, threads] = course.last();
      const Form right = tokens <= most                  ? Form::kInRegisters
                         : algorithms::takesTurns(ranks) ? Form::kApart
                                                         : Form::kInLines;
      EXPECT_EQ(form, right) << tokens;
      EXPECT_EQ(kernels, form == Form::kApart ? 2u : 1u) << tokens;
      if (tokens == most) {
        EXPECT_EQ(threads, stretto::cuda::WholeTokens::kMostTeam + 32);
      } else if (tokens > most && !algorithms::takesTurns(ranks)) {
        EXPECT_EQ(threads, kToken / 16 + 32);
      }
    }
    course.check();
    if (HasFatalFailure()) return;
  }
}

// Whatever is asked for: what is there or not, and 8-bit copies of lengths that are no whole packs of theirs.
// A block of three tokens has three teams, where a kernel that does not keep them in registers has the
// threads of one token.
TEST_P(NormAmong, AnyCallKeepsTokensInRegisters) {
  const int ranks = GetParam();
  if (ranks > 4) GTEST_SKIP() << "four ranks show it";
  constexpr Scaling kScalings[] = {Scaling::kNone, Scaling::kPerToken, Scaling::kPerTensor};
  for (const Descriptor& row : rowsOf(ranks)) {
    if (row.normApart) continue;
    for (const DataType type : kTypes) {
      SCOPED_TRACE(std::string(algorithms::nameOf(row.algorithm)) + ", " + nameOf(type));
      NormCourse course(row, ranks, 13);
      const auto add = [&](NormShape shape) {
        shape.type = type;
        shape.tokens = 3;
        shape.hidden = 1032 / sizeOf(type) * 2;  // of 16 bits no multiple of 16
        course.add(shape, ranks == 1 ? 0 : 1);
        if (HasFatalFailure()) return;
        const unsigned team = stretto::cuda::WholeTokens::teamFor(shape.hidden * sizeOf(type));
        EXPECT_EQ(course.last().kernels, 1u);
        EXPECT_EQ(course.last().threads, ranks == 1 ? team : 3 * team + 32) << shape.describe();
      };
      for (const Scaling scaling : kScalings) {
        add({.scaling = scaling});
        add({.scaling = scaling, .hasBias = true, .wantsReduced = true});
        add({.scaling = scaling, .hasResidual = false, .hasGamma = false, .wantsNormalised = false});
        add({.scaling = scaling, .quantised = DataType::kFloat8e5m2, .hasResidual = false, .hasBias = true});
        add({.scaling = scaling, .wantsReduced = true, .inputIs = 2, .residualInPlace = true});
      }
      if (HasFatalFailure()) return;
      course.check();
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NormAmong, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace stretto
