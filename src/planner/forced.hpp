// What somebody insists on: STRETTO_ALGO and STRETTO_PROTO, or strettoCommForce. A plain value that choose()
// obeys or refuses; it never falls back. One communicator with one rank has nothing to choose and obeys
// nothing.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "planner/plan.hpp"

namespace stretto::planner {

class Forced {
 public:
  struct Choice {
    std::optional<Algorithm> algorithm;
    std::optional<Protocol> protocol;
    uint32_t chunkBytes = 0;  // 0: the planner's
    int blocks = 0;           // 0: the planner's

    bool any() const { return algorithm || protocol || chunkBytes != 0 || blocks != 0; }
    // What needs a promise is there for those who name it.
    bool allows(const algorithms::Descriptor& row) const {
      return (!algorithm || *algorithm == row.algorithm) &&
             (protocol ? *protocol == row.protocol : !algorithms::needsPromise(row.protocol));
    }
  };

  // `algorithms`: "ring", "all_reduce:ring,broadcast:chain", or empty. A bare name is for every collective
  // that has it; a collective named beside it goes first. `protocol`: "lines", "chunks" or empty, for every
  // collective that has it. What exists nowhere, or is said twice, is kInvalidUsage with what there is.
  static Result<Forced> parse(std::string_view algorithms, std::string_view protocol);
  // STRETTO_ALGO and STRETTO_PROTO.
  static Result<Forced> load();

  // Replaces what was forced on one collective. Empty names and 0 leave that part to the planner; a chunk (a
  // multiple of 64) is for the chunks protocol only, blocks are for GPUs. Nothing changes unless it returns
  // kOk.
  Status force(std::string_view collective, std::string_view algorithm, std::string_view protocol,
               size_t chunkBytes, int blocks);

  const Choice& of(Collective collective) const;

 private:
  Status addAlgorithms(std::string_view list, bool named);
  Status addProtocol(std::string_view name);
  Status set(Collective collective, Algorithm algorithm, std::string_view text);

  std::array<Choice, kCollectives> choices_;
};

}  // namespace stretto::planner
