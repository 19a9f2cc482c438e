#include "executors/host/stream.hpp"

#include <exception>
#include <unordered_map>
#include <utility>

namespace stretto::executors::host {
namespace {

// Never destroyed: user threads may outlive static objects.
struct Streams {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<Stream>> alive;
};
Streams& streams() {
  static auto* all = new Streams;
  return *all;
}
// Call with the mutex held. In a forked child the parent's streams are not found: their threads are not here.
auto find(Streams& all, const void* handle) {
  const auto found = all.alive.find(handle);
  return found != all.alive.end() && found->second->isHere() ? found : all.alive.end();
}

}  // namespace

Stream::Stream(StreamWatch* watch, std::function<void()> begins)
    : watch_(watch), thread_([this, begins = std::move(begins)] {
        if (begins) begins();
        loop();
      }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::submit(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !running_; });
}

bool Stream::idle() const {
  std::lock_guard lock(mutex_);
  return queue_.empty() && !running_;
}

// Whoever watches is called without the lock: it may take its time.
void Stream::rest(std::unique_lock<std::mutex>& lock) {
  const auto due = [&] { return !queue_.empty() || ending_; };
  if (due()) return;
  const bool watched = watch_ != nullptr && watch_->wanted();
  if (watched) {
    lock.unlock();
    watch_->rests();
    lock.lock();
  }
  changed_.wait(lock, due);
  if (!watched) return;
  lock.unlock();
  watch_->wakes();
  lock.lock();
}

void Stream::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    rest(lock);
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    try {
      if (watch_ != nullptr && watch_->wanted()) watch_->takes();
      work();
    } catch (const std::exception& error) {
      (void)fail(Code::kInternal, "a host stream's work ended by an exception: %s", error.what());
    }
    work = nullptr;  // what it held goes without the lock
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

Stream* makeStream() {
  auto stream = std::make_shared<Stream>();
  Streams& all = streams();
  std::lock_guard lock(all.mutex);
  all.alive.emplace(stream.get(), stream);
  return stream.get();
}

std::shared_ptr<Stream> findStream(const void* handle) {
  Streams& all = streams();
  std::lock_guard lock(all.mutex);
  const auto found = find(all, handle);
  return found == all.alive.end() ? nullptr : found->second;
}

bool destroyStream(const void* handle) {
  std::shared_ptr<Stream> last;
  Streams& all = streams();
  std::lock_guard lock(all.mutex);
  const auto found = find(all, handle);
  if (found == all.alive.end()) return false;
  last = found->second;
  all.alive.erase(found);
  return true;
}

}  // namespace stretto::executors::host
