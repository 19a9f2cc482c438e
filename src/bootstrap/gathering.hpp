// The all-gathers of one session as one of its hosts sees them: the ranks' parts come in, the result goes out
// when all are there. Each of a session's hosts gathers for itself, and members take the result that comes
// first. For bootstrap/ only: Session has one; one thread, the loop's.
//
// How far apart members can be: a rank gives its part of exchange n when it has the result of n - 1, which
// has the parts of all. So once any rank has begun n, every rank has begun n - 1 and has the result of n - 2.
// Hence two exchanges are open at most, whatever came before n - 1 is of no use to anybody, and the last two
// parts are all that a member has to repeat to a host that is new to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {

class Gathering {
 public:
  // `fromTheStart`: it hosts the session from the first exchange on. Otherwise the first part of a rank may
  // belong to any exchange.
  Gathering(uint32_t ranks, bool fromTheStart)
      : ranks_(ranks), fromTheStart_(fromTheStart), members_(ranks) {}

  // Takes a rank's part. `news` is for all members, if there is any. False: the rank broke the protocol,
  // `complaint` says how. A rank's exchanges come in order; it may leave out some, which have ended by what
  // other hosts gathered while this one did not read.
  bool contribute(int rank, const Exchange& part, SharedBytes& news, std::string& complaint);
  // Who has not given a part to the exchange that `rank` waits in.
  std::vector<int> missing(int rank) const;

 private:
  struct Round {
    std::string name;
    int firstRank = -1;
    uint32_t contributed = 0;
    size_t bytes = 0;
    std::vector<bool> has;
    std::vector<Bytes> blobs;
  };
  struct Member {
    bool heard = false;
    uint64_t next = 0;  // the first exchange that it may give a part to
  };

  Round& open(const Exchange& part, int rank);
  SharedBytes failAll(uint32_t sequence, int peer, std::string text);

  const uint32_t ranks_;
  const bool fromTheStart_;
  std::vector<Member> members_;
  std::map<uint32_t, Round> rounds_;  // at most two
  uint32_t newest_ = 0;
  bool failed_ = false;  // once ranks disagree about the order, every later exchange fails alike
};

}  // namespace stretto::bootstrap
