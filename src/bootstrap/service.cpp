#include "bootstrap/service.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/os.hpp"
#include "bootstrap/loop.hpp"
#include "platform/own_thread.hpp"
#include "platform/random.hpp"
#include "platform/this_thread.hpp"

namespace stretto::bootstrap {
namespace {

constexpr size_t kMaxWaitingSessions = 65536;
constexpr auto kExitTime = std::chrono::seconds(2);

}  // namespace

// What one process knows of its Service. Never freed: the thread may outlive static objects, and after a fork
// the child makes its own and leaves the parent's, whatever state it was copied in, alone.
struct ServiceUse::Registry {
  const os::ProcessId pid = os::processId();
  Registry* const inherited;  // only so that it stays reachable
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<Loop> loop;  // null while no thread runs
  platform::OwnThread thread;  // of the loop, or of the last one that has retired
  size_t users = 0;
  bool exiting = false;
  std::vector<std::pair<ServiceUse*, std::shared_ptr<void>>> abandoned;

  explicit Registry(Registry* parent) : inherited(parent) {}
};

ServiceUse::Registry& ServiceUse::registry() {
  static std::atomic<Registry*> current{nullptr};
  Registry* known = current.load(std::memory_order_acquire);
  while (known == nullptr || known->pid != os::processId()) {
    auto* fresh = new Registry(known);
    if (current.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) {
      return *fresh;
    }
    delete fresh;
  }
  return *known;
}

// With the registry's mutex held.
Status ServiceUse::start(Registry& here) {
  static const int registered = std::atexit(atExit);
  static_cast<void>(registered);
  here.thread.join();  // one that has retired under this mutex only has to return
  Result<std::shared_ptr<Loop>> made = Loop::create();
  STRETTO_TRY(made.status());
  const bool begun = here.thread.start([&here, loop = made.value()] {
    platform::nameThisThread("stretto-boot");
    if (loop->run([&here] { return retire(here); })) return;
    std::lock_guard lock(here.mutex);  // the process exits, so nobody joins this thread with the mutex held
    here.loop = nullptr;
    here.changed.notify_all();
  });
  if (!begun)
    return fail(Code::kSystem, "there is no thread here for the bootstrap: %s", platform::kNoThread);
  here.loop = made.value();
  return kOkStatus;
}

// Called by the loop when it has nothing to do.
bool ServiceUse::retire(Registry& here) {
  std::lock_guard lock(here.mutex);
  if (here.users != 0 || !here.loop->endIfQuiet()) {
    return false;
  }
  here.loop = nullptr;
  here.changed.notify_all();
  return true;
}

Result<std::unique_ptr<ServiceUse>> ServiceUse::acquire() {
  Result<Encryption> encryption = encryptionOfProcess();
  STRETTO_TRY(encryption.status());
  Registry& here = registry();
  std::lock_guard lock(here.mutex);
  if (here.exiting) {
    return fail(Code::kInvalidUsage, "the process is exiting: no communicator can be made any more");
  }
  if (here.loop == nullptr) {
    STRETTO_TRY(start(here));
  }
  ++here.users;
  return std::unique_ptr<ServiceUse>(new ServiceUse(here.loop, std::move(encryption.value())));
}

ServiceUse::~ServiceUse() {
  Registry& here = registry();
  bool last = false;
  {
    std::lock_guard lock(here.mutex);
    last = --here.users == 0;
  }
  if (last) {
    loop_->post([](Loop&) {});  // has a look whether it may retire
  }
}

void ServiceUse::abandon(std::unique_ptr<ServiceUse> use, std::shared_ptr<void> companion) {
  Registry& here = registry();
  std::lock_guard lock(here.mutex);
  here.abandoned.emplace_back(use.release(), std::move(companion));
}

void ServiceUse::atExit() {
  Registry& here = registry();
  std::unique_lock lock(here.mutex);
  here.exiting = true;
  const std::shared_ptr<Loop> loop = here.loop;
  if (loop != nullptr) {
    lock.unlock();
    loop->post([](Loop& running) { running.shutDown(); });
    lock.lock();
    if (!here.changed.wait_for(lock, kExitTime, [&] { return here.loop == nullptr; })) {
      STRETTO_LOG(kWarn, kInit, "the bootstrap thread did not stop in time at exit");
      return;  // nobody joins it: the registry stays
    }
  }
  platform::OwnThread finished = std::move(here.thread);
  lock.unlock();
  finished.join();
}

Result<UniqueId> Service::createSession() {
  Result<std::unique_ptr<ServiceUse>> use = ServiceUse::acquire();
  STRETTO_TRY(use.status());
  Loop& loop = use.value()->loop();
  Rendezvous fresh;
  fresh.address = loop.address();
  STRETTO_TRY(fillRandom(std::span(reinterpret_cast<uint8_t*>(&fresh.session), sizeof fresh.session)));
  STRETTO_TRY(fillRandom(fresh.secret));
  if (loop.hosted() >= kMaxWaitingSessions) {
    return fail(Code::kInvalidUsage,
                "%zu sessions of this process wait for their ranks already: unique ids are "
                "made and never used",
                kMaxWaitingSessions);
  }
  loop.post([id = fresh.session, keys = SessionKeys{fresh.secret, use.value()->encryption()}](Loop& running) {
    running.sessions().open(id, keys);
  });
  return encodeId(fresh);
}

namespace {

// On the loop's thread, if the session is one of this process's.
void withSession(const UniqueId& id, std::function<void(Loop&, uint64_t)> change) {
  const Result<Rendezvous> where = decodeId(id);
  if (!where.ok()) {
    return;
  }
  Result<std::unique_ptr<ServiceUse>> use = ServiceUse::acquire();
  if (!use.ok() || where.value().address != use.value()->loop().address()) {
    return;
  }
  use.value()->loop().post([session = where.value().session, change = std::move(change)](Loop& running) {
    change(running, session);
  });
}

}  // namespace

Status Service::openSession(const UniqueId& id) {
  const Result<Rendezvous> where = decodeId(id);
  STRETTO_TRY(where.status());
  Result<std::unique_ptr<ServiceUse>> use = ServiceUse::acquire();
  STRETTO_TRY(use.status());
  Loop& loop = use.value()->loop();
  const Rendezvous& wanted = where.value();
  if (wanted.address != loop.address()) {
    return fail(Code::kInvalidUsage, "the session is to be hosted at %s, but this process's service is at %s",
                toText(wanted.address).c_str(), toText(loop.address()).c_str());
  }
  loop.post([id = wanted.session, keys = SessionKeys{wanted.secret, use.value()->encryption()}](
                Loop& running) { running.sessions().open(id, keys); });
  return kOkStatus;
}

void Service::closeSession(const UniqueId& id) {
  withSession(id, [](Loop& loop, uint64_t session) { loop.sessions().closeUnused(session); });
}

void Service::failSession(const UniqueId& id, int rank, const std::string& why) {
  withSession(id, [rank, why](Loop& loop, uint64_t session) { loop.sessions().fail(session, rank, why); });
}

}  // namespace stretto::bootstrap
