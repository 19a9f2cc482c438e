// Keeps the operations of one communicator in the order of the calls when they name different streams:
// kernels of one rank share counters and windows, so two of them must never run at once. A communicator that
// sees one stream pays nothing for it; from the second stream on, or from the first operation on where its
// end is asked for, an event is recorded after every operation and the next one on another stream waits for
// it. Plain C++: a library built without CUDA has it too (absent.cpp).
//
// Captures are worlds of their own: work that is being captured can wait for work of the same capture only,
// so an eager operation and a captured one, or two captures, are not ordered here. Used by one thread at a
// time.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "executors/cuda/engine.hpp"

namespace stretto::executors::cuda {

class Order {
 public:
  // `marksAll`: whether an event is recorded after every operation, so that ended() can be asked.
  explicit Order(int device, bool marksAll = false) : device_(device), marksAll_(marksAll) {}
  ~Order();
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;

  // The number of the capture that the stream takes part in; 0: what is enqueued runs.
  static Result<uint64_t> captureOf(StreamHandle stream);

  // Around every operation, with the communicator's device current: what follows waits for the operation
  // before.
  Status before(StreamHandle stream, uint64_t capture);
  Status after(StreamHandle stream, uint64_t capture);

  // Whether all that was enqueued to run has ended, if every operation is marked and none was captured: how
  // often a graph runs, and until when, is not known here. Any thread, while nothing is enqueued.
  bool knowsItsEnd() const { return marksAll_ && captured_.capture == 0; }
  bool ended() const;

  // `main` goes on when all that is on `other` now is done.
  Status join(StreamHandle main, StreamHandle other);

 private:
  // The operations that run at once, or those of one capture.
  struct Line {
    uint64_t capture = 0;
    bool used = false;
    bool several = false;  // streams were seen
    StreamHandle last = nullptr;
    void* event = nullptr;  // after the last operation, once there are several streams
  };
  Line& lineOf(uint64_t capture);
  Status record(Line& line, StreamHandle stream);

  const int device_;
  const bool marksAll_;
  Line eager_;
  Line captured_;  // of the capture seen last
  void* joining_ = nullptr;
};

}  // namespace stretto::executors::cuda
