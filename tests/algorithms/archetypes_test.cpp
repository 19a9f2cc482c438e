// Algorithms call what the concepts of a backend declare, and nothing else: each is compiled here over
// backends that have exactly that. A call of any other member does not compile.
#include <gtest/gtest.h>

#include <span>
#include <tuple>
#include <vector>

#include "algorithms/rows.hpp"

namespace stretto {
namespace {

using namespace stretto::algorithms;

// Nothing here is ever called. A compiler that knew that would warn of what the algorithms do with it.
template <typename T>
T* anywhere() {
  static T* volatile place = nullptr;
  return place;
}

// ---- The concepts of primitives/backend.hpp, each as a class ----------------------------------------------

struct Any {
  struct Has {};
  struct Coop {};
  int rank() const { return 0; }
  int ranks() const { return 1; }
  Coop coop() const { return {}; }
  void put(Coop, int, std::byte*, const std::byte*, size_t) {}
  void signal(Coop, int, Mailbox*, uint64_t) {}
  Status wait(Coop, int, const Mailbox*, uint64_t) { return {}; }
  void reduce(Coop, const ReduceSpec&, Destinations, const std::byte* const*, int, size_t, bool) {}
  void copy(Coop, std::byte*, const std::byte*, size_t, bool) {}
};

struct Lines : Any {
  static constexpr size_t kLineBytes = 64;
  uint64_t nextEpoch() { return 1; }
  size_t lineBytes() const { return kLineBytes; }
  void putLines(Coop, int, const std::byte*, size_t, Phase = Phase::kScatter) {}
  Status readLines(Coop, int, std::byte*, size_t, Phase = Phase::kScatter) { return {}; }
  Status reduceLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t) { return {}; }
};

struct Layout {
  uint32_t slotBytes = 64;
  uint32_t linkChunk = 64;
};

struct Slots : Lines {
  uint64_t epoch() const { return 1; }
  Layout layout() const { return {}; }
  std::byte* slotAt(int, Phase) const { return anywhere<std::byte>(); }
  const std::byte* slotFrom(int, Phase) const { return anywhere<std::byte>(); }
  Mailbox* mailboxAt(int, Phase) const { return anywhere<Mailbox>(); }
  const Mailbox* mailboxFrom(int, Phase) const { return anywhere<Mailbox>(); }
};

struct Reaching : Slots {
  Shareable describe(const std::byte*, size_t) { return {}; }
  Status locate(int, const Shareable&, const std::byte*&) { return {}; }
  bool sharesAddresses(int) const { return false; }
  std::byte* scratch(size_t) { return anywhere<std::byte>(); }
  Status get(Coop, int, std::byte*, const std::byte*, size_t) { return {}; }
  Status beginReading() { return {}; }
  Status goOnReading() const { return {}; }
  void pauseReading() const {}
  Status endReading() { return {}; }
  void awaitReaders(Status) {}
};

template <typename Base>
struct Norming : Base {
  void addNorm(Any::Coop, const Arguments&, const NormTokens&) {}
  std::byte* sums(size_t) { return anywhere<std::byte>(); }
};

struct LineNorming : Lines {
  size_t tokensInLines(const Arguments&) const { return 1; }
  void shareTokens(Coop, const Arguments&, TokenRun) {}
  template <typename Share>
  void dealTokens(Coop, const Arguments&, Share) {}
  void addNorm(Coop, const Arguments&, TokenRun, bool) {}
  void addNormOf(Coop, const Arguments&, TokenRun, int) {}
};

// ---- Those of algorithms/link_channel.hpp and stages.hpp ----

template <typename Base>
struct WithMailboxLinks : Base {
  struct Cursors {
    uint64_t sent = 0;
    uint64_t received = 0;
    uint64_t credited = 0;
  };
  Cursors& cursors(int) { return cursors_; }
  Mailbox* linkAt(int, uint64_t) const { return anywhere<Mailbox>(); }
  const Mailbox* linkFrom(int, uint64_t) const { return anywhere<Mailbox>(); }
  Mailbox* creditAt(int) const { return anywhere<Mailbox>(); }
  const Mailbox* creditFrom(int) const { return anywhere<Mailbox>(); }
  uint64_t count(const Mailbox*) const { return 0; }
  bool ready(const Mailbox*, uint64_t) const { return true; }
  Status waitCount(Any::Coop, int, const Mailbox*, uint64_t) { return {}; }

 private:
  Cursors cursors_;
};

struct WithLinks : Lines {
  struct Has : Lines::Has {
    static constexpr bool kLinks = true;
  };
  Layout layout() const { return {}; }
  Status acquireLink(int, size_t, std::byte*&) { return {}; }
  void publishLink(int) {}
  Status awaitLink(int, const std::byte*&) { return {}; }
  void releaseLink(int) {}
};

struct Places {
  int hostOf(int) const { return 0; }
  int indexOf(int) const { return 0; }
  int hosts() const { return 1; }
  int perHost() const { return 1; }
  std::span<const int> home(int) const { return ranks_; }
  std::span<const int> rail(int) const { return ranks_; }

 private:
  std::vector<int> ranks_ = {0};
};

template <typename Base>
struct Spread : WithMailboxLinks<Base> {
  struct Has : Base::Has {
    static constexpr bool kSizesChunks = true;
    static constexpr bool kLends = true;
  };
  size_t mostInChunk() const { return 64; }
  void sizeChunk(int, size_t) {}
  Status checkChunk(int, size_t) { return {}; }
  void readChunk(int) {}

  bool lends(int) const { return false; }
  void lend(int, const std::byte*) {}
  Status awaitLeft(int, uint64_t) { return {}; }

