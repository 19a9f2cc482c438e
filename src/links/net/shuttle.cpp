#include "links/net/shuttle.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "platform/clock.hpp"

namespace stretto::links::net {
namespace {

constexpr uint64_t kPlaces = WindowLayout::kWarpChunkCredits;  // of a link's ring in one channel
constexpr int kTagBits = 20;                                   // of the word that says that a chunk is there

// What a message holds, in its mailbox's tag.
constexpr uint64_t kAlone = 1;    // one chunk: the record in the mailbox, the chunk behind it
constexpr uint64_t kPacked = 2;   // records, each followed by its chunk: so many bytes as the mailbox says
constexpr uint64_t kGoodbye = 3;  // nothing, and nothing follows

// Larger chunks are lent where the net takes them so.
constexpr size_t kMostPacked = 16384;

uint64_t load(const std::byte* at) {
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(const_cast<std::byte*>(at)))
      .load(std::memory_order_acquire);
}
void store(std::byte* at, uint64_t value) {
  std::atomic_ref(*reinterpret_cast<uint64_t*>(at)).store(value, std::memory_order_release);
}

constexpr size_t padded(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

int indexAt(int owner, int source) {
  return source - (source > owner ? 1 : 0);
}

}  // namespace

// One link's part of one channel of a window, or of the stand-in for one: the ring that is filled there, and
// the credits for what goes the other way.
struct Shuttle::Half {
  static Half of(std::byte* window, const stretto::cuda::Shape& shape, int channel, int index);

  std::byte* chunks = nullptr;
  std::byte* flags = nullptr;
  std::byte* credits = nullptr;
  size_t chunkBytes = 0;

  std::byte* chunk(uint64_t number) const { return chunks + number % kPlaces * chunkBytes; }
  std::byte* flag(uint64_t number) const { return flags + number % kPlaces * sizeof(uint64_t); }
  std::byte* size(uint64_t number) const { return flag(number) + kPlaces * sizeof(uint64_t); }
  std::byte* credit(uint64_t place) const { return credits + place * sizeof(Mailbox); }
};

Shuttle::Half Shuttle::Half::of(std::byte* window, const stretto::cuda::Shape& shape, int channel,
                                int index) {
  Half half;
  half.chunkBytes = shape.layout.linkChunk;
  half.chunks = window + shape.deepBegin(channel) + shape.layout.linkChunksOf(index);
  half.flags = half.chunks + kPlaces * half.chunkBytes;
  half.credits = window + shape.nearBegin(channel) + shape.layout.warpChunkCredit(index, 0);
  return half;
}

// What travels of a chunk, before its bytes; or of a credit.
struct Shuttle::Record {
  static constexpr uint16_t kChunk = 0xffff;
  uint64_t word;     // as it is stored at the receiver
  uint32_t bytes;    // of the chunk that follows
  uint16_t channel;  // of the shuttle's
  uint16_t place;    // of a credit; or kChunk
};

struct Shuttle::Link {
  struct Channel {
    Half out, in;
    std::array<uint64_t, kPlaces> next;       // of each place: the number of the chunk that leaves next,
    std::array<uint64_t, kPlaces> expected;   // and of the one that comes next
    std::array<uint64_t, kPlaces> creditOut;  // what the peer was told that has been read of what it sent
    std::array<uint64_t, kPlaces> creditIn;   // and what it has told
  };
  int peer = -1;
  std::vector<Channel> channels;
  uint64_t sent = 0, received = 0;  // messages
  bool broken = false;              // nothing can be sent
  bool over = false;                // nothing is taken any more: the peer has said goodbye, or what none says
  bool left = false;                // it was a goodbye
  bool saidGoodbye = false;         // this rank to the peer
};

// What is ready to leave: a chunk, or a credit.
struct Shuttle::Found {
  Record record;
  uint64_t number;  // of a chunk
};

// A message of several records, in a slot of the ring that sends.
class Shuttle::Packed {
 public:
  explicit Packed(SendRing& ring, uint64_t message, size_t room)
      : mailbox_(ring.slot(message)), ring_(ring), room_(room) {}

  bool holds(const Record& record) const { return used_ + sizeof record + padded(record.bytes) <= room_; }
  bool isEmpty() const { return used_ == 0; }
  void add(const Record& record, const std::byte* data) {
    std::byte* const at = payload() + used_;
    std::memcpy(at, &record, sizeof record);
    if (record.bytes != 0) std::memcpy(at + sizeof record, data, record.bytes);
    std::memset(at + sizeof record + record.bytes, 0, padded(record.bytes) - record.bytes);
    used_ += sizeof record + padded(record.bytes);
  }
  void publish() {
    mailbox_->tag = kPacked;
    mailbox_->bytes = used_;
    if (used_ <= Mailbox::kInlineBytes) std::memcpy(mailbox_->inlined, payload(), used_);
    ring_.setBytes(used_);
    ring_.publish();
  }

