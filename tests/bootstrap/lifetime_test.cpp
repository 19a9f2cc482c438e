// The Service comes and goes with its users and leaves nothing behind.
#include "bootstrap/membership.hpp"
#include "bootstrap/ranks.hpp"
#include "harness/watchdog.hpp"

namespace stretto::bootstrap {
namespace {

using namespace testing;
using stretto::testing::Watchdog;

// Threads and descriptors before and after, with the watchdog's own thread counted in both.
class NothingLeft {
 public:
  NothingLeft() {
    EXPECT_TRUE(eventually(5, [] { return threads() <= kQuiet; }));
  }
  ~NothingLeft() {
    EXPECT_TRUE(eventually(5, [&] { return threads() <= threads_; }))
        << threads() << " threads, before " << threads_;
    EXPECT_TRUE(eventually(5, [&] { return descriptors() <= descriptors_; }))
        << descriptors() << " descriptors, before " << descriptors_;
  }

 private:
  static constexpr size_t kQuiet = STRETTO_THREAD_SANITIZER ? 3 : 2;
  const size_t threads_ = kQuiet;
  const size_t descriptors_ = descriptors();
};

TEST(Lifetime, AThousandCommunicators) {
  const Watchdog watchdog("a thousand communicators", 120);
  const NothingLeft nothingLeft;
  for (int round = 0; round < 1000; ++round) {
    const UniqueId id = newId();
    std::thread second([&] { ASSERT_TRUE(Membership::join(id, 1, 2, 20).ok()) << lastError(); });
    ASSERT_TRUE(Membership::join(id, 0, 2, 20).ok()) << lastError();
    second.join();
  }
}

TEST(Lifetime, AThousandCommunicatorsAtOnce) {
  const Watchdog watchdog("communicators at once", 120);
  const NothingLeft nothingLeft;
  std::vector<std::unique_ptr<Membership>> all;
  for (int round = 0; round < 1000; ++round) {
    auto made = Membership::join(newId(), 0, 1, 20);
    ASSERT_TRUE(made.ok()) << lastError();
    all.push_back(std::move(made.value()));
  }
  for (const auto& membership : all) ASSERT_TRUE(membership->exchange("alone", {}, 20).ok()) << lastError();
  EXPECT_EQ(threads(), STRETTO_THREAD_SANITIZER ? 4u : 3u);  // main, the watchdog's, one of the Service's
}

TEST(Lifetime, IdsThatNobodyUses) {
  const Watchdog watchdog("unused ids", 60);
  const NothingLeft nothingLeft;
  std::vector<UniqueId> ids;
  for (int round = 0; round < 1000; ++round) ids.push_back(newId());
  for (const UniqueId& id : ids) Service::closeSession(id);
}

TEST(Lifetime, FailedJoinsLeaveNothing) {
  const Watchdog watchdog("failed joins", 60);
  const NothingLeft nothingLeft;
  for (int round = 0; round < 20; ++round) {
    const UniqueId id = newId();
    EXPECT_EQ(Membership::join(id, 0, 2, 0.01).status().code, Code::kTimeout);
    std::atomic<uint32_t> abort{1};
    const UniqueId other = newId();
    EXPECT_EQ(Membership::join(other, 0, 2, 5, stopOn(abort)).status().code, Code::kAborted);
    Service::closeSession(id);
    Service::closeSession(other);
  }
}

TEST(Lifetime, ManyThreadsComeAndGo) {
  const Watchdog watchdog("come and go", 60);
  const NothingLeft nothingLeft;
  asThreads(8, [](int) {
    for (int round = 0; round < 40; ++round) {
      const UniqueId id = newId();
      const auto made = Membership::join(id, 0, 1, 20);
      ASSERT_TRUE(made.ok()) << lastError();
    }
  });
}

}  // namespace
}  // namespace stretto::bootstrap
