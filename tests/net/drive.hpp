// Drives a Net as NCCL does: polls connect and accept in turns, keeps many requests under way, tests the
// oldest first. For tests/net and the benchmark of it; everything here runs in one thread, and every wait has
// a deadline.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "net/net.hpp"
#include "platform/clock.hpp"

namespace stretto::net::testing {

inline constexpr double kPatience = 60;  // seconds; the machine may be busy

// Calls `poll` until it is true. False if that takes too long.
inline bool eventually(const std::function<bool()>& poll, double seconds = kPatience) {
  const uint64_t begin = platform::monotonicNanoseconds();
  while (!poll()) {
    if (platform::secondsSince(begin) > seconds) return false;
  }
  return true;
}

struct Pair {
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Sender> sender;
  std::unique_ptr<Receiver> receiver;

  bool whole() const { return sender != nullptr && receiver != nullptr; }
};

// A connection to `listener`, by its own handle or one that leads there; not whole if there was none within
// `seconds`.
inline Pair join(Net& from, std::unique_ptr<Listener> listener, const Handle& handle,
                 double seconds = kPatience) {
  Pair pair;
  pair.listener = std::move(listener);
  auto connecting = from.connect(0, handle);
  EXPECT_TRUE(connecting.ok()) << lastError();
  if (!connecting.ok()) return pair;
  const auto poll = [&] {
    if (pair.sender == nullptr && !connecting.value()->poll(pair.sender).ok()) return true;
    if (pair.receiver == nullptr && !pair.listener->accept(pair.receiver).ok()) return true;
    return pair.whole();
  };
  EXPECT_TRUE(eventually(poll, seconds) && pair.whole()) << lastError();
  return pair;
}

inline Pair join(Net& from, Net& to) {
  auto listener = to.listen(0);
  EXPECT_TRUE(listener.ok()) << lastError();
  if (!listener.ok()) return {};
  const Handle handle = listener.value()->handle();
  return join(from, std::move(listener.value()), handle);
}

// Tests a send and its receive until both are done. False if one failed, or after too long.
inline bool bothDone(Pair& pair, Request* sending, Request* receiving) {
  bool sent = false;
  bool received = false;
  bool good = true;
  return eventually([&] {
           if (!sent) good = pair.sender->test(sending, sent).ok();
           if (good && !received) good = pair.receiver->test(receiving, received, nullptr).ok();
           return !good || (sent && received);
         }) &&
         good;
}

// The bytes of message `number`, which are like those of no other.
inline std::vector<std::byte> patternOf(size_t number, size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  uint64_t state = number * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005 + 1442695040888963407;
    pattern[i] = static_cast<std::byte>(state >> (8 * (i % 8)));
  }
  return pattern;
}

// What goes over a connection: messages in the order in which they are sent, and receives in groups.
struct Traffic {
  struct Message {
    size_t bytes = 0;
    int tag = 0;
    size_t room = 0;  // of its receive: at least `bytes`
  };
  std::vector<Message> messages;
  std::vector<std::vector<size_t>> groups;  // of messages, by number: in the order in which they are received
  size_t sends = 8;                         // under way
  size_t receives = 8;                      // groups under way
};

// Every message of its own size, one by one, each with one receive.
inline Traffic trafficOf(const std::vector<size_t>& sizes, size_t underWay = 8) {
  Traffic traffic;
  traffic.sends = traffic.receives = underWay;
  for (const size_t bytes : sizes) {
    traffic.groups.push_back({traffic.messages.size()});
    traffic.messages.push_back({bytes, 7, bytes});
  }
  return traffic;
}

// Sends and receives it all, and compares every byte. Steps are taken by `step`, if there is one, in between:
// for tests that disturb the connection.
class Exchange {
 public:
  Exchange(Pair& pair, const Traffic& traffic) : pair_(pair), traffic_(traffic) {}

  // What failed, or that nothing did. kTimeout if it takes too long.
  Status run(const std::function<void(size_t messagesReceived)>& step = {}, double seconds = kPatience) {
    const uint64_t begin = platform::monotonicNanoseconds();
    while (received_ < traffic_.groups.size() || sent_ < traffic_.messages.size()) {
      STRETTO_TRY(postReceives());
      STRETTO_TRY(postSends());
      STRETTO_TRY(testSends());
      STRETTO_TRY(testReceives());
      if (step) step(received_);
      if (platform::secondsSince(begin) > seconds) {
        return fail(Code::kTimeout, "%zu of %zu sent, %zu of %zu groups received", sent_,
                    traffic_.messages.size(), received_, traffic_.groups.size());
      }
    }
    return kOkStatus;
  }
  size_t wrong() const { return wrong_; }

