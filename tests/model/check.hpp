// Runs one model under the watchdog, and says on the test's output what it cost and, for a negative control,
// how the model goes wrong. For the tests of this folder only.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "harness/watchdog.hpp"
#include "model/explorer.hpp"
#include "model/slots.hpp"

namespace stretto::model {

inline Verdict check(const std::string& name, const Model& model, Options options = {}) {
  testing::Watchdog watchdog(name.c_str(), 300);
  auto start = std::chrono::steady_clock::now();
  Verdict verdict = explore(model, options);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("  %-58s %9zu states %10zu moves %6.2f s%s\n", name.c_str(), verdict.states, verdict.moves,
              took.count(), options.reduce ? "  (reduced)" : "");
  return verdict;
}

inline std::string problemsOf(const Verdict& verdict) {
  std::string text;
  if (!verdict.complete) text += "not exhaustive\n";
  if (!verdict.wrongPayload.empty()) text += "wrong payload:\n" + verdict.wrongPayload;
  if (!verdict.lostUpdate.empty()) text += "lost update:\n" + verdict.lostUpdate;
  if (!verdict.deadlock.empty()) text += "deadlock:\n" + verdict.deadlock;
  return text;
}

inline void expectSafe(const std::string& name, const Model& model, Options options = {}) {
  Verdict verdict = check(name, model, options);
  EXPECT_TRUE(verdict.holds()) << name << "\n" << problemsOf(verdict);
  EXPECT_GE(verdict.ends, 1u) << name;
}

// A negative control: the search must find this kind of violation, and its shortest run is printed.
inline std::string expectBroken(const std::string& name, const Model& model, std::string Verdict::*kind) {
  Verdict verdict = check(name, model);
  EXPECT_FALSE(verdict.holds()) << name;
  EXPECT_FALSE((verdict.*kind).empty()) << name << ": went wrong in another way, or not at all\n"
                                        << problemsOf(verdict);
  std::printf("%s", (verdict.*kind).c_str());
  return verdict.*kind;
}

}  // namespace stretto::model
