// Algorithms call what the concepts of a backend declare, and nothing else: each is compiled here over the
// smallest backend that it may ask for, a class that has exactly what a concept declares. A call of any other
// member does not compile.
#include <gtest/gtest.h>

#include <span>
#include <tuple>
#include <vector>

#include "algorithms/rows.hpp"

namespace stretto::algorithms {
namespace {

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
  uint64_t nextEpoch() { return 1; }
  size_t lineBytes() const { return 64; }
  void putLines(Coop, int, const std::byte*, size_t, Phase = Phase::kScatter) {}
  Status readLines(Coop, int, std::byte*, size_t, Phase = Phase::kScatter) { return {}; }
  Status reduceLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t) { return {}; }
};

struct SlotLayout {
  uint32_t slotBytes = 64;
};
struct LinkLayout {
  uint32_t linkChunk = 64;
};

struct Slots : Lines {
  uint64_t epoch() const { return 1; }
  SlotLayout layout() const { return {}; }
  std::byte* slotAt(int, Phase) const { return anywhere<std::byte>(); }
  const std::byte* slotFrom(int, Phase) const { return anywhere<std::byte>(); }
  Mailbox* mailboxAt(int, Phase) const { return anywhere<Mailbox>(); }
  const Mailbox* mailboxFrom(int, Phase) const { return anywhere<Mailbox>(); }
};

struct Reaching : Slots {
  Shareable describe(const std::byte*, size_t) { return {}; }
  Status locate(int, const Shareable&, const std::byte*& found) {
    found = anywhere<const std::byte>();
    return {};
  }
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
  LinkLayout layout() const { return {}; }
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

// Normalises after an all-reduce of any algorithm.
struct NormingApart : WithMailboxLinks<Norming<Reaching>> {
  struct Layout : SlotLayout, LinkLayout {};
  Layout layout() const { return {}; }
};

struct WithLinks : Any {
  struct Has : Any::Has {
    static constexpr bool kLinks = true;
  };
  LinkLayout layout() const { return {}; }
  Status acquireLink(int, size_t, std::byte*&) { return {}; }
  void publishLink(int) {}
  Status awaitLink(int, const std::byte*&) { return {}; }
  void releaseLink(int) {}
};

struct Places {
  int hostOf(int) const { return 0; }
  int indexOf(int) const { return 0; }
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

// Between two ranks GPUs have no verb for all peers: LL and LL128, and Lamport lines.
struct SharingInPairs : Overlapping {
  struct Has : Overlapping::Has {
    static constexpr bool kSharesLines = true;
  };
  Status shareLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t) { return {}; }
};

struct InTurnsInPairs : SharingInPairs {
  struct Has : SharingInPairs::Has {
    static constexpr bool kOneEpoch = true;
    static constexpr bool kTurns = true;
  };
  Status dealLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t, size_t) { return {}; }
};

struct OverlappingNorms : LineNorming {
  struct Has : LineNorming::Has {
    static constexpr bool kOverlaps = true;
  };
  template <typename... Stages>
  Status pipeline(size_t, Stages...) {
    return {};
  }
};

// Claims what it has not quite.
struct Boasting : Lines {
  struct Has : Lines::Has {
    static constexpr bool kSharesLines = true;
  };
  Status shareLines(Coop, const ReduceSpec&, std::byte*, const std::byte*) { return {}; }  // no bytes
};

// ---- Every algorithm over them ----------------------------------------------------------------------------

// What a row asks for at least. On hosts, each row is of exactly one kind.
enum class Kind : uint8_t {
  kLocal,
  kLines,
  kSlots,
  kReaching,
  kLinks,
  kNormsApart,
  kSpread,
  kGpuLines,
  kGpuPairs,
  kGpuLinks,
  kGpuNorms
};

template <typename Row>
constexpr Kind hostKind() {
  if (Row::kCollective == Collective::kAllReduceAddRmsNorm) return Kind::kNormsApart;
  if (usesLinks(Row::kAlgorithm)) return Kind::kLinks;
  if (Row::kAlgorithm == Algorithm::kDirect) return Kind::kReaching;
  if (Row::kAlgorithm == Algorithm::kLocal) return Kind::kLocal;
  return Row::kProtocol == Protocol::kSimple ? Kind::kSlots : Kind::kLines;
}

template <typename Row>
constexpr bool isOf(Kind kind) {
  constexpr bool onHost = hasCode<Row, Device::kHost>, onGpu = hasCode<Row, Device::kCuda>;
  constexpr bool isNorm = Row::kCollective == Collective::kAllReduceAddRmsNorm;
  constexpr bool isSimple = Row::kProtocol == Protocol::kSimple;
  constexpr bool isLocal = Row::kAlgorithm == Algorithm::kLocal;
  switch (kind) {
    case Kind::kSpread:
      return onHost && !isNorm && usesLinks(Row::kAlgorithm);
    case Kind::kGpuLines:
      return onGpu && !isSimple && !isNorm;
    case Kind::kGpuPairs:  // which have no two-shots
      return onGpu && !isSimple && !isNorm && Row::kAlgorithm != Algorithm::kTwoShot;
    case Kind::kGpuLinks:
      return onGpu && isSimple && !isNorm && !isLocal;
    case Kind::kGpuNorms:
      return onGpu && isNorm && Row::kProtocol == Protocol::kLamport;
    default:
      return onHost && runsInOneHost<Row> && hostKind<Row>() == kind;
  }
}