 private:
  using Enrolled = std::unique_ptr<Registration>;
  struct Group {
    Request* request = nullptr;
    std::vector<std::vector<std::byte>> buffers;
    std::vector<Enrolled> enrolled;
  };
  struct Sending {
    Request* request = nullptr;
    std::vector<std::byte> bytes;
    Enrolled enrolled;
  };
  static constexpr std::byte kGuard{0xa5};
  static constexpr size_t kGuardBytes = 64;

  Status postReceives() {
    while (posted_ < traffic_.groups.size() && groups_.size() < traffic_.receives) {
      Group group;
      std::vector<Receive> receives;
      for (const size_t number : traffic_.groups[posted_]) {
        const Traffic::Message& message = traffic_.messages[number];
        group.buffers.emplace_back(message.room + kGuardBytes, kGuard);
        std::byte* const to = group.buffers.back().data();
        auto enrolled = pair_.receiver->enrol(to, message.room, Memory::kHost);
        if (!enrolled.ok()) return enrolled.status();
        receives.push_back({to, message.room, message.tag, enrolled.value().get()});
        group.enrolled.push_back(std::move(enrolled.value()));
      }
      STRETTO_TRY(pair_.receiver->receive(receives.data(), static_cast<int>(receives.size()), group.request));
      if (group.request == nullptr) return kOkStatus;
      groups_.push_back(std::move(group));
      ++posted_;
    }
    return kOkStatus;
  }

  Status postSends() {
    while (begun_ < traffic_.messages.size() && sends_.size() < traffic_.sends) {
      const Traffic::Message& message = traffic_.messages[begun_];
      Sending sending;
      sending.bytes = patternOf(begun_, message.bytes);
      STRETTO_TRY(
          pair_.sender->send(sending.bytes.data(), message.bytes, message.tag, nullptr, sending.request));
      if (sending.request == nullptr) return kOkStatus;
      sends_.push_back(std::move(sending));
      ++begun_;
    }
    return kOkStatus;
  }

  Status testSends() {
    while (!sends_.empty()) {
      bool done = false;
      STRETTO_TRY(pair_.sender->test(sends_.front().request, done));
      if (!done) return kOkStatus;
      // Its bytes are the user's again.
      std::fill(sends_.front().bytes.begin(), sends_.front().bytes.end(), std::byte{0xee});
      sends_.pop_front();
      ++sent_;
    }
    return kOkStatus;
  }

  Status testReceives() {
    while (!groups_.empty()) {
      bool done = false;
      size_t sizes[kMostGrouped] = {};
      STRETTO_TRY(pair_.receiver->test(groups_.front().request, done, sizes));
      if (!done) return kOkStatus;
      check(groups_.front(), sizes);
      groups_.pop_front();
      ++received_;
    }
    return kOkStatus;
  }

  void check(const Group& group, const size_t* sizes) {
    const std::vector<size_t>& numbers = traffic_.groups[received_];
    for (size_t i = 0; i < numbers.size(); ++i) {
      const Traffic::Message& message = traffic_.messages[numbers[i]];
      std::vector<std::byte> wanted = patternOf(numbers[i], message.bytes);
      wanted.resize(message.room + kGuardBytes, kGuard);
      if (sizes[i] == message.bytes && group.buffers[i] == wanted) continue;
      ++wrong_;
      ADD_FAILURE() << "message " << numbers[i] << " of " << message.bytes << " bytes came as " << sizes[i];
    }
  }

  Pair& pair_;
  const Traffic& traffic_;
  std::deque<Group> groups_;
  std::deque<Sending> sends_;
  size_t posted_ = 0;
  size_t begun_ = 0;
  size_t sent_ = 0;
  size_t received_ = 0;
  size_t wrong_ = 0;
};

inline size_t lostOf(const std::vector<FlowCounters>& flows) {
  size_t lost = 0;
  for (const FlowCounters& flow : flows) lost += flow.lost ? 1 : 0;
  return lost;
}

inline void expectAllArrives(Pair& pair, const Traffic& traffic) {
  ASSERT_TRUE(pair.whole());
  Exchange exchange(pair, traffic);
  EXPECT_TRUE(exchange.run().ok()) << lastError();
  EXPECT_EQ(exchange.wrong(), 0u);
}

}  // namespace stretto::net::testing
