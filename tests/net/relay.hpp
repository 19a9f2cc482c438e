// Stands between a sender and a receiver of net/tcp and passes bytes on, until a test tells it not to: for
// flows that break or hang in mid-transfer, and for what a listener on the way could have kept. A thread of
// its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "net/drive.hpp"
#include "net/tcp/wire.hpp"
#include "platform/socket.hpp"

namespace stretto::net::testing {

class Relay {
 public:
  // Of a listener whose handle this is.
  explicit Relay(const Handle& handle) {
    EXPECT_TRUE(tcp::decode(handle, where_));
    target_ = where_.addresses.front();
    auto listener = listenOn(loopbackAddress());
    EXPECT_TRUE(listener.ok());
    listener_ = std::move(listener.value());
    where_.addresses = {boundAddress(listener_).value()};
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    ending_ = true;
    thread_.join();
  }

  // Leads here, and on to the listener.
  Handle handle() const { return tcp::encode(where_); }
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
  // The first bytes that who connected first has sent.
  std::vector<uint8_t> begun() {
    std::lock_guard lock(mutex_);
    return ways_.front().kept;
  }

 private:
  struct Way {
    FileDescriptor near;
    FileDescriptor far;
    std::vector<uint8_t> toFar;
    std::vector<uint8_t> toNear;
    std::vector<uint8_t> kept;
  };
  static constexpr size_t kKept = 1024;

  static bool pass(const FileDescriptor& from, const FileDescriptor& to, std::vector<uint8_t>& bytes,
                   std::vector<uint8_t>* kept = nullptr) {
    if (bytes.empty()) {
      bytes.resize(64 << 10);
      const Transfer got = receiveSome(from, std::span<uint8_t>(bytes));
      bytes.resize(got.bytes);
      if (got.outcome == IoOutcome::kClosed) endSending(to);
      if (kept != nullptr && kept->size() < kKept) kept->insert(kept->end(), bytes.begin(), bytes.end());
    }
    if (bytes.empty()) return false;
    const IoSpan piece{bytes.data(), bytes.size()};
    const Transfer sent = sendSome(to, std::span(&piece, 1));
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(sent.bytes));
    return sent.bytes > 0;
  }

  bool step() {
    std::lock_guard lock(mutex_);
    FileDescriptor near = acceptFrom(listener_);
    if (near.valid()) {
      FileDescriptor far = beginConnect(target_);
      EXPECT_TRUE(eventually([&] { return isConnected(far); }));
      ways_.push_back({std::move(near), std::move(far), {}, {}, {}});
    }
    bool moved = false;
    for (Way& way : ways_) {
      if (held_ || !way.near.valid()) continue;
      const bool forth = pass(way.near, way.far, way.toFar, &way.kept);
      moved = pass(way.far, way.near, way.toNear) || forth || moved;
    }
    return moved;
  }
  void run() {
    while (!ending_) {
      if (!step()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  tcp::Rendezvous where_;
  SocketAddress target_;
  FileDescriptor listener_;
  std::mutex mutex_;
  std::vector<Way> ways_;
  std::atomic<bool> held_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace stretto::net::testing
