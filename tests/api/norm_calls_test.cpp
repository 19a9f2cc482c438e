// strettoAllReduceAddRmsNorm: what is refused, what ranks that disagree are told, and what the planner says.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "harness/staged.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

// ---- What is refused --------------------------------------------------------------------------------------

struct Wrong {
  const char* words;
  std::function<void(strettoAddRmsNorm_t& step)> make;
  ncclResult_t result = ncclInvalidArgument;
};

void* inputOf(const strettoAddRmsNorm_t& step) {
  return const_cast<void*>(step.input);
}

TEST(NormCalls, AreRefusedInWords) {
  static char codes[64];
  const std::vector<Wrong> all = {
      {"INITIALIZER", [](auto& step) { step.size = 8; }},
      {"INITIALIZER", [](auto& step) { step.size = 4097; }},
      {"hidden is 0", [](auto& step) { step.hidden = 0; }},
      {"do not fit in memory", [](auto& step) { step.tokens = SIZE_MAX / 2; }},
      {"epsilon is nan", [](auto& step) { step.epsilon = NAN; }},
      {"epsilon is -1", [](auto& step) { step.epsilon = -1; }},
      {"these are int32", [](auto& step) { step.type = ncclInt32; }},
      {"is not a data type", [](auto& step) { step.type = static_cast<ncclDataType_t>(99); }},
      {"input is null", [](auto& step) { step.input = nullptr; }},
      {"residualOut is null", [](auto& step) { step.residualOut = nullptr; }},
      {"strettoScale_t", [](auto& step) { step.scaling = static_cast<strettoScale_t>(7); }},
      {"quantised type is float32",
       [](auto& step) {
         step.scaling = strettoScalePerToken;
         step.quantisedType = ncclFloat32;
       }},
      {"quantised is null",
       [](auto& step) {
         step.scaling = strettoScalePerToken;
         step.quantisedType = ncclFloat8e4m3;
       }},
      {"normalised [", [](auto& step) { step.normalised = step.residualOut; }},
      {"residual [", [](auto& step) { step.residual = static_cast<const char*>(step.residualOut) + 4; }},
      {"gamma [", [](auto& step) { step.gamma = step.residualOut; }},
      // Where two may be the same memory, a third may not.
      {"residual [", [](auto& step) { step.residual = step.normalised = inputOf(step); }},
      {"residual [", [](auto& step) { step.residual = step.reduced = inputOf(step); }},
      {"bias [", [](auto& step) { step.bias = step.normalised = inputOf(step); }},
      {"bias [", [](auto& step) { step.bias = step.residual = step.residualOut; }},
      {"gamma [", [](auto& step) { step.gamma = step.normalised = inputOf(step); }},
      {"scales [",
       [](auto& step) {
         step.scaling = strettoScalePerTensor;
         step.scales = static_cast<float*>(step.normalised = inputOf(step));
         step.quantised = codes;
       }},
  };
  asThreads(1, connected([&](Member& member) {
              std::vector<float> input(64, 1), out(64);
              Staged staged(member);
              const float* const from = staged.of(input.data(), 256);
              float* const to = staged.of(out.data(), 256);
              for (const Wrong& wrong : all) {
                strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
                step.tokens = 4;
                step.hidden = 16;
                step.type = ncclFloat32;
                step.input = from;
                step.residualOut = to;
                wrong.make(step);
                member.expect(strettoAllReduceAddRmsNorm(&step, member.comm, member.stream()), wrong.words,
                              wrong.result);
                member.expectError(wrong.words, {wrong.words});
              }
              member.expect(strettoAllReduceAddRmsNorm(nullptr, member.comm, member.stream()), "no step",
                            ncclInvalidArgument);
            }));
}

TEST(NormCalls, WithoutTokensDoNothing) {
  asThreads(2, connected([](Member& member) {
              strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
              for (const size_t hidden : {size_t{0}, size_t{64}, SIZE_MAX}) {
                step.hidden = hidden;
                member.expect(strettoAllReduceAddRmsNorm(&step, member.comm, member.stream()), "no tokens");
              }
            }));
}

TEST(NormCalls, MayHaveInputResidualAndResultInOnePlace) {
  asThreads(2, connected([](Member& member) {
              std::vector<float> all(64, 1);
              strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
              step.tokens = 4;
              step.hidden = 16;
              Staged staged(member);
              step.input = step.residual = step.residualOut = staged.of(all.data(), 256);
              staged.run([&](cudaStream_t stream) {
                return member.expect(strettoAllReduceAddRmsNorm(&step, member.comm, stream), "in one place");
              });
              member.check(all == std::vector<float>(64, 3), "a wrong sum");
            }));
}

