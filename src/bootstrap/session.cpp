#include "bootstrap/session.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "base/log.hpp"

namespace stretto::bootstrap {
namespace {

constexpr size_t kMaxRankListBytes = 240;

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

std::optional<Refusal> Session::admit(uint32_t ranks, const MemberInfo& who, Port& port) {
  if (std::optional<Refusal> objection = objectionTo(ranks, who)) {
    if (failure_.text.empty()) {
      lastRefusal_ = objection->text.substr(0, 400);
    }
    return objection;
  }
  if (ranks_ == 0) {
    ranks_ = ranks;
    firstRank_ = who.rank;
    members_.resize(ranks);
  }
  Member& seat = members_[static_cast<size_t>(who.rank)];
  seat.presence = Presence::kPresent;
  seat.info = who;
  seat.port = &port;
  ++joined_;
  ++present_;
  port.send(encode(host_));
  if (joined_ == ranks_) {
    completeJoin();
  }
  return std::nullopt;
}

void Session::completeJoin() {
  complete_ = true;
  std::vector<MemberInfo> table;
  table.reserve(members_.size());
  for (const Member& member : members_) {
    table.push_back(member.info);
  }
  broadcast(encodeTable(table));
}

void Session::broadcast(const SharedBytes& frame) {
  for (const Member& member : members_) {
    if (member.port != nullptr) member.port->send(frame);
  }
}

bool Session::contribute(int rank, const Exchange& part, std::string& complaint) {
  Member& member = members_[static_cast<size_t>(rank)];
  if (!complete_ || part.sequence != sequence_ || (member.contributed && exchangeFailure_.text.empty())) {
    complaint = say("rank %d sent exchange %u out of turn", rank, part.sequence);
    return false;
  }
  if (!exchangeFailure_.text.empty()) {
    return true;  // everybody has been told
  }
  if (contributed_ == 0) {
    exchangeName_ = part.name;
    exchangeFirstRank_ = rank;
  } else if (part.name != exchangeName_) {
    failExchange({Code::kInvalidUsage, rank,
                  say("the ranks disagree about exchange %u: rank %d calls \"%s\", but rank %d calls \"%s\"",
                      sequence_, exchangeFirstRank_, exchangeName_.c_str(), rank, part.name.c_str())});
    return true;
  }
  exchangeBytes_ += part.blob.size();
  if (exchangeBytes_ > kMaxExchangeBytes) {
    failExchange({Code::kInvalidUsage, rank,
                  say("exchange \"%s\" carries more than %zu bytes over all ranks", exchangeName_.c_str(),
                      kMaxExchangeBytes)});
    return true;
  }
  member.contributed = true;
  member.blob.assign(part.blob.begin(), part.blob.end());
  if (++contributed_ == ranks_) {
    completeExchange();
  }
  return true;
}

void Session::completeExchange() {
  std::vector<Bytes> blobs;
  blobs.reserve(members_.size());
  for (Member& member : members_) {
    blobs.push_back(std::exchange(member.blob, {}));
    member.contributed = false;
  }
  broadcast(encodeExchangeResult(sequence_, blobs));
  ++sequence_;
  contributed_ = 0;
  exchangeBytes_ = 0;
}

void Session::failExchange(Refusal why) {
  exchangeFailure_ = std::move(why);
  for (Member& member : members_) {
    member.blob = {};
  }
  broadcast(encode(ExchangeFailure{sequence_, exchangeFailure_}));
}

std::string Session::missingText(QueryKind kind) const {
  std::vector<int> missing;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    const bool here = kind == QueryKind::kJoin ? member.presence == Presence::kPresent : member.contributed;
    if (!here) missing.push_back(static_cast<int>(rank));
  }
  std::string text = missing.empty() ? "nobody" : describeRanks(missing);
  if (kind == QueryKind::kJoin && !lastRefusal_.empty()) {
    text += " (turned away: " + lastRefusal_ + ")";
  }
  return text;
}

void Session::answer(int rank, QueryKind kind) {
  Missing missing;
  missing.arrived = kind == QueryKind::kJoin ? present_ : contributed_;
  missing.ranks = ranks_;
  missing.text = missingText(kind);
  members_[static_cast<size_t>(rank)].port->send(encode(missing));
}

void Session::nudge(int rank) {
  if (!complete_) return;
  const SharedBytes frame = encodeEmpty(FrameType::kNudge);
  for (const Member& member : members_) {
    if (member.port != nullptr && member.info.rank != rank) member.port->send(frame);
  }
}

void Session::leave(int rank, const Goodbye& goodbye) {
  Member& member = members_[static_cast<size_t>(rank)];
  switch (goodbye.kind) {
    case Farewell::kLeft:
      if (!complete_) break;
      member.presence = Presence::kLeft;
      member.port = nullptr;
      --present_;
      broadcast(encodeLeft(static_cast<uint32_t>(rank)));
      return;
    case Farewell::kAborted:
      lose(rank, LossKind::kAborted, goodbye.text.empty() ? "called ncclCommAbort" : goodbye.text);
      return;
    case Farewell::kExited:
      lose(rank, LossKind::kExited, "its process exited without destroying the communicator");
      return;
    case Farewell::kGaveUp:
      lose(rank, LossKind::kGaveUp, goodbye.text);
      return;
  }
  lose(rank, LossKind::kExited, "it left before all ranks had joined");
}

void Session::lose(int rank, LossKind kind, const std::string& text) {
  Member& member = members_[static_cast<size_t>(rank)];
  member.presence = Presence::kLost;
  member.port = nullptr;
  --present_;
  STRETTO_LOG(kInfo, kInit, "session %016llx: rank %d (%s, pid %u) is lost: %s",
              static_cast<unsigned long long>(id_), rank, member.info.host.c_str(), member.info.pid,
              text.c_str());
  if (!complete_) {
    if (!failure_.text.empty()) return;  // everybody has been told, and leaves
    const bool late = kind == LossKind::kGaveUp;
    failure_ = {late ? Code::kTimeout : Code::kRemote, rank,
                say("rank %d (%s, pid %u) was lost before all ranks had joined: %s", rank,
                    member.info.host.c_str(), member.info.pid, text.c_str())};
  }
  broadcast(encode(lossOf(member.info, kind, text)));
}

void Session::hostExits() {
  for (Member& member : members_) {
    if (member.presence == Presence::kPresent && member.info.process == host_.process) {
      lose(member.info.rank, LossKind::kExited, "its process exited without destroying the communicator");
    }
  }
  broadcast(encodeEmpty(FrameType::kHostLeaving));
}

void SessionDirectory::open(uint64_t id, const Key128& secret) {
  if (sessions_.find(id) == sessions_.end()) {
    sessions_.emplace(id, std::make_unique<Session>(id, secret, host_));
  }
}

void SessionDirectory::closeUnused(uint64_t id) {
  const Session* session = find(id);
  if (session != nullptr && session->unused()) {
    sessions_.erase(id);
  }
}

Session* SessionDirectory::find(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
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
  Refusal why = session->failure();
  if (why.text.empty()) {
    why = {Code::kInvalidUsage, -1,
           "the communicator that this unique id made has already ended: each id makes one communicator"};
  }
  epitaphs_.emplace_back(id, std::move(why));
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
