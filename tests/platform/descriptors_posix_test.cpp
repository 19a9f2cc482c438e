// Descriptors handed from process to process: of pipes and memory files, in order and many at once, and what
// askers that are late, wrong, slow or gone meet. The asking process is a forked child where that matters.
#include "platform/descriptors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "harness/child.hpp"
#include "harness/ranks.hpp"
#include "harness/watchdog.hpp"

namespace stretto::platform {
namespace {

using testing::descriptorsNow;
using testing::eventually;
using testing::inChild;
using testing::secondsNow;
using testing::threadsNow;
using testing::Watchdog;

// A memory file that says which it is.
FileDescriptor fileOf(size_t index) {
  FileDescriptor file = FileDescriptor::create([] { return memfd_create("piece", MFD_CLOEXEC); });
  const std::string text = "piece " + std::to_string(index);
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}
std::string textOf(const FileDescriptor& file) {
  char text[64] = {};
  const ssize_t got = ::pread(file.get(), text, sizeof text, 0);
  return {text, got > 0 ? static_cast<size_t>(got) : 0};
}
Result<NumberedDescriptor> openFile(size_t index) {
  return NumberedDescriptor{fileOf(index), 1000 + index};
}

std::unique_ptr<DescriptorSource> sourceOf(size_t count, DescriptorSource::Open open = openFile) {
  auto source = DescriptorSource::create(count, std::move(open));
  EXPECT_TRUE(source.ok()) << lastError();
  return std::move(source.value());
}

// Takes all; the first thing that is wrong, in words.
std::string takeAll(const DescriptorAddress& address, size_t wanted) {
  size_t taken = 0;
  std::string wrong;
  const auto take = [&](size_t index, size_t count, NumberedDescriptor one) {
    const std::string text = textOf(one.descriptor);
    const bool kept = (::fcntl(one.descriptor.get(), F_GETFD) & FD_CLOEXEC) == 0;
    if (index != taken++ || count != wanted || one.number != 1000 + index || kept ||
        text != "piece " + std::to_string(index)) {
      wrong = "piece " + std::to_string(index) + " of " + std::to_string(count) + " is " + text;
    }
    return kOkStatus;
  };
  const Status status = takeDescriptors(address, 10, take);
  if (!status.ok()) return lastError();
  return taken == wanted ? wrong : "too few";
}

// A stranger's connection to where a source listens.
FileDescriptor stranger(const DescriptorAddress& address) {
  sockaddr_un native{};
  native.sun_family = AF_UNIX;
  std::string name = "stretto-";
  char digits[3];
  for (const uint8_t byte : address.name) {
    snprintf(digits, sizeof digits, "%02x", byte);
    name += digits;
  }
  std::memcpy(native.sun_path + 1, name.data(), name.size());
  FileDescriptor socket =
      FileDescriptor::create([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); });
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&native), length), 0);
  return socket;
}
bool isClosed(const FileDescriptor& socket) {
  char byte;
  pollfd ready{socket.get(), POLLIN, 0};
  return ::poll(&ready, 1, 5000) == 1 && ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

class Descriptors : public ::testing::Test {
 private:
  const Watchdog watchdog_{"descriptors", 60};
};

TEST_F(Descriptors, PassBetweenProcesses) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  const auto source = sourceOf(3);
  EXPECT_EQ(inChild([&] { return takeAll(source->address(), 3).empty() ? 0 : 1; }), 0);
  EXPECT_EQ(takeAll(source->address(), 3), "") << "and in the process itself, again";
}

TEST_F(Descriptors, ArePipesToo) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const auto source = sourceOf(1, [&](size_t) -> Result<NumberedDescriptor> {
    return NumberedDescriptor{FileDescriptor::create([&] { return ::dup(ends[1]); }), 7};
  });
  const int status = inChild([&] {
    const auto write = [](size_t, size_t, NumberedDescriptor one) {
      return ::write(one.descriptor.get(), "hello", 5) == 5 ? kOkStatus : Status{Code::kSystem};
    };
    return takeDescriptors(source->address(), 5, write).ok() ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  char text[6] = {};
  EXPECT_EQ(::read(ends[0], text, 5), 5);
  EXPECT_STREQ(text, "hello");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(Descriptors, WithoutRoomForASourceItSaysSo) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto source =
      DescriptorSource::create(1, [](size_t) -> Result<NumberedDescriptor> { return NumberedDescriptor{}; });
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(source.ok());
  EXPECT_NE(lastError().find("Too many open files"), std::string::npos) << lastError();
}

// As the pieces of a large window: neither side holds more than a few at a time. There is room for 24 more,
// so that one that is kept of each piece is noticed long before the last.
TEST_F(Descriptors, ManyNeedNoRoomForAll) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = descriptorsNow() + 24;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  {
    const auto source = sourceOf(300);
    EXPECT_EQ(inChild([&] { return takeAll(source->address(), 300).empty() ? 0 : 1; }), 0);
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(Descriptors, SeveralAskAtOnce) {
  const auto source = sourceOf(200);
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] { EXPECT_EQ(takeAll(source->address(), 200), ""); });
  }
  for (std::thread& asker : askers) asker.join();
}

TEST_F(Descriptors, NothingIsLeftBehind) {
  (void)sourceOf(1);
  const size_t descriptors = descriptorsNow();
  const size_t threads = threadsNow();
  for (int i = 0; i < 20; ++i) {
    const auto source = sourceOf(2);
    EXPECT_EQ(takeAll(source->address(), 2), "");
    const FileDescriptor idle = stranger(source->address());
  }
  EXPECT_EQ(descriptorsNow(), descriptors);
  EXPECT_TRUE(eventually(5, [&] { return threadsNow() <= threads; }));
}

