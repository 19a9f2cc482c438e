// What buffers hold and what operations must make of it. Values are small whole numbers that every type holds
// exactly, with sums and products that it holds exactly too, so the order in which ranks are combined does
// not matter and results are compared bit by bit. They repeat after a prime number of elements, which no
// chunk and no part of a buffer is a multiple of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan.hpp"

namespace hostile {

inline constexpr size_t kPeriod = 4093;

using Bytes = std::vector<uint8_t>;

// The first elements of what `rank` of `ranks` gives to this call: a period, or `elements` if that is less.
Bytes given(const Call& call, int ranks, int rank, size_t elements);
// The same of what a reduction of all of them is.
Bytes reduced(const Call& call, int ranks, size_t elements);

// The scalar that PreMulSum multiplies with, in the call's type; every rank has the same.
Bytes scalarOf(const Call& call, int ranks);

// `count` elements of `size` bytes that repeat `period`, beginning at its element `from`.
void spread(const Bytes& period, size_t size, size_t from, size_t count, uint8_t* to);

}  // namespace hostile
