// One collective call against what it must compute: inputs and expected results by type and operator, a case
// with all its odd choices, and how a rank runs one. For tests that go through the C API.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "harness/oracle.hpp"
#include "harness/ranks.hpp"

namespace stretto::testing {

// The operators of the API: the built-in ones, and PreMulSum with another scalar on every rank.
inline constexpr int kPreMulSum = kOperators;
inline constexpr int kOps = kOperators + 1;

// Inputs of all ranks, and their reduction.
struct Dataset {
  DataType type;
  int op;
  int ranks;
  size_t elements;
  std::vector<std::vector<char>> inputs;   // by rank
  std::vector<std::vector<char>> scalars;  // by rank, one element each, for PreMulSum
  std::vector<char> expected;              // in rank order
  // How far another order may lead away from that, as doubles; 0: not at all; below 0: no telling.
  std::vector<double> tolerance;

  // Elements of which something can be told whatever the order, as a part of all.
  double told() const;
};
Dataset makeDataset(DataType type, int op, int ranks, size_t elements);

struct Case {
  const algorithms::Descriptor* row = nullptr;
  const Dataset* data = nullptr;
  size_t count = 0;  // as the API counts
  bool inPlace = false;
  bool twice = false;
  uint64_t shared = 0;    // ranks, by bit, whose buffers are of ncclMemAlloc
  size_t sendOffset = 0;  // bytes from a cache line's begin
  size_t receiveOffset = 0;
  size_t chunkBytes = 0;
  int root = 0;

  std::string describe() const;
};

// One call with this rank's buffers; false when no further call makes sense.
using Calling = std::function<bool(const void* send, void* receive)>;

// Makes the call and checks the result, the guards and the untouched send buffer. Complains; false as the
// call.
bool checkCall(const Member& member, const Case& one, const Calling& call, std::vector<char>* result);

// Forces the row, makes the call, and checks the result, the guards around the buffers, the untouched send
// buffer, and that all ranks have the same bits, which they get again. Collective; complains. False when the
// communicator is of no more use. `board` needs room for a result in each area.
bool runCase(Member& member, const Case& one);

// Blocks of `count` elements in a collective's two buffers.
size_t sendBlocks(Collective collective, int ranks);
size_t receiveBlocks(Collective collective, int ranks);
bool isReduction(Collective collective);

}  // namespace stretto::testing
