#include "net/tcp/receiver.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "net/tcp/host_memory.hpp"
#include "platform/clock.hpp"
#include "platform/socket_state.hpp"

namespace stretto::net::tcp {
namespace {

constexpr size_t kStaging = 16 << 10;
constexpr int kPullsOfOne = 8;  // in a call; then other connections have their turn
// Of each of several flows: the sender, which waits for what is confirmed, hears of it soon.
constexpr int kPullsOfEach = 2;
constexpr uint64_t kLookAtAllEvery = 16;  // calls
constexpr double kSayLostAfter = 0.2;
constexpr int kSmallUntilQuiet = 16;  // small messages in a row, after which receives are not told of

}  // namespace

TcpReceiver::TcpReceiver(const Hello& hello, std::vector<Joined>&& flows, const Settings& settings)
    : hello_(hello), silence_(settings.silence) {
  for (Joined& flow : flows) {
    flows_.push_back(std::make_unique<InFlow>(std::move(flow), silence_));
    flows_.back()->staging.resize(kStaging);
  }
}

TcpReceiver::~TcpReceiver() = default;

Result<std::unique_ptr<Registration>> TcpReceiver::enrol(std::byte*, size_t, Memory kind) {
  return enrolHostMemory(kind);
}

std::vector<FlowCounters> TcpReceiver::flows() const {
  std::vector<FlowCounters> all;
  for (const auto& flow : flows_) all.push_back(flow->count());
  return all;
}

Status TcpReceiver::failed() const {
  setLastError(failureText_);
  return failure_;
}

TcpReceiver::Expected* TcpReceiver::find(int tag, uint64_t index) {
  const auto at = std::find_if(expected_.begin(), expected_.end(),
                               [&](const Expected* one) { return one->tag == tag && one->index == index; });
  return at == expected_.end() ? nullptr : *at;
}

Status TcpReceiver::receive(const Receive* receives, int count, Request*& request) {
  request = nullptr;
  if (!failure_.ok()) return failed();
  if (count < 1 || count > kMostGrouped) {
    return fail(Code::kInvalidUsage, "%d receives in one request: 1 to %d are possible", count, kMostGrouped);
  }
  const auto free =
      std::find_if(groups_.begin(), groups_.end(), [](const auto& group) { return !group.used; });
  if (free == groups_.end()) return kOkStatus;
  Group& group = *free;
  group.used = true;
  group.count = group.open = count;
  for (int i = 0; i < count; ++i) {
    STRETTO_TRY(expect(receives[i], group, group.receives[static_cast<size_t>(i)]));
  }
  writeRecords();
  request = &group;
  return kOkStatus;
}

Status TcpReceiver::expect(const Receive& receive, Group& group, Expected& expected) {
  Tag& tag = tags_[receive.tag];
  expected.group = &group;
  expected.to = receive.to;
  expected.room = receive.bytes;
  expected.tag = receive.tag;
  expected.index = tag.there++;
  expected.begun = false;
  expected.placed = 0;
  expected_.push_back(&expected);
  if (!tag.due && (announces_ || tag.said < std::min(tag.there, tag.asked))) {
    tag.due = true;
    due_.push_back(receive.tag);
  }
  return takeAside(expected);
}

// The message may have come before its receive.
Status TcpReceiver::takeAside(Expected& expected) {
  const auto at = std::find_if(asides_.begin(), asides_.end(), [&](const Aside& one) {
    return one.frame.tag == expected.tag && one.frame.index == expected.index;
  });
  if (at == asides_.end() || !at->whole) return kOkStatus;
  const Frame frame = at->frame;
  expected.total = frame.total;
  const bool fits = frame.total <= expected.room;
  if (fits && frame.total > 0) std::memcpy(expected.to, at->bytes.data(), frame.total);
  asideBytes_ -= frame.total;
  asides_.erase(at);
  if (!fits) {
    breakOff(Code::kInvalidUsage, "sent " + std::to_string(frame.total) + " bytes for a receive of " +
                                      std::to_string(expected.room));
    return failed();
  }
  complete(expected);
  confirm(frame);
  return kOkStatus;
}

Status TcpReceiver::test(Request* request, bool& done, size_t* sizes) {
  auto& group = *static_cast<Group*>(request);
  if (group.open > 0) {
    if (!failure_.ok()) return failed();
    const Status status = progress();
    if (group.open > 0 && !status.ok()) return status;
  }
  done = group.open == 0;
  if (!done) return kOkStatus;
  group.used = false;
  for (int i = 0; i < group.count && sizes != nullptr; ++i) {
    sizes[i] = group.receives[static_cast<size_t>(i)].total;
  }
  return kOkStatus;
}

Status TcpReceiver::progress() {
  ++calls_;
  const bool all = announces_ || calls_ % kLookAtAllEvery == 0;
  bool first = true;
  for (size_t i = 0; i < flows_.size() && failure_.ok(); ++i) {
    if (!flows_[i]->open) continue;
    if (first || all) pull(i);
    if (failure_.ok()) writeRecords();
    first = false;
  }
  const uint64_t now = platform::monotonicNanoseconds();
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i]->isSilent(silence_, now)) lose(i, "nothing has come from there for too long");
  }
  if (!unsaid_.empty()) sayLost();
  const bool gone = std::none_of(flows_.begin(), flows_.end(), [](const auto& flow) { return flow->open; });
  if (gone && failure_.ok() && !expected_.empty()) {
    breakOff(Code::kRemote, ended_ ? "has closed the connection" : "is gone: " + lastLost_);
  }
  if (!failure_.ok()) return failed();
  writeRecords();
  return kOkStatus;
}

