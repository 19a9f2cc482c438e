// What every algorithm really does, counted, against its row of the registry: bytes between ranks and one-way
// latencies in sequence, of the busiest rank, for a message of one chunk.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "harness/every_algorithm.hpp"
#include "harness/norm_sum.hpp"
#include "harness/ranks.hpp"
#include "harness/wrapped_host.hpp"

namespace stretto {
namespace {

using namespace stretto::testing;

// Latencies so far, by what announces them: the mailbox of a signal, the region of lines.
class Clocks {
 public:
  void recordCall(const void* place, int hops) {
    std::lock_guard lock(mutex_);
    hops_[place] = hops;
  }
  int read(const void* place) {
    std::lock_guard lock(mutex_);
    return hops_[place];
  }

 private:
  std::mutex mutex_;
  std::map<const void*, int> hops_;
};

// What one rank moved, both ways.
struct Count {
  size_t out = 0;
  size_t in = 0;
  int hops = 0;
};

class Counting : public WrappedHost {
 public:
  Counting(Host& host, Clocks& clocks, std::vector<Count>& counts)
      : WrappedHost(host), clocks_(clocks), counts_(counts) {}

  void put(Coop coop, int peer, void* to, const void* from, size_t bytes) {
    moved(peer, bytes);
    host_.put(coop, peer, to, from, bytes);
  }
  void signal(Coop coop, int peer, Mailbox* mailbox, uint64_t value) {
    clocks_.recordCall(mailbox, mine().hops + 1);
    host_.signal(coop, peer, mailbox, value);
  }
  Status wait(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    const Status status = host_.wait(coop, peer, mailbox, value);
    hear(mailbox);
    return status;
  }
  void putLines(Coop coop, int peer, const void* from, size_t bytes, Phase phase = Phase::kScatter) {
    moved(peer, bytes);
    clocks_.recordCall(linesAt(peer, phase, rank()), mine().hops + 1);
    host_.putLines(coop, peer, from, bytes, phase);
  }
  Status readLines(Coop coop, int peer, void* to, size_t bytes, Phase phase = Phase::kScatter) {
    const Status status = host_.readLines(coop, peer, to, bytes, phase);
    hear(linesAt(rank(), phase, peer));
    return status;
  }
  Status reduceLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own, size_t bytes) {
    const Status status = host_.reduceLines(coop, spec, to, own, bytes);
    for (int peer = 0; peer < ranks(); ++peer) hear(linesAt(rank(), Phase::kScatter, peer));
    return status;
  }
  // Who reads does the work: the owner's memory is not busier for it.
  Status get(Coop coop, int peer, void* to, const void* from, size_t bytes) {
    if (peer != rank()) std::atomic_ref(mine().in).fetch_add(bytes);
    return host_.get(coop, peer, to, from, bytes);
  }
  void reduce(Coop coop, const ReduceSpec& spec, Destinations to, const std::byte* const* sources,
              int sourceCount, size_t count, bool stream) {
    const size_t bytes = count * sizeOf(spec.type);
    if (isRemote(to.own)) moved(ownerOf(to.own), bytes);
    for (int place = 0; place < to.pushedCount; ++place) moved(ownerOf(to.pushed[place]), bytes);
    host_.reduce(coop, spec, to, sources, sourceCount, count, stream);
  }
  void addNorm(Coop coop, const Arguments& arguments, const NormTokens& tokens) {
    const size_t bytes = tokens.many * arguments.tokenBytes();
    for (int place = 0; place < tokens.pushedCount; ++place) moved(ownerOf(tokens.pushed[place]), bytes);
    host_.addNorm(coop, arguments, tokens);
  }

 private:
  Count& mine() { return counts_[static_cast<size_t>(rank())]; }
  void moved(int peer, size_t bytes) {
    mine().out += bytes;
    std::atomic_ref(counts_[static_cast<size_t>(peer)].in).fetch_add(bytes);
  }
  const void* linesAt(int owner, Phase phase, int source) const {
    const auto slot = static_cast<uint32_t>(epoch() % WindowLayout::kSlots);
    return host_.peer(owner).window + layout().lines(slot, phase, source);
  }
  void hear(const void* place) { mine().hops = std::max(mine().hops, clocks_.read(place)); }

