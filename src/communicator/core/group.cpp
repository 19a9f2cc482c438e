#include "communicator/core/group.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "communicator/core/communicator.hpp"
#include "communicator/handover/foreign.hpp"
#include "platform/clock.hpp"
#include "platform/own_thread.hpp"

namespace stretto::communicator {
namespace {

// The first failure of several threads' work, with its words.
class FirstFailure {
 public:
  void note(Status status) { noteWords({status, status.ok() ? std::string() : lastError()}); }
  void noteWords(std::pair<Status, std::string> outcome) {
    if (outcome.first.ok() || outcome.first.code == Code::kInProgress) return;
    std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = outcome.first;
    text_ = std::move(outcome.second);
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

// Where the streams of one batch meet. Each wait is bounded by the operations before it on the streams.
class Gate {
 public:
  explicit Gate(size_t streams) : missing_(streams) {}

  // On a stream that only waits: says that it has come, and goes on when the batch is done.
  void pass() {
    std::unique_lock lock(mutex_);
    --missing_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return done_; });
  }
  // On the thread that runs the batch: goes on when all streams have come.
  void enter(bool isStream) {
    std::unique_lock lock(mutex_);
    if (isStream) --missing_;
    changed_.wait(lock, [&] { return missing_ == 0; });
  }
  void open(Status status) {
    std::lock_guard lock(mutex_);
    done_ = true;
    status_ = status;
    if (!status.ok()) words_ = lastError();
    changed_.notify_all();
  }
  std::pair<Status, std::string> outcome() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return {status_, words_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t missing_;
  bool done_ = false;
  Status status_;
  std::string words_;
};

}  // namespace

Group& Group::current() {
  static thread_local Group group;
  return group;
}

void Group::begin() {
  ++depth_;
}

void Group::add(const std::shared_ptr<Communicator>& communicator, const Operation& operation,
                const std::shared_ptr<Stream>& stream) {
  const auto same = [&](const Batch& batch) { return batch.communicator == communicator; };
  auto batch = std::find_if(batches_.begin(), batches_.end(), same);
  if (batch == batches_.end()) {
    batches_.push_back({communicator, {}, false, {}});
    batch = batches_.end() - 1;
  }
  auto& streams = batch->streams;
  if (stream == nullptr) {
    batch->here = true;
  } else if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
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
  profiled_.stop();
  poisoned_ = kOkStatus;
  jobs_.clear();
  batches_.clear();
}

// Nothing of it runs.
void Group::takeBack() {
  for (const Batch& batch : batches_)
    batch.communicator->submission().journal().profile().takeBack(batch.operations);
}

Status Group::end() {
  STRETTO_TRY(leave());
  if (depth_ > 0) return kOkStatus;
  profiled_.closes();
  Status status = poisoned_;
  if (!status.ok()) setLastError("the group was not run: " + poisonText_);
  if (status.ok()) status = runJobs();
  if (status.ok()) {
    status = runBatches();
  } else {
    takeBack();
  }
  clear();
  return status;
}

Status Group::simulate(double* microseconds) {
  STRETTO_TRY(leave());
  if (microseconds != nullptr) *microseconds = 0;
  if (depth_ > 0) return kOkStatus;
  Status status = poisoned_;
  if (!status.ok()) setLastError("the group cannot run: " + poisonText_);
  if (status.ok() && microseconds != nullptr) {
    const auto total = predicted();
    status = total.status();
    *microseconds = total.value();
  }
  takeBack();
  clear();
  return status;
}

Result<double> Group::predicted() {
  const auto theirs = predictForeign();
  if (!theirs.ok()) return theirs.status();
  double longest = theirs.value();
  for (const Batch& batch : batches_) {
    if (batch.communicator->foreign() != nullptr) continue;
    const auto total = predicted(batch);
    if (!total.ok()) return total.status();
    longest = std::max(longest, total.value());
  }
  return longest;
}

Result<double> Group::predicted(const Batch& batch) {
  double total = 0;
  for (const Operation& operation : batch.operations) {
    if (operation.isOneSided()) continue;  // nobody has measured them
    const auto plan = batch.communicator->submission().predict(operation);
    if (!plan.ok()) return plan.status();
    total += static_cast<double>(plan.value().predictedMicroseconds);
  }
  return total;
}

// What belongs to communicators that NCCL serves, in one group of NCCL's.
Status Group::runForeign() {
  std::optional<ForeignGroup> group;
  Status status = kOkStatus;
  for (Batch& batch : batches_) {
    const Foreign* const theirs = batch.communicator->foreign();
    if (theirs == nullptr) continue;
    if (!group) group.emplace(theirs->library());
    if (status.ok()) status = batch.communicator->run(batch.operations, batch.communicator->queue().take());
  }
  return group ? group->end(status) : kOkStatus;
}

Result<double> Group::predictForeign() {
  std::optional<ForeignGroup> group;
  for (const Batch& batch : batches_) {
    Foreign* const theirs = batch.communicator->foreign();
    if (theirs == nullptr) continue;
    if (!group) group.emplace(theirs->library());
    STRETTO_TRY(theirs->run(batch.operations));
  }
  return group ? group->simulate() : Result<double>(0.0);
}

Status Group::runJobs() {
  if (jobs_.empty()) return kOkStatus;
  std::vector<std::vector<const Job*>> queues;
  for (const Job& job : jobs_) {
    const auto same = [&](const auto& queue) { return job.of != nullptr && queue.front()->of == job.of; };
    const auto queue = std::find_if(queues.begin(), queues.end(), same);
    queue == queues.end() ? queues.push_back({&job}) : queue->push_back(&job);
  }
  FirstFailure failure;
  std::vector<platform::OwnThread> threads;  // joined whatever happens
  const auto run = [&](const std::vector<const Job*>& queue) {
    for (const Job* const job : queue) failure.note(job->run());
  };
  for (size_t queue = 1; queue < queues.size(); ++queue) {
    threads.emplace_back([&run, &jobs = queues[queue]] {
      if (const int device = jobs.front()->device; device >= 0) (void)platform::cuda::stayOn(device);
      run(jobs);
    });
  }
  run(queues[0]);
  threads.clear();
  return failure.take();
}

// Which thread runs a batch: the stream it names, unless another rank's batch runs there already (they may be
// ranks of one job and wait for each other), else the communicator's worker.
std::shared_ptr<Group::Stream> Group::threadFor(Batch& batch, std::vector<Stream*>& taken) {
  for (const auto& stream : batch.streams) {
    if (std::find(taken.begin(), taken.end(), stream.get()) != taken.end()) continue;
    taken.push_back(stream.get());
    return stream;
  }
  return batch.communicator->queue().worker();
}

// On GPUs batches are enqueued, one after the other. In host memory every batch starts when all streams that
// it names have come to it, and they go on when it is done; one that names no stream and may block runs on
// the calling thread, if that is free.
Status Group::runBatches() {
  FirstFailure failure;
  bool inProgress = false;
  std::vector<Stream*> taken;
  std::vector<std::shared_ptr<Gate>> awaited;
  Batch* mine = nullptr;
  for (Batch& batch : batches_) {
    if (batch.communicator->foreign() != nullptr) continue;
    if (batch.communicator->self().onDevice()) {
      failure.note(batch.communicator->run(batch.operations, batch.communicator->queue().take()));
      continue;
    }
    const bool blocks = batch.here && batch.communicator->self().config().blocking;
    if (blocks && batch.streams.empty() && mine == nullptr) {
      mine = &batch;
      continue;
    }
    const std::shared_ptr<Stream> thread = threadFor(batch, taken);
    auto gate = std::make_shared<Gate>(batch.streams.size());
    for (const auto& stream : batch.streams) {
      if (stream != thread) stream->submit([gate] { gate->pass(); });
    }
    const bool runsOnNamed = std::any_of(batch.streams.begin(), batch.streams.end(),
                                         [&](const auto& stream) { return stream == thread; });
    const Profile::HandOver handOver(batch.communicator->submission().journal().profile(), batch.operations);
    thread->submit([gate, runsOnNamed, communicator = batch.communicator,
                    turn = batch.communicator->queue().take(), work = std::move(batch.operations)] {
      gate->enter(runsOnNamed);
      gate->open(communicator->run(work, turn));
    });
    if (blocks) {
      awaited.push_back(gate);
    } else {
      inProgress = inProgress || !batch.communicator->self().config().blocking;
    }
  }
  if (mine != nullptr)
    failure.note(mine->communicator->run(mine->operations, mine->communicator->queue().take()));
  failure.note(runForeign());
  for (const auto& gate : awaited) failure.noteWords(gate->outcome());
  const Status status = failure.take();
  return status.ok() && inProgress ? Status{Code::kInProgress} : status;
}

}  // namespace stretto::communicator