 private:
  std::byte* payload() const { return reinterpret_cast<std::byte*>(mailbox_ + 1); }

  Mailbox* mailbox_;
  SendRing& ring_;
  size_t room_;
  size_t used_ = 0;
};

Shuttle::Shuttle(Config config) : config_(std::move(config)) {
  for (int peer = 0; peer < config_.ranks; ++peer) {
    if (peer == config_.rank) continue;
    auto link = std::make_unique<Link>();
    link->peer = peer;
    for (int channel = config_.first; channel < config_.shape.channels; channel += config_.step) {
      Link::Channel& added = link->channels.emplace_back();
      added.out = Half::of(window(peer), config_.shape, channel, indexAt(peer, config_.rank));
      added.in = Half::of(window(config_.rank), config_.shape, channel, indexAt(config_.rank, peer));
      for (uint64_t place = 0; place < kPlaces; ++place) added.next[place] = added.expected[place] = place;
      added.creditOut.fill(0);
      added.creditIn.fill(0);
    }
    links_.push_back(std::move(link));
  }
}

Shuttle::~Shuttle() {
  config_.links->giveBack();  // chunks lie in the memory that goes now
}

uint64_t Shuttle::leave() {
  leaving_.store(true);
  return begun_.load() + 1;
}

int Shuttle::brokenFor(double seconds, std::string& words) const {
  const std::lock_guard lock(mutex_);
  if (broken_ < 0 || platform::tickSeconds(platform::ticks() - brokenSince_) < seconds) return -1;
  words = brokenWords_;
  return broken_;
}

// ---- The thread that moves --------------------------------------------------------------------------------

bool Shuttle::move() {
  const uint64_t number = ++begun_;
  FarLinks& links = *config_.links;
  links.progress();
  bool moved = false;
  waits_ = false;
  for (const auto& link : links_) {
    if (!link->over) moved = take(*link) || moved;
    if (!link->broken && !link->left) moved = send(*link) || moved;
  }
  const RankSet busy = links.busy();
  for (const auto& link : links_) {
    const Break* const found = links.broken(link->peer);
    if (found != nullptr) giveUp(*link, found->words);
    if (link->broken || link->left) continue;
    if (leaving_.load() && !moved) sayGoodbye(*link);
    waits_ = waits_ || busy.has(link->peer);
  }
  if (moved) {
    links.progress();
  } else if (!waits_) {
    idleAt_.store(number);
  }
  return moved;
}

// The first is kept: it is the reason of whatever follows. That a peer which has left does not read the last
// credits is no failure.
void Shuttle::giveUp(Link& link, const std::string& words) {
  if (std::exchange(link.broken, true) || link.left) return;
  const std::lock_guard lock(mutex_);
  if (broken_ >= 0) return;
  broken_ = link.peer;
  brokenSince_ = platform::ticks();
  brokenWords_ = words;
}

bool Shuttle::take(Link& link) {
  ReceiveRing* ring = config_.links->connectedFrom(link.peer);
  const uint64_t before = link.received;
  while (ring != nullptr && !link.over && ring->slot(link.received)->count == link.received + 1) {
    if (!takeMessage(link, *ring->slot(link.received), ring->bytesOf(link.received))) {
      link.over = true;
      giveUp(link, "a message came that no rank of this version sends");
      break;
    }
    ring->released()->count = ++link.received;
    ring = config_.links->connectedFrom(link.peer);
  }
  return link.received != before;
}

// False for what no peer sends: nothing in it is believed before it is looked at.
bool Shuttle::takeMessage(Link& link, const Mailbox& message, size_t bytes) {
  Record record;
  const auto* const behind = reinterpret_cast<const std::byte*>(&message + 1);
  if (message.tag == kAlone) {
    std::memcpy(&record, message.inlined, sizeof record);
    return bytes == sizeof(Mailbox) + record.bytes && deliver(link, record, behind);
  }
  if (message.tag == kGoodbye) {
    hangUp(link);
    return true;
  }
  const size_t payload = message.bytes;
  if (message.tag != kPacked || payload > bytes || bytes != messageBytes(payload)) return false;
  const std::byte* const begin = payload <= Mailbox::kInlineBytes ? message.inlined : behind;
  for (size_t at = 0; at < payload;) {
    if (payload - at < sizeof record) return false;
    std::memcpy(&record, begin + at, sizeof record);
    at += sizeof record;
    if (payload - at < padded(record.bytes) || !deliver(link, record, begin + at)) return false;
    at += padded(record.bytes);
  }
  return true;
}

// What is sent to the peer may have met a closed connection before its goodbye was read.
void Shuttle::hangUp(Link& link) {
  config_.links->hangUp(link.peer);
  link.over = link.left = true;
  const std::lock_guard lock(mutex_);
  if (broken_ == link.peer) broken_ = -1;
}

// A chunk has room here if the peer was told that what lay there has been read.
bool Shuttle::deliver(Link& link, const Record& record, const std::byte* data) {
  if (record.channel >= link.channels.size()) return false;
  Link::Channel& channel = link.channels[record.channel];
  if (record.place != Record::kChunk) {
    if (record.place >= kPlaces || record.bytes != 0) return false;
    uint64_t& credit = channel.creditIn[record.place];
    if (record.word <= credit || record.word + kPlaces > channel.next[record.place] + 1) return false;
    credit = record.word;
    store(channel.in.credit(record.place), credit);
    return true;
  }
  const uint64_t number = (record.word >> kTagBits) - 1;
  uint64_t& expected = channel.expected[number % kPlaces];
  const bool hasRoom = number < kPlaces || channel.creditOut[number % kPlaces] + kPlaces > number;
  if (number != expected || !hasRoom || record.bytes > channel.in.chunkBytes) return false;
  expected += kPlaces;
  if (record.bytes != 0) std::memcpy(channel.in.chunk(number), data, record.bytes);
  store(channel.in.flag(number), record.word);
  return true;
}

// Finds what is ready to leave.
void Shuttle::look(Link& link) {
  found_.clear();
  for (size_t index = 0; index < link.channels.size(); ++index) {
    Link::Channel& channel = link.channels[index];
    for (uint64_t place = 0; place < kPlaces; ++place) {
      const auto number = static_cast<uint16_t>(index);
      const uint64_t credit = load(channel.out.credit(place));
      if (credit != channel.creditOut[place])
        found_.push_back({{credit, 0, number, static_cast<uint16_t>(place)}, 0});
      const uint64_t next = channel.next[place];
      const uint64_t word = load(channel.out.flag(next));
      if (word >> kTagBits != next + 1) continue;
      const auto bytes = static_cast<uint32_t>(load(channel.out.size(next)));
      found_.push_back({{word, bytes, number, Record::kChunk}, next});
    }
  }
}

bool Shuttle::hasRoom(const Link& link) const {
  const auto sent = config_.links->to(link.peer).credits()->count;
  return link.sent - sent < Slots::kDepth;
}

// What may share a message first: credits let the peer go on.
bool Shuttle::send(Link& link) {
  look(link);
  if (found_.empty()) return false;
  FarLinks& links = *config_.links;
  SendRing& ring = links.to(link.peer);
  const auto isAlone = [&](const Found& one) { return links.lends() && one.record.bytes > kMostPacked; };
  const auto noteLeft = [&](const Found& one) {
    Link::Channel& channel = link.channels[one.record.channel];
    if (one.record.place == Record::kChunk) {
      channel.next[one.number % kPlaces] += kPlaces;
    } else {
      channel.creditOut[one.record.place] = one.record.word;
    }
  };
  const uint64_t before = link.sent;
  size_t next = 0;
  while (next < found_.size() && hasRoom(link)) {
    Packed packed(ring, link.sent, links.chunkBytes());
    for (; next < found_.size(); ++next) {
      const Found& one = found_[next];
      if (isAlone(one)) continue;
      if (!packed.holds(one.record)) break;
      const Half& half = link.channels[one.record.channel].out;
      packed.add(one.record, one.record.bytes != 0 ? half.chunk(one.number) : nullptr);
      noteLeft(one);
    }
    if (packed.isEmpty()) break;
    packed.publish();
    ++link.sent;
  }
  waits_ = waits_ || next < found_.size();
  for (const Found& one : found_) {
    if (!isAlone(one)) continue;
    if (!hasRoom(link)) {
      waits_ = true;
      break;
    }
    sendAlone(link, one);
    noteLeft(one);
  }
  return link.sent != before;
}

// Where something was sent: else there is no connection, whose end the peer could take for a failure.
void Shuttle::sayGoodbye(Link& link) {
  if (link.saidGoodbye || link.sent == 0) return;
  waits_ = true;
  if (!hasRoom(link)) return;
  SendRing& ring = config_.links->to(link.peer);
  ring.slot(link.sent)->tag = kGoodbye;
  ring.setBytes(0);
  ring.publish();
  ++link.sent;
  link.saidGoodbye = true;
}

void Shuttle::sendAlone(Link& link, const Found& chunk) {
  SendRing& ring = config_.links->to(link.peer);
  Mailbox& mailbox = *ring.slot(link.sent);
  mailbox.tag = kAlone;
  std::memcpy(mailbox.inlined, &chunk.record, sizeof chunk.record);
  ring.setBytes(chunk.record.bytes);
  ring.lend(link.channels[chunk.record.channel].out.chunk(chunk.number));
  ring.publish();
  ++link.sent;
}

}  // namespace stretto::links::net
