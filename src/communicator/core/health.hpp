// How far a rank's communicator has come in its life, and why it failed. The abort word, the state and the
// first error are here; who is told of them is ControlPlane's.
//
// Invariant: states only move on, to a graver one; the first error stays, later ones are its consequences;
// the abort word is written once. A raised abort word ends every wait of this rank.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/core/operation.hpp"
#include "observe/flight.hpp"

namespace stretto::communicator {

enum class State : uint8_t { kInitialising, kReady, kFinalised, kFailed, kRevoked, kAborted };

class Health {
 public:
  // Ends the waits of operations that do not look at the abort word themselves; called with that word.
  using EndWaits = std::function<void(uint32_t word)>;

  // `flight`: where errors are noted for other processes.
  Health(const Identity& self, ControlPlane& plane, observe::FlightRecorder& flight, EndWaits endWaits)
      : self_(self), plane_(plane), flight_(flight), endWaits_(std::move(endWaits)) {}

  State state() const { return state_.load(std::memory_order_acquire); }
  // Whether operations may run.
  bool isReady() const { return self_.isOfThisProcess() && state() == State::kReady; }
  // False if the state is a graver one already.
  bool advance(State to);
  // The same as a status, which says why not.
  Status usable() const;
  // The same for a call that finds that the communicator holds nothing any more (Turn::holds()), and so never
  // ok: a destroy lets go of it before its state says so.
  Status whyLetGo() const;
  // The first error with its text; ok if there is none.
  Status first(std::string* text = nullptr) const;

  // The word that ends all waits of this rank, as abortWord() has it; 0: none does.
  const std::atomic<uint32_t>& abortWord() const { return abort_; }
  bool isAborted() const { return abort_.load() != 0; }
  // What ends this communicator's waits for its ranks while it is made and in exchanges.
  Status whyAborted() const;
  // For a rank that has seen a peer give up. Waits until it hears the reason itself, at most half a second:
  // the reason, or ok if none has come. An abort of this rank ends the wait.
  Status reasonSoon() const;

  // The communicator has failed, and all ranks can see that; nothing is ended by it.
  void markBroken(Status why, State state, const std::string& text);
  // Ends all waits of this rank.
  void raiseAbort(Status why);
  // Ends the waits of operations only; exchanges with the others stay possible.
  void stopOperations(uint32_t word);
  // All three: the communicator has failed for this reason, which is noted for other processes as well.
  void strike(Status why, const std::string& words);

  // A loss is told without knowing what runs: the first operation that it ends, or keeps from starting, is
  // added by `words`. Returns the error's text.
  std::string nameOperation(const std::string& words);
  // Adds an operation that was refused to the words of a loss; gives `status` back.
  Status refuse(const Operation& operation, Status status);
  // What a failed operation, `what`, ends with; sets lastError() to the communicator's reason, if that is
  // known.
  Status explain(const std::string& what, Status status);

  // A rank that will not answer any more, and what befell it.
  void noteLost(int rank, const std::string& text);
  // What befell it; empty if it is not lost.
  std::string wordsOfLoss(int rank) const;
  std::vector<int> lostRanks() const;

  // What the others are told: with this rank's own error, as it may be the cause of theirs.
  std::string farewell(const char* what) const;
  // How it leaves if that is not in peace: who has failed because ranks disagree says so.
  bootstrap::Leaving leaving() const;
  // Peers that wait in kernels see no host memory: they are told as they are told of a rank that aborts.
  void notifyPeers(const char* what);

 private:
  const Identity& self_;
  ControlPlane& plane_;
  observe::FlightRecorder& flight_;
  const EndWaits endWaits_;
  std::atomic<State> state_{State::kInitialising};
  std::atomic<uint32_t> abort_{0};  // the same word as in the window's header, from before there is one
  mutable std::mutex mutex_;        // held while the rest is used
  Status first_;
  std::string text_;
  bool namesOperation_ = false;
  std::map<int, std::string> lost_;  // ranks, and what befell them
};

}  // namespace stretto::communicator
