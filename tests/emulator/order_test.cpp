// What the race detector takes for order, one access after the other.
#include "emulator/order.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace stretto::emulator {
namespace {

class OrderOfAccesses : public ::testing::Test {
 protected:
  using Word = uint64_t;
  static constexpr size_t kWords = 512;
  struct alignas(4096) Page {
    Word words[kWords];
  };

  int thread(unsigned number) { return order_.numberOf(1, true, 0, number); }
  void write(int thread, const Word& word) { order_.plainStore(thread, &word, sizeof word); }
  void read(int thread, const Word& word) { order_.plainLoad(thread, &word, sizeof word); }
  // A fence before a relaxed store, and one behind a relaxed load.
  void announce(int thread, const Word& flag) {
    order_.fence(thread, Order::Scope::kSystem);
    order_.relaxedStore(thread, &flag);
  }
  void see(int thread, const Word& flag) { order_.relaxedLoad(thread, &flag); }
  void fence(int thread) { order_.fence(thread, Order::Scope::kSystem); }
  bool races() const { return !order_.race().empty(); }

  Order order_;
  Page data_{}, flags_{};
  const int writer_ = thread(0), reader_ = thread(1), other_ = thread(2);
};

TEST_F(OrderOfAccesses, AFlagThatIsSeenBeforeAFenceOrdersWhatWasWrittenBeforeIt) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  see(reader_, flags_.words[0]);
  fence(reader_);
  read(reader_, data_.words[0]);
  EXPECT_FALSE(races());
}

TEST_F(OrderOfAccesses, WithoutTheReadersFenceItDoesNot) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  see(reader_, flags_.words[0]);
  read(reader_, data_.words[0]);
  EXPECT_TRUE(races());
}

TEST_F(OrderOfAccesses, WithoutTheWritersFenceItDoesNot) {
  write(writer_, data_.words[0]);
  order_.relaxedStore(writer_, &flags_.words[0]);
  see(reader_, flags_.words[0]);
  fence(reader_);
  read(reader_, data_.words[0]);
  EXPECT_TRUE(races());
}

TEST_F(OrderOfAccesses, AFlagThatAnotherThreadOverwroteTellsNothing) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  order_.relaxedStore(other_, &flags_.words[0]);
  see(reader_, flags_.words[0]);
  fence(reader_);
  read(reader_, data_.words[0]);
  EXPECT_TRUE(races());
}

// Two flags of one writer, seen in either order before one fence.
class FlagsOfOneWriter : public OrderOfAccesses, public ::testing::WithParamInterface<bool> {};
TEST_P(FlagsOfOneWriter, TheLaterOneTellsOfBothWrites) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  write(writer_, data_.words[1]);
  announce(writer_, flags_.words[1]);
  see(reader_, flags_.words[GetParam() ? 1 : 0]);
  see(reader_, flags_.words[GetParam() ? 0 : 1]);
  fence(reader_);
  read(reader_, data_.words[0]);
  read(reader_, data_.words[1]);
  EXPECT_FALSE(races());
}
INSTANTIATE_TEST_SUITE_P(InEitherOrder, FlagsOfOneWriter, ::testing::Bool());

TEST_F(OrderOfAccesses, AnEarlierFlagTellsNothingOfALaterWrite) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  write(writer_, data_.words[1]);
  announce(writer_, flags_.words[1]);
  see(reader_, flags_.words[0]);
  fence(reader_);
  read(reader_, data_.words[0]);
  EXPECT_FALSE(races());
  read(reader_, data_.words[1]);
  EXPECT_TRUE(races());
}

// What a writer has learnt between two flags counts, though it wrote nothing itself.
TEST_F(OrderOfAccesses, AFlagTellsWhatItsWriterHasHeardOfOthers) {
  write(other_, data_.words[0]);
  write(writer_, data_.words[1]);
  announce(writer_, flags_.words[1]);
  announce(other_, flags_.words[0]);
  see(writer_, flags_.words[0]);
  announce(writer_, flags_.words[2]);
  see(reader_, flags_.words[1]);
  see(reader_, flags_.words[2]);
  fence(reader_);
  read(reader_, data_.words[0]);
  read(reader_, data_.words[1]);
  EXPECT_FALSE(races());
}

TEST_F(OrderOfAccesses, FlagsOfTwoWritersTellOfBoth) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  write(other_, data_.words[1]);
  announce(other_, flags_.words[1]);
  see(reader_, flags_.words[0]);
  see(reader_, flags_.words[1]);
  fence(reader_);
  read(reader_, data_.words[0]);
  read(reader_, data_.words[1]);
  EXPECT_FALSE(races());
}

TEST_F(OrderOfAccesses, AFlagsNeighbourTellsNothing) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  see(reader_, flags_.words[1]);
  fence(reader_);
  read(reader_, data_.words[0]);
  EXPECT_TRUE(races());
}

TEST_F(OrderOfAccesses, MemoryOfANewOwnerHasNoWriters) {
  write(writer_, data_.words[3]);
  order_.forget(&data_, sizeof data_);
  read(reader_, data_.words[3]);
  EXPECT_FALSE(races());
  write(other_, data_.words[3]);  // right after the page was forgotten
  read(reader_, data_.words[3]);
  EXPECT_TRUE(races());
}

TEST_F(OrderOfAccesses, FlagsOfANewOwnerTellNothing) {
  write(writer_, data_.words[0]);
  announce(writer_, flags_.words[0]);
  order_.forget(&flags_, sizeof flags_);
  see(reader_, flags_.words[0]);
  fence(reader_);
  read(reader_, data_.words[0]);
  EXPECT_TRUE(races());
}

TEST_F(OrderOfAccesses, WhatIsForgottenIsThosePagesAlone) {
  struct alignas(4096) {
    Page forgotten, kept;
  } both{};
  write(writer_, both.kept.words[0]);
  order_.forget(&both.forgotten, sizeof both.forgotten);
  read(reader_, both.kept.words[0]);
  EXPECT_TRUE(races());
}

}  // namespace
}  // namespace stretto::emulator
