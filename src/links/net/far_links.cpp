#include "links/net/far_links.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.hpp"
#include "platform/own_thread.hpp"

namespace stretto::links::net {

using stretto::net::Memory;
using stretto::net::Receive;

namespace {

// A connection that closes may wait a moment for what its peer has not confirmed: many of them at the same
// time.
template <typename Item, typename Work>
void atTheSameTime(const std::vector<Item*>& items, Work work) {
  constexpr size_t kMostThreads = 64;
  std::atomic<size_t> next{0};
  const auto takeOne = [&] {
    for (size_t i = next++; i < items.size(); i = next++) work(*items[i]);
  };
  std::vector<platform::OwnThread> threads(std::min(items.size(), kMostThreads));
  for (platform::OwnThread& thread : threads) {
    if (!thread.start(takeOne)) takeOne();
  }
}

}  // namespace

Result<std::unique_ptr<FarLinks>> FarLinks::listen(Config config) {
  const auto properties = config.net->properties(config.device);
  if (!properties.ok()) return properties.status();
  auto listener = config.net->listen(config.device);
  if (!listener.ok()) return listener.status();
  auto links = std::unique_ptr<FarLinks>(new FarLinks(std::move(config)));
  links->listener_ = std::move(listener.value());
  links->lends_ = properties.value().gathers;
  links->tellsEnd_ = properties.value().tellsEnd;
  return links;
}

FarLinks::~FarLinks() {
  leave();
}

void FarLinks::leave() {
  atTheSameTime(std::exchange(sending_, {}), [](SendRing& ring) { ring.close(); });
}

void FarLinks::add(int peer, const stretto::net::Handle& handle) {
  size_t bytes = handle.size();
  while (bytes > 0 && handle[bytes - 1] == std::byte{0}) --bytes;
  FarPeer& far = peers_[static_cast<size_t>(peer)];
  far.isFar = true;
  far.handleAt = static_cast<uint32_t>(handles_.size());
  far.handleBytes = static_cast<uint16_t>(bytes);
  handles_.insert(handles_.end(), handle.begin(), handle.begin() + static_cast<ptrdiff_t>(bytes));
  ++expected_;
}

SendRing& FarLinks::to(int peer) {
  FarPeer& far = peers_[static_cast<size_t>(peer)];
  if (far.sending == nullptr) [[unlikely]]
    dial(far);
  return *far.sending;
}

void FarLinks::dial(FarPeer& peer) {
  peer.sending = std::make_unique<SendRing>(config_.rank, config_.chunkBytes);
  stretto::net::Handle handle{};
  std::copy_n(handles_.begin() + peer.handleAt, peer.handleBytes, handle.begin());
  auto connecting = config_.net->connect(config_.device, handle);
  if (connecting.ok()) {
    peer.sending->connect(std::move(connecting.value()));
  } else {
    peer.sending->refuse(connecting.status());
  }
  sending_.push_back(peer.sending.get());
}

ReceiveRing& FarLinks::from(int peer) {
  FarPeer& far = peers_[static_cast<size_t>(peer)];
  if (far.receiving == nullptr) [[unlikely]] {
    far.receiving = std::make_unique<ReceiveRing>(config_.chunkBytes);
    ++wanted_;
  }
  return *far.receiving;
}

void FarLinks::hangUp(int peer) {
  ReceiveRing* const ring = peers_[static_cast<size_t>(peer)].receiving.get();
  std::erase(receiving_, ring);
  ring->hangUp();
}

void FarLinks::progress() {
  for (SendRing* ring : sending_) ring->progress();
  for (ReceiveRing* ring : receiving_) ring->progress();
  // Others may have called meanwhile, and cannot go on before they are answered; but that need not be looked
  // for as often as what is waited for.
  constexpr uint32_t kSeldom = 64;
  if (expected_ != 0 && (wanted_ != 0 || ++looks_ % kSeldom == 0)) answer();
}

// Who listens no longer has no descriptors for strangers.
void FarLinks::answer() {
  if (!deaf_.is()) admit();
  std::erase_if(callers_, [&](Caller& caller) {
    bool heard = false;
    const Status status = hear(caller, heard);
    if (!status.ok()) {
      STRETTO_LOG(kWarn, kNet, "rank %d: a connection was dropped: %s", config_.rank, lastError().c_str());
    }
    return heard || !status.ok();
  });
  if (expected_ != 0) return;
  callers_.clear();
  listener_.reset();
}

void FarLinks::admit() {
  std::unique_ptr<stretto::net::Receiver> next;
  if (!listener_->accept(next).ok()) {
    const std::string why = lastError();
    deaf_.note(fail(Code::kSystem, "rank %d: no peer can connect any more: %s", config_.rank, why.c_str()));
  } else if (next != nullptr) {
    callers_.emplace_back().receiver = std::move(next);
  }
}

Status FarLinks::hear(Caller& caller, bool& heard) {
  auto* const bytes = reinterpret_cast<std::byte*>(&caller.hello);
  if (caller.memory == nullptr) {
    auto memory = caller.receiver->enrol(bytes, sizeof(Hello), Memory::kHost);
    STRETTO_TRY(memory.status());
    caller.memory = std::move(memory.value());
  }
  if (caller.request == nullptr) {
    const Receive room{bytes, sizeof(Hello), 0, caller.memory.get()};
    STRETTO_TRY(caller.receiver->receive(&room, 1, caller.request));
    if (caller.request == nullptr) return kOkStatus;
  }
  size_t came = 0;
  STRETTO_TRY(caller.receiver->test(caller.request, heard, &came));
  return heard ? seat(caller, came) : kOkStatus;
}

// What a connection says of itself is looked at before it is believed.
Status FarLinks::seat(Caller& caller, size_t bytes) {
  const Hello& hello = caller.hello;
  const bool known = bytes == sizeof hello && hello.magic == Hello::kMagic && hello.rank >= 0 &&
                     hello.rank < config_.ranks && isFar(hello.rank);
  if (!known || from(hello.rank).isConnected()) {
    return fail(Code::kRemote, "it says that it comes from rank %d, which %s", hello.rank,
                known ? "has connected before" : "has no link here");
  }
  caller.memory.reset();
  ReceiveRing& ring = from(hello.rank);
  ring.connect(std::move(caller.receiver));
  receiving_.push_back(&ring);
  --expected_;
  --wanted_;
  return kOkStatus;
}

void FarLinks::giveBack() {
  std::vector<SendRing*> lending;
  for (SendRing* ring : sending_) {
    if (ring->giveBack()) lending.push_back(ring);
  }
  atTheSameTime(lending, [](SendRing& ring) { ring.close(); });
}

bool FarLinks::isIdle() const {
  return std::all_of(sending_.begin(), sending_.end(), [](const SendRing* ring) { return ring->isIdle(); });
}

RankSet FarLinks::busy() const {
  RankSet peers;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    const SendRing* const sending = peers_[peer].sending.get();
    if (sending != nullptr && !sending->isIdle()) peers.add(static_cast<int>(peer));
  }
  return peers;
}

const Break* FarLinks::broken(int peer) const {
  const FarPeer& far = peers_[static_cast<size_t>(peer)];
  if (far.sending != nullptr && far.sending->broken().is()) return &far.sending->broken();
  if (far.receiving == nullptr) return nullptr;
  if (far.receiving->broken().is()) return &far.receiving->broken();
  return deaf_.is() && !far.receiving->isConnected() ? &deaf_ : nullptr;
}

bool FarLinks::isOnItsWay(int peer) const {
  const auto& ring = peers_[static_cast<size_t>(peer)].receiving;
  return tellsEnd_ && ring != nullptr && ring->isConnected() && !ring->broken().is();
}

int FarLinks::firstBroken(const RankSet& peers) const {
  for (int peer = peers.next(-1); peer >= 0; peer = peers.next(peer)) {
    if (broken(peer) != nullptr) return peer;
  }
  return -1;
}

}  // namespace stretto::links::net
