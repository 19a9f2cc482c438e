#include "communicator/group.hpp"

#include <algorithm>
#include <thread>

#include "communicator/communicator.hpp"
#include "platform/clock.hpp"

namespace stretto::communicator {
namespace {

// The first failure of several threads' work, with its words.
class FirstFailure {
 public:
  void note(Status status) {
    if (status.ok() || status.code == Code::kInProgress) return;
    std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = status;
    text_ = lastError();
  }
  // Takes the words over into the calling thread.
  Status take() {
    if (!status_.ok()) setLastError(text_);
    return status_;
  }

 private:
  std::mutex mutex_;
  Status status_;
  std::string text_;
};

}  // namespace

Group& Group::current() {
  static thread_local Group group;
  return group;
}

void Group::begin() {
  if (++depth_ == 1 && events::on()) {
    event_ = events::start(events::Type::kGroupApi, events::Id::kNone, {}, platform::ticks());
  }
}

void Group::add(const std::shared_ptr<Communicator>& communicator, const Operation& operation,
                executors::host::Stream* stream) {
  const auto same = [&](const Batch& batch) { return batch.communicator == communicator; };
  auto batch = std::find_if(batches_.begin(), batches_.end(), same);
  if (batch == batches_.end()) {
    batches_.push_back({communicator, stream, {}});
    batch = batches_.end() - 1;
  }
  batch->operations.push_back(operation);
}

void Group::poison(Status status) {
  if (!open() || !poisoned_.ok()) return;
  poisoned_ = status;
  poisonText_ = lastError();
}

Status Group::leave() {
  if (depth_ == 0) {
    return fail(Code::kInvalidUsage, "ncclGroupEnd without ncclGroupStart on this thread");
  }
  --depth_;
  return kOkStatus;
}

void Group::clear() {
  if (event_ != events::Id::kNone) events::stop(event_, platform::ticks());
  event_ = events::Id::kNone;
  poisoned_ = kOkStatus;
  jobs_.clear();
  batches_.clear();
}

Status Group::end() {
  STRETTO_TRY(leave());
  if (depth_ > 0) return kOkStatus;
  Status status = poisoned_;
  if (!status.ok()) setLastError("the group was not run: " + poisonText_);
  if (status.ok()) status = runJobs();
  if (status.ok()) status = runBatches();
  clear();
  return status;
}

Status Group::simulate(double* microseconds) {
  STRETTO_TRY(leave());
  *microseconds = 0;
  if (depth_ > 0) return kOkStatus;
  Status status = poisoned_;
  if (!status.ok()) setLastError("the group cannot run: " + poisonText_);
  for (const Batch& batch : batches_) {
    const auto total = status.ok() ? predicted(batch) : Result<double>(status);
    if (!total.ok()) status = total.status();
    *microseconds = std::max(*microseconds, total.value());
  }
  clear();
  return status;
}

Result<double> Group::predicted(const Batch& batch) {
  double total = 0;
  for (const Operation& operation : batch.operations) {
    const auto plan = batch.communicator->predict(batch.communicator->requestFor(operation));
    if (!plan.ok()) return plan.status();
    total += static_cast<double>(plan.value().predictedMicroseconds);
  }
  return total;
}

Status Group::runJobs() {
  if (jobs_.empty()) return kOkStatus;
  FirstFailure failure;
  std::vector<std::jthread> threads;
  for (size_t job = 1; job < jobs_.size(); ++job) {
    threads.emplace_back([&, job] { failure.note(jobs_[job]()); });
  }
  failure.note(jobs_[0]());
  for (std::jthread& thread : threads) thread.join();
  return failure.take();
}

// Several communicators of one thread may be ranks of the same job and wait for each other, so each gets a
// thread: the first this one, the others their worker.
Status Group::runBatches() {
  FirstFailure failure;
  bool inProgress = false;
  const auto isHere = [](const Batch& batch) {
    return batch.stream == nullptr && batch.communicator->config().blocking;
  };
  std::vector<executors::host::Stream*> awaited;
  const auto here = std::find_if(batches_.begin(), batches_.end(), isHere);
  for (auto batch = batches_.begin(); batch != batches_.end(); ++batch) {
    if (batch == here) continue;
    if (!isHere(*batch)) {
      inProgress =
          batch->communicator->start(std::move(batch->operations), batch->stream).code == Code::kInProgress ||
          inProgress;
      continue;
    }
    executors::host::Stream& worker = batch->communicator->worker();
    awaited.push_back(&worker);
    worker.submit([&failure, batch] {
      failure.note(batch->communicator->start(std::move(batch->operations), nullptr));
    });
  }
  if (here != batches_.end()) failure.note(here->communicator->start(std::move(here->operations), nullptr));
  for (executors::host::Stream* worker : awaited) worker->synchronize();
  const Status status = failure.take();
  return status.ok() && inProgress ? Status{Code::kInProgress} : status;
}

}  // namespace stretto::communicator
