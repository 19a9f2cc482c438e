// What net_driver measures: things that move messages between this process and another. Each move is taken in
// steps that do not wait, so that both directions can be under way at once in one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "net/net.hpp"
#include "platform/socket.hpp"

namespace stretto::bench {

// What ends a session: the text goes to the user.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(Status status, const char* what) {
  if (!status.ok()) throw Failure(std::string(what) + ": " + lastError());
}

using Buffers = std::vector<std::vector<std::byte>>;

// `count` messages of the size of the buffers: message i is buffers[i % buffers.size()], and so many are
// under way.
class Move {
 public:
  virtual ~Move() = default;
  // True when all are there or, of a move that sends, when the buffers are free.
  virtual bool step() = 0;
};

// One end of something that moves messages both ways.
class End {
 public:
  virtual ~End() = default;
  virtual std::unique_ptr<Move> sending(Buffers& buffers, size_t count) = 0;
  virtual std::unique_ptr<Move> receiving(Buffers& buffers, size_t count) = 0;
  // Of what it sends by; empty where nobody counts.
  virtual std::vector<net::FlowCounters> flows() const { return {}; }
};

// Over the net that carries the bytes of communicators: a connection each way.
class NetEnd final : public End {
 public:
  NetEnd(std::unique_ptr<net::Sender> sender, std::unique_ptr<net::Receiver> receiver)
      : sender_(std::move(sender)), receiver_(std::move(receiver)) {}

  std::unique_ptr<Move> sending(Buffers& buffers, size_t count) override {
    return std::make_unique<Sending>(*sender_, buffers, count);
  }
  std::unique_ptr<Move> receiving(Buffers& buffers, size_t count) override {
    return std::make_unique<Receiving>(*receiver_, buffers, count);
  }
  std::vector<net::FlowCounters> flows() const override { return sender_->flows(); }

 private:
  // Begins messages while there are buffers, and tests the oldest.
  template <typename Side>
  class Requests : public Move {
   public:
    Requests(Side& side, Buffers& buffers, size_t count) : side_(side), buffers_(buffers), count_(count) {
      for (std::vector<std::byte>& bytes : buffers) {
        auto enrolled = side.enrol(bytes.data(), bytes.size(), net::Memory::kHost);
        check(enrolled.status(), "enrol");
        memory_.push_back(std::move(enrolled.value()));
      }
    }
    bool step() override {
      while (begun_ < count_ && under_.size() < buffers_.size()) {
        const size_t which = begun_ % buffers_.size();
        net::Request* const request = begin(buffers_[which], memory_[which].get());
        if (request == nullptr) break;
        under_.push_back(request);
        ++begun_;
      }
      for (bool done = true; done && !under_.empty();) {
        done = isDone(under_.front());
        if (done) under_.pop_front();
      }
      return begun_ == count_ && under_.empty();
    }

   protected:
    virtual net::Request* begin(std::vector<std::byte>& bytes, net::Registration* memory) = 0;
    virtual bool isDone(net::Request* request) = 0;
    Side& side_;

   private:
    Buffers& buffers_;
    const size_t count_;
    size_t begun_ = 0;
    std::deque<net::Request*> under_;
    std::vector<std::unique_ptr<net::Registration>> memory_;
  };

  class Sending final : public Requests<net::Sender> {
    using Requests::Requests;
    net::Request* begin(std::vector<std::byte>& bytes, net::Registration* memory) override {
      net::Request* request = nullptr;
      check(side_.send(bytes.data(), bytes.size(), 0, memory, request), "send");
      return request;
    }
    bool isDone(net::Request* request) override {
      bool done = false;
      check(side_.test(request, done), "send");
      return done;
    }
  };
  class Receiving final : public Requests<net::Receiver> {
    using Requests::Requests;
    net::Request* begin(std::vector<std::byte>& bytes, net::Registration* memory) override {
      const net::Receive receive{bytes.data(), bytes.size(), 0, memory};
      net::Request* request = nullptr;
      check(side_.receive(&receive, 1, request), "receive");
      return request;
    }
    bool isDone(net::Request* request) override {
      bool done = false;
      check(side_.test(request, done, nullptr), "receive");
      return done;
    }
  };

