// Ranks on several hosts, as NCCL_HOSTID tells them apart or STRETTO_LINK=net has it: over a net that is made
// up inside one process, and does what no real one can be made to do in a test; and over TCP among processes.
// Conformance, transfers, disagreements and failures between hosts are the tests of those names, run with
// STRETTO_LINK=net (labels.cmake).
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include "base/scoped_variable.hpp"
#include "communicator/core/far.hpp"
#include "harness/captured_log.hpp"
#include "harness/explained.hpp"
#include "harness/made_up_net.hpp"
#include "harness/ranks.hpp"
#include "primitives/disagreement.hpp"
#include "stretto.h"

namespace stretto {
namespace {

using namespace stretto::testing;

// Threads of this process, each a host of its own, over a made up net.
class MadeUpHosts : public ::testing::Test {
 protected:
  void SetUp() override { communicator::useBetweenHosts(net_); }
  void TearDown() override { communicator::useBetweenHosts(nullptr); }

  MadeUpNet& net() { return *net_; }
  MadeUpNet::Faults& faults() { return net_->faults; }

 private:
  const std::shared_ptr<MadeUpNet> net_ = std::make_shared<MadeUpNet>();
  const ScopedVariable link_{"STRETTO_LINK", "net"};
};

// Sums of what every rank has, of sizes from a part of a mailbox to many chunks.
bool sumsRight(Member& member, const std::vector<size_t>& counts = {1, 10, 11, 5000, 300000}) {
  bool right = true;
  for (const size_t count : counts) {
    std::vector<float> buffer(count);
    for (size_t i = 0; i < count; ++i)
      buffer[i] = static_cast<float>(member.rank) + static_cast<float>(i % 97);
    right = member.expect(ncclAllReduce(buffer.data(), buffer.data(), count, ncclFloat32, ncclSum,
                                        member.comm, nullptr),
                          "all-reduce") &&
            right;
    const auto ranks = static_cast<float>(member.ranks());
    for (size_t i = 0; i < count && right; ++i) {
      const float wanted = ranks * (ranks - 1) / 2 + ranks * static_cast<float>(i % 97);
      right = member.check(buffer[i] == wanted, "a wrong sum");
    }
  }
  return right;
}

TEST_F(MadeUpHosts, ReachEachOtherByLinksAlone) {
  asThreads(3, connected([](Member& member) {
              sumsRight(member);
              const std::string text = explained(member);
              member.check(text.find("\"hosts\":3") != std::string::npos, text.c_str());
              member.check(text.find("\"links\":\"net\"") != std::string::npos, text.c_str());
              member.check(text.find("they are on 3 hosts") != std::string::npos, text.c_str());
            }));
}

// A chunk that lies there before it is said to be there is not taken.
TEST_F(MadeUpHosts, WaitForWholeMessages) {
  faults().polls = 3;
  asThreads(4, connected([](Member& member) { sumsRight(member); }));
}

TEST_F(MadeUpHosts, AreToldThatALinkBroke) {
  const ScopedVariable quiet("NCCL_DEBUG", "");
  faults().breaks = 40;
  asThreads(2, [](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    if (!member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init")) return;
    std::vector<float> buffer(1000);
    ncclResult_t result = ncclSuccess;
    for (int turn = 0; turn < 1000 && result == ncclSuccess; ++turn) {
      result = ncclAllReduce(buffer.data(), buffer.data(), buffer.size(), ncclFloat32, ncclSum, member.comm,
                             nullptr);
    }
    member.expect(result, "over a broken net", ncclRemoteError);
    member.expectError("over a broken net", {"rank " + std::to_string(1 - member.rank)});
    member.board.meet();
    member.expect(ncclCommAbort(member.comm), "abort");
  });
}

// What does not have the length that it must have is not computed with.
TEST_F(MadeUpHosts, RefuseChunksOfAnotherLength) {
  asThreads(2, [this](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    if (!member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init")) return;
    sumsRight(member, {1000});
    member.board.meet();
    if (member.rank == 0) faults().cuts = 1;
    member.board.meet();
    std::vector<float> buffer(1000);
    const ncclResult_t result = ncclAllReduce(buffer.data(), buffer.data(), buffer.size(), ncclFloat32,
                                              ncclSum, member.comm, nullptr);
    if (result != ncclSuccess) member.board.word(0) += 1;
    member.board.meet();
    member.check(member.board.word(0) != 0, "nobody noticed the short chunk");
    member.expect(ncclCommAbort(member.comm), "abort");
  });
}

TEST_F(MadeUpHosts, AllHearOfOneThatCannotListen) {
  faults().deaf = true;
  asThreads(2, [](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", ncclSystemError);
    member.expectError("init", {"cannot be reached from other hosts", "the made up net is deaf"});
  });
}

// Said once by each, and the waits that need a connection end.
TEST_F(MadeUpHosts, AWaitForAConnectionEndsWhereNoneCanBeAccepted) {
  CapturedWarnings warnings;
  asThreads(2, [this](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    if (!member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init")) return;
    faults().closed = true;
    member.board.meet();
    float value = 1;
    const ncclResult_t result = ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, member.comm, nullptr);
    member.check(result != ncclSuccess, "an all-reduce without connections");
    if (result == ncclSystemError) {
      member.board.word(0) += 1;
      member.expectError("the all-reduce", {"no peer can connect", "has no descriptors"});
    }
    member.board.meet();
    member.check(member.board.word(0) != 0, "nobody says that the system refused");
    member.expect(ncclCommAbort(member.comm), "abort");
  });
  const std::string warned = warnings.take();
  for (const char* rank : {"WARN rank 0: no peer", "WARN rank 1: no peer"})
    EXPECT_EQ(timesIn(warned, rank), 1u) << warned;
}

TEST_F(MadeUpHosts, ListenUntilAllHaveConnected) {
  asThreads(3, connected([this](Member& member) {
              member.board.meet();
              if (member.rank == 0) member.check(net().listeners() == 3, "not all listen");
              member.board.meet();
              std::vector<int> from(3, member.rank), to(3, -1);
              member.expect(ncclAlltoAll(from.data(), to.data(), 1, ncclInt32, member.comm, nullptr),
                            "all to all");
              sumsRight(member);
              member.board.meet();
              member.check(net().listeners() == 0, "somebody still listens");
              member.board.meet();
            }));
}

TEST_F(MadeUpHosts, CloseAllConnectionsAtTheSameTime) {
  faults().lingers = 200;
  asThreads(4, [](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    if (!member.expect(ncclCommInitRank(&member.comm, 4, id, member.rank), "init")) return;
    std::vector<int> from(4, member.rank), to(4, -1);
    member.expect(ncclAlltoAll(from.data(), to.data(), 1, ncclInt32, member.comm, nullptr), "all to all");
    member.board.meet();
    for (int turn = 0; turn < 4; ++turn) {  // one after another: each closes three
      if (turn == member.rank) member.expect(ncclCommAbort(member.comm), "abort");
      member.board.meet();
    }
  });
  EXPECT_GE(net().mostLingering, 2);
}

// An operation has failed, and its caller does with the buffer what it likes.
TEST_F(MadeUpHosts, SendNothingThatWasLentOnceItIsGivenBack) {
  constexpr size_t kBytes = 8192;
  const auto listener = net().listen(0);
  ASSERT_TRUE(listener.ok());
  const auto ring = [&] {
    auto connecting = net().connect(0, listener.value()->handle());
    auto made = std::make_unique<links::net::SendRing>(0, kBytes);
    made->connect(std::move(connecting.value()));
    return made;
  };
  const std::vector<std::byte> lent(kBytes);
  for (const bool lends : {true, false}) {
    const auto sending = ring();
    faults().polls = 0;
    for (int i = 0; i < 3; ++i) sending->progress();  // says who it is
    faults().polls = 1 << 20;
    sending->setBytes(kBytes);
    if (lends) sending->lend(lent.data());
    sending->publish();
    sending->progress();
    EXPECT_FALSE(sending->isIdle());
    if (sending->giveBack()) sending->close();
    EXPECT_EQ(sending->broken().is(), lends);
    faults().polls = 0;
    sending->progress();
    EXPECT_EQ(sending->isIdle(), !lends) << "what was copied leaves, what was lent does not";
  }
}

// Rank 0 sends to rank 1, which ends its communicator when it has received.
void sendToOneThatLeaves(Member& member) {
  std::vector<float> buffer(1000, static_cast<float>(member.rank));
  const ncclResult_t result =
      member.rank == 0 ? ncclSend(buffer.data(), buffer.size(), ncclFloat32, 1, member.comm, nullptr)
                       : ncclRecv(buffer.data(), buffer.size(), ncclFloat32, 0, member.comm, nullptr);
  member.expect(result, member.rank == 0 ? "send" : "receive");
  member.check(buffer.front() == 0 && buffer.back() == 0, "another message");
}

// That has all: it is gone before who sent it sees that it has left.
TEST_F(MadeUpHosts, NeedNobodyWhoHasReceivedAll) {
  faults().polls = 5;
  asThreads(2, connected([this](Member& member) {
              sumsRight(member, {1000});
              member.board.meet();
              faults().pauses = 300;
              sendToOneThatLeaves(member);
            }));
}

// The other way round: who sent is long gone when the message comes, over a network that is slow.
TEST_F(MadeUpHosts, WaitForWhatIsOnItsWayFromOneThatHasLeft) {
  asThreads(2, connected([this](Member& member) {
              sumsRight(member, {1000});
              member.board.meet();
              faults().travels = 1500;
              sendToOneThatLeaves(member);
            }));
}

// One that has finalised its communicator, and not destroyed it, sends nothing more.
TEST_F(MadeUpHosts, WaitForNothingFromOneThatHasFinalised) {
  asThreads(2, connected([](Member& member) {
              sumsRight(member, {1000});
              member.board.meet();
              float value = 0;
              if (member.rank == 0) {
                member.expect(ncclCommFinalize(member.comm), "finalise");
              } else {
                member.expect(ncclRecv(&value, 1, ncclFloat32, 0, member.comm, nullptr), "receive",
                              ncclRemoteError);
                member.expectError("receive", {"rank 0", "finalised its communicator"});
              }
              member.board.meet();
            }));
}

// Each of these connections ends in its time, and who has failed is to be told soon.
TEST_F(MadeUpHosts, GiveBackWhatWasLentToAllAtTheSameTime) {
  constexpr int kRanks = 4;
  constexpr size_t kBytes = 8192;
  const auto listener = net().listen(0);
  auto links =
      links::net::FarLinks::listen({communicator::netBetweenHosts({}).value(), 0, 0, kRanks, kBytes});
  ASSERT_TRUE(listener.ok() && links.ok());
  const std::vector<std::byte> lent(kBytes);
  for (int peer = 1; peer < kRanks; ++peer) links.value()->add(peer, listener.value()->handle());
  for (int peer = 1; peer < kRanks; ++peer) (void)links.value()->to(peer);
  for (int i = 0; i < 3; ++i) links.value()->progress();
  faults().polls = 1 << 20;
  for (int peer = 1; peer < kRanks; ++peer) {
    links::net::SendRing& ring = links.value()->to(peer);
    ring.setBytes(kBytes);
    ring.lend(lent.data());
    ring.publish();
  }
  links.value()->progress();
  faults().lingers = 200;
  links.value()->giveBack();
  EXPECT_GE(net().mostLingering, 2);
  for (int peer = 1; peer < kRanks; ++peer) EXPECT_NE(links.value()->broken(peer), nullptr);
}

// A result replaces the input, which is still to be sent.
TEST_F(MadeUpHosts, SendWhatWasThereBeforeTheResult) {
  faults().polls = 5;
  asThreads(2, connected([](Member& member) {
              for (const char* algorithm : {"pairwise", "ring", "tree"}) {
                member.expect(strettoCommForce(member.comm, "all_reduce", algorithm, nullptr, 16384, 0),
                              "force");
                sumsRight(member, {40000});
              }
            }));
}

// Sums by the fused operation, whose norm writes where the input was.
enum class Replacing { kByResidual, kByNormalised, kByBoth };
void sumsRightOver(Member& member, Replacing replacing) {
  constexpr size_t kTokens = 8, kHidden = 5000;
  std::vector<float> input(kTokens * kHidden), added(input.size()), reduced(input.size());
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 97) + 1;
  strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
  step.tokens = kTokens;
  step.hidden = kHidden;
  step.input = input.data();
  step.residualOut = replacing == Replacing::kByNormalised ? added.data() : input.data();
  step.residual = replacing == Replacing::kByBoth ? input.data() : nullptr;
  step.normalised = replacing == Replacing::kByNormalised ? input.data() : nullptr;
  step.reduced = reduced.data();
  member.expect(strettoAllReduceAddRmsNorm(&step, member.comm, nullptr), "the sum and the norm");
  for (size_t i = 0; i < reduced.size(); ++i) {
    const float wanted = static_cast<float>(member.ranks()) * (static_cast<float>(i % 97) + 1);
    if (reduced[i] != wanted)
      return member.complain("form %d: sum %zu is %g", static_cast<int>(replacing), i,
                             static_cast<double>(reduced[i]));
  }
}

// What one rank sends leaves late, so that it has the other's long before.
TEST_F(MadeUpHosts, SendTheInputBeforeTheNormReplacesIt) {
  faults().slow = 500;
  asThreads(2, connected([](Member& member) {
              for (int turn = 0; turn < 3; ++turn) {
                for (const Replacing replacing :
                     {Replacing::kByResidual, Replacing::kByNormalised, Replacing::kByBoth})
                  sumsRightOver(member, replacing);
              }
            }));
}

TEST_F(MadeUpHosts, HaveNoWindowsAndNothingOneSided) {
  asThreads(2, connected([](Member& member) {
              const ncclResult_t result = ncclSignal(1 - member.rank, 0, 0, 0, member.comm, nullptr);
              member.expect(result, "a signal", ncclInvalidUsage);
              member.expectError("a signal", {"between hosts"});
            }));
}

std::unique_ptr<WindowHeader> headerOf(uint32_t ranks) {
  auto header = std::make_unique<WindowHeader>();
  header->ranks = ranks;
  return header;
}

// What a far rank says of the header is not believed further than there are ranks.
TEST(FarView, RanksThatCannotDisagreeAreNone) {
  const auto header = headerOf(3);
  const links::Link link = communicator::standIn(*header, 1);
  const auto heard = [&](uint64_t said) {
    header->wait.disagreeing = said;
    RankSet asks;
    EXPECT_TRUE(communicator::FarView::apply(communicator::FarView::of(*header, {}), *link.standIn, asks));
    return disagreeingAt(*link.standIn, 3).bits();
  };
  for (const uint64_t said : {uint64_t{0}, uint64_t{1} << 1, uint64_t{3} << 40, uint64_t{1} << 63 | 4}) {
    EXPECT_EQ(heard(said), 0u) << said;
  }
  EXPECT_EQ(heard(0b101), 0b101u);
  EXPECT_EQ(heard(~uint64_t{0}), 0b111u);
}

TEST(FarView, OneAnswersAllWhoAskWithinAMoment) {
  const auto header = headerOf(64);
  const links::Link link = communicator::standIn(*header, 1);
  RankSet asks;
  ASSERT_TRUE(communicator::FarView::apply(communicator::FarView::of(*header, RankSet::ofBits(0b1010)),
                                           *link.standIn, asks));
  EXPECT_EQ(asks.bits(), 0b1010u);

  communicator::Shown shown;
  constexpr uint64_t kBegin = 5'000'000'000, kWaiting = 63;
  int answers = 0;
  const auto asked = [&](uint64_t at) {
    const auto view = communicator::FarView::of(*header, {});
    if (!shown.isOld(view, at)) return;
    shown.note(view, at);
    ++answers;
  };
  for (uint64_t i = 0; i < kWaiting; ++i) asked(kBegin + i * (communicator::Shown::kNanoseconds / kWaiting));
  EXPECT_EQ(answers, 1);
  shown.note(communicator::FarView::of(*header, RankSet::ofBits(0b10)),
             kBegin);  // an ask shows as much as an answer
  asked(kBegin + 1);
  EXPECT_EQ(answers, 1);
  header->failed = 1;
  asked(kBegin + 2);
  EXPECT_EQ(answers, 2) << "what is new is told at once";
  asked(kBegin + 2 + communicator::Shown::kNanoseconds);
  EXPECT_EQ(answers, 3) << "after a while it is told again";
}

// Processes of this machine that say that they are on several hosts: rank r on host r mod `hosts`.
Body onHosts(int hosts, Body body) {
  return [=](Member& member) {
    ::setenv("NCCL_HOSTID", ("test-host-" + std::to_string(member.rank % hosts)).c_str(), 1);
    connected(body)(member);
  };
}

bool says(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

void splitAndSum(Member& member, int colour, const std::string& hosts) {
  Member child{member.rank, member.board};
  if (!member.expect(ncclCommSplit(member.comm, colour, member.rank, &child.comm, nullptr), "split")) return;
  const std::string text = explained(child);
  child.check(hosts.empty() ? !says(text, "\"hosts\"") : says(text, hosts), text.c_str());
  float value = 1;
  child.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, child.comm, nullptr), "in the child");
  child.check(value == 2, "a wrong sum in the child");
  child.expect(ncclCommDestroy(child.comm), "destroy the child");
}

TEST(HostsOfProcesses, MixSharedMemoryAndTheNet) {
  asProcesses(4, onHosts(2, [](Member& member) {
                sumsRight(member);
                member.check(says(explained(member), "\"hosts\":2"), "the plan does not know of 2 hosts");
                splitAndSum(member, member.rank % 2, "");
                splitAndSum(member, member.rank / 2, "\"hosts\":2");
                sumsRight(member);
              }));
}

// Every collective that has stages, in more than one window, against what it must give.
void runStages(Member& member) {
  for (const char* collective : {"all_reduce", "all_gather", "broadcast"}) {
    if (!member.expect(strettoCommForce(member.comm, collective, "stages", nullptr, 0, 0), "force")) return;
  }
  const auto ranks = static_cast<size_t>(member.ranks());
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{1} << 18, (size_t{5} << 18) + 3}) {
    if (!sumsRight(member, {count})) return;
    std::vector<int> mine(count), all(count * ranks, -1), one(count, -1);
    std::iota(mine.begin(), mine.end(), member.rank);
    member.expect(ncclAllGather(mine.data(), all.data(), count, ncclInt32, member.comm, nullptr), "gather");
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<int>(i / count + i % count)) return member.complain("block at %zu", i);
    }
    for (int root = 0; root < member.ranks(); ++root) {
      member.expect(ncclBroadcast(mine.data(), one.data(), count, ncclInt32, root, member.comm, nullptr),
                    "broadcast");
      for (size_t i = 0; i < count; ++i) {
        if (one[i] != root + static_cast<int>(i)) return member.complain("element %zu of %d", i, root);
      }
    }
  }
}

