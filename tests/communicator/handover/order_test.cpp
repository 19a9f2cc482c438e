// An NCCL that calls its own exported functions beside this library, loaded in every order: whoever the
// dynamic linker binds those calls to, they reach NCCL. Each case is a process of its own (order_driver.cpp).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "harness/temporary_folder.hpp"

namespace {

struct Outcome {
  int status = -1;
  int crossed = -1;  // their calls of their own functions that came by way of us
  std::string said;
};

// `real`: what STRETTO_REAL_NCCL says; empty leaves it unset.
Outcome drive(const std::string& theirs, const std::string& steps, const std::string& real) {
  std::string command = "FAKE_REACH=0 STRETTO_DEVICE=cuda ";
  command += real.empty() ? "" : "STRETTO_REAL_NCCL=" + real + " ";
  command += std::string(ORDER_DRIVER " " MADE_UP_STRETTO " ") + theirs + " " + steps + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  Outcome outcome;
  if (pipe == nullptr) return outcome;
  char part[512];
  while (fgets(part, sizeof part, pipe) != nullptr) outcome.said += part;
  outcome.status = pclose(pipe);
  if (outcome.status == 0) outcome.crossed = std::atoi(outcome.said.c_str());
  return outcome;
}

void expectWorks(const std::string& steps, bool crosses, const std::string& theirs = LOOPED_NCCL,
                 const std::string& real = LOOPED_NCCL) {
  const Outcome outcome = drive(theirs, steps, real);
  EXPECT_EQ(outcome.status, 0) << steps << "\n" << outcome.said;
  EXPECT_EQ(outcome.crossed > 0, crosses) << steps << "\n" << outcome.said;
}

TEST(LoadOrder, TheirsByUs) {
  expectWorks("ours:global serve direct", false);
  expectWorks("ours:local serve direct", false);
}

TEST(LoadOrder, TheirsAfterUs) {
  expectWorks("ours:global theirs:global serve direct", true);
  expectWorks("ours:global theirs:local serve direct", true);
  expectWorks("ours:global theirs:lazy serve direct", true);
  expectWorks("ours:local theirs:global serve direct", false);
  expectWorks("ours:local theirs:local serve direct", false);
}

TEST(LoadOrder, TheirsBeforeUs) {
  expectWorks("theirs:global ours:global serve direct", false);
  expectWorks("theirs:global ours:local serve direct", false);
  expectWorks("theirs:local ours:local serve direct", false);
  expectWorks("theirs:local ours:global serve direct", false);
  // Bound at the first call, when ours are in the global scope.
  expectWorks("theirs:lazy ours:global serve direct", true);
}

// A program uses NCCL without us before, or instead of, our handing anything over.
TEST(LoadOrder, TheirsUsedDirectly) {
  expectWorks("ours:global theirs:global direct serve direct", true);
  expectWorks("ours:global theirs:local direct", true);
  expectWorks("theirs:lazy ours:global direct serve", true);
  expectWorks("theirs:global ours:local direct serve", false);
}

TEST(LoadOrder, TheirsFoundInTheProcess) {
  expectWorks("ours:global theirs:global serve direct", true, LOOPED_NCCL, "");
}

// Under a file name that says nothing: STRETTO_REAL_NCCL does.
TEST(LoadOrder, TheirsUnderAnotherName) {
  const stretto::testing::TemporaryFolder folder("order");
  const std::string link = folder / "libanother.so";
  std::filesystem::create_symlink(LOOPED_NCCL, link);
  expectWorks("ours:global theirs:global serve direct", true, link, link);
}

TEST(LoadOrder, NvidiasOwn) {
  if (!std::filesystem::exists(REAL_NCCL)) GTEST_SKIP() << "there is no " << REAL_NCCL;
  expectWorks("ours:global theirs:global nvidia", false, REAL_NCCL, "");
  expectWorks("theirs:local ours:global nvidia", false, REAL_NCCL, "");
}

// A tool that defines NCCL's functions and calls ours is not taken for an NCCL.
TEST(LoadOrder, ToolsThatCallUsAreNotTheirs) {
  expectWorks("ours:global theirs:local tool", false, TOOL_NCCL);
  expectWorks("theirs:global ours:global tool", false, TOOL_NCCL);
}

}  // namespace
