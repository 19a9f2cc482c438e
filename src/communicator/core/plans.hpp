// How one rank's operations are planned: what the planner chooses from, and what all calls of one signature
// share (prepared.hpp), which is kept.
//
// Invariant: all ranks choose from the same machine, table and forced algorithms, as they have compared them
// when they connected; so a plan follows from the call alone. By the thread whose turn it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "base/status.hpp"
#include "communicator/core/operation.hpp"
#include "communicator/core/prepared.hpp"
#include "communicator/core/tags.hpp"
#include "planner/choose.hpp"
#include "planner/plan.hpp"
#include "planner/table.hpp"

namespace stretto::communicator {

class DeviceSide;

class Plans {
 public:
  // Reads the measured table and what is forced.
  Status load();
  // Nothing is planned any more.
  void forget();

  uint64_t tableHash() const { return table_.hash(); }
  const planner::HostLinks& hostLinks() const { return table_.hostLinks(); }
  planner::Machine& machine() { return machine_; }
  // `ranks`: of the communicator. `device`: where windows may be, null in host memory. `spread`: over hosts.
  void opens(int ranks, const DeviceSide* device, bool spread) {
    ranks_ = ranks;
    device_ = device;
    spread_ = spread;
  }

  Status prepare(const Operation& operation, Prepared*& prepared) {
    const Signature signature = signatureOf(operation);
    prepared = prepared_.find(signature);
    return prepared != nullptr ? kOkStatus : prepareFirst(operation, signature, prepared);
  }
  // All that follows from an operation and its plan.
  Prepared preparedAs(const Operation& operation, const planner::Plan& plan) const;

  // What an operation would be planned as now; does not touch what is kept.
  Result<planner::Plan> predict(const Operation& operation) const;
  // The same in words (planner::explainJson).
  Result<std::string> explain(const planner::Request& request) const;
  // planner::Forced::force.
  Status force(const char* collective, const char* algorithm, const char* protocol, size_t chunkBytes,
               int blocks);

 private:
  planner::Request requestFor(const Operation& operation) const;
  uint64_t windowsOf(const Operation& operation) const;
  Signature signatureOf(const Operation& operation) const {
    constexpr uint64_t kMade = 0x80;
    const uint64_t windows = device_ == nullptr ? 0 : windowsOf(operation);
    const uint64_t flags = kMade | windows << 2 | (operation.scaled ? 2 : 0) | (operation.reduces ? 1 : 0);
    Signature signature{static_cast<uint64_t>(operation.collective) |
                            static_cast<uint64_t>(operation.type) << 8 |
                            static_cast<uint64_t>(operation.op) << 16 | flags << 24 |
                            static_cast<uint64_t>(static_cast<uint32_t>(operation.root + 1)) << 32,
                        operation.count};
    if (operation.norms()) [[unlikely]]
      std::tie(signature.norm[0], signature.norm[1]) = normOf(operation.norm);
    return signature;
  }
  Status prepareFirst(const Operation& operation, Signature signature, Prepared*& prepared);

  planner::Machine machine_;
  planner::Table table_;
  planner::Forced forced_;
  const DeviceSide* device_ = nullptr;
  int ranks_ = 1;
  bool spread_ = false;
  PreparedCache prepared_;
};

}  // namespace stretto::communicator