TEST(HostsOfProcesses, GoThroughStages) {
  asProcesses(4, onHosts(2, runStages));
  asProcesses(6, onHosts(3, runStages));
}

TEST(HostsOfProcesses, SayWhichStagesThereAre) {
  asProcesses(4, onHosts(2, [](Member& member) {
                const std::string text = explained(member);
                member.check(says(text, "\"stages\":["), text.c_str());
                member.check(says(text, "\"links\":\"between_hosts\""), text.c_str());
              }));
  asProcesses(3, onHosts(2, [](Member& member) {
                const std::string text = explained(member);
                member.check(says(text, "equally many ranks on each host"), text.c_str());
                sumsRight(member);
              }));
}

TEST(HostsOfProcesses, SendEachOtherMessages) {
  asProcesses(3, onHosts(3, [](Member& member) {
                constexpr size_t kCount = 1000000;
                std::vector<int> from(kCount, member.rank), to(kCount * 3, -1);
                for (int turn = 0; turn < 3; ++turn) {
                  ncclGroupStart();
                  for (int peer = 0; peer < 3; ++peer) {
                    ncclSend(from.data(), kCount, ncclInt32, peer, member.comm, nullptr);
                    ncclRecv(to.data() + static_cast<size_t>(peer) * kCount, kCount, ncclInt32, peer,
                             member.comm, nullptr);
                  }
                  member.expect(ncclGroupEnd(), "messages");
                  for (size_t i = 0; i < to.size(); ++i) {
                    if (to[i] == static_cast<int>(i / kCount)) continue;
                    member.complain("byte of message %zu is wrong", i);
                    break;
                  }
                }
              }));
}

