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
#include "net/tcp/settings.hpp"
#include "net/tcp/wire.hpp"

namespace stretto::net::tcp {

// Every frame names the receive that its bytes are for, so they go straight to where they belong. Only small
// messages come before their receive is there; they are kept aside.
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
  struct InFlow : Flow {
    using Flow::Flow;
    std::vector<uint8_t> staging;
    size_t staged = 0;  // bytes of it that are not looked at yet
    Frame frame;
    bool inPayload = false;
    uint32_t left = 0;             // bytes of the payload that are still to come
    std::byte* to = nullptr;       // where the next of them goes; null: nowhere
    Expected* expected = nullptr;  // whose chunk it is
    Aside* aside = nullptr;
    std::vector<uint8_t> out;  // records that the kernel did not take yet
  };
  static constexpr uint8_t kOpen = 0xff;
  static constexpr uint8_t kPlaced = 0xfe;

  bool several() const { return flows_.size() > 1; }
  Status failed() const;
  Status progress();

  Expected* find(int tag, uint64_t index);
  Status expect(const Receive& receive, Group& group, Expected& expected);
  Status takeAside(Expected& expected);

  void pull(size_t index);
  void advance(InFlow& flow, size_t bytes);
  void takeStaged(size_t index);
  bool onFrame(size_t index);
  bool supersede(size_t carrier, const Frame& frame);
  bool startPayload(InFlow& flow, std::byte* to);
  bool onMessage(size_t index);
  bool onExpected(size_t index, Expected& expected);
  bool onAside(InFlow& flow);
  void onAsk(const Frame& frame);
  void endPayload(InFlow& flow);
  void complete(Expected& expected);
  void confirm(const Frame& frame);

  void writeRecords();
  void fillRecords(std::vector<uint8_t>& out);
  void lose(size_t index, const std::string& why);
  void release(InFlow& flow);
  void forget(const Aside& aside);
  void sayAllAgain();
  void sayLost();
  bool breakOff(Code code, const std::string& what);

  const Hello hello_;
  const double silence_;
  std::vector<std::unique_ptr<InFlow>> flows_;
  std::array<Group, kMostRequests> groups_;
  std::vector<Expected*> expected_;  // not complete, oldest first
  std::list<Aside> asides_;
  size_t asideBytes_ = 0;
  std::unordered_map<int, Tag> tags_;
  std::vector<int> due_;    // tags with something to be said
  bool announces_ = false;  // every receive is told of, since large messages come
  int smallInARow_ = 0;
  CompleteSet complete_;
  size_t unsaidParts_ = 0;  // complete, and the sender does not know
  size_t unsaidBytes_ = 0;
  bool confirmDue_ = false;
  bool writing_ = false;         // the kernel did not take all records
  std::vector<size_t> lostDue_;  // flows whose loss is to be said
  uint64_t calls_ = 0;
  bool ended_ = false;  // the sender said goodbye
  std::string lastLost_;
  std::string unsaid_;
  uint64_t lostAt_ = 0;
  Status failure_;
  std::string failureText_;
};

}  // namespace stretto::net::tcp
