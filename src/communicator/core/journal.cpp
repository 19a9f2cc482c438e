#include "communicator/core/journal.hpp"

#include <string>

#include "base/parameters.hpp"
#include "platform/identity.hpp"

namespace stretto::communicator {

Status Journal::opens(const char* library) {
  auto process = currentIdentity();
  if (!process.ok()) return process.status();
  observe::FlightIdentity identity;
  identity.process = process.value();
  identity.library = library;
  identity.communicator = self_.number();
  identity.rank = self_.rank();
  identity.ranks = self_.ranks();
  auto recorder = observe::FlightRecorder::open(identity);
  if (!recorder.ok()) return recorder.status();
  flight_ = std::move(recorder.value());
  header_ = &connections_.header();
  return kOkStatus;
}

Status Journal::opensProfile(int hosts) {
  const auto every = parameters::kProfileEvery.integer(1, UINT32_MAX);
  if (!every.ok()) return every.status();
  profile_.open({self_.number(), self_.config().name, hosts, self_.ranks(), self_.rank(),
                 static_cast<uint64_t>(every.value())},
                onDevice_);
  return kOkStatus;
}

void Journal::closes() {
  header_ = nullptr;
  flight_ = {};
  profile_.close();
}

Status Journal::refusePlan(const Operation& operation, Status status) {
  recordCall(callRecordOf(operation), {++sequence_, ~tagOf(operation, {}), platform::ticks(), 0});
  return status;
}

Status Journal::explain(const Running& running, Status status) {
  std::string what = nameOf(running.operation->collective);
  if (running.operation->isCollective()) what += " #" + std::to_string(running.sequence);
  return health_.explain(what, status);
}

// A collective that is about to run, or on a GPU to be launched, which is told of afterwards.
void Journal::beginWatched(const Operation& operation, const planner::Plan& plan, uint64_t ticks) {
  if (!onDevice_ && operation.count != 0 && profile_.on()) profile_.beginCollective(operation, plan, ticks);
}

void Journal::endWatched(uint64_t ticks) {
  if (!onDevice_ && profile_.on()) profile_.endWork(ticks);
}

}  // namespace stretto::communicator