TEST(HostsOfProcesses, NeedNotBlock) {
  asProcesses(2, onHosts(2, [](Member& member) {
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;
                Member child{member.rank, member.board};
                const auto settled = [&](ncclComm_t comm) {
                  ncclResult_t state = ncclInProgress;
                  return eventually(20,
                                    [&] {
                                      return ncclCommGetAsyncError(comm, &state) == ncclSuccess &&
                                             state != ncclInProgress;
                                    }) &&
                         member.expect(state, "the state");
                };
                (void)ncclCommSplit(member.comm, 0, member.rank, &child.comm, &config);
                if (!settled(member.comm) || !settled(child.comm)) return;
                std::vector<float> buffer(100000, 1.0f);
                const ncclResult_t result = ncclAllReduce(buffer.data(), buffer.data(), buffer.size(),
                                                          ncclFloat32, ncclSum, child.comm, nullptr);
                member.check(result == ncclInProgress || result == ncclSuccess, "the call");
                if (settled(child.comm))
                  member.check(buffer.front() == 2 && buffer.back() == 2, "a wrong sum");
                (void)ncclCommFinalize(child.comm);
                settled(child.comm);
                member.expect(ncclCommDestroy(child.comm), "destroy");
              }));
}

// Of two ranks on two hosts, whose net plugins are these.
Body withPlugins(const char* ofFirst, const char* ofSecond, Body body) {
  return [=](Member& member) {
    ::setenv("NCCL_HOSTID", member.rank == 0 ? "test-host-0" : "test-host-1", 1);
    ::setenv("NCCL_NET_PLUGIN", member.rank == 0 ? ofFirst : ofSecond, 1);
    body(member);
  };
}

