#include "communicator/core/plans.hpp"

#include "communicator/device/side.hpp"

namespace stretto::communicator {
namespace {

// All but the buffers.
Arguments argumentsOf(const Operation& operation, const planner::Plan& plan, int ranks) {
  Arguments arguments;
  arguments.count = operation.count;
  arguments.elementBytes = sizeOf(operation.type);
  arguments.reduce = {operation.type, operation.op, static_cast<uint32_t>(ranks)};
  arguments.root = operation.root;
  arguments.chunkBytes = plan.chunkBytes;
  arguments.rings = plan.rings;
  arguments.directions = static_cast<int>(plan.directions);
  arguments.stream = plan.stream;
  return arguments;
}

}  // namespace

Status Plans::load() {
  auto table = planner::Table::load();
  if (!table.ok()) return table.status();
  table_ = std::move(table.value());
  auto forced = planner::Forced::load();
  if (!forced.ok()) return forced.status();
  forced_ = forced.value();
  return kOkStatus;
}

void Plans::forget() {
  table_ = planner::Table();
  device_ = nullptr;
  prepared_.clear();
}

planner::Request Plans::requestFor(const Operation& operation) const {
  planner::Request request{operation.collective, operation.type, operation.op, operation.bytes(), ranks_};
  if (operation.norms()) request.tokenBytes = operation.norm.hidden * sizeOf(operation.type);
  if (device_ != nullptr) device_->addWindows(operation, request);
  return request;
}

// What a plan depends on beside the call itself.
uint64_t Plans::windowsOf(const Operation& operation) const {
  const planner::Request request = requestFor(operation);
  return (request.windowed ? 1 : 0) | (request.pullsOnce ? 2 : 0) | (request.pullsTwice ? 4 : 0);
}

Status Plans::prepareFirst(const Operation& operation, Signature signature, Prepared*& prepared) {
  const auto plan = predict(operation);
  if (!plan.ok()) return plan.status();
  Prepared made = preparedAs(operation, plan.value());
  if (device_ == nullptr) {
    made.run =
        executors::host::codeOf(operation.collective, made.plan.algorithm, made.plan.protocol, spread_);
    if (made.run == nullptr) return Status{Code::kInternal};
  }
  prepared = prepared_.keep(signature, made);
  return kOkStatus;
}

Prepared Plans::preparedAs(const Operation& operation, const planner::Plan& plan) const {
  Prepared made;
  made.plan = plan;
  made.tag = tagOf(operation, plan);
  made.recorded = flightCallOf(operation, plan, device_ != nullptr);
  made.recordedCall = callRecordOf(operation);
  made.arguments = argumentsOf(operation, plan, ranks_);
  return made;
}

Result<planner::Plan> Plans::predict(const Operation& operation) const {
  return planner::choose(requestFor(operation), machine_, table_, forced_);
}

Result<std::string> Plans::explain(const planner::Request& request) const {
  return planner::explainJson(request, machine_, table_, forced_);
}

Status Plans::force(const char* collective, const char* algorithm, const char* protocol, size_t chunkBytes,
                    int blocks) {
  const Status status = forced_.force(collective, algorithm, protocol, chunkBytes, blocks);
  prepared_.clear();
  return status;
}

}  // namespace stretto::communicator
