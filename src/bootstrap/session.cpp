#include "bootstrap/session.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/log.hpp"

namespace stretto::bootstrap {
namespace {

constexpr size_t kMaxRankListBytes = 240;
constexpr size_t kMaxRefusalBytes = 400;  // that those who wait are told

[[gnu::format(printf, 1, 2)]] std::string say(const char* format, ...) {
  char text[kMaxTextBytes];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string quoted(const std::string& version) {
  return version.empty() ? "an unnamed version" : "version " + version;
}

Lost lossOf(const MemberInfo& who, LossKind kind, std::string text) {
  return Lost{static_cast<uint32_t>(who.rank), kind, who.pid, who.host, std::move(text)};
}

}  // namespace

std::string describeRanks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t at = 0;
  while (at < ranks.size() && text.size() < kMaxRankListBytes) {
    size_t last = at;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (at != 0) text += ", ";
    text += std::to_string(ranks[at]);
    if (last > at) text += (last == at + 1 ? ", " : "-") + std::to_string(ranks[last]);
    at = last + 1;
  }
  if (at < ranks.size()) text += " and " + std::to_string(ranks.size() - at) + " more";
  return text;
}

std::optional<Refusal> Session::objectionTo(uint32_t ranks, const MemberInfo& who) const {
  if (!failure_.text.empty()) {
    return failure_;
  }
  const auto refuse = [](std::string text) { return Refusal{Code::kInvalidUsage, -1, std::move(text)}; };
  if (ranks == 0 || ranks > kMaxRanks) {
    return refuse(say("%u ranks were asked for; 1 to %d are possible", ranks, kMaxRanks));
  }
  if (who.rank < 0 || static_cast<uint32_t>(who.rank) >= ranks) {
    return refuse(say("rank %d is out of range: there are %u ranks, 0 to %u", who.rank, ranks, ranks - 1));
  }
  if (ranks_ == 0) {
    return std::nullopt;
  }
  if (ranks != ranks_) {
    return refuse(say("rank %d says there are %u ranks, but rank %d said there are %u", who.rank, ranks,
                      firstRank_, ranks_));
  }
  const MemberInfo& first = members_[static_cast<size_t>(firstRank_)].info;
  if (who.version != first.version) {
    return refuse(say("rank %d loads %s of the library, but rank %d loads %s: all ranks must load the same",
                      who.rank, quoted(who.version).c_str(), firstRank_, quoted(first.version).c_str()));
  }
  if (const Member& seat = members_[static_cast<size_t>(who.rank)]; seat.presence != Presence::kAwaited) {
    return refuse(
        say("rank %d was already taken by pid %u on %s, and pid %u on %s asks for it too: each rank joins "
            "once, and an id makes one communicator",
            who.rank, seat.info.pid, seat.info.host.c_str(), who.pid, who.host.c_str()));
  }
  return std::nullopt;
}

// At a further host: the table says who may come.
std::optional<Refusal> Session::objectionToNewcomer(uint32_t ranks, const MemberInfo& who) const {
  const auto refuse = [](std::string text) { return Refusal{Code::kInvalidUsage, -1, std::move(text)}; };
  if (ranks != ranks_ || who.rank < 0 || static_cast<uint32_t>(who.rank) >= ranks_) {
    return refuse(say("rank %d of %u is none of the %u ranks that have joined", who.rank, ranks, ranks_));
  }
  const Member& member = members_[static_cast<size_t>(who.rank)];
  if (who.process != member.info.process) {
    return refuse(say("rank %d is pid %u on %s, not pid %u on %s", who.rank, member.info.pid,
                      member.info.host.c_str(), who.pid, who.host.c_str()));
  }
  if (member.port != nullptr) {
    return refuse(say("rank %d is here already", who.rank));
  }
  return std::nullopt;
}

Session::Session(uint64_t id, SessionKeys keys, Welcome host, std::span<const MemberInfo> members,
                 const Hearsay& hearsay)
    : id_(id),
      keys_(std::move(keys)),
      host_(std::move(host)),
      rendezvous_(false),
      hearsay_(hearsay),
      ranks_(static_cast<uint32_t>(members.size())),
      members_(members.size()),
      joined_(ranks_),
      complete_(true) {
  for (size_t rank = 0; rank < members.size(); ++rank) members_[rank].info = members[rank];
  gathering_.emplace(ranks_, false);
}

void Session::noteRefusal(const std::string& refusal) {
  if (lastRefusal_.empty()) lastRefusal_ = refusal.substr(0, kMaxRefusalBytes);
}

void Session::seat(Member& member, Port& port) {
  if (!member.gone()) member.presence = Presence::kPresent;
  member.port = &port;
  ++present_;
  port.send(encode(host_));
}

std::optional<Refusal> Session::admit(uint32_t ranks, const MemberInfo& who, Port& port) {
  if (!rendezvous_) {
    if (std::optional<Refusal> objection = objectionToNewcomer(ranks, who)) return objection;
    seat(members_[static_cast<size_t>(who.rank)], port);
    for (const Departure& gone : departures_) {
      const MemberInfo& info = members_[static_cast<size_t>(gone.rank)].info;
      port.send(gone.left ? encode(Left{static_cast<uint32_t>(gone.rank), gone.exchanges})
                          : encode(lossOf(info, gone.kind, gone.text)));
    }
    return std::nullopt;
  }
  if (std::optional<Refusal> objection = objectionTo(ranks, who)) {
    if (failure_.text.empty()) {
      lastRefusal_ = objection->text.substr(0, kMaxRefusalBytes);
    }
    return objection;
  }
  if (ranks_ == 0) {
    ranks_ = ranks;
    firstRank_ = who.rank;
    members_.resize(ranks);
  }
  Member& member = members_[static_cast<size_t>(who.rank)];
  member.info = who;
  seat(member, port);
  if (++joined_ < ranks_) return std::nullopt;
  complete_ = true;
  gathering_.emplace(ranks_, true);
  std::vector<MemberInfo> table;
  table.reserve(members_.size());
  for (const Member& one : members_) table.push_back(one.info);
  broadcast(encodeTable(table));
  return std::nullopt;
}

void Session::broadcast(const SharedBytes& frame, int except) {
  for (const Member& member : members_) {
    if (member.port != nullptr && member.info.rank != except) member.port->send(frame);
  }
}

bool Session::contribute(int rank, const Exchange& part, std::string& complaint) {
  if (!complete_) {
    complaint = say("rank %d sent exchange %u before all had joined", rank, part.sequence);
    return false;
  }
  SharedBytes news;
  const bool good = gathering_->contribute(rank, part, news, complaint);
  if (news != nullptr) broadcast(news);
  return good;
}

std::vector<int> Session::missing(int rank, QueryKind kind) const {
  if (kind == QueryKind::kExchange) {
    return complete_ ? gathering_->missing(rank) : std::vector<int>{};
  }
  std::vector<int> absent;
  for (size_t peer = 0; peer < members_.size(); ++peer) {
    if (members_[peer].presence != Presence::kPresent) absent.push_back(static_cast<int>(peer));
  }
  return absent;
}

void Session::answer(int rank, QueryKind kind) {
  const std::vector<int> absent = missing(rank, kind);
  Missing answer;
  answer.ranks = ranks_;
  answer.arrived = ranks_ - static_cast<uint32_t>(absent.size());
  answer.text = absent.empty() ? "nobody" : describeRanks(absent);
  if (kind == QueryKind::kJoin && !lastRefusal_.empty()) {
    answer.text += " (turned away: " + lastRefusal_ + ")";
  }
  members_[static_cast<size_t>(rank)].port->send(encode(answer));
}

void Session::nudge(int rank, const Nudge& nudge) {
  if (complete_) broadcast(encode(Nudge{static_cast<uint32_t>(rank), nudge.number, nudge.message}), rank);
}

void Session::unseat(Member& member) {
  if (member.port == nullptr) return;
  member.port = nullptr;
  --present_;
}

void Session::remember(Departure departure) {
  departures_.push_back(std::move(departure));
  if (hearsay_) hearsay_(id_, departures_.back());
}

void Session::reportLeft(Member& member, uint32_t exchanges) {
  member.presence = Presence::kLeft;
  remember({.rank = member.info.rank, .left = true, .exchanges = exchanges});
  broadcast(encode(Left{static_cast<uint32_t>(member.info.rank), exchanges}), member.info.rank);
}

void Session::reportLost(Member& member, LossKind kind, const std::string& text) {
  member.presence = Presence::kLost;
  STRETTO_LOG(kInfo, kInit, "session %016llx: rank %d (%s, pid %u) is lost: %s",
              static_cast<unsigned long long>(id_), member.info.rank, member.info.host.c_str(),
              member.info.pid, text.c_str());
  if (!complete_) return fail(lossOf(member.info, kind, text));
  remember({.rank = member.info.rank, .kind = kind, .text = text});
  broadcast(encode(lossOf(member.info, kind, text)), member.info.rank);
}

void Session::fail(const Lost& loss) {
  if (complete_ || !failure_.text.empty()) return;  // everybody has been told, and leaves
  const auto rank = static_cast<int>(loss.rank);
  const bool late = loss.kind == LossKind::kGaveUp;
  failure_ = {late ? Code::kTimeout : Code::kRemote, rank,
              say("rank %d (%s, pid %u) was lost before all ranks had joined: %s", rank, loss.host.c_str(),
                  loss.pid, loss.text.c_str())};
  broadcast(encode(loss), rank);
}

// A member's goodbye, unless it is known already.
Departure departureBy(int rank, const Goodbye& goodbye) {
  Departure departure{rank, goodbye.kind == Farewell::kLeft, goodbye.exchanges};
  switch (goodbye.kind) {
    case Farewell::kLeft:
      break;
    case Farewell::kAborted:
    case Farewell::kDisagreed:
      departure.kind = goodbye.kind == Farewell::kAborted ? LossKind::kAborted : LossKind::kDisagreed;
      departure.text = goodbye.text.empty() ? "called ncclCommAbort" : goodbye.text;
      break;
    case Farewell::kExited:
      departure.kind = LossKind::kExited;
      departure.text = "its process exited without destroying the communicator";
      break;
    case Farewell::kGaveUp:
      departure.kind = LossKind::kGaveUp;
      departure.text = goodbye.text;
      break;
  }
  return departure;
}

void Session::take(Member& member, const Goodbye& goodbye) {
  if (member.gone()) return;
  const Departure departure = departureBy(member.info.rank, goodbye);
  if (!departure.left) return reportLost(member, departure.kind, departure.text);
  if (complete_) return reportLeft(member, departure.exchanges);
  reportLost(member, LossKind::kExited, "it left before all ranks had joined");
}

void Session::leave(int rank, const Goodbye& goodbye) {
  Member& member = members_[static_cast<size_t>(rank)];
  unseat(member);
  take(member, goodbye);
}

void Session::lose(int rank, LossKind kind, const std::string& text) {
  Member& member = members_[static_cast<size_t>(rank)];
  unseat(member);
  if (!member.gone()) reportLost(member, kind, text);
}

void Session::leaveHere(int rank, const Goodbye& goodbye) {
  if (complete_) take(members_[static_cast<size_t>(rank)], goodbye);
}

void Session::learn(const Departure& departure) {
  if (!complete_) return;
  Member& member = members_[static_cast<size_t>(departure.rank)];
  if (member.gone()) return;
  if (departure.left) {
    reportLeft(member, departure.exchanges);
  } else {
    reportLost(member, departure.kind, departure.text);
  }
}

bool Session::vouches(bool local) const {
  if (rendezvous_ || local) {
    return true;
  }
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.gone() || member.port != nullptr; });
}