// Both fail to make a communicator, and say this of it.
Body refused(ncclResult_t result, std::vector<std::string> words) {
  return [=](Member& member) {
    ncclUniqueId id;
    if (!member.board.shareId(member.rank, &id)) return;
    member.expect(ncclCommInitRank(&member.comm, 2, id, member.rank), "init", result);
    member.expectError("init", words);
  };
}

TEST(HostsOfProcesses, UseTheNetPluginThatIsNamed) {
  asProcesses(2, withPlugins(STRETTO_NET, STRETTO_NET, connected([](Member& member) { sumsRight(member); })));
  asProcesses(2, withPlugins(STRETTO_NET, "none",
                             refused(ncclInvalidUsage, {"reach other hosts by", "Stretto", "tcp"})));
}

TEST(HostsOfProcesses, APluginThatIsNotThereIsTcpOrAnErrorWhereItsNetIsWanted) {
  const ScopedVariable quiet("NCCL_DEBUG", "");
  asProcesses(2, withPlugins("nosuchplugin", "none", connected([](Member& member) { sumsRight(member); })));
  const ScopedVariable wanted("NCCL_NET", "nosuchnet");
  asProcesses(2, withPlugins("nosuchplugin", "nosuchplugin",
                             refused(ncclInvalidUsage, {"NCCL_NET=nosuchnet", "nosuchplugin"})));
}

