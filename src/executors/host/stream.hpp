// A host stream: a thread that runs what it is given, in order. Behind strettoStreamCreate, and behind every
// communicator that must work while its caller does not (non-blocking ones, groups of several).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/status.hpp"
#include "platform/own_thread.hpp"

namespace stretto::executors::host {

// Told what a stream's thread does besides work, on that thread. Outlives the stream.
class StreamWatch {
 public:
  virtual bool wanted() const = 0;  // whether to call the others now
  virtual void rests() = 0;         // there is no work; it goes to sleep
  virtual void wakes() = 0;         // follows every rests()
  virtual void takes() = 0;         // one piece of work, which comes next

 protected:
  ~StreamWatch() = default;
};

// Any thread may call any function, except that the destructor is last and not on the stream's own thread.
class Stream {
 public:
  // `watch` may be null. `begins`, if there is any, is what the thread does first.
  explicit Stream(StreamWatch* watch = nullptr, std::function<void()> begins = {});
  // Finishes what was submitted.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void submit(std::function<void()> work);
  // Waits until all that was submitted before has run. The work itself is bounded by its own deadlines.
  void synchronize();
  bool idle() const;
  // False in a forked child of the process that made it: it can neither be waited for nor destroyed there.
  bool isHere() const { return thread_.isHere(); }

 private:
  void loop();
  void rest(std::unique_lock<std::mutex>& lock);

  StreamWatch* const watch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool running_ = false;
  bool ending_ = false;
  platform::OwnThread thread_;
};

// Handles that users hold. find() gives null for one that is not alive.
Stream* makeStream();
std::shared_ptr<Stream> findStream(const void* handle);
// Waits for the stream's work. False if there is no such stream.
bool destroyStream(const void* handle);

}  // namespace stretto::executors::host
