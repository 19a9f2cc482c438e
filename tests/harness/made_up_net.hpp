// A net inside this process, for tests of what uses one: messages wait in the receiver's queue until a
// receive is posted for them. What is sent is read as late as may be. It can be told to break, to be late,
// and to refuse.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "links/net/rings.hpp"
#include "net/net.hpp"

namespace stretto::testing {

class MadeUpNet final : public net::Net {
 public:
  // What happens to connections; may change at any time.
  struct Faults {
    std::atomic<int> polls{0};        // looks at a request before it may be done
    std::atomic<int> slow{0};         // and more looks at what is sent to the first that listens
    std::atomic<int64_t> breaks{-1};  // messages until every connection breaks; -1: never
    std::atomic<int64_t> cuts{-1};    // chunks until one arrives short of half its bytes; -1: never
    std::atomic<bool> deaf{false};    // nobody listens
    std::atomic<bool> closed{false};  // who listens cannot accept
    std::atomic<int> lingers{0};      // milliseconds that the end of a sender takes,
    std::atomic<int> travels{0};      // a message from one end to the other,
    std::atomic<int> pauses{0};       // and who sends does nothing when one has left
  };
  Faults faults;
  std::atomic<int> mostLingering{0};  // senders that ended at the same time
  int listeners() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(open_.size());
  }

  const char* name() const override { return "made up"; }
  int devices() const override { return 1; }
  Result<net::Properties> properties(int) const override {
    net::Properties properties;
    properties.name = "made up";
    properties.gathers = true;
    properties.tellsEnd = true;
    return properties;
  }
  Result<std::unique_ptr<net::Listener>> listen(int) override {
    if (faults.deaf) return fail(Code::kSystem, "the made up net is deaf");
    const std::lock_guard lock(mutex_);
    const uint64_t number = ++listeners_;
    auto calls = std::make_shared<Calls>(number == 1);
    open_[number] = calls;
    return std::unique_ptr<net::Listener>(std::make_unique<Listening>(*this, number, std::move(calls)));
  }
  Result<std::unique_ptr<net::Connecting>> connect(int, const net::Handle& handle) override {
    uint64_t number = 0;
    std::memcpy(&number, handle.data(), sizeof number);
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(number);
    if (found == open_.end()) return fail(Code::kRemote, "nobody listens there");
    return std::unique_ptr<net::Connecting>(std::make_unique<Calling>(*this, found->second));
  }

 private:
  static constexpr size_t kMostQueued = 5;

  using Clock = std::chrono::steady_clock;
  struct Message {
    std::vector<std::byte> bytes;
    Clock::time_point there;
  };
  struct Pipe {
    std::mutex mutex;
    std::deque<Message> messages;
    bool closed = false;
    bool ofFirst = false;
  };
  struct Calls {
    explicit Calls(bool first) : ofFirst(first) {}
    const bool ofFirst;
    std::mutex mutex;
    std::deque<std::shared_ptr<Pipe>> waiting;
  };
  struct Request {
    std::byte* to = nullptr;
    size_t room = 0;
    int looks = 0;
    net::Gathered message{};  // of one that sends
  };
  static net::Request* given(Request* request) { return reinterpret_cast<net::Request*>(request); }
  static Request* taken(net::Request* request) { return reinterpret_cast<Request*>(request); }

  struct Memory final : net::Registration {};

  class Sending final : public net::Sender {
   public:
    Sending(MadeUpNet& net, std::shared_ptr<Pipe> pipe) : net_(net), pipe_(std::move(pipe)) {}
    ~Sending() override {
      net_.linger();
      const std::lock_guard lock(pipe_->mutex);
      pipe_->closed = true;
    }
    Result<std::unique_ptr<net::Registration>> enrol(std::byte*, size_t, net::Memory) override {
      return std::unique_ptr<net::Registration>(std::make_unique<Memory>());
    }
    Status send(const std::byte* from, size_t bytes, int tag, net::Registration*,
                net::Request*& request) override {
      return sendGathered({{}, {from, bytes}}, tag, request);
    }
    Status sendGathered(const net::Gathered& message, int, net::Request*& request) override {
      STRETTO_TRY(net_.mayGoOn());
      request = nullptr;
      if (requests_.size() >= kMostQueued) return kOkStatus;
      requests_.push_back(std::make_unique<Request>(Request{nullptr, 0, 0, message}));
      request = given(requests_.back().get());
      return kOkStatus;
    }
    Status test(net::Request* request, bool& done) override {
      STRETTO_TRY(net_.mayGoOn());
      Request& oldest = *requests_.front();
      if (taken(request) != &oldest) return fail(Code::kInternal, "the oldest request is tested first");
      std::unique_lock lock(pipe_->mutex);
      if (pipe_->closed) return fail(Code::kRemote, "the other end has gone");
      const int most = net_.faults.polls + (pipe_->ofFirst ? net_.faults.slow.load() : 0);
      done = ++oldest.looks > most && pipe_->messages.size() < kMostQueued;
      if (!done) return kOkStatus;
      std::vector<std::byte> bytes(oldest.message.head.begin(), oldest.message.head.end());
      bytes.insert(bytes.end(), oldest.message.rest.begin(), oldest.message.rest.end());
      // The hello is never cut: a connection without it is dropped, and no rank fails.
      const bool isChunk = bytes.size() > sizeof(links::net::Hello);
      if (isChunk && net_.isDue(net_.faults.cuts)) bytes.resize(bytes.size() / 2);
      const auto there = Clock::now() + std::chrono::milliseconds(net_.faults.travels);
      pipe_->messages.push_back({std::move(bytes), there});
      requests_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(net_.faults.pauses));
      return kOkStatus;
    }