// Whichever stage the others are in: three ranks on two hosts have none.
class DeadRankOfAnotherHost : public ::testing::TestWithParam<int> {};

TEST_P(DeadRankOfAnotherHost, IsNamed) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "threads only";
  const int ranks = GetParam();
  const Board board(ranks);
  Processes processes(board,
                      onHosts(2,
                              [ranks](Member& member) {
                                if (ranks % 2 == 0)
                                  member.expect(
                                      strettoCommForce(member.comm, "all_reduce", "stages", nullptr, 0, 0),
                                      "force");
                                std::vector<float> buffer(50000, 1.0f);
                                ncclResult_t result = ncclSuccess;
                                while (result == ncclSuccess) {
                                  result = ncclAllReduce(buffer.data(), buffer.data(), buffer.size(),
                                                         ncclFloat32, ncclMax, member.comm, nullptr);
                                  ++member.board.word(member.rank);
                                }
                                member.expect(result, "the operation", ncclRemoteError);
                                member.expectError("the operation", {"rank 1", "all_reduce"});
                                member.expect(ncclCommAbort(member.comm), "abort");
                                member.comm = nullptr;
                              }),
                      60);
  ASSERT_TRUE(eventually(30, [&] { return board.word(1) > 5; })) << "the ranks do not get on";
  processes.kill(1);
  processes.finish(1);
}

INSTANTIATE_TEST_SUITE_P(HostsOfProcesses, DeadRankOfAnotherHost, ::testing::Values(3, 4));

}  // namespace
}  // namespace stretto
