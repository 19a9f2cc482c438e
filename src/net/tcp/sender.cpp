#include "net/tcp/sender.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "net/tcp/host_memory.hpp"
#include "platform/clock.hpp"
#include "platform/socket_state.hpp"

namespace stretto::net::tcp {
namespace {

constexpr int kPassesPerCall = 8;               // of one frame a flow; then others have their turn
constexpr uint64_t kMeasureEvery = 20'000'000;  // nanoseconds
constexpr int kMostMillisecondsOfClose = 100;

// So many bytes of a message from `begin` on: of its head, and of the rest.
std::array<std::span<const std::byte>, 2> partsOf(const Gathered& message, size_t begin, size_t bytes) {
  const size_t ofHead = std::min(message.head.size() - std::min(message.head.size(), begin), bytes);
  const size_t at = begin + ofHead - message.head.size();  // not used if nothing is left
  return {ofHead == 0 ? std::span<const std::byte>{} : message.head.subspan(begin, ofHead),
          ofHead == bytes ? std::span<const std::byte>{} : message.rest.subspan(at, bytes - ofHead)};
}

}  // namespace

TcpSender::TcpSender(const Hello& hello, std::vector<Joined>&& flows, const Settings& settings)
    : hello_(hello), settings_(settings), helpers_(flows.size(), settings.threads) {
  for (Joined& flow : flows) {
    flows_.push_back(std::make_unique<OutFlow>(std::move(flow), settings_.silence));
    flows_.back()->window = settings_.leastWindow;
    order_.push_back(static_cast<uint8_t>(order_.size()));
  }
}

// All flows together have kMostMillisecondsOfClose, the drain included: an abort may end many senders.
TcpSender::~TcpSender() {
  const uint64_t began = platform::monotonicNanoseconds();
  for (const auto& flow : flows_) flow->loan.wantBack();
  for (const auto& flow : flows_) flow->loan.recall();  // what helpers still send is the user's
  drain();
  for (const auto& flow : flows_) {
    if (!flow->open) continue;
    Frame bye;
    bye.kind = FrameKind::kBye;
    const IoSpan piece{&bye, sizeof bye};
    if (!flow->busy) flow->stream.send(std::span(&piece, 1));
    const int taken = static_cast<int>(platform::secondsSince(began) * 1e3);
    closeGently(flow->stream.release(), failure_.ok() ? std::max(0, kMostMillisecondsOfClose - taken) : 0);
  }
}

// What was called done may have gone with a flow that was lost since: its copies are sent again for a while.
// Of what is not done, whose bytes are the user's, nothing more is sent.
void TcpSender::drain() {
  queue_.clear();
  std::erase_if(again_, [](const Job& job) { return job.isUsers(); });
  for (Message& message : messages_) message.used = false;
  const uint64_t begin = platform::monotonicNanoseconds();
  while (several() && failure_.ok() && platform::secondsSince(begin) * 1e3 < kMostMillisecondsOfClose) {
    bool waits = !again_.empty();
    for (size_t i = 0; i < flows_.size(); ++i) {
      const OutFlow& flow = *flows_[i];
      if (!flow.busy || !flow.job.isUsers()) pass(i);
      waits = waits || (flow.open && flow.busy && !flow.job.isUsers());
    }
    if (!waits) return;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

Result<std::unique_ptr<Registration>> TcpSender::enrol(std::byte*, size_t, Memory kind) {
  return enrolHostMemory(kind);
}

std::vector<FlowCounters> TcpSender::flows() const {
  std::vector<FlowCounters> all;
  for (const auto& flow : flows_) all.push_back(flow->count());
  return all;
}

Status TcpSender::sendGathered(const Gathered& from, int tag, Request*& request) {
  request = nullptr;
  const size_t bytes = from.bytes();
  if (!failure_.ok()) return failure_.again();
  if (bytes > kMostMessage) {
    return fail(Code::kInvalidUsage, "a message of %zu bytes is longer than the %zu that one may have", bytes,
                kMostMessage);
  }
  const auto free = std::find_if(messages_.begin(), messages_.end(), [](const auto& m) { return !m.used; });
  if (free == messages_.end() || !complete_.canHold(number_)) return progress();
  Message& message = *free;
  message.used = true;
  message.done = message.asked = message.isWhole = false;
  message.given = message.taken = 0;
  message.from = from;
  message.frame = Frame{};
  message.frame.tag = tag;
  message.frame.number = number_++;
  message.frame.index = tags_[tag].sent++;
  message.frame.total = static_cast<uint32_t>(bytes);
  message.carriers.clear();
  ++unfinished_;
  queue_.push_back(&message);
  request = &message;
  return progress();
}

Status TcpSender::test(Request* request, bool& done) {
  auto& message = *static_cast<Message*>(request);
  if (!message.done) {
    if (!failure_.ok()) return failure_.again();
    const Status status = progress();
    if (!message.done && !status.ok()) return status;
  }
  done = message.done;
  message.used = !done;
  return kOkStatus;
}

// Gives what waits to flows that have room, a frame to each in turn, and hears what the receiver says.
Status TcpSender::progress() {
  ++calls_;
  bool moved = true;
  for (int i = 0; i < kPassesPerCall && moved; ++i) {
    moved = false;
    orderFlows();
    for (const uint8_t flow : order_) moved = pass(flow) || moved;
  }
  const bool all = calls_ % kLookAtAllEvery == 0;
  const bool waits = unfinished_ > 0 || !complete_.canHold(number_) || all;
  bool first = true;
  for (size_t flow = 0; flow < flows_.size() && waits; ++flow) {
    if (!flows_[flow]->open) continue;
    // To read what a helper sends over would wait for its call of the kernel.
    const bool isSent = flow > 0 && flows_[flow]->loan.isLent();
    if (first || (all && !isSent)) readRecords(flow);
    first = false;
  }
  const uint64_t now = platform::monotonicNanoseconds();
  for (size_t flow = 0; flow < flows_.size(); ++flow) {
    if (flows_[flow]->isSilent(settings_.silence, now))
      lose(flow, "nothing has come from there for too long");
  }
  loss_.sayIfDue(true);
  return failure_.again();
}

// The flow with the fewest bytes under way comes first. In the order of their numbers, the first would carry
// all messages that its window holds, and the others would stay idle.
void TcpSender::orderFlows() {
  if (!several() || queue_.empty()) return;
  std::array<size_t, kMostFlows> queued{};
  for (size_t i = 0; i < flows_.size(); ++i) {
    queued[i] = flows_[i]->open && !flows_[i]->busy ? bytesQueued(flows_[i]->stream.socket()) : 0;
  }
  std::sort(order_.begin(), order_.end(), [&](uint8_t one, uint8_t other) {
    return std::pair(queued[one], one) < std::pair(queued[other], other);
  });
}

// Whether the flow sent a frame to its end.
bool TcpSender::pass(size_t index) {
  OutFlow& flow = *flows_[index];
  if (!flow.open) return false;
  if (index > 0 && flow.loan.isLent()) return takeHome(index);
  if (!flow.busy) {
    Job job;
    if (!nextJob(index, job)) return false;
    begin(index, std::move(job));
  }
  return lend(index) ? false : pump(index);
}

// The flow that chunks leave free where helpers send them; none if it is the only one that is left.
bool TcpSender::isKeptFree(size_t index) const {
  const auto isOpen = [](const auto& flow) { return flow->open; };
  const auto at = flows_.begin() + static_cast<ptrdiff_t>(index);
  return helpers_ && std::none_of(flows_.begin(), at, isOpen) && std::any_of(at + 1, flows_.end(), isOpen);
}

bool TcpSender::lend(size_t index) {
  OutFlow& flow = *flows_[index];
  if (!helpers_ || flow.job.message == nullptr || index == 0) return false;
  const Pieces pieces = flow.unsent();
  return helpers_.lend(flow.loan, index, Direction::kSend, flow.stream, pieces.used(),
                       flow.wholeBytes() - flow.sent);
}

// Whether its helper has sent the frame to its end.
bool TcpSender::takeHome(size_t index) {
  OutFlow& flow = *flows_[index];
  if (!flow.loan.isBack()) return false;
  const Loan::Outcome outcome = flow.loan.takeHome();
  if (outcome.stalled) ++flow.counters.stalls;
  flow.sent += outcome.bytes;
  return onSent(index, outcome.last);
}

// With one flow the kernel's buffer is the limit. With several, a slow one must not take what a fast one
// could have sent: each has at most twice what its path holds.
bool TcpSender::hasRoom(OutFlow& flow) {
  if (!several()) return true;
  const uint64_t now = platform::monotonicNanoseconds();
  if (now - flow.measured > kMeasureEvery) {
    flow.measured = now;
    const SocketState state = stateOf(flow.stream.socket());
    const double path = 2 * state.bytesPerSecond * state.roundTripSeconds;
    flow.window = std::clamp(static_cast<size_t>(path), settings_.leastWindow, settings_.mostWindow);
  }
  const bool room = bytesQueued(flow.stream.socket()) < flow.window;
  if (!room) ++flow.counters.stalls;
  return room;
}

// Small messages keep to the first flow, which the receiver looks at most often, as long as it takes them.
bool TcpSender::takesSmall(size_t index) const {
  for (size_t before = 0; before < index; ++before) {
    if (flows_[before]->open && !flows_[before]->busy) return false;
  }
  return true;
}

bool TcpSender::nextJob(size_t index, Job& job) {
  if (!controls_.empty()) {
    job.frame = controls_.front();
    controls_.pop_front();
    return true;
  }
  const bool takesChunks = !isKeptFree(index);
  if (!again_.empty() && (takesChunks || again_.front().message == nullptr) && hasRoom(*flows_[index])) {
    job = again_.front();
    again_.pop_front();
    return true;
  }
  for (auto at = queue_.begin(); at != queue_.end(); ++at) {
    Message& message = **at;
    if (goesAtOnce(message)) {
      if (!takesSmall(index) || !smallJob(message, job)) continue;
      queue_.erase(at);
      return true;
    }
    if (message.frame.index < tags_[message.frame.tag].ready) {
      if (!takesChunks) continue;
      if (!hasRoom(*flows_[index])) return false;
      chunkJob(message, job);
      if (message.given == message.frame.total) queue_.erase(at);
      return true;
    }
    if (askJob(message, job)) return true;
  }
  return false;
}

// A longer message that is alone is there sooner if it neither waits for the receiver's word nor is split.
// Where there are several, they move faster side by side.
bool TcpSender::goesAtOnce(const Message& message) {
  const uint32_t bytes = message.frame.total;
  if (bytes > hello_.small || isDoneWhenSent(message.frame)) return bytes <= hello_.small;
  return unfinished_ == 1 && message.given == 0 && freeUnconfirmed(bytes) != nullptr;
}

TcpSender::Unconfirmed* TcpSender::freeUnconfirmed(size_t bytes) {
  if (unconfirmed_.bytes + bytes > kMostUnconfirmed) return nullptr;
  // The oldest is the most likely to be free.
  for (size_t i = 0; i < unconfirmed_.all.size(); ++i) {
    Unconfirmed& one = unconfirmed_.all[(unconfirmed_.next + i) % unconfirmed_.all.size()];
    if (one.used) continue;
    unconfirmed_.next = (unconfirmed_.next + i + 1) % unconfirmed_.all.size();
    return &one;
  }
  return nullptr;
}

bool TcpSender::smallJob(Message& message, Job& job) {
  Unconfirmed* const kept = freeUnconfirmed(message.frame.total);
  if (kept == nullptr) return false;
  unconfirmed_.bytes += message.frame.total;
  message.isWhole = true;
  kept->used = true;
  kept->frame = message.frame;
  kept->frame.kind = FrameKind::kWhole;
  kept->frame.bytes = message.frame.total;
  kept->message = &message;
  kept->from = message.from;
  if (several() && isDoneWhenSent(message.frame)) {
    kept->bytes.assign(message.from.head.begin(), message.from.head.end());
    kept->bytes.insert(kept->bytes.end(), message.from.rest.begin(), message.from.rest.end());
    kept->from = {{}, kept->bytes};
  }
  job = {kept->frame, kept->from, nullptr, kept};
  return true;
}

// As many chunks as give each flow the same, within bounds.
void TcpSender::chunkJob(Message& message, Job& job) {
  const auto flows = static_cast<uint32_t>(!helpers_ ? flows_.size() : flows_.size() - 1);
  const uint32_t share = (hello_.chunksOf(message.frame.total) + flows - 1) / flows * hello_.chunk;
  const uint32_t bytes =
      std::clamp(share, hello_.chunk, std::max(hello_.chunk, static_cast<uint32_t>(settings_.mostChunk)));
  job = {message.frame, message.from, &message, nullptr};
  job.frame.kind = FrameKind::kPart;
  job.frame.offset = message.given;
  job.frame.bytes = std::min(bytes - bytes % hello_.chunk, message.frame.total - message.given);
  message.given += job.frame.bytes;
}

// Once for every message that finds no receive: the receiver then tells when it is there.
bool TcpSender::askJob(Message& message, Job& job) {
  if (message.asked) return false;
  message.asked = true;
  job.frame = message.frame;
  job.frame.kind = FrameKind::kAsk;
  return true;
}

void TcpSender::begin(size_t index, Job&& job) {
  OutFlow& flow = *flows_[index];
  flow.busy = true;
  flow.stalled = false;
  flow.sent = 0;
  flow.job = job;
  flow.job.frame.losses = losses_;
  if (job.unconfirmed != nullptr) job.unconfirmed->carrier = static_cast<int>(index);
  if (several() && job.message != nullptr) {
    std::vector<uint8_t>& carriers = job.message->carriers;
    carriers.resize(hello_.chunksOf(job.message->frame.total), kMostFlows);
    const auto first = carriers.begin() + job.frame.offset / hello_.chunk;
    std::fill_n(first, hello_.chunksOf(job.frame.bytes), static_cast<uint8_t>(index));
  }
}

// What is left of the frame that the flow sends: of its header, and of the two places of its payload.
TcpSender::Pieces TcpSender::OutFlow::unsent() {
  Pieces pieces;
  if (sent < sizeof(Frame)) {
    pieces.all[pieces.count++] = {bytesOf(job.frame).data() + sent, sizeof(Frame) - sent};
  }
  const size_t payload = sent > sizeof(Frame) ? sent - sizeof(Frame) : 0;
  if (payload == job.frame.bytes) return pieces;
  for (const auto part : partsOf(job.from, job.frame.offset + payload, job.frame.bytes - payload)) {
    if (!part.empty()) pieces.all[pieces.count++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  return pieces;
}

bool TcpSender::pump(size_t index) {
  OutFlow& flow = *flows_[index];
  Transfer sent{IoOutcome::kSome, 0, 0};
  while (flow.sent < flow.wholeBytes() && sent.outcome == IoOutcome::kSome) {
    sent = flow.stream.send(flow.unsent().used());
    flow.sent += sent.bytes;
  }
  return onSent(index, sent);
}

// After a helper or pump() has sent what the kernel took; whether the frame is sent to its end.
bool TcpSender::onSent(size_t index, const Transfer& sent) {
  OutFlow& flow = *flows_[index];
  if (sent.outcome == IoOutcome::kWouldBlock) {
    if (!flow.stalled) ++flow.counters.stalls;
    flow.stalled = true;
    return false;
  }
  if (sent.outcome != IoOutcome::kSome) {
    lose(index, whyEnded(sent));
    return false;
  }
  finish(flow);
  return true;
}

void TcpSender::finish(OutFlow& flow) {
  flow.busy = false;
  const Job& job = flow.job;
  if (job.message == nullptr && job.unconfirmed == nullptr) return;
  flow.counters.bytes += job.frame.bytes;
  ++flow.counters.parts;
  if (job.unconfirmed != nullptr) {
    if (isDoneWhenSent(job.frame)) finishSmall(*job.unconfirmed);
    return confirm(*job.unconfirmed);
  }
  job.message->taken += job.frame.bytes;
  if (!several()) {
    if (job.message->taken == job.message->frame.total) markDone(*job.message);
  } else if (complete_.has(job.message->frame.number) && !isBeingSent(*job.message)) {
    markDone(*job.message);
  }
}

// If the receiver has, and no copy is being sent.
void TcpSender::confirm(Unconfirmed& small) {
  if (!small.used || !complete_.has(small.frame.number)) return;
  const bool inUse = std::any_of(flows_.begin(), flows_.end(), [&](const auto& flow) {
    return flow->open && flow->busy && flow->job.unconfirmed == &small;
  });
  if (inUse) return;
  small.used = false;
  unconfirmed_.bytes -= small.frame.total;
  finishSmall(small);
}

// The kernel has a frame of it, or the receiver says that it has come; it may be both.
void TcpSender::finishSmall(Unconfirmed& small) {
  if (small.message != nullptr) markDone(*std::exchange(small.message, nullptr));
}

void TcpSender::markDone(Message& message) {
  message.done = true;
  --unfinished_;
}

bool TcpSender::isBeingSent(const Message& message) const {
  return std::any_of(flows_.begin(), flows_.end(), [&](const auto& flow) {
    return flow->open && flow->busy && flow->job.message == &message;
  });
}

void TcpSender::readRecords(size_t index) {
  OutFlow& flow = *flows_[index];
  const auto room = std::span(flow.in).subspan(flow.filled);
  if (!helpers_ || index > 0) return onRead(index, flow.stream.receive(room));
  if (flow.loan.isLent()) {
    if (!flow.loan.isBack()) return;
    onRead(index, flow.loan.takeHome().last);
    if (!flow.open) return;
  }
  const auto next = std::span(flow.in).subspan(flow.filled);
  const IoSpan piece{next.data(), next.size()};
  if (!helpers_.lend(flow.loan, 0, Direction::kReceive, flow.stream, std::span(&piece, 1), 1)) {
    onRead(index, flow.stream.receive(next));
  }
}

void TcpSender::onRead(size_t index, const Transfer& got) {
  OutFlow& flow = *flows_[index];
  if (got.outcome == IoOutcome::kWouldBlock) return;
  if (got.outcome != IoOutcome::kSome) return lose(index, whyEnded(got));
  flow.filled += got.bytes;
  size_t at = 0;
  for (; flow.filled - at >= sizeof(Record); at += sizeof(Record)) {
    Record record;
    std::memcpy(&record, flow.in.data() + at, sizeof record);
    if (!isGood(record, hello_) || !apply(record)) return breakOff("sent bytes that are no record");
  }
  std::memmove(flow.in.data(), flow.in.data() + at, flow.filled - at);
  flow.filled -= at;
}

bool TcpSender::apply(const Record& record) {
  switch (record.kind) {
    case RecordKind::kComplete:
      return saysNoMoreThan(number_, record) && applyComplete(record);
    case RecordKind::kReady: {
      uint64_t& ready = tags_[record.tag].ready;
      ready = std::max(ready, record.count);
      return true;
    }
    case RecordKind::kLost:
      lose(record.count, "the receiver has lost it");
      return true;
  }
  return false;
}

// False if a message is said to be complete that was not sent to its end.
bool TcpSender::applyComplete(const Record& record) {
  complete_.merge(record);
  for (Unconfirmed& one : unconfirmed_.all) confirm(one);
  const auto isComplete = [&](const Job& job) { return complete_.has(job.frame.number); };
  std::erase_if(again_, isComplete);
  if (!several()) return true;
  for (Message& message : messages_) {
    if (!message.used || message.done || message.isWhole) continue;
    if (!complete_.has(message.frame.number)) continue;
    if (message.given < message.frame.total) return false;
    if (!isBeingSent(message)) markDone(message);
  }
  return true;
}

void TcpSender::lose(size_t index, const std::string& why) {
  OutFlow& flow = *flows_[index];
  if (!flow.open || flow.counters.lost || !failure_.ok()) return;
  flow.counters.lost = true;
  // A receiver that has all and closes has said so before: what it said is heard out.
  const size_t read = index == 0 ? flow.loan.recall().bytes : (flow.loan.recall(), 0);
  flow.busy = false;
  Transfer got{IoOutcome::kSome, read, 0};
  while (flow.open && got.outcome == IoOutcome::kSome) {
    onRead(index, got);
    if (flow.open) got = flow.stream.receive(std::span(flow.in).subspan(flow.filled));
  }
  flow.close();
  if (!failure_.ok()) return;
  loss_.note(flow.counters.route + ": " + why);
  if (std::none_of(flows_.begin(), flows_.end(), [](const auto& one) { return one->open; })) {
    failure_.set(Code::kRemote, "the peer that receives is gone: " + loss_.what());
    loss_.forget();
    return;
  }
  sendAgain(index);
}

// All that the lost flow carried and that is not confirmed. What is confirmed already is dropped when it
// arrives twice.
void TcpSender::sendAgain(size_t lost) {
  OutFlow& flow = *flows_[lost];
  flow.busy = false;
  ++losses_;
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i]->open) continue;
    Frame frame;  // also of flows that were lost before: that word may have gone with this one
    frame.kind = FrameKind::kLost;
    frame.offset = static_cast<uint32_t>(i);
    controls_.push_back(frame);
  }
  for (Unconfirmed& one : unconfirmed_.all) {
    if (!one.used || one.carrier != static_cast<int>(lost)) continue;
    again_.push_back({one.frame, one.from, nullptr, &one});
  }
  for (Message& message : messages_) {
    if (!message.used || message.done) continue;
    message.asked = false;
    // Perhaps the lost flow was sending a second copy: nothing needs another one.
    if (!message.isWhole && complete_.has(message.frame.number)) {
      if (!isBeingSent(message)) markDone(message);
      continue;
    }
    for (size_t i = 0; i < message.carriers.size(); ++i) {
      if (message.carriers[i] != lost) continue;
      Job job{message.frame, message.from, &message, nullptr};
      job.frame.kind = FrameKind::kPart;
      job.frame.offset = static_cast<uint32_t>(i * hello_.chunk);
      job.frame.bytes = std::min(hello_.chunk, message.frame.total - job.frame.offset);
      again_.push_back(job);
    }
  }
}

void TcpSender::breakOff(const char* what) {
  failure_.set(Code::kRemote,
               "the peer that receives " + std::string(what) + ": " + flows_.front()->counters.route);
  for (const auto& flow : flows_) {
    if (flow->open) flow->close();
  }
}

}  // namespace stretto::net::tcp