// A caller of a later release, whose further fields are zero, or not.
TEST(NormCalls, MayComeFromALaterRelease) {
  asThreads(1, connected([](Member& member) {
              struct Later {
                strettoAddRmsNorm_t step;
                size_t more;
              } later{STRETTO_ADD_RMS_NORM_INITIALIZER, 0};
              float input = 3, out = 0;
              later.step.size = sizeof later;
              later.step.tokens = later.step.hidden = 1;
              later.step.type = ncclFloat32;
              Staged staged(member);
              later.step.input = staged.of(&input, sizeof input);
              later.step.residualOut = staged.of(&out, sizeof out);
              staged.run([&](cudaStream_t stream) {
                return member.expect(strettoAllReduceAddRmsNorm(&later.step, member.comm, stream),
                                     "with zeros");
              });
              member.check(out == 3, "a wrong sum");
              later.more = 1;
              member.expect(strettoAllReduceAddRmsNorm(&later.step, member.comm, member.stream()),
                            "with more", ncclInvalidUsage);
            }));
}

// ---- Ranks that disagree ----------------------------------------------------------------------------------

struct Parted {
  const char* name;
  std::function<void(strettoAddRmsNorm_t& step)> make;
  std::vector<std::string> both;
};

std::vector<Parted> parted() {
  return {
      {"tokens", [](auto& step) { step.tokens = 7; }, {"float32 x 512", "float32 x 448"}},
      {"hidden",
       [](auto& step) {
         step.tokens = 4;
         step.hidden = 128;
       },
       {"tokens of 64", "tokens of 128"}},
      {"epsilon",
       [](auto& step) { step.epsilon = 1e-5f; },
       {"epsilon 9.99999997e-07", "epsilon 9.99999975e-06"}},
      {"residual", [](auto& step) { step.residual = nullptr; }, {", residual", ", no residual"}},
      {"scaling",
       [](auto& step) {
         step.scaling = strettoScalePerToken;
         step.quantisedType = ncclFloat8e5m2;
       },
       {"to float8e5m2 per token", "#2 all_reduce_add_rms_norm float32 x 512"}},
  };
}

class NormDisagreement : public ::testing::TestWithParam<Parted> {};

TEST_P(NormDisagreement, IsToldWithBothCalls) {
  if (testsOnDevice())
    GTEST_SKIP() << "calls on GPUs return before kernels meet: communicator/cuda/failure_test.cpp";
  asThreads(3, connected([](Member& member) {
              std::vector<float> input(1024, 1), residual(1024, 1), out(1024), scales(64);
              std::vector<char> codes(1024);
              strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
              step.tokens = 8;
              step.hidden = 64;
              step.type = ncclFloat32;
              step.epsilon = 1e-6f;
              step.input = input.data();
              step.residual = residual.data();
              step.residualOut = out.data();
              step.quantised = codes.data();
              step.scales = scales.data();
              member.expect(strettoAllReduceAddRmsNorm(&step, member.comm, nullptr), "together");
              if (member.rank == 1) GetParam().make(step);
              ncclResult_t result = strettoAllReduceAddRmsNorm(&step, member.comm, nullptr);
              member.expect(result, "the result", ncclInvalidUsage);
              member.expectError("the disagreement", {"rank 1", "ranks disagree"});
              member.expectError("the disagreement", GetParam().both);
              member.board.meet();
            }),
            60);
}

INSTANTIATE_TEST_SUITE_P(About, NormDisagreement, ::testing::ValuesIn(parted()),
                         [](const auto& suite) { return std::string(suite.param.name); });

// ---- What the planner says --------------------------------------------------------------------------------

// By a rank, which may be a process of its own: the planner asks what GPUs there are, and a process that has
// asked can fork no ranks.
TEST(NormCalls, AreExplained) {
  asThreads(1, [](Member& member) {
    strettoQuestion_t question{};
    question.collective = "all_reduce_add_rms_norm";
    question.bytes = 65536;
    question.type = ncclBfloat16;
    question.ranks = 2;
    question.hidden = 4096;
    std::string text(size_t{1} << 16, 0);
    size_t needed = 0;
    member.expect(strettoExplain(nullptr, &question, text.data(), text.size(), &needed), "explain");
    for (const char* part :
         {"\"token_bytes\":8192", "; fused with the norm", "; the norm is a pass of its own"}) {
      if (text.find(part) == std::string::npos) member.complain("%s is not in %s", part, text.c_str());
    }
  });
}

TEST(NormCalls, AreExplainedForWhatTheyTake) {
  asThreads(1, [](Member& member) {
    strettoQuestion_t right{};
    right.collective = "all_reduce_add_rms_norm";
    right.bytes = 65536;
    right.type = ncclBfloat16;
    right.ranks = 2;
    const auto refused = [&](const strettoQuestion_t& question, const char* words) {
      char text[16];
      size_t needed = 0;
      member.expect(strettoExplain(nullptr, &question, text, sizeof text, &needed), words,
                    ncclInvalidArgument);
      member.expectError(words, {words});
    };
    strettoQuestion_t wrong = right;
    wrong.type = ncclInt32;
    refused(wrong, "these are int32");
    wrong = right;
    wrong.op = ncclMax;
    refused(wrong, "sum");
    for (const size_t hidden : {SIZE_MAX, SIZE_MAX / 2 + 2, size_t{1} << 32}) {
      wrong = right;
      wrong.hidden = hidden;
      refused(wrong, "hidden is");
    }
  });
}

}  // namespace
}  // namespace stretto