// Takes what has come over one flow: the rest of a payload straight to its place, and behind it what follows
// into the staging bytes, of which at most the beginning of a header is left over for the next call.
void TcpReceiver::pull(size_t index) {
  InFlow& flow = *flows_[index];
  const int pulls = several() ? kPullsOfEach : kPullsOfOne;
  for (int i = 0; i < pulls && flow.open; ++i) {
    const size_t payload = flow.inPayload && flow.to != nullptr ? flow.left : 0;
    const auto rest = std::span(flow.staging).subspan(flow.staged);
    const iovec pieces[2] = {{flow.to, payload}, {rest.data(), rest.size()}};
    // The plain call is a little faster, which counts for small messages.
    const Transfer got =
        payload == 0 ? receiveSome(flow.socket, rest) : receiveSome(flow.socket, std::span(pieces));
    if (got.outcome == IoOutcome::kWouldBlock) return;
    if (got.outcome != IoOutcome::kSome) return lose(index, whyEnded(got));
    const size_t placed = std::min(payload, got.bytes);
    flow.staged += got.bytes - placed;
    advance(flow, placed);
    takeStaged(index);
    if (got.bytes < payload + rest.size()) return;  // that was all
  }
}

void TcpReceiver::advance(InFlow& flow, size_t bytes) {
  if (!flow.inPayload) return;
  if (flow.to != nullptr) flow.to += bytes;
  flow.left -= static_cast<uint32_t>(bytes);
  if (flow.left == 0) endPayload(flow);
}

void TcpReceiver::takeStaged(size_t index) {
  InFlow& flow = *flows_[index];
  size_t at = 0;
  while (flow.open) {
    const uint8_t* const from = flow.staging.data() + at;
    const size_t there = flow.staged - at;
    if (flow.inPayload) {
      const size_t bytes = std::min<size_t>(there, flow.left);
      if (bytes == 0) break;
      if (flow.to != nullptr) std::memcpy(flow.to, from, bytes);
      at += bytes;
      advance(flow, bytes);
    } else {
      if (there < sizeof(Frame)) break;
      std::memcpy(&flow.frame, from, sizeof(Frame));
      at += sizeof(Frame);
      if (!onFrame(index)) return;
    }
  }
  std::memmove(flow.staging.data(), flow.staging.data() + at, flow.staged - at);
  flow.staged -= at;
}

// False if nothing more is to be taken from this flow.
bool TcpReceiver::onFrame(size_t index) {
  InFlow& flow = *flows_[index];
  const Frame& frame = flow.frame;
  if (!isGood(frame, hello_)) return breakOff(Code::kRemote, "sent bytes that are no frame");
  switch (frame.kind) {
    case FrameKind::kWhole:
    case FrameKind::kPart:
      return onMessage(index);
    case FrameKind::kAsk:
      onAsk(frame);
      return true;
    case FrameKind::kLost:
      lose(frame.offset, "the sender has lost it");
      return flow.open;
    case FrameKind::kBye:
      ended_ = true;
      flow.close();
      return false;
  }
  return false;
}

void TcpReceiver::onAsk(const Frame& frame) {
  announces_ = true;
  smallInARow_ = 0;
  Tag& tag = tags_[frame.tag];
  tag.asked = std::max(tag.asked, frame.index + 1);
  // Said again even if it was said: the word may have gone with a lost flow.
  if (tag.there > frame.index && !tag.due) {
    tag.due = true;
    due_.push_back(frame.tag);
  }
}

