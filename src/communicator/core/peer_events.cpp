#include "communicator/core/peer_events.hpp"

#include <cstdio>

#include "primitives/disagreement.hpp"
#include "primitives/ending.hpp"

namespace stretto::communicator {

// If a lost rank has given up because ranks disagree, and the calls of this one show that too, its words for
// it: its own waits may not have come that far.
std::string PeerEvents::disagreementBehind(int lost) const {
  const WindowHeader* const header = plane_.header();
  if (header == nullptr) return "";
  const int rank = self_.rank();
  WindowHeader& theirs = connections_.peers[static_cast<size_t>(lost)].header();
  if (statusOfAbort(std::atomic_ref(theirs.failed).load()).code != Code::kInvalidUsage) return "";
  const OperationLog mine = connections_.operationLog(rank);
  for (const Peer& peer : connections_.peers) {
    const Difference calls = self_.onDevice() ? mine.firstDifferenceTo(connections_.operationLog(peer.rank))
                                              : firstDifference(*header, peer.header());
    if (calls.found()) return ranksDisagree(rank, inWords(calls.mine), peer.rank, inWords(calls.theirs));
  }
  const RankSet members = disagreeingAt(theirs, self_.ranks());
  if (!members.empty()) return ranksStandStill(connections_.peers, members, rank);
  return "";
}

// Of ranks of another host this rank may not know yet what they have called. The lost one has said why it
// left, with both calls, and whom it blames, so that this rank blames the same one.
Status PeerEvents::whyLost(const bootstrap::PeerLoss& loss, std::string& words) const {
  const std::string disagreement = disagreementBehind(loss.rank);
  Status why{loss.disagreed || !disagreement.empty() ? Code::kInvalidUsage : Code::kRemote,
             static_cast<int16_t>(loss.rank)};
  if (!disagreement.empty()) {
    words = disagreement;
  } else if (loss.disagreed && plane_.header() != nullptr) {
    WindowHeader& theirs = connections_.peers[static_cast<size_t>(loss.rank)].header();
    const Status said = statusOfAbort(std::atomic_ref(theirs.failed).load());
    const bool blames = said.code == Code::kInvalidUsage && said.peer >= 0 && said.peer < self_.ranks();
    if (blames && said.peer != self_.rank()) why.peer = said.peer;
  }
  return why;
}

void PeerEvents::lost(const bootstrap::PeerLoss& loss) {
  char text[1200];
  snprintf(text, sizeof text, "rank %d lost rank %d (host %s, process %u): %s", self_.rank(), loss.rank,
           loss.host.c_str(), loss.pid, loss.reason.c_str());
  health_.noteLost(loss.rank, text);
  plane_.sayLost(loss.rank);
  (void)submission_.device().watchdog().noteReport();
  std::string words = text;
  const Status why = whyLost(loss, words);
  const State state = health_.state();
  if (state == State::kReady || state == State::kInitialising) health_.markBroken(why, State::kFailed, words);
  submission_.journal().flight().note(words.c_str());
  health_.raiseAbort(why);
}

// A peer that sends no message may have freed memory as well.
void PeerEvents::heard(int rank, std::span<const uint8_t> message) {
  if (!plane_.hears(rank, message)) submission_.host().sweep();
  submission_.device().watchdog().nudged();
}

}  // namespace stretto::communicator
