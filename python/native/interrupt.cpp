#include "interrupt.hpp"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "owner.hpp"

namespace stretto::python {
namespace {

namespace nb = nanobind;

constexpr auto kPatience = std::chrono::milliseconds(250);

// Never freed: the handler and the thread may outlive everything else.
struct InterruptWatch {
  std::mutex lock;
  ncclComm_t waiting = nullptr;  // what the main thread is in, guarded by lock
  uint64_t turn = 0;             // number of that call, guarded by lock
  pthread_t mainThread = pthread_self();
  pid_t process = getpid();  // a forked child has the handler, but not the thread
  Owner owner;               // the same, for who may not afford a system call
  int event = -1;
  struct sigaction python {};
};
InterruptWatch* gWatch = nullptr;

void onInterrupt(int number) {
  const int error = errno;
  gWatch->python.sa_handler(number);
  if (getpid() == gWatch->process) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(gWatch->event, &one, sizeof one);
  }
  errno = error;
}

void revokeIfStillThere(InterruptWatch& watch) {
  std::unique_lock<std::mutex> guard(watch.lock);
  const uint64_t turn = watch.turn;
  if (watch.waiting == nullptr) return;
  guard.unlock();
  std::this_thread::sleep_for(kPatience);
  guard.lock();
  // Under the lock, so that the call cannot end, nor its communicator go, meanwhile.
  if (watch.waiting != nullptr && watch.turn == turn) ncclCommRevoke(watch.waiting, NCCL_REVOKE_DEFAULT);
}

void listen(InterruptWatch* watch) {
  uint64_t count = 0;
  while (read(watch->event, &count, sizeof count) == sizeof count || errno == EINTR)
    revokeIfStillThere(*watch);
}

bool inMainThread() {
  const nb::module_ threading = nb::module_::import_("threading");
  return threading.attr("current_thread")().is(threading.attr("main_thread")());
}

}  // namespace

void watchInterrupts() {
  struct sigaction current {};
  if (!inMainThread() || sigaction(SIGINT, nullptr, &current) != 0) return;
  const bool plain = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler != SIG_DFL &&
                     current.sa_handler != SIG_IGN && current.sa_handler != onInterrupt;
  // A child has its parent's handler, and needs a thread of its own behind it.
  const bool inherited = current.sa_handler == onInterrupt && !gWatch->owner.isHere();
  if (!plain && !inherited) return;
  if (gWatch == nullptr || !gWatch->owner.isHere()) {
    auto* watch = new InterruptWatch;
    if (inherited) current = gWatch->python;
    watch->event = eventfd(0, EFD_CLOEXEC);
    if (watch->event < 0) return;  // Then Ctrl-C waits for the call, as it would without us.
    std::thread(listen, watch).detach();
    gWatch = watch;
  }
  gWatch->python = current;
  current.sa_handler = onInterrupt;
  sigaction(SIGINT, &current, nullptr);
}

Interruptible::Interruptible(ncclComm_t comm)
    : here_(gWatch != nullptr && gWatch->owner.isHere() &&
            pthread_equal(pthread_self(), gWatch->mainThread)) {
  if (!here_) return;
  const std::lock_guard<std::mutex> guard(gWatch->lock);
  gWatch->waiting = comm;
  gWatch->turn++;
}

Interruptible::~Interruptible() {
  if (!here_) return;
  const std::lock_guard<std::mutex> guard(gWatch->lock);
  gWatch->waiting = nullptr;
}

}  // namespace stretto::python