bool TcpReceiver::onMessage(size_t index) {
  InFlow& flow = *flows_[index];
  const Frame& frame = flow.frame;
  if (complete_.has(frame.number)) return startPayload(flow, nullptr);  // it has come by another flow
  if (!complete_.canHold(frame.number)) return breakOff(Code::kRemote, "is too far ahead");
  Expected* const expected = find(frame.tag, frame.index);
  if (expected != nullptr) return onExpected(index, *expected);
  if (frame.kind == FrameKind::kWhole) return onAside(flow);
  return breakOff(Code::kRemote, "sent a message that nobody waits for");
}

bool TcpReceiver::onExpected(size_t index, Expected& expected) {
  InFlow& flow = *flows_[index];
  const Frame& frame = flow.frame;
  if (frame.total > expected.room) {
    return breakOff(Code::kInvalidUsage, "sent " + std::to_string(frame.total) + " bytes for a receive of " +
                                             std::to_string(expected.room));
  }
  if (!expected.begun) {
    expected.begun = true;
    expected.number = frame.number;
    expected.total = frame.total;
    expected.chunks.assign(std::max<size_t>(1, (frame.total + hello_.chunk - 1) / hello_.chunk), kOpen);
  }
  if (expected.number != frame.number || expected.total != frame.total) {
    return breakOff(Code::kRemote, "sent two messages for one receive");
  }
  uint8_t& chunk = expected.chunks[frame.offset / hello_.chunk];
  if (chunk == kPlaced) return startPayload(flow, nullptr);
  if (chunk != kOpen && !supersede(chunk, frame)) return startPayload(flow, nullptr);
  chunk = static_cast<uint8_t>(index);
  flow.expected = &expected;
  return startPayload(flow, expected.to + frame.offset);
}

bool TcpReceiver::onAside(InFlow& flow) {
  const Frame& frame = flow.frame;
  const auto same = std::find_if(asides_.begin(), asides_.end(),
                                 [&](const Aside& one) { return one.frame.number == frame.number; });
  if (same != asides_.end() && same->whole) return startPayload(flow, nullptr);
  for (size_t i = 0; i < flows_.size() && same != asides_.end(); ++i) {
    if (flows_[i]->aside != &*same) continue;
    if (!supersede(i, frame)) return startPayload(flow, nullptr);
    break;
  }
  if (asides_.size() >= kMostUnconfirmedParts || asideBytes_ + frame.total > kMostUnconfirmed) {
    return breakOff(Code::kRemote, "sent more than there was room for");
  }
  asides_.push_back({frame, std::vector<std::byte>(frame.total), false});
  asideBytes_ += frame.total;
  flow.aside = &asides_.back();
  return startPayload(flow, flow.aside->bytes.data());
}

// A second copy of what `carrier` is bringing. The sender made it after it had lost the flow of the first
// one, but what was under way there may be read later: only a flow whose copy is the older one is given up.
bool TcpReceiver::supersede(size_t carrier, const Frame& frame) {
  if (flows_[carrier]->frame.losses >= frame.losses) return false;
  lose(carrier, "the sender sends what it carried over another");
  return true;
}

bool TcpReceiver::startPayload(InFlow& flow, std::byte* to) {
  flow.inPayload = true;
  flow.left = flow.frame.bytes;
  flow.to = to;
  if (flow.left == 0) endPayload(flow);
  return flow.open;
}

void TcpReceiver::endPayload(InFlow& flow) {
  flow.inPayload = false;
  const Frame& frame = flow.frame;
  flow.counters.bytes += frame.bytes;
  ++flow.counters.parts;
  if (Expected* const expected = std::exchange(flow.expected, nullptr)) {
    expected->chunks[frame.offset / hello_.chunk] = kPlaced;
    expected->placed += frame.bytes;
    if (expected->placed < expected->total) return;
    complete(*expected);
    return confirm(frame);
  }
  Aside* const aside = std::exchange(flow.aside, nullptr);
  if (aside == nullptr) return;
  aside->whole = true;
  // A copy of it has come meanwhile, straight to the receive.
  if (complete_.has(frame.number)) return forget(*aside);
  // Its receive may have come while it was on the way, and then a copy over another flow, straight to there:
  // of the two the later one stays.
  Expected* const expected = find(frame.tag, frame.index);
  if (expected == nullptr) return;
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i]->expected == expected && !supersede(i, frame)) return forget(*aside);
  }
  if (!takeAside(*expected).ok()) return;  // it has broken the connection off
}

void TcpReceiver::complete(Expected& expected) {
  --expected.group->open;
  std::erase(expected_, &expected);
}

