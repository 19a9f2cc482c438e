#include "bootstrap/membership.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/log.hpp"
#include "base/parameters.hpp"
#include "bootstrap/client_link.hpp"
#include "bootstrap/loop.hpp"
#include "bootstrap/service.hpp"

namespace stretto::bootstrap {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(1);          // for the host to say who is missing
constexpr auto kGoodbyeTime = std::chrono::milliseconds(500);  // for an abort's goodbye to get out
constexpr auto kPeacefulTime =
    std::chrono::milliseconds(30000);  // for another, where this process is that late
constexpr double kLongestSeconds = 1e9;

Clock::time_point deadlineAfter(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Status checkTimeout(int rank, double seconds) {
  if (seconds > 0 && seconds <= kLongestSeconds) {
    return kOkStatus;
  }
  return fail(Code::kInvalidArgument, "rank %d: a timeout of %g s is not between 0 and %g", rank, seconds,
              kLongestSeconds);
}

Status checkSeat(int rank, int ranks, const JoinOptions& options) {
  if (ranks < 1 || ranks > kMaxRanks) {
    return fail(Code::kInvalidArgument, "rank %d: %d ranks were asked for; 1 to %d are possible", rank, ranks,
                kMaxRanks);
  }
  if (rank < 0 || rank >= ranks) {
    return fail(Code::kInvalidArgument, "rank %d is out of range: there are %d ranks, 0 to %d", rank, ranks,
                ranks - 1);
  }
  if (options.version.size() > kMaxNameBytes) {
    return fail(Code::kInvalidArgument, "rank %d: the version has %zu bytes; at most %zu are possible", rank,
                options.version.size(), kMaxNameBytes);
  }
  return kOkStatus;
}

MemberInfo describeSelf(int rank, const Loop& loop, const JoinOptions& options) {
  MemberInfo self;
  self.rank = rank;
  self.pid = loop.host().pid;
  self.process = loop.host().process;
  self.host = loop.host().host;
  self.version = options.version;
  self.service = loop.address();
  return self;
}

std::string missingText(const Missing& missing, double timeoutSeconds) {
  char text[96];
  snprintf(text, sizeof text, "%u of %u ranks joined within %g s, missing ", missing.arrived, missing.ranks,
           timeoutSeconds);
  return text + missing.text;
}

Farewell farewellOf(Leaving how) {
  switch (how) {
    case Leaving::kNormally:
      return Farewell::kLeft;
    case Leaving::kAborted:
      return Farewell::kAborted;
    case Leaving::kDisagreed:
      break;
  }
  return Farewell::kDisagreed;
}

Status stopped(int rank) {
  return fail(Code::kAborted, "rank %d: the process is exiting", rank);
}

}  // namespace

Membership::Membership(const UniqueId& id, std::unique_ptr<ServiceUse> service,
                       std::shared_ptr<ClientLink> link)
    : id_(id), pid_(os::processId()), service_(std::move(service)), link_(std::move(link)) {}

Result<std::unique_ptr<Membership>> Membership::join(const UniqueId& id, int rank, int ranks,
                                                     double timeoutSeconds, StopCheck stop,
                                                     JoinOptions options) {
  const Result<Rendezvous> where = decodeId(id, rank);
  STRETTO_TRY(where.status());
  STRETTO_TRY(checkSeat(rank, ranks, options));
  STRETTO_TRY(checkTimeout(rank, timeoutSeconds));
  Result<std::unique_ptr<ServiceUse>> service = ServiceUse::acquire();
  STRETTO_TRY(service.status());
  Loop& loop = service.value()->loop();
  const Meeting meeting{where.value(), service.value()->encryption()};
  auto link = std::make_shared<ClientLink>(meeting, describeSelf(rank, loop, options), ranks, std::move(stop),
                                           std::move(options.onPeerLost), std::move(options.onNudged));
  auto membership = std::unique_ptr<Membership>(new Membership(id, std::move(service.value()), link));
  if (!loop.post([link](Loop& running) { running.enter(link); })) {
    return stopped(rank);
  }
  STRETTO_TRY(membership->finishJoin(timeoutSeconds));
  return membership;
}

const Encryption& Membership::encryption() const {
  return link_->where.encryption;
}

template <typename Wait, typename Words>
WaitEnd Membership::waitAloud(double timeoutSeconds, const Wait& wait, const Words& whatIsMissing) {
  const Clock::time_point deadline = deadlineAfter(timeoutSeconds);
  const auto warnAfter = parameters::warnAfter();
  if (!warnAfter.ok() || warnAfter.value() >= timeoutSeconds) return wait(deadline);
  const WaitEnd first = wait(deadlineAfter(warnAfter.value()));
  if (first.how != Waited::kTimeout) return first;
  const std::string missing = whatIsMissing(warnAfter.value());
  // It may have come while that was asked.
  if (const WaitEnd late = wait(Clock::now()); late.how != Waited::kTimeout) return late;
  STRETTO_LOG(kWarn, kInit, "rank %d goes on waiting: %s", rank(), missing.c_str());
  return wait(deadline);
}

Status Membership::finishJoin(double timeoutSeconds) {
  const WaitEnd end = waitAloud(
      timeoutSeconds, [this](Clock::time_point deadline) { return link_->waitJoined(deadline); },
      [this](double seconds) { return notJoined(seconds); });
  switch (end.how) {
    case Waited::kDone:
      return link_->joinOutcome();
    case Waited::kTimeout:
      return giveUpJoining(timeoutSeconds);
    case Waited::kStopped:
      break;
  }
  const Status why = end.why;
  const std::string words = lastError();
  leave(Farewell::kAborted, why.code == Code::kAborted ? "" : words);
  return failAbout(why.peer, why.code, "rank %d: gave up while the %d ranks were joining: %s", rank(),
                   link_->ranks, words.c_str());
}

std::string Membership::notJoined(double seconds) {
  Missing missing;
  return link_->admitted() && ask(QueryKind::kJoin, missing) ? missingText(missing, seconds)
                                                             : link_->unreachedText(seconds);
}

Status Membership::giveUpJoining(double timeoutSeconds) {
  const std::string text = notJoined(timeoutSeconds);
  // In the meantime the last rank may have come, or somebody else may have said why it never will.
  if (const Status late = link_->joinOutcome(); late.code != Code::kInProgress) {
    return late;
  }
  leave(Farewell::kGaveUp, text);
  return fail(Code::kTimeout, "rank %d: %s", rank(), text.c_str());
}

bool Membership::ask(QueryKind kind, Missing& answer) {
  link_->expectAnswer();
  service_->loop().post([link = link_, kind](Loop& loop) { loop.ask(*link, kind); });
  return link_->waitAnswer(Clock::now() + kAnswerTime, answer);
}

Membership::~Membership() {
  if (pid_ != os::processId()) {
    ServiceUse::abandon(std::move(service_), std::move(link_));
    return;
  }
  leave(Farewell::kLeft, "");
}

int Membership::rank() const {
  return link_->self.rank;
}

std::span<const MemberInfo> Membership::members() const {
  return link_->members();
}

Result<Membership::Parts> Membership::exchange(const char* name, std::span<const uint8_t> mine,
                                               double timeoutSeconds) {
  const auto number = takePart(name, mine);
  STRETTO_TRY(number.status());
  return await(number.value(), name, timeoutSeconds);
}

Result<uint32_t> Membership::takePart(const char* name, std::span<const uint8_t> mine) {
  if (pid_ != os::processId()) {
    return fail(Code::kInvalidUsage,
                "rank %d: this communicator belongs to process %d, which forked this one", rank(),
                static_cast<int>(pid_));
  }
  if (name == nullptr || std::strlen(name) > kMaxNameBytes || mine.size() > kMaxBlobBytes) {
    return fail(Code::kInvalidArgument,
                "rank %d: an exchange takes a name of at most %zu bytes and at most %zu bytes "
                "of data, not %zu",
                rank(), kMaxNameBytes, kMaxBlobBytes, mine.size());
  }
  const Result<uint32_t> sequence = link_->beginExchange(name);
  STRETTO_TRY(sequence.status());
  const SharedBytes part = encodeExchange(sequence.value(), name, mine);
  if (!service_->loop().post([link = link_, part, number = sequence.value()](Loop& loop) {
        loop.contribute(*link, number, part);
      })) {
    return stopped(rank());
  }
  return sequence;
}

Result<Membership::Parts> Membership::await(uint32_t exchange, const char* name, double timeoutSeconds,
                                            const StopCheck& stop) {
  STRETTO_TRY(checkTimeout(rank(), timeoutSeconds));
  const WaitEnd end = waitAloud(
      timeoutSeconds,
      [&](Clock::time_point deadline) { return link_->waitExchange(exchange, deadline, stop); },
      [&](double seconds) { return std::string("in exchange \"") + name + "\" " + notExchanged(seconds); });
  switch (end.how) {
    case Waited::kDone:
      return link_->exchangeOutcome(name, exchange);
    case Waited::kTimeout:
      return exchangeTimedOut(name, timeoutSeconds);
    case Waited::kStopped:
      break;
  }
  const Status why = end.why;
  const std::string words = lastError();
  if (!link_->stopReason().ok()) link_->spoilExchanges({why.code, why.peer, words});
  return failAbout(why.peer, why.code, "rank %d: gave up exchange \"%s\": %s", rank(), name, words.c_str());
}

std::string Membership::notExchanged(double seconds) {
  Missing missing;
  char text[96];
  if (!ask(QueryKind::kExchange, missing)) {
    snprintf(text, sizeof text, "no process that hosts the session answered within %g s", seconds);
    return text;
  }
  snprintf(text, sizeof text, "%u of %u ranks came within %g s, missing ", missing.arrived, missing.ranks,
           seconds);
  return text + missing.text;
}

Status Membership::exchangeTimedOut(const char* name, double timeoutSeconds) {
  const std::string text =
      std::string("exchange \"") + name + "\" timed out: " + notExchanged(timeoutSeconds);
  link_->spoilExchanges({Code::kTimeout, -1, text});
  return fail(Code::kTimeout, "rank %d: %s", rank(), text.c_str());
}

bool Membership::hasGone(int rank) const {
  return link_->hasGone(rank);
}

void Membership::nudge(std::span<const uint8_t> message) {
  if (pid_ != os::processId() || left_.load() || message.size() > kMaxNudgeBytes) return;
  service_->loop().post(
      [link = link_, said = Bytes(message.begin(), message.end())](Loop& loop) { loop.nudge(*link, said); });
}

void Membership::sayGoodbye(Leaving how, const std::string& why) {
  if (pid_ == os::processId()) {
    leave(farewellOf(how), why);
  }
}

// Who has left in peace may end its process next, and without a goodbye that is a death to the others. So the
// background thread says when it is done, however late it runs.
void Membership::leave(Farewell kind, const std::string& text) {
  if (left_.exchange(true)) {
    return;
  }
  link_->silence();
  const Goodbye goodbye{kind, text};
  if (service_->loop().post([link = link_, goodbye](Loop& loop) { loop.farewell(link, goodbye); })) {
    const bool inPeace = kind == Farewell::kLeft;
    link_->waitDetached(Clock::now() + (inPeace ? kPeacefulTime : kGoodbyeTime), inPeace);
  }
}

}  // namespace stretto::bootstrap
