// One question, one answer: the asker sends an index and the secret, the source a descriptor. So at most one
// is under way for each asker, the source never waits for anybody, and knows nothing of how far each is.
#include "platform/descriptors.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "platform/clock.hpp"
#include "platform/random.hpp"
#include "platform/this_thread.hpp"

namespace stretto::platform {
namespace {

constexpr size_t kMostAskers = 1024;
constexpr uint64_t kListener = ~uint64_t{1};  // its tag; an asker's is its descriptor

struct Question {
  uint8_t secret[sizeof DescriptorAddress{}.secret] = {};
  uint64_t index = 0;
};
struct Answer {
  uint64_t count = 0;
  uint64_t number = 0;
  int32_t error = 0;  // 1: the source could not open it, as `text` says, and no descriptor comes
  char text[300] = {};
};

sockaddr_un nativeOf(const DescriptorAddress& address) {
  sockaddr_un native{};
  native.sun_family = AF_UNIX;
  char* to = native.sun_path + 1;  // the zero before it makes the name abstract
  to += snprintf(to, 16, "stretto-");
  for (const uint8_t byte : address.name) to += snprintf(to, 3, "%02x", byte);
  return native;
}
constexpr socklen_t kNativeBytes =
    offsetof(sockaddr_un, sun_path) + 1 + sizeof "stretto-" - 1 + 2 * sizeof DescriptorAddress{}.name;

FileDescriptor openSocket() {
  return FileDescriptor::create(
      [] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

// Whether the other end was opened by this process's user.
bool isOurs(const FileDescriptor& socket) {
  ucred whose{};
  socklen_t bytes = sizeof whose;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &whose, &bytes) == 0 && whose.uid == geteuid();
}

// Room for one descriptor beside a message.
struct Beside {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))] = {};
};

bool send(const FileDescriptor& socket, const Answer& answer, int descriptor) {
  Beside beside;
  iovec piece{const_cast<Answer*>(&answer), sizeof answer};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = beside.bytes;
    message.msg_controllen = sizeof beside.bytes;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof answer;
}

// `got`: bytes of the message, 0 at the end, -1 with errno. More descriptors than one do not fit beside it.
FileDescriptor receive(const FileDescriptor& socket, Answer& answer, ssize_t& got, bool& cut) {
  return FileDescriptor::create([&] {
    Beside beside;
    iovec piece{&answer, sizeof answer};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = beside.bytes;
    message.msg_controllen = CMSG_LEN(sizeof(int));  // padding would have room for another
    got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    cut = got > 0 && (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0;
    int descriptor = -1;
    const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    }
    return descriptor;
  });
}

// ---- The asker's side -------------------------------------------------------------------------------------

class Deadline {
 public:
  explicit Deadline(double seconds)
      : seconds_(seconds), end_(monotonicNanoseconds() + static_cast<uint64_t>(seconds * 1e9)) {}
  int milliseconds() const {
    const uint64_t now = monotonicNanoseconds();
    return now >= end_ ? 0 : static_cast<int>(std::min<uint64_t>((end_ - now) / 1'000'000 + 1, 1'000'000));
  }
  Status passed(const char* what) const {
    return fail(Code::kTimeout, "%s within %.3g s: is the process that shares the memory stopped?", what,
                seconds_);
  }

 private:
  double seconds_;
  uint64_t end_;
};

Result<FileDescriptor> reach(const DescriptorAddress& address, const Deadline& deadline) {
  FileDescriptor socket = openSocket();
  if (!socket.valid()) return failErrno("a socket to ask for descriptors with");
  const sockaddr_un native = nativeOf(address);
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&native), kNativeBytes) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return fail(Code::kSystem,
                  "the process that shares the memory cannot be asked for it (%s): it has ended, or is in "
                  "another network namespace",
                  strerror(errno));
    }
    // Too many ask at once.
    if (deadline.milliseconds() == 0) return deadline.passed("no answer to a connection");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (isOurs(socket)) return socket;
  return fail(Code::kSystem, "the process that answers for shared memory is another user's");
}

Status ask(const FileDescriptor& socket, const Question& question) {
  if (::send(socket.get(), &question, sizeof question, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof question) {
    return kOkStatus;
  }
  return fail(Code::kSystem, "the process that shares the memory takes no question (%s)", strerror(errno));
}

Result<NumberedDescriptor> hear(const FileDescriptor& socket, Answer& answer, const Deadline& deadline) {
  NumberedDescriptor taken;
  for (;;) {
    pollfd ready{socket.get(), POLLIN, 0};
    const int left = deadline.milliseconds();
    if (::poll(&ready, 1, left) == 0 && left == 0) return deadline.passed("no descriptor of shared memory");
    ssize_t got = -1;
    bool cut = false;
    taken.descriptor = receive(socket, answer, got, cut);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) {
      return fail(Code::kSystem, "the process that shares the memory has closed the connection%s%s",
                  got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
    }
    answer.text[sizeof answer.text - 1] = 0;
    if (got != sizeof answer || (answer.error == 0 && cut && taken.descriptor.valid())) {
      return fail(Code::kSystem, "the process that shares the memory answers with %zd bytes, not %zu", got,
                  sizeof answer);
    }
    if (answer.error != 0) return fail(Code::kSystem, "%s", answer.text);
    if (!taken.descriptor.valid()) {
      return fail(Code::kSystem, "there is no room for one more descriptor here (ulimit -n)");
    }
    taken.number = answer.number;
    return taken;
  }
}

}  // namespace

