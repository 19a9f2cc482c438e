// What an operation is called to others: the tag that all ranks compare, what is announced to them, and its
// record. Pure functions of the operation and its plan.
#pragma once

#include <cstdint>
#include <utility>

#include "communicator/core/operation.hpp"
#include "observe/flight.hpp"
#include "planner/plan.hpp"
#include "primitives/call_record.hpp"

namespace stretto::communicator {

constexpr uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}
// What ranks agree on of a norm, in two words.
std::pair<uint64_t, uint64_t> normOf(const NormArguments& norm);
// Equal on two ranks exactly if they run the same operation the same way.
uint64_t tagOf(const Operation& operation, const planner::Plan& plan);
// Equal at both ends of a message exactly if type and count are.
inline uint64_t transferTag(const Operation& operation) {
  return mixed(mixed(0x7032, static_cast<uint64_t>(operation.type)), operation.count);
}
// What others are told of an operation, without what differs from call to call.
CallRecord callRecordOf(const Operation& operation);
// The same for the flight recorder. `enqueued`: on a GPU.
observe::FlightCall flightCallOf(const Operation& operation, const planner::Plan& plan, bool enqueued);

}  // namespace stretto::communicator
