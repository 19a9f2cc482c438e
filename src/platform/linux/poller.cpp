#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "platform/socket.hpp"

namespace stretto {

struct Poller::State {
  FileDescriptor epoll;
  FileDescriptor wakeup;
};
void Poller::Delete::operator()(State* state) const {
  delete state;
}

namespace {

epoll_event eventOf(uint64_t tag, Poller::For what) {
  const bool reading = what == Poller::For::kReading || what == Poller::For::kBoth;
  const bool writing = what == Poller::For::kWriting || what == Poller::For::kBoth;
  epoll_event event{};
  event.events = (reading ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u);
  event.data.u64 = tag;
  return event;
}

}  // namespace

Result<Poller> Poller::create() {
  Poller poller;
  poller.state_.reset(new State);
  State& state = *poller.state_;
  state.epoll = FileDescriptor::create([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  state.wakeup = FileDescriptor::create([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!state.epoll.valid() || !state.wakeup.valid()) {
    return failErrno("cannot create an epoll and an event descriptor");
  }
  STRETTO_TRY(poller.add(state.wakeup, kWakeTag, For::kReading));
  return poller;
}

Status Poller::add(const FileDescriptor& socket, uint64_t tag, For what) {
  epoll_event event = eventOf(tag, what);
  if (::epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return failErrno("cannot watch a socket");
  }
  return kOkStatus;
}

void Poller::change(const FileDescriptor& socket, uint64_t tag, For what) {
  epoll_event event = eventOf(tag, what);
  ::epoll_ctl(state_->epoll.get(), EPOLL_CTL_MOD, socket.get(), &event);
}

void Poller::remove(const FileDescriptor& socket) {
  epoll_event event{};
  ::epoll_ctl(state_->epoll.get(), EPOLL_CTL_DEL, socket.get(), &event);
}

size_t Poller::wait(std::span<Event> events, int milliseconds) {
  constexpr size_t kBatch = 64;
  epoll_event raw[kBatch];
  const int limit = static_cast<int>(std::min(events.size(), kBatch));
  const int count = ::epoll_wait(state_->epoll.get(), raw, limit, milliseconds);
  size_t kept = 0;
  for (int i = 0; i < count; ++i) {
    if (raw[i].data.u64 == kWakeTag) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t got = ::read(state_->wakeup.get(), &ignored, sizeof ignored);
      continue;
    }
    const uint32_t bits = raw[i].events;
    const bool broken = (bits & (EPOLLERR | EPOLLHUP)) != 0;
    events[kept++] = {raw[i].data.u64, broken || (bits & EPOLLIN) != 0, broken || (bits & EPOLLOUT) != 0};
  }
  return kept;
}

void Poller::wake() {
  if (state_ == nullptr) return;  // it was never made
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t sent = ::write(state_->wakeup.get(), &one, sizeof one);
}

}  // namespace stretto