// Compiles it, and says that it has.
template <typename Code, typename B>
bool compiles() {
  volatile auto run = &Code::template run<B>;
  return run != nullptr;
}

template <Kind kind, typename B, typename... Each>
int compiled(std::tuple<Each...>) {
  static_assert(KeepsItsClaims<B> && KeepsClaimsOfLinks<B>);
  int count = 0;
  const auto one = [&]<typename Row>(std::type_identity<Row>) {
    if constexpr (isOf<Row>(kind)) count += compiles<typename Row::Code, B>() ? 1 : 0;
  };
  (one(std::type_identity<Each>{}), ...);
  return count;
}

// Rows that a device runs, norms left out on GPUs, where most have kernels of their own.
template <Device device, typename... Each>
constexpr int rowsOn(std::tuple<Each...>) {
  return ((hasCode<Each, device> && runsInOneHost<Each> &&
                   (device == Device::kHost || Each::kCollective != Collective::kAllReduceAddRmsNorm)
               ? 1
               : 0) +
          ...);
}

TEST(Archetypes, AlgorithmsOfHostsCallNothingThatIsNotDeclared) {
  const Rows rows{};
  const int local = compiled<Kind::kLocal, Any>(rows);
  const int lines = compiled<Kind::kLines, Lines>(rows);
  const int slots = compiled<Kind::kSlots, Slots>(rows);
  const int reaching = compiled<Kind::kReaching, Reaching>(rows);
  const int links = compiled<Kind::kLinks, WithMailboxLinks<Any>>(rows);
  const int norms = compiled<Kind::kNormsApart, NormingApart>(rows);
  EXPECT_EQ(local + lines + slots + reaching + links + norms, rowsOn<Device::kHost>(rows));
  const int stages = 3;  // all-reduce, all-gather, broadcast
  EXPECT_EQ((compiled<Kind::kSpread, Spread<Any>>(rows)), links + stages);
}

TEST(Archetypes, AlgorithmsOfGpusCallNothingThatIsNotDeclared) {
  const Rows rows{};
  const int lines = compiled<Kind::kGpuLines, Lines>(rows);
  const int links = compiled<Kind::kGpuLinks, WithLinks>(rows);
  const int locals = 8;  // of each collective but the norm
  EXPECT_EQ(lines + links + locals, rowsOn<Device::kCuda>(rows));
  EXPECT_EQ((compiled<Kind::kGpuLines, Overlapping>(rows)), lines);
  EXPECT_EQ((compiled<Kind::kGpuLines, Fanning>(rows)), lines);
  EXPECT_EQ((compiled<Kind::kGpuLines, Sharing>(rows)), lines);
  EXPECT_EQ((compiled<Kind::kGpuLines, InOneEpoch>(rows)), lines);
  EXPECT_EQ((compiled<Kind::kGpuLines, InTurns>(rows)), lines);
  const int inPairs = compiled<Kind::kGpuPairs, SharingInPairs>(rows);
  EXPECT_LT(inPairs, lines);
  EXPECT_EQ((compiled<Kind::kGpuPairs, InTurnsInPairs>(rows)), inPairs);
  EXPECT_EQ((compiled<Kind::kGpuNorms, LineNorming>(rows)), 2);
  EXPECT_EQ((compiled<Kind::kGpuNorms, OverlappingNorms>(rows)), 2);
}

// A backend that claims nothing has nothing, whatever members it has; and one that claims what it has not is
// told so.
TEST(Archetypes, CapabilitiesAreClaimed) {
  struct Silent : Lines {
    Status shareLines(Coop, const ReduceSpec&, std::byte*, const std::byte*, size_t) { return {}; }
  };
  static_assert(!SharesLines<Silent> && SharesLines<Sharing> && SharesLines<InTurns>);
  static_assert(!Overlaps<Lines> && Overlaps<Overlapping> && !FansLines<Overlapping> && FansLines<Fanning>);
  static_assert(!OneEpoch<Sharing> && OneEpoch<InOneEpoch> && !TakesTurns<InOneEpoch> && TakesTurns<InTurns>);
  static_assert(!Overlaps<Reaching> && !LendingBackend<Reaching>);
  static_assert(!LinkingBackend<Lines> && LinkingBackend<WithLinks>);
  static_assert(!LendingBackend<Slots> && LendingBackend<Spread<Any>> && SizesChunks<Spread<Any>>);

  static_assert(SharesLines<Boasting> && !KeepsItsClaims<Boasting>);
}

}  // namespace
}  // namespace stretto::algorithms