   private:
    MadeUpNet& net_;
    std::shared_ptr<Pipe> pipe_;
    std::deque<std::unique_ptr<Request>> requests_;
  };

  class Receiving final : public net::Receiver {
   public:
    Receiving(MadeUpNet& net, std::shared_ptr<Pipe> pipe) : net_(net), pipe_(std::move(pipe)) {}
    ~Receiving() override {
      const std::lock_guard lock(pipe_->mutex);
      pipe_->closed = true;
    }
    Result<std::unique_ptr<net::Registration>> enrol(std::byte*, size_t, net::Memory) override {
      return std::unique_ptr<net::Registration>(std::make_unique<Memory>());
    }
    Status receive(const net::Receive* receives, int count, net::Request*& request) override {
      if (count != 1) return fail(Code::kInvalidUsage, "the made up net takes one receive at a time");
      requests_.push_back(std::make_unique<Request>(Request{receives->to, receives->bytes, 0, {}}));
      request = given(requests_.back().get());
      return kOkStatus;
    }
    Status test(net::Request* request, bool& done, size_t* sizes) override {
      STRETTO_TRY(net_.mayGoOn());
      done = false;
      Request& oldest = *requests_.front();
      if (taken(request) != &oldest) return fail(Code::kInternal, "the oldest request is tested first");
      const std::lock_guard lock(pipe_->mutex);
      if (pipe_->messages.empty()) {
        return pipe_->closed ? fail(Code::kRemote, "the other end has gone") : kOkStatus;
      }
      if (Clock::now() < pipe_->messages.front().there) return kOkStatus;
      const std::vector<std::byte>& message = pipe_->messages.front().bytes;
      if (message.size() > oldest.room) return fail(Code::kInvalidUsage, "a message that is too long");
      // The beginning lies there before it is said to be.
      std::memcpy(oldest.to, message.data(), message.size() / 2);
      if (++oldest.looks <= net_.faults.polls) return kOkStatus;
      std::memcpy(oldest.to, message.data(), message.size());
      if (sizes != nullptr) *sizes = message.size();
      pipe_->messages.pop_front();
      requests_.pop_front();
      done = true;
      return kOkStatus;
    }

   private:
    MadeUpNet& net_;
    std::shared_ptr<Pipe> pipe_;
    std::deque<std::unique_ptr<Request>> requests_;
  };

  class Listening final : public net::Listener {
   public:
    Listening(MadeUpNet& net, uint64_t number, std::shared_ptr<Calls> calls)
        : net_(net), number_(number), calls_(std::move(calls)) {
      std::memcpy(handle_.data(), &number_, sizeof number_);
    }
    ~Listening() override {
      const std::lock_guard lock(net_.mutex_);
      net_.open_.erase(number_);
    }
    const net::Handle& handle() const override { return handle_; }
    Status accept(std::unique_ptr<net::Receiver>& connection) override {
      if (net_.faults.closed) return fail(Code::kSystem, "the made up net has no descriptors");
      const std::lock_guard lock(calls_->mutex);
      if (calls_->waiting.empty()) return kOkStatus;
      connection = std::make_unique<Receiving>(net_, calls_->waiting.front());
      calls_->waiting.pop_front();
      return kOkStatus;
    }

   private:
    MadeUpNet& net_;
    const uint64_t number_;
    net::Handle handle_{};
    std::shared_ptr<Calls> calls_;
  };

  class Calling final : public net::Connecting {
   public:
    Calling(MadeUpNet& net, const std::shared_ptr<Calls>& calls) : net_(net) {
      const std::lock_guard lock(calls->mutex);
      pipe_->ofFirst = calls->ofFirst;
      calls->waiting.push_back(pipe_);
    }
    Status poll(std::unique_ptr<net::Sender>& connection) override {
      connection = std::make_unique<Sending>(net_, pipe_);
      return kOkStatus;
    }

   private:
    MadeUpNet& net_;
    std::shared_ptr<Pipe> pipe_ = std::make_shared<Pipe>();
  };

  // Counts down to a fault.
  static bool isDue(std::atomic<int64_t>& left) { return left >= 0 && --left == 0; }
  Status mayGoOn() {
    if (faults.breaks < 0) return kOkStatus;
    if (faults.breaks > 0 && --faults.breaks > 0) return kOkStatus;
    faults.breaks = 0;
    return fail(Code::kRemote, "the made up net broke");
  }

  void linger() {
    const int most = ++lingering_;
    for (int seen = mostLingering; seen < most && !mostLingering.compare_exchange_weak(seen, most);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(faults.lingers));
    --lingering_;
  }

  std::atomic<int> lingering_{0};
  std::mutex mutex_;
  uint64_t listeners_ = 0;
  std::map<uint64_t, std::shared_ptr<Calls>> open_;
};

}  // namespace stretto::testing
