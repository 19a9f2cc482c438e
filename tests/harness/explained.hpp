// What a communicator says of how it would run an all-reduce.
#pragma once

#include <string>

#include "harness/ranks.hpp"
#include "stretto.h"

namespace stretto::testing {

// The explanation of an all-reduce of 4 KB, as JSON.
inline std::string explained(const Member& member) {
  char text[16384];
  size_t needed = 0;
  strettoQuestion_t question{};
  question.collective = "all_reduce";
  question.bytes = 4096;
  member.expect(strettoExplain(member.comm, &question, text, sizeof text, &needed), "explain");
  return text;
}

}  // namespace stretto::testing
