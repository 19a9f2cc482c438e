#include "communicator/core/tags.hpp"

#include <bit>

namespace stretto::communicator {
namespace {

NormMode modeOf(const NormArguments& norm) {
  const bool quantises = norm.scaling != Scaling::kNone;
  return {norm.scaling, quantises ? norm.quantisedType : DataType{},
          static_cast<uint8_t>(norm.residual != nullptr), static_cast<uint8_t>(norm.bias != nullptr)};
}

}  // namespace

std::pair<uint64_t, uint64_t> normOf(const NormArguments& norm) {
  const NormMode mode = modeOf(norm);
  return {norm.hidden,
          static_cast<uint64_t>(std::bit_cast<uint32_t>(norm.epsilon)) << 32 | std::bit_cast<uint32_t>(mode)};
}

uint64_t tagOf(const Operation& operation, const planner::Plan& plan) {
  uint64_t tag =
      mixed(0x53, static_cast<uint64_t>(operation.collective) << 32 |
                      static_cast<uint64_t>(operation.type) << 16 | static_cast<uint64_t>(operation.op) << 8 |
                      (operation.scaled ? 2 : 0) | (operation.reduces ? 1 : 0));
  tag = mixed(tag, operation.count);
  tag = mixed(tag, static_cast<uint64_t>(operation.root + 1));
  if (operation.norms()) {
    const auto [hidden, rest] = normOf(operation.norm);
    tag = mixed(mixed(tag, hidden), rest);
  }
  return mixed(tag, static_cast<uint64_t>(plan.blocks) << 56 | static_cast<uint64_t>(plan.algorithm) << 48 |
                        static_cast<uint64_t>(plan.protocol) << 40 |
                        static_cast<uint64_t>(plan.directions) << 36 |
                        static_cast<uint64_t>(plan.rings) << 32 | plan.chunkBytes);
}

CallRecord callRecordOf(const Operation& operation) {
  CallRecord what{};
  what.count = operation.count;
  what.collective = static_cast<uint8_t>(operation.collective);
  what.type = static_cast<uint8_t>(operation.type);
  what.op = operation.reduces ? static_cast<uint8_t>(operation.op) : uint8_t{0xff};
  what.root = operation.root;
  if (operation.norms()) {
    what.hidden = static_cast<uint32_t>(operation.norm.hidden);
    what.epsilon = operation.norm.epsilon;
    what.mode = modeOf(operation.norm);
  }
  return what;
}

observe::FlightCall flightCallOf(const Operation& operation, const planner::Plan& plan, bool enqueued) {
  observe::FlightRecord record;
  record.function = operation.collective;
  record.type = operation.type;
  record.op = operation.op;
  record.algorithm = plan.algorithm;
  record.protocol = plan.protocol;
  record.root = operation.isCollective() ? operation.root : -1;
  record.peer = operation.isCollective() ? -1 : operation.root;
  record.enqueued = enqueued;
  return observe::callOf(record);
}

}  // namespace stretto::communicator
