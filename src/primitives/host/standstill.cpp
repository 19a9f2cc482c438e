// Ranks that wait for each other and for nobody else: none of these waits can end. It happens when a send
// meets a collective, or when sends and receives that need each other are not in one group.
//
// A rank whose wait has become long publishes which ranks could end it (LongWait). A set of ranks stands
// still if each of them is in such a wait, and no rank outside of the set could end any of the waits. That is
// read from windows of ranks that run, so a rank reads it twice:
//
//   1. First it reads the tickets and the peers of all members, then, after that, the number of their looks.
//   2. Later it reads the looks again, then the tickets. It is sure if no ticket has changed and every member
//      has looked at least twice more.
//
// Why this suffices. Call the moment between the two readings of step 1 T.
//   a. A member whose ticket has not changed between the readings was in the same wait all the time, so at T.
//   b. At T, then, all members waited. Everything that a member has done for others it had done before its
//   wait began, so before T.
//   c. The first of a member's two further looks was counted after its number was read, so after T. The
//   second began after that: it saw everything that had been done before T, and was in the same wait. It did
//   not find what the member waits for. (A look must not overtake the count of the one before it: sleepStep
//   passes a full fence between them.)
//   d. Only members could do what the members wait for, none does anything while it waits, and what was done
//      before T was not enough. So all of them wait for ever.
//
// A rank that has died or is stopped looks no more, and is never part of such a set. A member whose wait is
// ending may already act while its ticket still says that it waits: it looks no more in that wait. A rank
// whose wait one of a higher number than 63 could end does not say for whom it waits, and is never a member.
//
// tests/model/standstill_test.cpp runs this in every interleaving, and shows what each step is for.
#include <bit>

#include "primitives/disagreement.hpp"
#include "primitives/host/host.hpp"

namespace stretto {
namespace {

uint64_t read(const uint64_t& word) {
  return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}

// Calls `body(rank)` for each bit; stops and returns false when it does.
template <typename Body>
bool forEach(uint64_t ranks, Body body) {
  for (; ranks != 0; ranks &= ranks - 1) {
    if (!body(std::countr_zero(ranks))) return false;
  }
  return true;
}

}  // namespace

// Step 1. False if some rank is not in a long wait, or does not say for whom.
bool Host::seesStandstill(StandstillSeen& seen) const {
  uint64_t members = uint64_t{1} << rank_;
  for (uint64_t open = members; open != 0;) {
    const int rank = std::countr_zero(open);
    const LongWait& wait = peers_[static_cast<size_t>(rank)].header().wait;
    seen.tickets[rank] = read(wait.ticket);
    const uint64_t awaited = read(wait.peers);
    if (seen.tickets[rank] % 2 == 0 || awaited == 0) return false;
    const uint64_t more = awaited & ~members;
    members |= more;
    open = (open & (open - 1)) | more;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  forEach(members, [&](int rank) {
    seen.looks[rank] = read(peers_[static_cast<size_t>(rank)].header().wait.looks);
    return true;
  });
  seen.members = members;
  return true;
}

bool Host::isUnchanged(const StandstillSeen& seen) const {
  return forEach(seen.members, [&](int rank) {
    return read(peers_[static_cast<size_t>(rank)].header().wait.ticket) == seen.tickets[rank];
  });
}

// Step 2 if there was a first one, else step 1.
Status Host::standstill(StandstillSeen& seen, int waitedFor) const {
  if (rank_ >= kMaxRanks) return kOkStatus;
  if (seen.members == 0 || !isUnchanged(seen)) {
    if (!seesStandstill(seen)) seen.members = 0;
    return kOkStatus;
  }
  constexpr uint64_t kLooks = 2;
  const bool haveLooked = forEach(seen.members, [&](int rank) {
    return read(peers_[static_cast<size_t>(rank)].header().wait.looks) >= seen.looks[rank] + kLooks;
  });
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!haveLooked || !isUnchanged(seen)) return kOkStatus;
  const RankSet members = RankSet::ofBits(seen.members);
  const uint64_t others = seen.members & ~(uint64_t{1} << rank_);
  const bool isOfThem = waitedFor != rank_ && waitedFor >= 0 && members.has(waitedFor);
  reportDisagreeing(members);
  return parted(isOfThem ? waitedFor : std::countr_zero(others), members);
}

}  // namespace stretto