  const Places& places() const { return places_; }
  size_t mostInNearChunk() const { return 64; }
  size_t mostInFarChunk() const { return 64; }

 private:
  Places places_;
};

// ---- What GPUs claim --------------------------------------------------------------------------------------

struct Overlapping : Lines {
  struct Has : Lines::Has {
    static constexpr bool kOverlaps = true;
  };
  template <typename... Stages>
  Status pipeline(size_t, Stages...) {
    return {};
  }
};

struct Fanning : Overlapping {
  struct Has : Overlapping::Has {
    static constexpr bool kFansLines = true;
  };
  template <typename Part>
  void putLinesAll(Coop, Phase, size_t, Part) {}
  template <typename Place>
  Status readLinesAll(Coop, Phase, size_t, Place) {
    return {};
  }
  Status reducePutLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t, size_t, int) {
    return {};
  }
};

struct Sharing : Fanning {
  struct Has : Fanning::Has {
    static constexpr bool kSharesLines = true;
  };
  Status shareLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t) { return {}; }
};

struct InOneEpoch : Sharing {
  struct Has : Sharing::Has {
    static constexpr bool kOneEpoch = true;
  };
};

struct InTurns : InOneEpoch {
  struct Has : InOneEpoch::Has {
    static constexpr bool kTurns = true;
  };
  Status dealLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t, size_t) { return {}; }
  Status shardLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t, size_t) { return {}; }
};

// ---- Every algorithm over them ----------------------------------------------------------------------------

// Compiles it, and says that it has.
template <typename Code, typename B>
bool compiles() {
  volatile auto run = &Code::template run<B>;
  return run != nullptr;
}

enum class Kind : uint8_t { kHost, kSpread, kLines, kLinks, kNorms };

template <typename Row>
constexpr bool isOf(Kind kind) {
  constexpr bool onGpu = includes(Row::kDevices, Device::kCuda);
  constexpr bool isNorm = Row::kCollective == Collective::kAllReduceAddRmsNorm;
  constexpr bool isSimple = Row::kProtocol == Protocol::kSimple;
  switch (kind) {
    case Kind::kHost:
      return hasCode<Row, Device::kHost> && runsInOneHost<Row>;
    case Kind::kSpread:
      return Row::kAlgorithm == Algorithm::kStages ||
             (hasCode<Row, Device::kHost> && isSimple &&
              (Row::kAlgorithm == Algorithm::kRing || Row::kAlgorithm == Algorithm::kTree ||
               Row::kAlgorithm == Algorithm::kFlat || Row::kAlgorithm == Algorithm::kPairwise));
    case Kind::kLines:
      return onGpu && hasCode<Row, Device::kCuda> && !isSimple && !isNorm;
    case Kind::kLinks:
      return onGpu && hasCode<Row, Device::kCuda> && isSimple && !isNorm &&
             Row::kAlgorithm != Algorithm::kLocal;
    case Kind::kNorms:
      return isNorm && Row::kProtocol == Protocol::kLamport;
  }
  return false;
}

template <Kind kind, typename B, typename... Each>
int compiled(std::tuple<Each...>) {
  int count = 0;
  const auto one = [&]<typename Row>(std::type_identity<Row>) {
    if constexpr (isOf<Row>(kind)) count += compiles<typename Row::Code, B>() ? 1 : 0;
  };
  (one(std::type_identity<Each>{}), ...);
  return count;
}

TEST(Archetypes, AlgorithmsCallNothingThatIsNotDeclared) {
  const Rows rows{};
  EXPECT_GE((compiled<Kind::kHost, WithMailboxLinks<Norming<Reaching>>>(rows)), 40);
  EXPECT_GE((compiled<Kind::kSpread, Spread<Norming<Reaching>>>(rows)), 15);
  EXPECT_GE((compiled<Kind::kLinks, WithLinks>(rows)), 8);
  EXPECT_EQ((compiled<Kind::kNorms, LineNorming>(rows)), 2);
}

TEST(Archetypes, EveryCapabilityServesTheAlgorithmsInLines) {
  const Rows rows{};
  constexpr int kSome = 25;
  EXPECT_GE((compiled<Kind::kLines, Lines>(rows)), kSome);
  EXPECT_GE((compiled<Kind::kLines, Overlapping>(rows)), kSome);
  EXPECT_GE((compiled<Kind::kLines, Fanning>(rows)), kSome);
  EXPECT_GE((compiled<Kind::kLines, Sharing>(rows)), kSome);
  EXPECT_GE((compiled<Kind::kLines, InOneEpoch>(rows)), kSome);
  EXPECT_GE((compiled<Kind::kLines, InTurns>(rows)), kSome);
}

// A backend that claims nothing has nothing, whatever members it has.
TEST(Archetypes, CapabilitiesAreClaimed) {
  struct Silent : Lines {
    Status shareLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t) { return {}; }
  };
  static_assert(!SharesLines<Silent> && SharesLines<Sharing> && SharesLines<InTurns>);
  static_assert(!Overlaps<Lines> && Overlaps<Overlapping> && !FansLines<Overlapping> && FansLines<Fanning>);
  static_assert(!OneEpoch<Sharing> && OneEpoch<InOneEpoch> && !TakesTurns<InOneEpoch> && TakesTurns<InTurns>);
  static_assert(!Overlaps<Reaching> && !LendingBackend<Reaching>);
  static_assert(!LinkingBackend<Lines> && LinkingBackend<WithLinks>);
  static_assert(!LendingBackend<Slots> && LendingBackend<Spread<Slots>> && SizesChunks<Spread<Slots>>);
}

}  // namespace
}  // namespace stretto
