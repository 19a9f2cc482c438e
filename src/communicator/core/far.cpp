#include "communicator/core/far.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/parameters.hpp"
#include "communicator/core/gather.hpp"
#include "net/open.hpp"
#include "platform/futex.hpp"
#include "primitives/call_record.hpp"
#include "primitives/disagreement.hpp"

namespace stretto::communicator {
namespace {

// Where a rank listens, or why it does not.
struct Offer {
  char net[32] = {};
  uint32_t count = 0;  // of handles
  uint32_t code = 0;
  std::array<net::Handle, kMostFarLinks> handles{};
  char text[400] = {};
};

// What travels of a header. Behind it may be more words of `asks`, as RankSet has them.
struct View {
  uint64_t asks = 0;  // first: the rest is what is said
  uint32_t failed = 0;
  uint32_t left = 0;
  uint64_t disagreeing = 0;
  uint64_t seatingsGivenUp[WindowHeader::kGivenUp] = {};
  uint64_t childrenGivenUp[WindowHeader::kGivenUp] = {};
  CallRecordWords call{};
  CallRecordWords calls[WindowHeader::kCallsKept] = {};
};
static_assert(std::has_unique_object_representations_v<View>, "name the padding of what travels");

template <typename T>
T read(const T& word) {
  return std::atomic_ref(const_cast<T&>(word)).load(std::memory_order_acquire);
}
template <typename T>
void write(T& word, T value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

CallRecordWords copyOf(const CallRecord& place) {
  return std::bit_cast<CallRecordWords>(
      recordedCallAt(place, wordOf(place, 0).load(std::memory_order_acquire)));
}

std::mutex netMutex;
std::shared_ptr<net::Net> givenNet;  // by netMutex

constexpr size_t headersBegin(int ranks) {
  return (static_cast<size_t>(ranks) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

Offer offerOf(const Result<FarLinks>& links) {
  Offer offer;
  if (links.ok()) {
    for (const auto& one : links.value()) offer.handles[offer.count++] = one->handle();
    snprintf(offer.net, sizeof offer.net, "%s", links.value().front()->netName());
  } else {
    offer.code = static_cast<uint32_t>(links.status().code);
    snprintf(offer.text, sizeof offer.text, "%s", lastError().c_str());
  }
  return offer;
}

Status agree(const PerRank<Offer>& offers, int rank) {
  const Offer mine = offers[static_cast<size_t>(rank)];
  for (size_t other = 0; other < offers.size(); ++other) {
    const Offer theirs = offers[other];
    const int peer = static_cast<int>(other);
    if (theirs.code != 0) {
      return failAbout(peer, static_cast<Code>(theirs.code),
                       "rank %d cannot be reached from other hosts: %.*s", peer,
                       static_cast<int>(sizeof theirs.text), theirs.text);
    }
    if (std::strncmp(theirs.net, mine.net, sizeof mine.net) != 0) {
      return failAbout(peer, Code::kInvalidUsage, "ranks %d and %d reach other hosts by %.*s and by %.*s",
                       rank, peer, static_cast<int>(sizeof mine.net), mine.net,
                       static_cast<int>(sizeof theirs.net), theirs.net);
    }
  }
  return kOkStatus;
}

}  // namespace

Result<std::shared_ptr<net::Net>> netBetweenHosts(const Encryption& encryption) {
  {
    const std::lock_guard lock(netMutex);
    if (givenNet != nullptr) return givenNet;
  }
  auto net = net::open(encryption);
  if (net.ok() && net.value()->devices() == 0) {
    return fail(Code::kSystem, "no network interface can be used to reach other hosts: NCCL_SOCKET_IFNAME=%s",
                parameters::kSocketInterface.text().c_str());
  }
  return net;
}

void useBetweenHosts(std::shared_ptr<net::Net> net) {
  const std::lock_guard lock(netMutex);
  givenNet = std::move(net);
}

bool isFar(const links::Endpoint& mine, const links::Endpoint& theirs, const std::string& forced) {
  if (mine.rank == theirs.rank || mine.onDevice != mine.proxied || theirs.onDevice != theirs.proxied)
    return false;
  return forced == links::net::kName || (forced.empty() && !sameHost(mine.process, theirs.process));
}

Result<FarLinks> connectFar(bootstrap::Membership& membership, links::net::FarLinks::Config config,
                            std::span<const links::Endpoint> endpoints, int wanted, double timeoutSeconds) {
  const int rank = config.rank;
  auto listening = [&]() -> Result<FarLinks> {
    auto net = netBetweenHosts(membership.encryption());
    if (!net.ok()) return net.status();
    config.net = std::move(net.value());
    FarLinks all;
    while (all.size() < static_cast<size_t>(std::clamp(wanted, 1, kMostFarLinks))) {
      auto one = links::net::FarLinks::listen(config);
      if (!one.ok()) return one.status();
      all.push_back(std::move(one.value()));
    }
    return all;
  }();
  const auto offers = gather(membership, "net", offerOf(listening), timeoutSeconds);
  if (!offers.ok()) return offers.status();
  STRETTO_TRY(agree(offers.value(), rank));
  FarLinks& all = listening.value();
  for (const Offer offer : offers.value()) all.resize(std::clamp<size_t>(offer.count, 1, all.size()));
  const std::string forced = parameters::kLink.text();
  for (size_t peer = 0; peer < endpoints.size(); ++peer) {
    const links::Endpoint& mine = endpoints[static_cast<size_t>(rank)];
    const bool proxied = mine.proxied != 0 && endpoints[peer].rank != mine.rank;
    if (!proxied && !isFar(mine, endpoints[peer], forced)) continue;
    const Offer theirs = offers.value()[peer];
    for (size_t i = 0; i < all.size(); ++i) all[i]->add(static_cast<int>(peer), theirs.handles[i]);
  }
  return listening;
}

links::Link standIn(const WindowHeader& like, int rank, size_t bytes, size_t behind) {
  constexpr std::align_val_t kAlignment{kPageBytes};
  auto* const memory = static_cast<std::byte*>(::operator new[](bytes, kAlignment));
  std::memset(memory + behind, 0, bytes - behind);
  const std::shared_ptr<WindowHeader> header(new (memory) WindowHeader{},
                                             [](WindowHeader* at) { ::operator delete[](at, kAlignment); });
  header->magic = like.magic;
  header->version = like.version;
  header->rank = static_cast<uint32_t>(rank);
  header->ranks = like.ranks;
  header->slotBytes = like.slotBytes;
  header->linkChunk = like.linkChunk;
  header->heavyFence = like.heavyFence;
  links::Link link;
  link.kind = links::net::kName;
  link.window = reinterpret_cast<std::byte*>(header.get());
  link.standIn = header;
  return link;
}

Result<StandIns> StandIns::create(int ranks) {
  auto memory = platform::SharedMemory::createPrivate(headersBegin(ranks) +
                                                      static_cast<size_t>(ranks) * sizeof(WindowHeader));
  if (!memory.ok()) return memory.status();
  StandIns all;
  all.ranks_ = ranks;
  all.memory_ = std::make_shared<platform::SharedMemory>(std::move(memory.value()));
  return all;
}

links::Link StandIns::of(int rank) const {
  links::Link link;
  link.kind = links::net::kName;
  link.window = memory_->data() + headersBegin(ranks_) + static_cast<size_t>(rank) * sizeof(WindowHeader);
  link.standIn = {memory_, reinterpret_cast<WindowHeader*>(link.window)};
  return link;
}

std::vector<uint8_t> FarView::of(const WindowHeader& header, const RankSet& asks, const OperationLog* log) {
  const std::vector<uint64_t> asked = asks.words();
  View view;
  view.asks = asked.front();
  view.failed = read(header.failed);
  view.left = read(header.left);
  view.disagreeing = read(header.wait.disagreeing);
  for (size_t i = 0; i < WindowHeader::kGivenUp; ++i) {
    view.seatingsGivenUp[i] = read(header.seatingsGivenUp[i]);
    view.childrenGivenUp[i] = read(header.childrenGivenUp[i]);
  }
  view.call = copyOf(header.wait.call);
  const uint64_t last = log != nullptr ? log->last() : 0;
  for (uint64_t i = 0; i < WindowHeader::kCallsKept; ++i) {
    view.calls[i] = log == nullptr ? copyOf(header.calls[i])
                    : i < last     ? std::bit_cast<CallRecordWords>(log->find(last - i))
                                   : CallRecordWords{};
  }
  std::vector<uint8_t> bytes(sizeof view + (asked.size() - 1) * sizeof(uint64_t));
  std::memcpy(bytes.data(), &view, sizeof view);
  if (asked.size() > 1) std::memcpy(bytes.data() + sizeof view, &asked[1], bytes.size() - sizeof view);
  return bytes;
}

bool FarView::apply(std::span<const uint8_t> bytes, WindowHeader& standIn, RankSet& asks, OperationLog* log) {
  constexpr size_t kMostWords = kMostRanks / 64;
  View view;
  if (bytes.size() < sizeof view || (bytes.size() - sizeof view) % sizeof(uint64_t) != 0) return false;
  std::vector<uint64_t> asked(1 + (bytes.size() - sizeof view) / sizeof(uint64_t));
  if (asked.size() > kMostWords) return false;
  std::memcpy(&view, bytes.data(), sizeof view);
  asked[0] = view.asks;
  if (asked.size() > 1) std::memcpy(&asked[1], bytes.data() + sizeof view, bytes.size() - sizeof view);
  asks = RankSet::ofWords(asked);
  for (const CallRecordWords& words : view.calls) {
    const auto call = std::bit_cast<CallRecord>(words);
    if (call.sequence == 0) continue;
    if (log != nullptr) {
      log->enter(call);
    } else {
      recordCall(standIn, call);
    }
  }
  const auto call = std::bit_cast<CallRecord>(view.call);
  if (call.sequence != 0) recordCallAt(standIn.wait.call, call);
  for (size_t i = 0; i < WindowHeader::kGivenUp; ++i) {
    write(standIn.seatingsGivenUp[i], view.seatingsGivenUp[i]);
    write(standIn.childrenGivenUp[i], view.childrenGivenUp[i]);
  }
  write(standIn.wait.disagreeing, view.disagreeing);
  write(standIn.left, view.left);
  write(standIn.failed, view.failed);
  std::atomic_ref(standIn.bell).fetch_add(1, std::memory_order_release);
  platform::futexWake(&standIn.bell);
  return true;
}

void Shown::note(std::span<const uint8_t> view, uint64_t nanoseconds) {
  view_.assign(view.begin(), view.end());
  nanoseconds_ = nanoseconds;
}

bool Shown::isOld(std::span<const uint8_t> view, uint64_t nanoseconds) const {
  if (view_.empty() || nanoseconds - nanoseconds_ >= kNanoseconds) return true;
  const auto said = [](std::span<const uint8_t> of) {
    return of.subspan(sizeof(View::asks), sizeof(View) - sizeof(View::asks));
  };
  return !std::ranges::equal(said(view), said(view_));
}

}  // namespace stretto::communicator
