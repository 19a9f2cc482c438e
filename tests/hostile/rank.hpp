// What one rank does in a round, and one process with all of its ranks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "board.hpp"
#include "operate.hpp"

namespace hostile {

class Rank {
 public:
  Rank(const Plan& plan, Board& board, int rank, bool device);
  void run();

 private:
  bool join();
  bool registerWindow();
  ncclResult_t joinCall();
  bool runSteps();
  bool runStep(int index);
  bool callAll(const Step& step, const std::vector<Call>& calls, int index);
  bool makeChildren(const Step& step);
  bool growChild(const Step& step);
  bool useFurther();
  ncclResult_t useOnce(const Side& side, const Call& call, const std::string& what);
  bool dropChild();
  bool flush(bool inChild);
  void untilTold();
  void finish();
  void lateCall();

  // What the plan wants this rank to do before or while it runs a step. False if it has nothing more to do.
  bool act(int step);
  bool actNow(const Event& event, size_t index);
  void actLater(const Event& event, size_t index);
  void endSteps();

  // Any result but success of a call that should have worked.
  bool failed(const char* what, ncclResult_t result, const Side& side, bool inChild);
  void afterwards();
  void recover();
  void reuseBuffers();
  void abortAll();
  void abortChildren(const std::vector<Side>& children);
  bool abortsWhileJoining();
  void destroyAll();
  void lag(int index);

  // A call into the library, seen by the conductor; with a communicator, until that is done with it.
  ncclResult_t enter(const std::string& what, ncclComm_t comm, const std::function<ncclResult_t()>& body);
  ncclResult_t settled(ncclComm_t comm, ncclResult_t result) const;

  const Plan& plan_;
  Board& board_;
  RankEntry& me_;
  const int rank_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<WindowMemory> window_;
  Side whole_, child_;
  std::vector<Side> further_;  // children of the same group
  cudaStream_t stream_ = nullptr;
  std::vector<Operation> pending_;
  std::vector<Operation> given_;  // up, whose buffers are kept until nobody can read them
  bool pendingInChild_ = false;
  bool told_ = false;
  std::atomic<bool> ended_{false};  // the communicator, by whoever acts later
  int64_t slack_ = 0;
  int64_t called_ = 0;  // when the last call began
  std::thread later_;
};

// A rank's ncclCommAbort, which is to take less than a second.
void abortOne(Board& board, int rank, ncclComm_t comm);

// All ranks of process `process`; returns when they have ended.
void runProcess(const Plan& plan, Board& board, int process, bool device);
// Makes the unique id; for a process that is no rank.
void makeId(Board& board);

}  // namespace hostile
