// The process's Service: one background thread, started at first use and stopped when nobody needs it any
// more, that hosts the rendezvous of communicators and serves this process's Memberships. The communicator
// layer calls it for ncclGetUniqueId and for the children of split and shrink. Any thread. A forked child
// does not see its parent's Service: the first use there starts another one.
//
// A session lives from createSession or openSession until everybody who joined it has left; one that nobody
// joins lives until closeSession, failSession or the end of the process. While sessions or Memberships exist,
// the thread and its address stay. At the process's normal exit it tells all members so (ranks of this
// process that did not say goodbye are lost, the others find another process to host their session) and
// stops. The Services of members host sessions too, beside the process that made the id and after it:
// hosts.hpp has the rules.
#pragma once

#include <memory>
#include <string>

#include "base/status.hpp"
#include "bootstrap/unique_id.hpp"
#include "platform/encryption.hpp"

namespace stretto::bootstrap {

class Loop;

class Service {
 public:
  // A new session, hosted here, that waits for its ranks. kSystem when no socket, thread or random bytes can
  // be had, kInvalidUsage when 65,536 sessions wait already (ids are made and never used).
  static Result<UniqueId> createSession();
  // Hosts a derived session; `id` must name this process's address. Doing it twice changes nothing.
  static Status openSession(const UniqueId& id);
  // Gives up a session of this process's that nobody has joined; otherwise nothing.
  static void closeSession(const UniqueId& id);
  // Ends a session that ranks may have joined already, because `rank` will not join it. Those that wait there
  // fail with `why`, and so do those that come later. Does nothing once all ranks have joined.
  static void failSession(const UniqueId& id, int rank, const std::string& why);
};

// Keeps the Service running while it exists. For bootstrap/ itself.
class ServiceUse {
 public:
  static Result<std::unique_ptr<ServiceUse>> acquire();
  ~ServiceUse();
  ServiceUse(const ServiceUse&) = delete;
  ServiceUse& operator=(const ServiceUse&) = delete;

  Loop& loop() const { return *loop_; }
  // As the process was told to when this was acquired: sessions and memberships keep it.
  const Encryption& encryption() const { return encryption_; }
  // Gives up the hold without touching anything that a fork left behind half done.
  static void abandon(std::unique_ptr<ServiceUse> use, std::shared_ptr<void> companion);

 private:
  struct Registry;
  ServiceUse(std::shared_ptr<Loop> loop, Encryption encryption)
      : loop_(std::move(loop)), encryption_(std::move(encryption)) {}

  static Registry& registry();
  static Status start(Registry& here);
  static bool retire(Registry& here);
  static void atExit();

  std::shared_ptr<Loop> loop_;
  const Encryption encryption_;
};

}  // namespace stretto::bootstrap