  Clocks& clocks_;
  std::vector<Count>& counts_;  // of all ranks
};
static_assert(Backend<Counting>);

constexpr uint32_t kRoom = 1u << 20;

// Runs it once among `ranks` ranks; what each did.
std::vector<Count> countsOf(const Algorithm<Counting>& algorithm, int ranks, size_t count) {
  Job job(ranks, kRoom, kRoom, PeerAccess::kCopy);
  Clocks clocks;
  std::vector<Count> counts(static_cast<size_t>(ranks));
  asThreads(ranks, [&](Member& member) {
    Counting backend(job.host(member.rank), clocks, counts);
    std::vector<float> send(count * static_cast<size_t>(ranks), 1), receive(send.size());
    Arguments arguments;
    arguments.send = reinterpret_cast<const std::byte*>(send.data());
    arguments.receive = reinterpret_cast<std::byte*>(receive.data());
    arguments.count = count;
    arguments.elementBytes = sizeof(float);
    arguments.reduce = {DataType::kFloat32, Operator::kSum, static_cast<uint32_t>(ranks)};
    arguments.chunkBytes = kRoom;
    arguments.directions = static_cast<int>(algorithm.directions);
    const NormArguments norm = sumAlone(arguments);
    arguments.norm = &norm;
    job.host(member.rank).begin(1, 0);
    const Status status = algorithm.run(backend, arguments);
    job.host(member.rank).end();
    member.check(status.ok(), "the operation failed");
    member.board.meet();  // buffers are read until all are done
  });
  return counts;
}

std::string nameOfRow(const algorithms::Descriptor& row) {
  return std::string(nameOf(row.collective)) + "_" + nameOf(row.algorithm) + "_" + nameOf(row.protocol);
}

class Cost : public ::testing::TestWithParam<Algorithm<Counting>> {};

TEST_P(Cost, IsWhatTheRowSays) {
  const Algorithm<Counting>& algorithm = GetParam();
  const auto& row = *algorithm.row;
  // Shards of whole cache lines among 2, 3, 4, 5 and 8 ranks, or among all of them but the root, and one
  // chunk.
  const bool twoShot = row.algorithm == algorithms::Algorithm::kTwoShot;
  const bool rootless =
      twoShot && (row.collective == Collective::kBroadcast || row.collective == Collective::kReduce);
  const size_t count = row.mostBytes == 0 ? 15360 : rootless ? 1344 : twoShot ? 1920 : 960;
  for (const int ranks : {2, 3, 4, 5, 8}) {
    if (rootless && ranks == 2) continue;  // one owner alone: no use, and more than lines hold
    const std::vector<Count> counts = countsOf(algorithm, ranks, count);
    const double bytes = static_cast<double>(count * sizeof(float));
    double moved = 0, hops = 0;
    for (const Count& each : counts) {
      moved = std::max(moved, static_cast<double>(std::max(each.out, each.in)));
      hops = std::max(hops, static_cast<double>(each.hops));
    }
    const algorithms::Cost cost = algorithms::costOf(row, ranks, bytes, algorithm.directions);
    // Who reads in place first says where to.
    const double words = row.needsPeerAccess ? 128.0 * (ranks - 1) : 0;
    EXPECT_GE(moved, cost.wireBytes) << ranks << " ranks";
    EXPECT_LE(moved, cost.wireBytes + words) << ranks << " ranks";
    EXPECT_EQ(hops, cost.hops) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Cost, ::testing::ValuesIn([] {
                           auto all = everyAlgorithm<Counting>();
                           std::erase_if(all, [](const auto& each) { return each.rings > 1; });
                           return all;
                         }()),
                         [](const auto& suite) {
                           const bool both = suite.param.directions == algorithms::Directions::kBothWays;
                           return nameOfRow(*suite.param.row) + (both ? "_both_ways" : "");
                         });

}  // namespace
}  // namespace stretto
