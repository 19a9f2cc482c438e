// WSAPoll over a list. What wakes it is a datagram that a socket sends to itself.
#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "platform/native_socket.hpp"

namespace stretto {

struct Poller::State {
  FileDescriptor wakeup;
  std::mutex waking;
  std::vector<WSAPOLLFD> sockets;
  std::vector<uint64_t> tags;  // of each
  size_t first = 0;            // where to look for events first: whoever does not fit comes first next time

  WSAPOLLFD* find(const FileDescriptor& socket) {
    const auto found = std::find_if(sockets.begin(), sockets.end(), [&](const WSAPOLLFD& one) {
      return one.fd == native::handle(socket.get());
    });
    return found == sockets.end() ? nullptr : &*found;
  }
};
void Poller::Delete::operator()(State* state) const {
  delete state;
}

namespace {

constexpr short kReadable = POLLRDNORM;
constexpr short kWritable = POLLWRNORM;
constexpr short kBroken = POLLERR | POLLHUP | POLLNVAL;

short eventsOf(Poller::For what) {
  const bool reading = what == Poller::For::kReading || what == Poller::For::kBoth;
  const bool writing = what == Poller::For::kWriting || what == Poller::For::kBoth;
  return static_cast<short>((reading ? kReadable : 0) | (writing ? kWritable : 0));
}

// A socket for datagrams of its own.
FileDescriptor openWakeup() {
  native::startSockets();
  FileDescriptor socket = FileDescriptor::create(
      [] { return native::checked(static_cast<int>(::socket(AF_INET, SOCK_DGRAM, 0))); });
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int length = sizeof own;
  u_long on = 1;
  const SOCKET raw = native::handle(socket.get());
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  const bool made = socket.valid() && native::checked(::bind(raw, address, length)) == 0 &&
                    native::checked(::getsockname(raw, address, &length)) == 0 &&
                    native::checked(::connect(raw, address, length)) == 0 &&
                    native::checked(::ioctlsocket(raw, static_cast<long>(FIONBIO), &on)) == 0;
  return made ? std::move(socket) : FileDescriptor();
}

}  // namespace

Result<Poller> Poller::create() {
  Poller poller;
  poller.state_.reset(new State);
  poller.state_->wakeup = openWakeup();
  if (!poller.state_->wakeup.valid()) return failErrno("cannot make a socket that wakes a thread");
  STRETTO_TRY(poller.add(poller.state_->wakeup, kWakeTag, For::kReading));
  return poller;
}

Status Poller::add(const FileDescriptor& socket, uint64_t tag, For what) {
  WSAPOLLFD one{};
  one.fd = native::handle(socket.get());
  one.events = eventsOf(what);
  state_->sockets.push_back(one);
  state_->tags.push_back(tag);
  return kOkStatus;
}

void Poller::change(const FileDescriptor& socket, uint64_t, For what) {
  WSAPOLLFD* const one = state_->find(socket);
  if (one != nullptr) one->events = eventsOf(what);
}

void Poller::remove(const FileDescriptor& socket) {
  WSAPOLLFD* const one = state_->find(socket);
  if (one == nullptr) return;
  const auto index = one - state_->sockets.data();
  state_->sockets.erase(state_->sockets.begin() + index);
  state_->tags.erase(state_->tags.begin() + index);
}

size_t Poller::wait(std::span<Event> events, int milliseconds) {
  std::vector<WSAPOLLFD>& all = state_->sockets;
  for (WSAPOLLFD& one : all) one.revents = 0;
  int ready = ::WSAPoll(all.data(), static_cast<ULONG>(all.size()), milliseconds);
  size_t kept = 0;
  const size_t start = state_->first;
  for (size_t i = 0; i < all.size() && ready > 0 && kept < events.size(); ++i) {
    const size_t at = (start + i) % all.size();
    const short bits = all[at].revents;
    if (bits == 0) continue;
    --ready;
    if (state_->tags[at] == kWakeTag) {
      char ignored[16];
      while (::recv(all[at].fd, ignored, sizeof ignored, 0) > 0) {
      }
      continue;
    }
    const bool broken = (bits & kBroken) != 0;
    events[kept++] = {state_->tags[at], broken || (bits & kReadable) != 0, broken || (bits & kWritable) != 0};
    state_->first = at + 1;
  }
  return kept;
}

// A send may fail because the socket's buffer is full; then a datagram is waiting there, and the poller
// wakes. Wine also refuses a send while another thread is inside its own send on the same socket. The poller
// may have received that thread's datagram already, and would miss this wake. So one thread sends at a time,
// and repeats a send that was refused.
void Poller::wake() {
  if (state_ == nullptr) return;  // it was never made
  const std::lock_guard lock(state_->waking);
  constexpr int kMostTries = 100;
  const char one = 1;
  for (int i = 0; i < kMostTries && ::send(native::handle(state_->wakeup.get()), &one, sizeof one, 0) < 0;
       ++i)
    std::this_thread::yield();
}

}  // namespace stretto
