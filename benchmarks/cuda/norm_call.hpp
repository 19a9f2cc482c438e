// The variants of strettoAllReduceAddRmsNorm that norm_driver measures.
#pragma once

#include <string>

#include "failure.hpp"
#include "stretto.h"

namespace stretto::bench {

// What a call wants beside the new residual; all calls have a residual and gamma.
struct Call {
  const char* name;
  bool hasBias = false;
  bool wantsReduced = false;
  bool wantsNormalised = true;
  strettoScale_t scaling = strettoScaleNone;  // of a copy in float8e4m3
};
inline constexpr Call kCalls[] = {{"plain"},
                                  {"bias", true},
                                  {"reduced", false, true},
                                  {"per_token", false, false, true, strettoScalePerToken},
                                  {"per_tensor", false, false, true, strettoScalePerTensor},
                                  {"per_token_alone", false, false, false, strettoScalePerToken}};

inline Call callNamed(const std::string& name) {
  for (const Call& call : kCalls) {
    if (name == call.name) return call;
  }
  throw Failure("--call " + name + ": it is plain, bias, reduced, per_token, per_tensor or per_token_alone");
}

}  // namespace stretto::bench
