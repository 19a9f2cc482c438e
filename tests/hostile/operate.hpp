// Operations of one rank: buffers, the call itself, and the comparison with what must have come out.
#pragma once

#include <string>
#include <vector>

#include "board.hpp"
#include "memory.hpp"
#include "pattern.hpp"

namespace hostile {

// A communicator as one of its ranks sees it.
struct Side {
  ncclComm_t comm = nullptr;
  int rank = 0;
  int ranks = 1;
  std::vector<int> members;       // ranks of the round, by rank here
  ncclWindow_t window = nullptr;  // where buffers lie, in the same places at all ranks; null: anywhere
  const uint8_t* windowBase = nullptr;
};

// One operation that was called, until its result has been compared. `around` are the ranks here that take
// part in a ring or in pairs.
class Operation {
 public:
  Operation(const Call& call, const Side& side, Memory& memory, int kind, std::vector<int> around);

  ncclResult_t enqueue(cudaStream_t stream);
  // "" or what is wrong with the result of a success.
  std::string compare() const;
  // "" or what is wrong whatever became of the operation.
  std::string untouched() const;
  // From here on the buffers are the caller's, who uses them for something else and frees some.
  void reuse(bool freeHalf);
  std::string text() const;

 private:
  size_t sendElements() const;
  size_t receiveElements() const;
  void expect();
  int next(int step) const;
  ncclResult_t transfers(cudaStream_t stream);
  ncclResult_t puts(cudaStream_t stream);
  ncclResult_t makeOperator(ncclRedOp_t* op) const;
  bool aloneAround() const;

  Call call_;
  Side side_;
  std::vector<int> around_;
  size_t size_;
  Block send_, receive_;
  uint8_t* from_ = nullptr;
  uint8_t* to_ = nullptr;
  Bytes sent_, expected_;
};

}  // namespace hostile