  std::unique_ptr<net::Sender> sender_;
  std::unique_ptr<net::Receiver> receiver_;
};

// Sockets without anything, the floor: chunk k of the stream goes over socket k mod n, and each socket goes
// on as it can, in the thread that takes the steps or in one of its own.
class PlainEnd final : public End {
 public:
  PlainEnd(std::vector<FileDescriptor> sockets, bool hasThreads)
      : sockets_(std::move(sockets)), hasThreads_(hasThreads) {}

  std::unique_ptr<Move> sending(Buffers& buffers, size_t count) override {
    return moving(buffers, count, [](const FileDescriptor& socket, std::byte* at, size_t bytes) {
      const IoSpan piece{at, bytes};
      return sendSome(socket, std::span(&piece, 1));
    });
  }
  std::unique_ptr<Move> receiving(Buffers& buffers, size_t count) override {
    return moving(buffers, count, [](const FileDescriptor& socket, std::byte* at, size_t bytes) {
      return receiveSome(socket, std::span(reinterpret_cast<uint8_t*>(at), bytes));
    });
  }

 private:
  static constexpr size_t kChunk = 512 << 10;

  template <typename Copy>
  class Chunks final : public Move {
   public:
    Chunks(const PlainEnd& end, Buffers& buffers, size_t count, Copy copy)
        : sockets_(end.sockets_), buffers_(buffers), copy_(copy) {
      perMessage_ = (buffers.front().size() + kChunk - 1) / kChunk;
      total_ = count * perMessage_;
      left_ = total_;
      for (size_t i = 0; i < sockets_.size(); ++i) cursors_.push_back({i, 0});
      for (size_t i = 0; end.hasThreads_ && i < sockets_.size(); ++i) {
        threads_.emplace_back([this, i] { moveAll(i); });
      }
    }
    ~Chunks() override {
      ends_ = true;
      for (std::thread& thread : threads_) thread.join();
    }
    bool step() override {
      for (size_t i = 0; threads_.empty() && i < sockets_.size(); ++i) advance(i);
      if (failed_) throw Failure("a plain socket has failed, or its other end has");
      return left_ == 0;
    }

   private:
    struct alignas(64) Cursor {
      size_t chunk;
      size_t moved;
    };
    void moveAll(size_t i) {
      while (!ends_ && !failed_ && cursors_[i].chunk < total_) advance(i);
    }
    void advance(size_t i) {
      Cursor& cursor = cursors_[i];
      if (cursor.chunk >= total_) return;
      std::vector<std::byte>& buffer = buffers_[cursor.chunk / perMessage_ % buffers_.size()];
      const size_t offset = cursor.chunk % perMessage_ * kChunk;
      const size_t size = std::min(kChunk, buffer.size() - offset);
      const Transfer got = copy_(sockets_[i], buffer.data() + offset + cursor.moved, size - cursor.moved);
      if (got.outcome == IoOutcome::kWouldBlock) return;
      failed_ = failed_ || got.outcome != IoOutcome::kSome;
      cursor.moved += got.bytes;
      if (cursor.moved < size) return;
      cursor = {cursor.chunk + sockets_.size(), 0};
      --left_;
    }

    const std::vector<FileDescriptor>& sockets_;
    Buffers& buffers_;
    Copy copy_;
    size_t perMessage_ = 0;
    size_t total_ = 0;
    std::atomic<size_t> left_{0};
    std::vector<Cursor> cursors_;
    std::atomic<bool> failed_{false};
    std::atomic<bool> ends_{false};
    std::vector<std::thread> threads_;
  };

  template <typename Copy>
  std::unique_ptr<Move> moving(Buffers& buffers, size_t count, Copy copy) {
    return std::make_unique<Chunks<Copy>>(*this, buffers, count, copy);
  }

  const std::vector<FileDescriptor> sockets_;
  const bool hasThreads_;
};

}  // namespace stretto::bench
