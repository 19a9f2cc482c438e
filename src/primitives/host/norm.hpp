// What an all-reduce with residual add and RMSNorm does with tokens whose parts have come: the sum over
// ranks, the residual, the norm, and the 8-bit copy, on host memory. For the Host backend.
//
// Of one token, in float32, the same to the last bit on every CPU level and for every number of tokens:
//    s = the sources added in their order, rounded to the type (what reduce() gives)
//    r = s + residual + bias, rounded to the type
//    f = 1 / sqrt(sum of r * r / hidden + epsilon)
//    y = r * f * gamma, rounded to the type
//    q = y * (1 / scale), rounded to 8 bits, where scale is the one given, or that of the token:
//        max(largest |y| / largest number of the 8-bit type, kLeastScale of it)
// A NaN result is the type's positive quiet NaN.
#pragma once

#include <cstddef>

#include "primitives/norm.hpp"
#include "primitives/operation.hpp"

namespace stretto {

void addNorm(const Arguments& arguments, const NormTokens& tokens);

}  // namespace stretto