std::vector<MemberInfo> Session::absentees() const {
  std::vector<MemberInfo> absent;
  for (const Member& member : members_) {
    const auto same = [&](const MemberInfo& who) { return who.process == member.info.process; };
    if (member.presence == Presence::kAwaited && member.info.process != host_.process &&
        std::none_of(absent.begin(), absent.end(), same)) {
      absent.push_back(member.info);
    }
  }
  return absent;
}

void Session::hostExits() {
  for (Member& member : members_) {
    const bool here = member.presence == Presence::kPresent || (complete_ && !member.gone());
    if (!here || member.info.process != host_.process) continue;
    unseat(member);
    reportLost(member, LossKind::kExited, "its process exited without destroying the communicator");
  }
  broadcast(encodeEmpty(FrameType::kHostLeaving));
}

void SessionDirectory::open(uint64_t id, const SessionKeys& keys) {
  if (sessions_.find(id) == sessions_.end()) {
    sessions_.emplace(id, std::make_unique<Session>(id, keys, host_));
  }
}

void SessionDirectory::closeUnused(uint64_t id) {
  const Session* session = find(id);
  if (session != nullptr && session->ranks() == 0) {
    sessions_.erase(id);
  }
}

void SessionDirectory::fail(uint64_t id, int rank, const std::string& why) {
  Session* const session = find(id);
  if (session == nullptr || !session->isRendezvous()) return;
  session->fail({static_cast<uint32_t>(rank), LossKind::kAborted, host_.pid, host_.host, why});
  if (session->ranks() == 0) bury(*session);  // the others are waited for, who are told and leave
}

