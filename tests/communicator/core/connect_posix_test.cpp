// What a rank says of another whose memory it cannot reach while a communicator is made.
#include "communicator/core/connect.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "bootstrap/service.hpp"
#include "communicator/core/gather.hpp"
#include "harness/watchdog.hpp"

namespace stretto::communicator {
namespace {

constexpr double kPatience = 20;

ConnectRequest requestOf(int rank) {
  ConnectRequest request;
  request.rank = rank;
  request.ranks = 2;
  request.slotBytes = 4096;
  request.linkChunk = 16384;
  request.timeoutSeconds = kPatience;
  return request;
}

// A process that has ended, though nobody has said so yet.
pid_t endedProcess() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return child;
}

// Rank 1 of two, which says that it is in process `pid` and has a window of so many bytes there. Returns the
// endpoint of rank 0, whose error is in `words`.
links::Endpoint meetOneIn(pid_t pid, uint64_t windowBytes, Status& status, std::string& words) {
  const auto id = bootstrap::Service::createSession();
  EXPECT_TRUE(id.ok()) << lastError();
  std::thread first([&] {
    auto membership = bootstrap::Membership::join(id.value(), 0, 2, kPatience);
    ASSERT_TRUE(membership.ok()) << lastError();
    Connections connections;
    planner::Machine machine;
    status = connect(*membership.value(), requestOf(0), connections, machine);
    words = lastError();
  });
  const auto membership = bootstrap::Membership::join(id.value(), 1, 2, kPatience);
  EXPECT_TRUE(membership.ok()) << lastError();
  links::Endpoint mine;
  mine.process = currentIdentity().value();
  mine.process.pid = static_cast<uint32_t>(pid);
  const uint64_t started = startTimeOf(static_cast<uint32_t>(pid));
  mine.process.startTime = started != 0 ? started : mine.process.startTime + 1;
  mine.rank = 1;
  mine.descriptor = 3;
  mine.windowBytes = windowBytes;
  const auto endpoints = gather(*membership.value(), "endpoint", mine, kPatience);
  EXPECT_TRUE(endpoints.ok()) << lastError();
  // What rank 0 has found, which it tells before it ends.
  (void)membership.value()->exchange("connected", {}, kPatience);
  first.join();
  return endpoints.value()[0];
}

TEST(Connect, NamesTheRankWhoseProcessHasEnded) {
  const testing::Watchdog watchdog("connecting to a process that has ended", 60);
  const pid_t ended = endedProcess();
  Status status;
  std::string words;
  const uint64_t bytes = meetOneIn(ended, 1, status, words).windowBytes;
  EXPECT_EQ(status.code, Code::kInvalidUsage) << words;
  (void)meetOneIn(ended, bytes, status, words);
  EXPECT_EQ(status.code, Code::kRemote);
  EXPECT_NE(words.find("rank 0 lost rank 1"), std::string::npos) << words;
  EXPECT_NE(words.find("process " + std::to_string(ended)), std::string::npos) << words;
}

TEST(Connect, NamesAProcessThatHasEndedThoughNobodyHasAskedForIt) {
  const testing::Watchdog watchdog("connecting to a zombie", 60);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  Status status;
  std::string words;
  const uint64_t bytes = meetOneIn(child, 1, status, words).windowBytes;
  (void)meetOneIn(child, bytes, status, words);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(status.code, Code::kRemote);
  EXPECT_EQ(status.peer, 1);
  EXPECT_NE(words.find("rank 0 lost rank 1"), std::string::npos) << words;
}

// Its window is not where it says: it has closed it, or this process sees other processes by these numbers.
TEST(Connect, SaysWhatCannotBeOpenedWhereTheProcessLives) {
  const testing::Watchdog watchdog("connecting to a process without a window", 60);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (int descriptor = 3; descriptor < 100; ++descriptor) ::close(descriptor);
    ::pause();
  }
  Status status;
  std::string words;
  const uint64_t bytes = meetOneIn(child, 1, status, words).windowBytes;
  (void)meetOneIn(child, bytes, status, words);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.peer, 1);
  EXPECT_EQ(words.find("lost"), std::string::npos) << words;
  EXPECT_NE(words.find("cannot reach rank 1"), std::string::npos) << words;
  EXPECT_NE(words.find("/proc/" + std::to_string(child)), std::string::npos) << words;
}

}  // namespace
}  // namespace stretto::communicator
