// A turn that is given up says why, in the words of whoever was asked.
#include "communicator/core/turn.hpp"

#include <gtest/gtest.h>

#include "harness/watchdog.hpp"

namespace stretto::communicator {
namespace {

struct NoWatch final : executors::host::StreamWatch {
  bool wanted() const override { return false; }
  void rests() override {}
  void wakes() override {}
  void takes() override {}
};

// What a queue is made of, of one rank that nobody joins.
struct Fixture {
  Identity self{0, 1, nullptr, Config{}};
  Connections connections;
  ControlPlane plane{self, connections};
  observe::FlightRecorder flight;
  Health health{self, plane, flight, [](uint32_t) {}};
  NoWatch watch;
  Queue queue{self, health, watch, [] {}};
};

// Who looks for a reason without waiting for a lock may find it once and not the next time.
TEST(Turn, ThatIsGivenUpKeepsTheFirstReason) {
  const testing::Watchdog watchdog("a turn whose stop check changes its mind", 60);
  Fixture of;
  const uint64_t first = of.queue.take();
  int asked = 0;
  const bootstrap::StopCheck once = [&] {
    return asked++ == 0 ? failAbout(3, Code::kRemote, "rank 3 gave up") : kOkStatus;
  };
  {
    const Turn turn(of.queue, of.queue.take(), once);
    EXPECT_FALSE(turn.mine());
    EXPECT_FALSE(turn.holds());
    EXPECT_EQ(turn.why().code, Code::kRemote);
    EXPECT_EQ(turn.why().peer, 3);
    EXPECT_EQ(lastError(), "rank 3 gave up");
  }
  of.queue.complete(first);
  EXPECT_TRUE(of.queue.quiet());
}

TEST(Turn, ThatAnAbortEndsSaysSo) {
  const testing::Watchdog watchdog("a turn of an aborted rank", 60);
  Fixture of;
  const uint64_t first = of.queue.take();
  of.health.raiseAbort(Status{Code::kAborted});
  {
    const Turn turn(of.queue, of.queue.take());
    EXPECT_EQ(turn.why().code, Code::kAborted);
  }
  of.queue.complete(first);
}

TEST(Turn, ThatComesIsMine) {
  Fixture of;
  const bootstrap::StopCheck never = [] { return fail(Code::kRemote, "never asked"); };
  const Turn turn(of.queue, of.queue.take(), never);
  EXPECT_TRUE(turn.mine());
  EXPECT_TRUE(turn.holds());
  EXPECT_TRUE(turn.why().ok());
}

}  // namespace
}  // namespace stretto::communicator
