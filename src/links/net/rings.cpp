#include "links/net/rings.hpp"

#include <new>
#include <utility>

namespace stretto::links::net {
namespace {

using stretto::net::Memory;
using stretto::net::Receive;

constexpr std::align_val_t kAlignment{kPageBytes};

}  // namespace

void Aligned::operator()(std::byte* memory) const {
  ::operator delete[](memory, kAlignment);
}

Slots::Slots(size_t chunkBytes)
    : slotBytes_(kMailboxBytes + (chunkBytes + kMailboxBytes - 1) / kMailboxBytes * kMailboxBytes),
      memory_(static_cast<std::byte*>(::operator new[](kDepth* slotBytes_, kAlignment))) {
  for (uint64_t slot = 0; slot < kDepth; ++slot) *at(slot) = Mailbox{};
}

bool Break::note(Status found) {
  if (is() || found.ok()) return false;
  status = found;
  words = lastError();
  return true;
}

SendRing::SendRing(int rank, size_t chunkBytes) : slots_(chunkBytes) {
  hello_.rank = rank;
}

void SendRing::progress() {
  if (!broken_.is()) broken_.note(step());
}

Status SendRing::step() {
  if (sender_ == nullptr) {
    if (connecting_ == nullptr) return kOkStatus;
    STRETTO_TRY(connecting_->poll(sender_));
    if (sender_ == nullptr) return kOkStatus;
    connecting_.reset();
    auto memory = sender_->enrol(slots_.data(), slots_.bytes(), Memory::kHost);
    STRETTO_TRY(memory.status());
    memory_ = std::move(memory.value());
    auto hello = sender_->enrol(reinterpret_cast<std::byte*>(&hello_), sizeof hello_, Memory::kHost);
    STRETTO_TRY(hello.status());
    helloMemory_ = std::move(hello.value());
  }
  if (!greeted_) STRETTO_TRY(greet());
  if (greeting_ == nullptr && !greeted_) return kOkStatus;
  STRETTO_TRY(post());
  return reap();
}

// The hello is the oldest request, so it is asked for first.
Status SendRing::greet() {
  if (greeting_ == nullptr) {
    STRETTO_TRY(sender_->send(reinterpret_cast<const std::byte*>(&hello_), sizeof hello_, 0,
                              helloMemory_.get(), greeting_));
    if (greeting_ == nullptr) return kOkStatus;
  }
  return sender_->test(greeting_, greeted_);
}

Status SendRing::post() {
  while (posted_ < published_) {
    STRETTO_TRY(send(posted_));
    if (requests_[posted_ % Slots::kDepth] == nullptr) return kOkStatus;
    ++posted_;
  }
  return kOkStatus;
}

Status SendRing::send(uint64_t chunk) {
  const uint64_t at = chunk % Slots::kDepth;
  const auto* const mailbox = reinterpret_cast<const std::byte*>(slots_.at(chunk));
  requests_[at] = nullptr;
  if (lent_[at] == nullptr)
    return sender_->send(mailbox, messageBytes(bytes_[at]), 0, memory_.get(), requests_[at]);
  return sender_->sendGathered({{mailbox, sizeof(Mailbox)}, {lent_[at], bytes_[at]}}, 0, requests_[at]);
}

bool SendRing::giveBack() {
  uint64_t chunk = credits_.count;
  while (chunk < published_ && lent_[chunk % Slots::kDepth] == nullptr) ++chunk;
  if (broken_.is() || chunk == published_) return false;
  const std::string why = lastError();
  broken_.note(fail(Code::kRemote, "an operation failed before all had left that it sends"));
  setLastError(why);
  return true;
}

void SendRing::close() {
  memory_.reset();
  helloMemory_.reset();
  sender_.reset();
  connecting_.reset();
}

Status SendRing::reap() {
  while (greeted_ && credits_.count < posted_) {
    bool done = false;
    STRETTO_TRY(sender_->test(requests_[credits_.count % Slots::kDepth], done));
    if (!done) return kOkStatus;
    ++credits_.count;
  }
  return kOkStatus;
}

void ReceiveRing::hangUp() {
  memory_.reset();
  receiver_.reset();
}

void ReceiveRing::progress() {
  if (!broken_.is()) broken_.note(step());
}

Status ReceiveRing::step() {
  if (receiver_ == nullptr) return kOkStatus;
  if (memory_ == nullptr) {
    auto memory = receiver_->enrol(slots_.data(), slots_.bytes(), Memory::kHost);
    STRETTO_TRY(memory.status());
    memory_ = std::move(memory.value());
  }
  STRETTO_TRY(post());
  return reap();
}

Status ReceiveRing::post() {
  while (posted_ - released_.count < Slots::kDepth) {
    const uint64_t at = posted_ % Slots::kDepth;
    const Receive room{reinterpret_cast<std::byte*>(slots_.at(posted_)), slots_.slotBytes(), 0,
                       memory_.get()};
    requests_[at] = nullptr;
    STRETTO_TRY(receiver_->receive(&room, 1, requests_[at]));
    if (requests_[at] == nullptr) return kOkStatus;
    ++posted_;
  }
  return kOkStatus;
}

Status ReceiveRing::reap() {
  while (arrived_ < posted_) {
    const uint64_t at = arrived_ % Slots::kDepth;
    bool done = false;
    size_t bytes = 0;
    STRETTO_TRY(receiver_->test(requests_[at], done, &bytes));
    if (!done) return kOkStatus;
    if (bytes < sizeof(Mailbox)) {
      return fail(Code::kRemote, "a message of %zu bytes came where chunks have %zu at least", bytes,
                  sizeof(Mailbox));
    }
    sizes_[at] = bytes;
    slots_.at(arrived_)->count = arrived_ + 1;
    ++arrived_;
  }
  return kOkStatus;
}

}  // namespace stretto::links::net