// ---- The source -------------------------------------------------------------------------------------------

Result<std::unique_ptr<DescriptorSource>> DescriptorSource::create(size_t count, Open open) {
  std::unique_ptr<DescriptorSource> source(new DescriptorSource(count, std::move(open)));
  STRETTO_TRY(source->listen());
  const bool serves = source->thread_.start([raw = source.get()] {
    nameThisThread("stretto-share");
    raw->serve();
  });
  if (!serves)
    return fail(Code::kSystem, "there is no thread here that could share memory: %s", platform::kNoThread);
  return source;
}

DescriptorSource::~DescriptorSource() {
  ending_ = true;
  poller_.wake();
  thread_.join();
}

Status DescriptorSource::listen() {
  STRETTO_TRY(fillRandom({address_.name, sizeof address_.name}));
  STRETTO_TRY(fillRandom({address_.secret, sizeof address_.secret}));
  listener_ = openSocket();
  const sockaddr_un native = nativeOf(address_);
  if (!listener_.valid() ||
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&native), kNativeBytes) != 0 ||
      ::listen(listener_.get(), 128) != 0) {
    return failErrno("a socket that hands out descriptors");
  }
  auto poller = Poller::create();
  if (!poller.ok()) return poller.status();
  poller_ = std::move(poller.value());
  return poller_.add(listener_, kListener, Poller::For::kReading);
}

void DescriptorSource::serve() {
  Poller::Event events[16];
  while (!ending_) {
    const size_t ready = poller_.wait(events, -1);
    for (size_t i = 0; i < ready; ++i) {
      if (events[i].tag == kListener) {
        admit();
        continue;
      }
      const auto asker = std::find_if(askers_.begin(), askers_.end(), [&](const FileDescriptor& one) {
        return static_cast<uint64_t>(one.get()) == events[i].tag;
      });
      if (asker == askers_.end() || answer(*asker)) continue;
      poller_.remove(*asker);
      askers_.erase(asker);
    }
  }
  askers_.clear();
}

void DescriptorSource::admit() {
  FileDescriptor asker = FileDescriptor::create(
      [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  // Without a descriptor left the asker stays in the queue, and asks in vain until its deadline.
  if (!asker.valid() && (errno == EMFILE || errno == ENFILE)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!asker.valid() || askers_.size() == kMostAskers || !isOurs(asker)) return;
  const auto tag = static_cast<uint64_t>(asker.get());
  if (poller_.add(asker, tag, Poller::For::kReading).ok()) askers_.push_back(std::move(asker));
}

// False when there is nothing more to say to this one.
bool DescriptorSource::answer(const FileDescriptor& asker) {
  Question question;
  const ssize_t got = ::recv(asker.get(), &question, sizeof question, MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got != sizeof question || question.index >= count_) return false;
  if (std::memcmp(question.secret, address_.secret, sizeof question.secret) != 0) return false;
  Answer answer;
  answer.count = count_;
  const auto opened = open_(question.index);
  if (opened.ok()) {
    answer.number = opened.value().number;
  } else {
    answer.error = 1;
    snprintf(answer.text, sizeof answer.text, "%s", lastError().c_str());
  }
  return send(asker, answer, opened.ok() ? opened.value().descriptor.get() : -1);
}

Status takeDescriptors(const DescriptorAddress& address, double seconds, const TakeDescriptor& take) {
  const Deadline deadline(seconds);
  const auto socket = reach(address, deadline);
  if (!socket.ok()) return socket.status();
  Question question;
  std::memcpy(question.secret, address.secret, sizeof question.secret);
  uint64_t count = 1;
  for (; question.index < count; ++question.index) {
    STRETTO_TRY(ask(socket.value(), question));
    Answer answer;
    auto taken = hear(socket.value(), answer, deadline);
    if (!taken.ok()) return taken.status();
    if (answer.count == 0 || (question.index != 0 && answer.count != count)) {
      return fail(Code::kSystem, "the process that shares the memory first had %llu pieces, now %llu",
                  static_cast<unsigned long long>(count), static_cast<unsigned long long>(answer.count));
    }
    count = answer.count;
    STRETTO_TRY(take(question.index, count, std::move(taken.value())));
  }
  return kOkStatus;
}

}  // namespace stretto::platform
