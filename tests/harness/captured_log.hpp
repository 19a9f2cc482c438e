// What the library logs at WARN while this lives: for tests whose ranks are threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/log.hpp"
#include "base/scoped_variable.hpp"

namespace stretto::testing {

class CapturedWarnings {
 public:
  CapturedWarnings() {
    log::reset();
    ::testing::internal::CaptureStderr();
  }
  ~CapturedWarnings() {
    if (!isTaken_) (void)take();
  }
  CapturedWarnings(const CapturedWarnings&) = delete;
  CapturedWarnings& operator=(const CapturedWarnings&) = delete;

  // Ends the capture.
  std::string take() {
    isTaken_ = true;
    level_.set(nullptr);
    log::reset();
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  ScopedVariable level_{"NCCL_DEBUG", "WARN"};
  bool isTaken_ = false;
};

inline size_t timesIn(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

}  // namespace stretto::testing
