// Stands between who connects to it and a listener of this host, and passes bytes on until a test tells it
// not to: for connections that break or hang in mid-transfer, and for what a listener on the way could have
// kept or changed. A thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "platform/clock.hpp"
#include "platform/socket.hpp"

namespace stretto::testing {

class Relay {
 public:
  explicit Relay(const SocketAddress& target) : target_(target) {
    auto listener = listenOn(loopbackAddress());
    EXPECT_TRUE(listener.ok());
    listener_ = std::move(listener.value());
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    ending_ = true;
    thread_.join();
  }

  // Leads here, and on to the target.
  SocketAddress address() const { return boundAddress(listener_).value(); }
  size_t connections() {
    std::lock_guard lock(mutex_);
    return ways_.size();
  }
  // Connections are counted in the order in which they came.
  void cut(size_t connection) {
    std::lock_guard lock(mutex_);
    for (FileDescriptor* end : {&ways_[connection].near, &ways_[connection].far}) {
      resetOnClose(*end);
      end->reset();
    }
  }
  // Passes nothing on of any connection, or goes on.
  void hold(bool on) { held_ = on; }
  // Changes one bit of what comes next.
  void spoil() { spoils_ = true; }
  // The first bytes that who connected first has sent.
  std::vector<uint8_t> begun() {
    std::lock_guard lock(mutex_);
    return ways_.front().kept;
  }
  // The first bytes of all connections, of both directions.
  std::vector<uint8_t> heard() {
    std::lock_guard lock(mutex_);
    std::vector<uint8_t> all;
    for (const Way& way : ways_) {
      all.insert(all.end(), way.kept.begin(), way.kept.end());
      all.insert(all.end(), way.answers.begin(), way.answers.end());
    }
    return all;
  }

 private:
  struct Way {
    FileDescriptor near;
    FileDescriptor far;
    std::vector<uint8_t> toFar;
    std::vector<uint8_t> toNear;
    std::vector<uint8_t> kept;
    std::vector<uint8_t> answers;
  };
  static constexpr size_t kKept = 256 << 10;

  bool pass(const FileDescriptor& from, const FileDescriptor& to, std::vector<uint8_t>& bytes,
            std::vector<uint8_t>& kept) {
    if (bytes.empty()) {
      bytes.resize(64 << 10);
      const Transfer got = receiveSome(from, std::span<uint8_t>(bytes));
      bytes.resize(got.bytes);
      if (got.outcome == IoOutcome::kClosed) endSending(to);
      if (kept.size() < kKept) kept.insert(kept.end(), bytes.begin(), bytes.end());
      if (!bytes.empty() && spoils_.exchange(false)) bytes.back() ^= 1;
    }
    if (bytes.empty()) return false;
    const IoSpan piece{bytes.data(), bytes.size()};
    const Transfer sent = sendSome(to, std::span(&piece, 1));
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(sent.bytes));
    return sent.bytes > 0;
  }

  // Not valid if the target does not take it.
  FileDescriptor reachTarget() const {
    constexpr double kSeconds = 60;
    FileDescriptor far = beginConnect(target_);
    const uint64_t begin = platform::monotonicNanoseconds();
    while (!isConnected(far) && platform::secondsSince(begin) < kSeconds) std::this_thread::yield();
    EXPECT_TRUE(isConnected(far));
    return far;
  }

  bool step() {
    std::lock_guard lock(mutex_);
    FileDescriptor near = acceptFrom(listener_);
    if (near.valid()) ways_.push_back({std::move(near), reachTarget(), {}, {}, {}, {}});
    bool moved = false;
    for (Way& way : ways_) {
      if (held_ || !way.near.valid()) continue;
      const bool forth = pass(way.near, way.far, way.toFar, way.kept);
      moved = pass(way.far, way.near, way.toNear, way.answers) || forth || moved;
    }
    return moved;
  }
  void run() {
    while (!ending_) {
      if (!step()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  const SocketAddress target_;
  FileDescriptor listener_;
  std::mutex mutex_;
  std::vector<Way> ways_;
  std::atomic<bool> held_{false};
  std::atomic<bool> spoils_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace stretto::testing
