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
// What a helper reads beyond a payload: the next header, and little of what follows, which is copied.
constexpr size_t kStagedByHelper = 2 * sizeof(Frame);
constexpr int kPullsOfOne = 8;  // in a call; then other connections have their turn
// Of each of several flows: the sender, which waits for what is confirmed, hears of it soon.
constexpr int kPullsOfEach = 2;
constexpr int kSmallUntilQuiet = 16;  // small messages in a row, after which receives are not told of

}  // namespace

TcpReceiver::TcpReceiver(const Hello& hello, std::vector<Joined>&& flows, const Settings& settings)
    : hello_(hello), silence_(settings.silence), helpers_(flows.size(), settings.threads) {
  for (Joined& flow : flows) {
    flows_.push_back(std::make_unique<InFlow>(std::move(flow), silence_));
    flows_.back()->staging.resize(kStaging);
  }
}

// The sender may still wait for the last word on what is done.
TcpReceiver::~TcpReceiver() {
  for (const auto& flow : flows_) flow->loan.wantBack();
  for (size_t i = 1; i < flows_.size(); ++i) flows_[i]->loan.recall();
  if (failure_.ok()) sayWhatIsDone();
  flows_.front()->loan.recall();
}

Result<std::unique_ptr<Registration>> TcpReceiver::enrol(std::byte*, size_t, Memory kind) {
  return enrolHostMemory(kind);
}

std::vector<FlowCounters> TcpReceiver::flows() const {
  std::vector<FlowCounters> all;
  for (const auto& flow : flows_) all.push_back(flow->count());
  return all;
}

TcpReceiver::Expected* TcpReceiver::find(int tag, uint64_t index) {
  const auto at = std::find_if(expected_.begin(), expected_.end(),
                               [&](const Expected* one) { return one->tag == tag && one->index == index; });
  return at == expected_.end() ? nullptr : *at;
}

Status TcpReceiver::receive(const Receive* receives, int count, Request*& request) {
  request = nullptr;
  if (!failure_.ok()) return failure_.again();
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
    due_.tags.push_back(receive.tag);
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
    return failure_.again();
  }
  complete(expected);
  confirm(frame);
  return kOkStatus;
}

Status TcpReceiver::test(Request* request, bool& done, size_t* sizes) {
  auto& group = *static_cast<Group*>(request);
  if (group.open > 0) {
    if (!failure_.ok()) return failure_.again();
    const Status status = progress();
    if (group.open > 0 && !status.ok()) return status;
  }
  done = group.open == 0;
  if (!done) return kOkStatus;
  if (helpers_ && failure_.ok()) expected_.empty() ? sayWhatIsDone() : writeRecords();
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
    if (first || all || flows_[i]->loan.isBack()) pull(i);
    if (failure_.ok()) writeRecords();
    first = false;
  }
  const uint64_t now = platform::monotonicNanoseconds();
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i]->isSilent(silence_, now)) lose(i, "nothing has come from there for too long");
  }
  const bool gone = std::none_of(flows_.begin(), flows_.end(), [](const auto& flow) { return flow->open; });
  loss_.sayIfDue(!gone);
  if (gone && failure_.ok() && !expected_.empty()) {
    breakOff(Code::kRemote, ended_ ? "has closed the connection" : "is gone: " + lastLost_);
  }
  if (!failure_.ok()) return failure_.again();
  writeRecords();
  return kOkStatus;
}

// The rest of a payload goes straight to its place, and what follows into the staging bytes, of which at most
// the beginning of a header is left over for the next time.
TcpReceiver::Room TcpReceiver::InFlow::room(size_t mostStaged) {
  Room all;
  all.payload = placeable();
  all.staged = std::min(mostStaged, staging.size() - staged);
  all.pieces = {IoSpan{to, all.payload}, IoSpan{staging.data() + staged, all.staged}};
  return all;
}

