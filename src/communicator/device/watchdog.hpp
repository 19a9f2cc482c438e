// Looks after what a rank has launched on its GPU, until it has ended: what kernels report, who will never
// come to what they wait for, and what the ranks disagree about becomes the communicator's error, and is
// said to the others. It owns the rank's device side.
//
// Invariant: the device side is set and let go of under one lock, which who looks at it from another thread
// holds; a launch stays in the log until it is seen to be done.
//
// Threads: any, but for note() and side(), which are for the thread whose turn it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.hpp"
#include "communicator/core/connect.hpp"
#include "communicator/core/control_plane.hpp"
#include "communicator/core/health.hpp"
#include "communicator/core/identity.hpp"
#include "communicator/device/launch_log.hpp"
#include "communicator/device/side.hpp"
#include "observe/flight.hpp"

namespace stretto::communicator {

class LaunchWatchdog {
 public:
  LaunchWatchdog(const Identity& self, ControlPlane& plane, Health& health, observe::FlightRecorder& flight,
                 const Connections& connections)
      : self_(self), plane_(plane), health_(health), flight_(flight), connections_(connections) {}

  void adopt(std::unique_ptr<DeviceSide> side);
  // Nothing is looked after any more. A communicator that was destroyed stays for those who call it late, so
  // the log's memory goes here.
  std::unique_ptr<DeviceSide> letGo();
  // Null before the rank has a device side, and after.
  DeviceSide* side() const { return side_.get(); }

  // Whether there is one, for any thread.
  bool isThere();

  // Ends the waits of its kernels.
  void abort(uint32_t word);
  // On the bootstrap's thread: a peer needs this rank's device window, which may not have a place yet, or
  // calls nothing any more.
  void nudged();

  // What was launched, and is to be looked after.
  void note(LaunchLog::Entry entry);
  // Messages were captured, and nobody knows how often they will run.
  void loseCount();
  // Kernels were launched that read peers' registered windows.
  void notePeerReads() { readsPeers_.store(true); }

  // What kernels have reported, or will never come to, becomes the communicator's error. Not ok: peers failed
  // while kernels read their windows.
  Status look();
  // The same on the device's thread (device/watch.hpp), for users who wait for a stream. False when there is
  // nothing to look after any more.
  bool watch();
  // What kernels have reported is this communicator's error; true if it became that now.
  bool noteReport();
  // Before this rank leaves: waits until its launches are done, and peers have what they need of it. Bounded.
  // False if launches still run.
  bool finish();

 private:
  // A rank that will not do its part in what this one waits in, `mine`; -1: there is none.
  struct Absence {
    int gone = -1;
    CallRecord mine{};
  };
  Absence reap(bool all);
  Absence absence(uint64_t sequence) const;
  uint64_t gone() const;
  bool noteAbsence(const Absence& absence);
  Status verifyReads() const;
  bool noteDisagreement();
  bool noteBrokenLink();
  bool reportWaits(uint32_t launch, WaitingLaunch& what);
  void warnOfLateLaunch();
  std::string lateCallInWords(const LateLaunch::Found& late);

  const Identity& self_;
  ControlPlane& plane_;
  Health& health_;
  observe::FlightRecorder& flight_;
  const Connections& connections_;
  std::mutex sideMutex_;
  std::unique_ptr<DeviceSide> side_;
  std::atomic<DeviceSide*> abortable_{nullptr};  // side_, for whoever ends its waits
  std::atomic<bool> nudged_{false};
  std::mutex logMutex_;
  LaunchLog log_;                          // of what was not seen to be done, by logMutex_, and so is this:
  uint64_t lookedTicks_ = 0;               // when it was last looked at
  std::atomic<bool> somebodyLeft_{false};  // so that somebody must look after launches
  std::atomic<bool> readsPeers_{false};
};

}  // namespace stretto::communicator
