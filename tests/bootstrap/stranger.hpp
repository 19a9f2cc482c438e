// A client that need not behave: raw bytes to a Service, and the handshake by hand. For tests/bootstrap only.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/ranks.hpp"
#include "bootstrap/unique_id.hpp"
#include "bootstrap/wire.hpp"
#include "platform/connected_pair.hpp"
#include "platform/socket.hpp"

namespace stretto::bootstrap::testing {

class Stranger {
 public:
  explicit Stranger(const UniqueId& id)
      : where_(decodeId(id).value()), socket_(beginConnect(where_.address)) {
    EXPECT_TRUE(socket_.valid());
    EXPECT_TRUE(stretto::testing::waitUntilReady(socket_, Poller::For::kWriting));
    EXPECT_EQ(connectError(socket_), 0);
  }

  const Rendezvous& where() const { return where_; }
  void reset() {
    resetOnClose(socket_);
    socket_.reset();
  }

  // False when the other end is gone.
  bool send(std::span<const uint8_t> bytes) {
    const IoSpan piece{const_cast<uint8_t*>(bytes.data()), bytes.size()};
    return sendSome(socket_, std::span(&piece, 1)).outcome == IoOutcome::kSome;
  }
  bool send(const SharedBytes& frame) { return send(std::span(*frame)); }

  // The next frame within `seconds`; nothing when the connection ended or nothing came.
  struct Frame {
    FrameType type;
    Bytes payload;
  };
  std::optional<Frame> receive(double seconds = 5) {
    const auto start = std::chrono::steady_clock::now();
    while (frames_.empty() && !ended_ && secondsSince(start) < seconds) pull(20);
    if (frames_.empty()) return std::nullopt;
    Frame frame = std::move(frames_.front());
    frames_.erase(frames_.begin());
    return frame;
  }
  // Whether the other end closes within `seconds`.
  bool isDropped(double seconds = 5) {
    const auto start = std::chrono::steady_clock::now();
    while (!ended_ && secondsSince(start) < seconds) pull(20);
    return ended_;
  }

  // The handshake up to the join, which it returns for the caller to send or spoil.
  static constexpr uint64_t kProcess = 77;
  static constexpr uint32_t kPid = 4242;
  SharedBytes greet(int rank, int ranks, uint64_t process = kProcess, const std::string& version = "") {
    const Nonce mine{9, 9, 9};
    send(encode(Hello{kWireVersion, where_.session, mine}));
    const std::optional<Frame> answer = receive();
    Challenge challenge;
    if (!answer || answer->type != FrameType::kChallenge || !decode(answer->payload, challenge))
      return nullptr;
    MemberInfo who;
    who.rank = rank;
    who.pid = kPid;
    who.host = "elsewhere";
    who.process = process;
    who.version = version;
    return encodeJoin(where_.secret, where_.session, challenge.nonce, mine, static_cast<uint32_t>(ranks),
                      who);
  }
  // Joins; whether it is that rank now.
  bool isAdmitted(int rank, int ranks, const std::string& version = "") {
    const SharedBytes join = greet(rank, ranks, kProcess, version);
    if (join == nullptr || !send(join)) return false;
    const std::optional<Frame> answer = receive();
    return answer && answer->type == FrameType::kWelcome;
  }

 private:
  void pull(int milliseconds) {
    if (!stretto::testing::waitReadable(socket_, milliseconds)) return;
    uint8_t bytes[4096];
    const Transfer got = receiveSome(socket_, bytes);
    if (got.outcome == IoOutcome::kWouldBlock) return;
    if (got.outcome != IoOutcome::kSome) {
      ended_ = true;
      return;
    }
    splitter_.feed(
        std::span<const uint8_t>(bytes, got.bytes), [](FrameType type) { return longestPayload(type); },
        [this](FrameType type, std::span<const uint8_t> payload) {
          frames_.push_back({type, Bytes(payload.begin(), payload.end())});
          return true;
        });
  }

  Rendezvous where_;
  FileDescriptor socket_;
  FrameSplitter splitter_;
  std::vector<Frame> frames_;
  bool ended_ = false;
};

}  // namespace stretto::bootstrap::testing
