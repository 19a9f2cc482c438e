// The end of a connection that sends. For net/tcp only.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/net.hpp"
#include "net/tcp/flow.hpp"
#include "net/tcp/helpers.hpp"
#include "net/tcp/settings.hpp"
#include "net/tcp/wire.hpp"

namespace stretto::net::tcp {

// Messages wait in a queue. Whichever flow has room takes the next frame: a small message, or the next chunks
// of a large one whose receive is known to be there. A small message is done when the kernel has it, and so
// is a large one with one flow. With several, small messages are also copied, and larger ones are done when
// the receiver has confirmed them, so that whatever a lost flow carried can be sent again over another.
// Between the two (Hello::copied and Hello::small) a message that is alone goes at once, and is not copied.
//
// Where there are helper threads, they send the chunks of large messages, and the first flow is kept free of
// chunks: small messages and the receiver's records need not wait behind them. A helper reads the records.
class TcpSender final : public Sender {
 public:
  TcpSender(const Hello& hello, std::vector<Joined>&& flows, const Settings& settings);
  ~TcpSender() override;

  Result<std::unique_ptr<Registration>> enrol(std::byte* at, size_t bytes, Memory kind) override;
  Status send(const std::byte* from, size_t bytes, int tag, Registration*, Request*& request) override {
    return sendGathered({{}, {from, bytes}}, tag, request);
  }
  Status sendGathered(const Gathered& message, int tag, Request*& request) override;
  Status test(Request* request, bool& done) override;
  std::vector<FlowCounters> flows() const override;

 private:
  struct Message final : Request {
    bool used = false;
    bool done = false;
    Gathered from;
    Frame frame;                    // of the whole; its chunks' frames differ in kind, offset and bytes
    uint32_t given = 0;             // bytes that were given to flows
    uint32_t taken = 0;             // bytes that the kernel has
    bool asked = false;             // the receiver knows that it waits
    bool isWhole = false;           // it went at once
    std::vector<uint8_t> carriers;  // the flow of each chunk, if there are several flows
  };
  // A small message that the receiver has not confirmed.
  struct Unconfirmed {
    bool used = false;
    Frame frame;
    Message* message = nullptr;    // until it is done
    Gathered from;                 // the message's, or `bytes`
    std::vector<std::byte> bytes;  // a copy, if there are several flows
    int carrier = -1;
  };
  struct Tag {
    uint64_t sent = 0;   // messages
    uint64_t ready = 0;  // receives that are there
  };
  // What a flow is to send next, or sends.
  struct Job {
    Frame frame;
    Gathered from;                       // the whole message
    Message* message = nullptr;          // of a chunk
    Unconfirmed* unconfirmed = nullptr;  // of a small message

    // Whether its bytes are the user's, who has them back when the message is done.
    bool isUsers() const {
      return message != nullptr || (unconfirmed != nullptr && unconfirmed->message != nullptr);
    }
  };
  struct Pieces {
    std::array<IoSpan, 3> all;
    size_t count = 0;

    std::span<const IoSpan> used() const { return std::span(all).first(count); }
  };
  struct OutFlow : Flow {
    using Flow::Flow;
    bool busy = false;
    bool stalled = false;  // the kernel took no more of `job`, and that is counted
    Job job;
    size_t sent = 0;  // bytes of frame and payload
    std::array<uint8_t, 32 * sizeof(Record)> in;
    size_t filled = 0;
    size_t window = 0;
    uint64_t measured = 0;  // when the window was

    size_t wholeBytes() const { return sizeof(Frame) + job.frame.bytes; }
    Pieces unsent();
  };

  bool several() const { return flows_.size() > 1; }
  bool goesAtOnce(const Message& message);
  bool isDoneWhenSent(const Frame& frame) const { return !several() || frame.total <= hello_.copied; }
  Status progress();

  void orderFlows();
  bool nextJob(size_t index, Job& job);
  bool takesSmall(size_t index) const;
  void markDone(Message& message);
  bool smallJob(Message& message, Job& job);
  void chunkJob(Message& message, Job& job);
  bool askJob(Message& message, Job& job);
  bool pass(size_t index);
  void begin(size_t index, Job&& job);
  bool isKeptFree(size_t index) const;
  bool lend(size_t index);
  bool takeHome(size_t index);
  bool pump(size_t index);
  bool onSent(size_t index, const Transfer& sent);
  void finish(OutFlow& flow);
  void finishSmall(Unconfirmed& small);
  void confirm(Unconfirmed& small);
  bool hasRoom(OutFlow& flow);
  Unconfirmed* freeUnconfirmed(size_t bytes);

  void readRecords(size_t index);
  void onRead(size_t index, const Transfer& got);
  bool apply(const Record& record);
  bool applyComplete(const Record& record);
  bool isBeingSent(const Message& message) const;

  void lose(size_t index, const std::string& why);
  void sendAgain(size_t lost);
  void drain();
  void breakOff(const char* what);

  const Hello hello_;
  const Settings settings_;
  const ConnectionHelpers helpers_;
  std::vector<std::unique_ptr<OutFlow>> flows_;
  std::vector<uint8_t> order_;  // in which they are given frames: numbers of flows
  std::array<Message, kMostRequests> messages_;
  int unfinished_ = 0;          // of them
  std::deque<Message*> queue_;  // not given to flows, or not all of it
  std::deque<Job> again_;       // what lost flows carried
  std::deque<Frame> controls_;
  struct {
    std::array<Unconfirmed, kMostUnconfirmedParts> all;
    size_t bytes = 0;
    size_t next = 0;
  } unconfirmed_;
  uint64_t number_ = 0;
  uint8_t losses_ = 0;
  std::unordered_map<int, Tag> tags_;
  CompleteSet complete_;
  uint64_t calls_ = 0;  // of progress()
  LossNotice loss_;
  ConnectionFailure failure_;
};

}  // namespace stretto::net::tcp
