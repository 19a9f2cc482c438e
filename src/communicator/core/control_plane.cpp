#include "communicator/core/control_plane.hpp"

#include <algorithm>
#include <iterator>

#include "platform/clock.hpp"
#include "platform/futex.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {

void ControlPlane::join(std::unique_ptr<bootstrap::Membership> membership) {
  const std::lock_guard lock(mutex_);
  membership_ = std::move(membership);
}

void ControlPlane::leave() {
  const std::lock_guard lock(mutex_);
  membership_.reset();
}

Status ControlPlane::joined(const char* what) const {
  if (hasJoined()) return kOkStatus;
  return fail(Code::kInvalidUsage, "rank %d: nothing to %s: this communicator never met its other ranks",
              self_.rank(), what);
}

void ControlPlane::opens() {
  spread_ = !connections_.far.empty();
  header_.store(&connections_.header());
}

void ControlPlane::sayFailed(Status why) {
  WindowHeader* const header = this->header();
  if (header == nullptr) return;
  std::atomic_ref(header->failed).store(abortWord(why));
  if (spread_) show({});
}

void ControlPlane::sayAbort(uint32_t word) {
  WindowHeader* const header = this->header();
  if (header == nullptr) return;
  std::atomic_ref(header->abort).store(word, std::memory_order_seq_cst);
  std::atomic_ref(header->bell).fetch_add(1, std::memory_order_seq_cst);
  platform::futexWake(&header->bell);
}

void ControlPlane::sayLost(int rank) {
  WindowHeader* const header = this->header();
  if (header != nullptr && rank < kMaxRanks) std::atomic_ref(header->lost).fetch_or(uint64_t{1} << rank);
}

void ControlPlane::sayLeft(uint32_t how) {
  WindowHeader* const header = this->header();
  if (header != nullptr) std::atomic_ref(header->left).store(how, std::memory_order_release);
}

void ControlPlane::nudge() {
  const std::lock_guard lock(mutex_);
  if (membership_ != nullptr) membership_->nudge();
}

void ControlPlane::sayGoodbye(bootstrap::Leaving how, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (membership_ != nullptr) membership_->sayGoodbye(how, why);
}

void ControlPlane::sayLastGoodbye(bootstrap::Leaving how, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (spread_) showNow({});
  if (membership_ != nullptr) membership_->sayGoodbye(how, why);
}

void ControlPlane::show(const RankSet& asks) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) showNow(asks);
}

void ControlPlane::askOtherHosts() {
  constexpr double kPauseSeconds = 1;
  const uint64_t now = platform::ticks();
  if (!spread_ || (askedTicks_ != 0 && platform::tickSeconds(now - askedTicks_) < kPauseSeconds)) return;
  askedTicks_ = now;
  RankSet others;
  for (size_t rank = 0; rank < connections_.links.size(); ++rank) {
    if (connections_.links[rank].standIn != nullptr) others.add(static_cast<int>(rank));
  }
  show(others);
}

bool ControlPlane::hears(int rank, std::span<const uint8_t> message) {
  RankSet asks;
  WindowHeader* const header = this->header();
  if (message.empty() || header == nullptr) return false;
  const links::Link& link = connections_.links[static_cast<size_t>(rank)];
  if (link.standIn != nullptr) {
    OperationLog log = connections_.operationLog(rank);
    connections_.standIns.hear(rank);
    if (!FarView::apply(message, *link.standIn, asks, self_.onDevice() ? &log : nullptr)) return true;
    std::atomic_ref(header->bell).fetch_add(1, std::memory_order_release);
    platform::futexWake(&header->bell);
  }
  if (asks.has(self_.rank())) answer();
  return true;
}

void ControlPlane::answer() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  WindowHeader* const header = this->header();
  if (!lock.owns_lock() || header == nullptr) return;
  if (shown_.isOld(viewOf(*header, {}), platform::monotonicNanoseconds())) showNow({});
}

std::vector<uint8_t> ControlPlane::viewOf(const WindowHeader& header, const RankSet& asks) const {
  const OperationLog log = connections_.operationLog(self_.rank());
  return FarView::of(header, asks, self_.onDevice() ? &log : nullptr);
}

// By mutex_.
void ControlPlane::showNow(const RankSet& asks) {
  WindowHeader* const header = this->header();
  if (header == nullptr || membership_ == nullptr) return;
  const std::vector<uint8_t> view = viewOf(*header, asks);
  shown_.note(view, platform::monotonicNanoseconds());
  membership_->nudge(view);
}

// The exchange that seats the ranks may succeed on some ranks and fail on others, when a rank dies meanwhile;
// and a child may be aborted, or turn out to be impossible on one rank, before that one has joined it. Who
// has not joined the child cannot tell it there, and says so in its window of the parent.
void ControlPlane::giveUpSeating(uint64_t seating) {
  const std::lock_guard lock(mutex_);  // with a membership there are windows
  WindowHeader* const header = this->header();
  if (membership_ == nullptr || header == nullptr) return;
  std::atomic_ref(header->seatingsGivenUp[seating % WindowHeader::kGivenUp])
      .store(seating, std::memory_order_release);
  if (spread_) showNow({});
}

void ControlPlane::giveUpChild(uint64_t child) {
  const std::lock_guard lock(mutex_);
  WindowHeader* const header = this->header();
  if (membership_ == nullptr || header == nullptr) return;
  std::atomic_ref(header->childrenGivenUp[childrenGivenUp_++ % WindowHeader::kGivenUp])
      .store(child, std::memory_order_release);
  if (spread_) showNow({});
}

int ControlPlane::whoGaveUp(const std::vector<int>& members, uint64_t seating, uint64_t child) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || membership_ == nullptr || connections_.peers.empty()) return -1;
  const auto holds = [](const uint64_t& word, uint64_t value) {
    return value != 0 &&
           std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire) == value;
  };
  for (size_t index = 0; index < members.size(); ++index) {
    const WindowHeader& theirs = connections_.peers[static_cast<size_t>(members[index])].header();
    const bool gaveUp = holds(theirs.seatingsGivenUp[seating % WindowHeader::kGivenUp], seating) ||
                        std::any_of(std::begin(theirs.childrenGivenUp), std::end(theirs.childrenGivenUp),
                                    [&](const uint64_t& word) { return holds(word, child); });
    if (members[index] != self_.rank() && gaveUp) return static_cast<int>(index);
  }
  return -1;
}

std::vector<char> ControlPlane::whoHasGone(const std::vector<int>& members) const {
  std::vector<char> gone(members.size());
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const bool knows = lock.owns_lock() && membership_ != nullptr;
  for (size_t i = 0; knows && i < members.size(); ++i) gone[i] = membership_->hasGone(members[i]) ? 1 : 0;
  return gone;
}

std::string ControlPlane::hostOf(int rank) const {
  const std::lock_guard lock(mutex_);
  return membership_ == nullptr ? "" : membership_->members()[static_cast<size_t>(rank)].host;
}

}  // namespace stretto::communicator