// Large messages of several flows are confirmed at once, since their sender keeps them until then; others
// when there are some.
void TcpReceiver::confirm(const Frame& frame) {
  complete_.add(frame.number);
  const bool small = frame.kind == FrameKind::kWhole;
  smallInARow_ = small ? smallInARow_ + 1 : 0;
  announces_ = (announces_ || !small) && smallInARow_ < kSmallUntilQuiet;
  if (small && smallInARow_ % kSmallUntilQuiet == 1) confirmLazily(flows_.front()->socket);
  ++unsaidParts_;
  if (small) unsaidBytes_ += frame.total;
  confirmDue_ = confirmDue_ || (several() && !small) || unsaidParts_ >= kMostUnconfirmedParts / 4 ||
                unsaidBytes_ >= kMostUnconfirmed / 4;
}

// Over the first flow that there is. While the kernel does not take what was written before, nothing is
// added: records say how things stand, so a later one has it all.
void TcpReceiver::writeRecords() {
  if (due_.empty() && lostDue_.empty() && !confirmDue_ && !writing_) return;
  const auto flow = std::find_if(flows_.begin(), flows_.end(), [](const auto& one) { return one->open; });
  if (flow == flows_.end()) return;
  std::vector<uint8_t>& out = (*flow)->out;
  if (out.empty()) fillRecords(out);
  const iovec piece{out.data(), out.size()};
  const Transfer sent = sendSome((*flow)->socket, std::span(&piece, 1));
  if (sent.outcome == IoOutcome::kSome) {
    out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(sent.bytes));
  } else if (sent.outcome != IoOutcome::kWouldBlock) {
    out.clear();  // not the moment to close: messages may wait to be read, and reading tells of the end
  }
  writing_ = !out.empty();
}

void TcpReceiver::fillRecords(std::vector<uint8_t>& out) {
  const auto add = [&](Record record) {
    const auto bytes = bytesOf(record);
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  for (const size_t flow : lostDue_) {
    Record record;
    record.kind = RecordKind::kLost;
    record.count = flow;
    add(record);
  }
  for (const int tag : due_) {
    Tag& one = tags_[tag];
    one.due = false;
    one.said = one.there;
    Record record;
    record.kind = RecordKind::kReady;
    record.tag = tag;
    record.count = one.there;
    add(record);
  }
  if (confirmDue_) add(complete_.record());
  lostDue_.clear();
  due_.clear();
  if (confirmDue_) unsaidParts_ = unsaidBytes_ = 0;
  confirmDue_ = false;
}

void TcpReceiver::lose(size_t index, const std::string& why) {
  InFlow& flow = *flows_[index];
  if (!flow.open) return;
  flow.close();
  flow.counters.lost = !ended_;
  lastLost_ = why;
  release(flow);
  if (ended_) return;
  unsaid_ = flow.counters.route + ": " + why;
  lostAt_ = platform::monotonicNanoseconds();
  sayAllAgain();
}

// What it brought in part comes again over another flow.
void TcpReceiver::release(InFlow& flow) {
  flow.inPayload = false;
  if (Expected* const expected = std::exchange(flow.expected, nullptr)) {
    expected->chunks[flow.frame.offset / hello_.chunk] = kOpen;
  }
  if (Aside* const aside = std::exchange(flow.aside, nullptr)) forget(*aside);
}

void TcpReceiver::forget(const Aside& aside) {
  asideBytes_ -= aside.frame.total;
  asides_.remove_if([&](const Aside& one) { return &one == &aside; });
}

// The lost flow may have been the one that carries records.
void TcpReceiver::sayAllAgain() {
  confirmDue_ = true;
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (!flows_[i]->open) lostDue_.push_back(i);
  }
  for (auto& [name, tag] : tags_) {
    if (tag.said == 0 || tag.due) continue;
    tag.due = true;
    due_.push_back(name);
  }
}

// A peer that dies closes all its flows within a moment; what is said here is that some are left.
void TcpReceiver::sayLost() {
  const bool left = std::any_of(flows_.begin(), flows_.end(), [](const auto& flow) { return flow->open; });
  if (left && platform::secondsSince(lostAt_) < kSayLostAfter) return;
  if (left) {
    STRETTO_LOG(kWarn, kNet, "net/tcp: a flow is lost, the others go on with what it carried: %s",
                unsaid_.c_str());
  }
  unsaid_.clear();
}

// That a peer has said goodbye is news only to who still waits for something, and says so itself.
bool TcpReceiver::breakOff(Code code, const std::string& what) {
  failureText_ = "the peer that sends " + what + " (" + flows_.front()->counters.route + ")";
  failure_ = ended_ ? Status{code} : fail(code, "%s", failureText_.c_str());
  setLastError(failureText_);
  for (const auto& flow : flows_) {
    if (flow->open) flow->close();
  }
  return false;
}

}  // namespace stretto::net::tcp
