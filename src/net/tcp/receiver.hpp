// The end of a connection that receives. For net/tcp only.
#pragma once

#include <array>
#include <list>
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

// Every frame names the receive that its bytes are for, so they go straight to where they belong. Only small
// messages come before their receive is there; they are kept aside.
//
// Where there are helper threads, and once large messages come, they read all flows but the first: a helper
// fills the rest of a payload and brings the header behind it. Another writes the records over the first
// flow: what is to be said meanwhile goes together.
class TcpReceiver final : public Receiver {
 public:
  TcpReceiver(const Hello& hello, std::vector<Joined>&& flows, const Settings& settings);
  ~TcpReceiver() override;

  Result<std::unique_ptr<Registration>> enrol(std::byte* at, size_t bytes, Memory kind) override;
  Status receive(const Receive* receives, int count, Request*& request) override;
  Status test(Request* request, bool& done, size_t* sizes) override;
  std::vector<FlowCounters> flows() const override;

 private:
  struct Group;
  // One receive, and the message that is for it as far as it is known.
  struct Expected {
    Group* group = nullptr;
    std::byte* to = nullptr;
    size_t room = 0;
    int tag = 0;
    uint64_t index = 0;
    bool begun = false;
    uint64_t number = 0;
    uint32_t total = 0;
    uint32_t placed = 0;
    std::vector<uint8_t> chunks;  // kOpen, kPlaced, or the flow that brings it
  };
  struct Group final : Request {
    bool used = false;
    int count = 0;
    int open = 0;  // receives that are not complete
    std::array<Expected, kMostGrouped> receives;
  };
  // A small message without a receive.
  struct Aside {
    Frame frame;
    std::vector<std::byte> bytes;
    bool whole = false;
  };
  // Receives of one tag.
  struct Tag {
    uint64_t there = 0;
    uint64_t said = 0;   // the sender knows of as many
    uint64_t asked = 0;  // the sender waits for as many
    bool due = false;    // to be said
  };
  // Where what comes next goes: to its place, and what follows into the staging bytes.
  struct Room {
    std::array<IoSpan, 2> pieces;
    size_t payload = 0;
    size_t staged = 0;
  };
  struct InFlow : Flow {
    using Flow::Flow;
    std::vector<uint8_t> staging;
    size_t staged = 0;  // bytes of it that are not looked at yet
    Frame frame;
    bool inPayload = false;
    uint32_t left = 0;             // bytes of the payload that are still to come
    std::byte* to = nullptr;       // where the next of them goes; null: nowhere
    Expected* expected = nullptr;  // whose chunks it has
    Aside* aside = nullptr;
    std::vector<uint8_t> out;  // records that the kernel did not take yet

    size_t placeable() const { return inPayload && to != nullptr ? left : 0; }
    Room room(size_t mostStaged);
  };
  static constexpr uint8_t kOpen = 0xff;
  static constexpr uint8_t kPlaced = 0xfe;

  bool several() const { return flows_.size() > 1; }
  Status progress();

  Expected* find(int tag, uint64_t index);
  Status expect(const Receive& receive, Group& group, Expected& expected);
  Status takeAside(Expected& expected);

  void pull(size_t index);
  bool onReceived(size_t index, size_t bytes);
  void lend(size_t index);
  void advance(InFlow& flow, size_t bytes);
  void takeStaged(size_t index);
  bool onFrame(size_t index);
  bool supersede(size_t carrier, const Frame& frame);
  bool startPayload(InFlow& flow, std::byte* to);
  bool onMessage(size_t index);
  bool onExpected(size_t index, Expected& expected);
  std::span<uint8_t> chunksOf(Expected& expected, const Frame& frame) const;
  bool onAside(InFlow& flow);
  void onAsk(const Frame& frame);
  void endPayload(InFlow& flow);
  void complete(Expected& expected);
  void confirm(const Frame& frame);

  void writeRecords();
  bool isBeingWritten(InFlow& flow);
  void onWritten(InFlow& flow, const Transfer& sent, size_t bytes);
  void sayWhatIsDone();
  void fillRecords(std::vector<uint8_t>& out);
  void lose(size_t index, const std::string& why);
  void release(InFlow& flow);
  void forget(const Aside& aside);
  void sayAllAgain();
  bool breakOff(Code code, const std::string& what);

  const Hello hello_;
  const double silence_;
  const ConnectionHelpers helpers_;
  std::vector<std::unique_ptr<InFlow>> flows_;
  std::array<Group, kMostRequests> groups_;
  std::vector<Expected*> expected_;  // not complete, oldest first
  std::list<Aside> asides_;
  size_t asideBytes_ = 0;
  std::unordered_map<int, Tag> tags_;
  bool announces_ = false;  // every receive is told of, since large messages come
  int smallInARow_ = 0;
  CompleteSet complete_;
  // What the sender does not know yet.
  struct {
    size_t parts = 0;  // messages that are complete
    size_t bytes = 0;  // of the small ones
  } unsaid_;
  // What is to be said.
  struct {
    std::vector<int> tags;     // with receives
    std::vector<size_t> lost;  // flows
    bool complete = false;     // which messages are
    bool writing = false;      // the kernel did not take all records

    bool any() const { return !tags.empty() || !lost.empty() || complete || writing; }
  } due_;
  uint64_t calls_ = 0;
  bool ended_ = false;  // the sender said goodbye
  std::string lastLost_;
  LossNotice loss_;
  ConnectionFailure failure_;
};

}  // namespace stretto::net::tcp