Session* SessionDirectory::find(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

std::optional<SessionKeys> SessionDirectory::keysOf(uint64_t id) {
  if (const Session* session = find(id)) return session->keys();
  const std::optional<Testimony> known = witness_ ? witness_(id) : std::nullopt;
  return known ? std::optional(known->keys) : std::nullopt;
}

Session* SessionDirectory::findOrOpen(uint64_t id) {
  if (Session* session = find(id)) return session;
  const std::optional<Testimony> known = witness_ ? witness_(id) : std::nullopt;
  if (!known) return nullptr;
  auto session = std::make_unique<Session>(id, known->keys, host_, known->members, hearsay_);
  for (const Departure& gone : known->departures) session->learn(gone);
  return sessions_.emplace(id, std::move(session)).first->second.get();
}

const Refusal* SessionDirectory::epitaph(uint64_t id) const {
  for (const auto& [ended, why] : epitaphs_) {
    if (ended == id) return &why;
  }
  return nullptr;
}

void SessionDirectory::settle(uint64_t id) {
  const Session* session = find(id);
  if (session == nullptr || !session->over()) {
    return;
  }
  if (!session->isRendezvous()) {  // nobody is told to come here but by those who know better
    sessions_.erase(id);
    return;
  }
  bury(*session);
}

// At the rendezvous.
void SessionDirectory::bury(const Session& session) {
  Refusal why = session.failure();
  if (why.text.empty()) {
    why = {Code::kInvalidUsage, -1,
           "the communicator that this unique id made has already ended: each id makes one communicator"};
  }
  const uint64_t id = session.id();
  epitaphs_.emplace_back(id, std::move(why));
  lateRanks_ = lateRanks_ || session.lacksRanks() || session.ranks() == 0;
  if (epitaphs_.size() > kEpitaphs) {
    epitaphs_.pop_front();
  }
  sessions_.erase(id);
}

void SessionDirectory::hostExits() {
  for (const auto& [id, session] : sessions_) {
    session->hostExits();
  }
}

}  // namespace stretto::bootstrap
