// ncclGroupStart and ncclGroupEnd: what one thread calls between them runs together at the end. Groups nest;
// only the outermost end does anything. One Group per thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "communicator/core/operation.hpp"
#include "communicator/profiler/profile.hpp"
#include "executors/host/stream.hpp"

namespace stretto::communicator {

class Communicator;

class Group {
 public:
  static Group& current();

  bool open() const { return depth_ > 0; }
  int depth() const { return depth_; }
  // The group as a profiler plugin sees it.
  ProfiledGroup& profiled() { return profiled_; }
  void begin();
  // `stream` is null for "return when done".
  void add(const std::shared_ptr<Communicator>& communicator, const Operation& operation,
           const std::shared_ptr<executors::host::Stream>& stream);
  // Work that must run at the same time as other such work of this group: what ranks do together, of which
  // this thread may have several. Jobs of one communicator (null: of none yet) run in the order of the calls.
  // `device`: of its rank, negative in host memory.
  void addJob(const Communicator* of, int device, std::function<Status()> job) {
    jobs_.push_back({of, device, std::move(job)});
  }
  // A call inside the group failed: the group will not run, and end() says so again.
  void poison(Status status);

  // Runs everything, if this was the outermost level.
  Status end();
  // Forgets everything instead; `microseconds`, if not null, gets the predicted time of the group, at the
  // outermost level.
  Status simulate(double* microseconds);

 private:
  using Stream = executors::host::Stream;
  // What one communicator does, and everybody who waits for it: the streams that were named, and the caller
  // if 0 was.
  struct Batch {
    std::shared_ptr<Communicator> communicator;
    std::vector<std::shared_ptr<Stream>> streams;
    bool here = false;
    std::vector<Operation> operations;
  };

  struct Job {
    const Communicator* of;
    int device;
    std::function<Status()> run;
  };

  Result<double> predicted();
  static Result<double> predicted(const Batch& batch);
  Status runForeign();
  Result<double> predictForeign();
  Status leave();
  Status runJobs();
  Status runBatches();
  static std::shared_ptr<Stream> threadFor(Batch& batch, std::vector<Stream*>& taken);
  void takeBack();
  void clear();

  int depth_ = 0;
  ProfiledGroup profiled_;
  Status poisoned_;
  std::string poisonText_;
  std::vector<Job> jobs_;
  std::vector<Batch> batches_;
};

}  // namespace stretto::communicator