TEST_F(Descriptors, ASourceThatIsGoneIsSaid) {
  const DescriptorAddress address = sourceOf(1)->address();
  const auto take = [](size_t, size_t, NumberedDescriptor) { return kOkStatus; };
  const double began = secondsNow();
  EXPECT_EQ(takeDescriptors(address, 10, take).code, Code::kSystem);
  EXPECT_NE(lastError().find("has ended"), std::string::npos) << lastError();
  EXPECT_LT(secondsNow() - began, 5);
}

// It goes while somebody asks.
TEST_F(Descriptors, ASourceThatGoesIsSaid) {
  auto source = sourceOf(1000);
  const auto take = [&](size_t index, size_t, NumberedDescriptor) {
    if (index == 3) source.reset();
    return kOkStatus;
  };
  EXPECT_EQ(takeDescriptors(DescriptorAddress(source->address()), 10, take).code, Code::kSystem);
  EXPECT_NE(lastError().find("process that shares the memory"), std::string::npos) << lastError();
}

// A process that is stopped holds its socket open, and says nothing.
TEST_F(Descriptors, AnAskerHasADeadline) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto source = sourceOf(1);
    const ssize_t written = ::write(ends[1], &source->address(), sizeof source->address());
    ::raise(written == sizeof(DescriptorAddress) ? SIGSTOP : SIGKILL);
    ::_exit(0);
  }
  DescriptorAddress address;
  ASSERT_EQ(::read(ends[0], &address, sizeof address), static_cast<ssize_t>(sizeof address));
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  const auto take = [](size_t, size_t, NumberedDescriptor) { return kOkStatus; };
  const double began = secondsNow();
  EXPECT_EQ(takeDescriptors(address, 0.3, take).code, Code::kTimeout);
  EXPECT_GE(secondsNow() - began, 0.29);
  EXPECT_LT(secondsNow() - began, 5);
  EXPECT_NE(lastError().find("0.3 s"), std::string::npos) << lastError();
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(Descriptors, AStrangerGetsNothing) {
  const auto source = sourceOf(1);
  struct {
    uint8_t secret[16] = {1, 2, 3};
    uint64_t index = 0;
  } question;
  const FileDescriptor guesses = stranger(source->address());
  ASSERT_GT(::send(guesses.get(), &question, sizeof question, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(isClosed(guesses));
  std::memcpy(question.secret, source->address().secret, sizeof question.secret);
  question.index = 1;
  const FileDescriptor beyond = stranger(source->address());
  ASSERT_GT(::send(beyond.get(), &question, sizeof question, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(isClosed(beyond)) << "an index that there is not";
  const FileDescriptor babbles = stranger(source->address());
  const std::string much(5000, 'x');
  ASSERT_GT(::send(babbles.get(), much.data(), much.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(isClosed(babbles));
  const FileDescriptor silent = stranger(source->address());
  EXPECT_EQ(takeAll(source->address(), 1), "") << "and nobody is in the way of who may ask";
}

// Whoever runs as another user is a stranger, whatever it knows.
TEST_F(Descriptors, AnotherUserGetsNothing) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const auto source = sourceOf(1);
  const int status = inChild([&] {
    const auto take = [](size_t, size_t, NumberedDescriptor) { return kOkStatus; };
    if (::setuid(65534) != 0) return 2;
    const Status failed = takeDescriptors(source->address(), 5, take);
    return failed.code == Code::kSystem && lastError().find("another user") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

// Words of the source reach the asker, and the next one gets what there is.
TEST_F(Descriptors, WhatCannotBeOpenedIsSaid) {
  const auto source = sourceOf(3, [](size_t index) -> Result<NumberedDescriptor> {
    if (index == 2) return fail(Code::kSystem, "piece %zu has no descriptor", index);
    return openFile(index);
  });
  size_t taken = 0;
  const auto take = [&](size_t, size_t, NumberedDescriptor) {
    ++taken;
    return kOkStatus;
  };
  EXPECT_EQ(takeDescriptors(source->address(), 5, take).code, Code::kSystem);
  EXPECT_EQ(lastError(), "piece 2 has no descriptor");
  EXPECT_EQ(taken, 2u);
}

TEST_F(Descriptors, TheAskerMayStop) {
  const auto source = sourceOf(100);
  const auto take = [](size_t index, size_t, NumberedDescriptor) {
    return index < 5 ? kOkStatus : fail(Code::kInvalidUsage, "enough");
  };
  EXPECT_EQ(takeDescriptors(source->address(), 5, take).code, Code::kInvalidUsage);
  EXPECT_EQ(takeAll(source->address(), 100), "");
}

TEST_F(Descriptors, NoRoomHereIsSaid) {
  if (STRETTO_TEST_TSAN) GTEST_SKIP() << "it forks";
  const auto source = sourceOf(1);
  const int status = inChild([&] {
    const auto take = [](size_t, size_t, NumberedDescriptor) { return kOkStatus; };
    rlimit tight{};
    ::getrlimit(RLIMIT_NOFILE, &tight);
    const int next = ::dup(0);
    tight.rlim_cur = static_cast<rlim_t>(next) + 1;  // room for the socket alone
    ::close(next);
    ::setrlimit(RLIMIT_NOFILE, &tight);
    const Status failed = takeDescriptors(source->address(), 5, take);
    return failed.code == Code::kSystem && lastError().find("ulimit -n") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace stretto::platform