// Takes what has come over one flow, or what a helper has taken.
void TcpReceiver::pull(size_t index) {
  InFlow& flow = *flows_[index];
  if (index > 0 && flow.loan.isLent()) {
    if (!flow.loan.isBack()) return;
    const Loan::Outcome outcome = flow.loan.takeHome();
    const bool isEnded = outcome.last.outcome != IoOutcome::kSome;
    if (outcome.bytes > 0 && !onReceived(index, outcome.bytes)) return;
    if (isEnded) return lose(index, whyEnded(outcome.last));
    return lend(index);
  }
  const int pulls = several() ? kPullsOfEach : kPullsOfOne;
  for (int i = 0; i < pulls && flow.open; ++i) {
    const Room room = flow.room(kStaging);
    // The plain call is a little faster, which counts for small messages.
    const Transfer got = room.payload == 0 ? flow.stream.receive(std::span(flow.staging).subspan(flow.staged))
                                           : flow.stream.receive(room.pieces);
    if (got.outcome == IoOutcome::kWouldBlock) break;
    if (got.outcome != IoOutcome::kSome) return lose(index, whyEnded(got));
    if (!onReceived(index, got.bytes) || got.bytes < room.payload + room.staged) break;  // that was all
  }
  if (announces_) lend(index);
}

// So many bytes are in the places that room() gave. False if the flow is closed now.
bool TcpReceiver::onReceived(size_t index, size_t bytes) {
  InFlow& flow = *flows_[index];
  const size_t placed = std::min(flow.placeable(), bytes);
  flow.staged += bytes - placed;
  advance(flow, placed);
  takeStaged(index);
  return flow.open;
}

// Has a helper read the flow until the payload is whole or, between frames, until something comes.
void TcpReceiver::lend(size_t index) {
  InFlow& flow = *flows_[index];
  if (!helpers_ || index == 0 || !flow.open) return;
  const bool isDropped =
      flow.inPayload && flow.to == nullptr;  // a copy, which is read into the staging bytes
  const Room room = flow.room(isDropped ? kStaging : kStagedByHelper);
  helpers_.lend(flow.loan, index, Direction::kReceive, flow.stream, room.pieces,
                std::max<size_t>(room.payload, 1));
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
    due_.tags.push_back(frame.tag);
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
    expected.chunks.assign(std::max(1u, hello_.chunksOf(frame.total)), kOpen);
  }
  if (expected.number != frame.number || expected.total != frame.total) {
    return breakOff(Code::kRemote, "sent two messages for one receive");
  }
  const std::span<uint8_t> chunks = chunksOf(expected, frame);
  // What is sent again is sent chunk by chunk: of several, none is there unless this is the older copy of
  // all.
  for (const uint8_t& chunk : chunks) {
    if (chunk == kPlaced || (chunk != kOpen && !supersede(chunk, frame))) return startPayload(flow, nullptr);
  }
  std::fill(chunks.begin(), chunks.end(), static_cast<uint8_t>(index));
  flow.expected = &expected;
  return startPayload(flow, expected.to + frame.offset);
}

// Those of the message that the frame has.
std::span<uint8_t> TcpReceiver::chunksOf(Expected& expected, const Frame& frame) const {
  const size_t first = frame.offset / hello_.chunk;
  const size_t count = std::max(1u, hello_.chunksOf(frame.bytes));
  return std::span(expected.chunks).subspan(first, count);
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
    std::ranges::fill(chunksOf(*expected, frame), kPlaced);
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

// Longer messages of several flows are confirmed at once, since their sender keeps them until then; others
// when there are some.
void TcpReceiver::confirm(const Frame& frame) {
  complete_.add(frame.number);
  const bool small = frame.kind == FrameKind::kWhole;
  smallInARow_ = small ? smallInARow_ + 1 : 0;
  announces_ = (announces_ || !small) && smallInARow_ < kSmallUntilQuiet;
  if (small && smallInARow_ % kSmallUntilQuiet == 1) confirmLazily(flows_.front()->stream.socket());
  ++unsaid_.parts;
  if (small) unsaid_.bytes += frame.total;
  const bool isKept = !small || frame.total > hello_.copied;  // by the sender
  due_.complete = due_.complete || (several() && isKept) || unsaid_.parts >= kMostUnconfirmedParts / 4 ||
                  unsaid_.bytes >= kMostUnconfirmed / 4;
}

// Over the first flow that there is. While the kernel or a helper does not take what was written before,
// nothing is added: records say how things stand, so a later one has it all.
void TcpReceiver::writeRecords() {
  if (!due_.any()) return;
  const auto flow = std::find_if(flows_.begin(), flows_.end(), [](const auto& one) { return one->open; });
  if (flow == flows_.end()) return;
  if (isBeingWritten(**flow)) return;
  std::vector<uint8_t>& out = (*flow)->out;
  if (out.empty()) fillRecords(out);
  if (out.empty()) return;
  const IoSpan piece{out.data(), out.size()};
  const bool isHelpers = helpers_ && flow == flows_.begin();
  if (isHelpers &&
      helpers_.lend((*flow)->loan, 0, Direction::kSend, (*flow)->stream, std::span(&piece, 1), out.size())) {
    return;
  }
  const Transfer sent = (*flow)->stream.send(std::span(&piece, 1));
  onWritten(**flow, sent, sent.bytes);
}

// Whether a helper has the records of before still in its hands.
bool TcpReceiver::isBeingWritten(InFlow& flow) {
  if (&flow != flows_.front().get() || !flow.loan.isLent()) return false;
  if (!flow.loan.isBack()) return true;
  const Loan::Outcome outcome = flow.loan.takeHome();
  onWritten(flow, outcome.last, outcome.bytes);
  return false;
}

void TcpReceiver::onWritten(InFlow& flow, const Transfer& sent, size_t bytes) {
  flow.out.erase(flow.out.begin(), flow.out.begin() + static_cast<ptrdiff_t>(bytes));
  const bool isEnded = sent.outcome != IoOutcome::kSome && sent.outcome != IoOutcome::kWouldBlock;
  if (isEnded)
    flow.out.clear();  // not the moment to close: messages may wait to be read, and reading tells of the end
  due_.writing = !flow.out.empty();
}

// The user waits for nothing more, so it may not come back, or close the connection, and the sender waits for
// the last word on what is done: it is with the kernel before the user hears of it, behind what a helper has
// not written yet.
void TcpReceiver::sayWhatIsDone() {
  InFlow& flow = *flows_.front();
  if (flow.loan.isLent()) {
    const Loan::Outcome outcome = flow.loan.recall();
    onWritten(flow, outcome.last, outcome.bytes);
  }
  if (!due_.any() || !flow.open) return writeRecords();
  fillRecords(flow.out);
  if (flow.out.empty()) return;
  const IoSpan piece{flow.out.data(), flow.out.size()};
  const Transfer sent = flow.stream.send(std::span(&piece, 1));
  onWritten(flow, sent, sent.bytes);
}

void TcpReceiver::fillRecords(std::vector<uint8_t>& out) {
  const auto add = [&](Record record) {
    const auto bytes = bytesOf(record);
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  for (const size_t flow : due_.lost) {
    Record record;
    record.kind = RecordKind::kLost;
    record.count = flow;
    add(record);
  }
  for (const int tag : due_.tags) {
    Tag& one = tags_[tag];
    one.due = false;
    one.said = one.there;
    Record record;
    record.kind = RecordKind::kReady;
    record.tag = tag;
    record.count = one.there;
    add(record);
  }
  if (due_.complete) add(complete_.record());
  due_.lost.clear();
  due_.tags.clear();
  if (due_.complete) unsaid_.parts = unsaid_.bytes = 0;
  due_.complete = false;
  due_.writing = !out.empty();
}

void TcpReceiver::lose(size_t index, const std::string& why) {
  InFlow& flow = *flows_[index];
  if (!flow.open) return;
  flow.close();
  flow.counters.lost = !ended_;
  lastLost_ = why;
  release(flow);
  if (ended_) return;
  loss_.note(flow.counters.route + ": " + why);
  sayAllAgain();
}

// What it brought in part comes again over another flow.
void TcpReceiver::release(InFlow& flow) {
  flow.inPayload = false;
  if (Expected* const expected = std::exchange(flow.expected, nullptr)) {
    std::ranges::fill(chunksOf(*expected, flow.frame), kOpen);
  }
  if (Aside* const aside = std::exchange(flow.aside, nullptr)) forget(*aside);
}

void TcpReceiver::forget(const Aside& aside) {
  asideBytes_ -= aside.frame.total;
  asides_.remove_if([&](const Aside& one) { return &one == &aside; });
}

// The lost flow may have been the one that carries records.
void TcpReceiver::sayAllAgain() {
  due_.complete = true;
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (!flows_[i]->open) due_.lost.push_back(i);
  }
  for (auto& [name, tag] : tags_) {
    if (tag.said == 0 || tag.due) continue;
    tag.due = true;
    due_.tags.push_back(name);
  }
}

// That a peer has said goodbye is news only to who still waits for something, and says so itself.
bool TcpReceiver::breakOff(Code code, const std::string& what) {
  failure_.set(code, "the peer that sends " + what + " (" + flows_.front()->counters.route + ")", !ended_);
  for (const auto& flow : flows_) {
    if (flow->open) flow->close();
  }
  return false;
}

}  // namespace stretto::net::tcp
