// The floor: what the memory of this machine allows. Each rank is a pinned thread that copies, with plain
// memcpy, as many bytes as its share of the collective reads and writes at the very least, whoever they
// belong to; nothing crosses between ranks and nobody waits for another's data. Its results are not checked,
// for there are none: the orchestrator uses only its times.
//
// For S bytes (nccl-tests' "size") and n ranks, a rank's share, as (bytes read + bytes written) / 2:
// - all_reduce: S, of reading S and writing S; 2(n-1)/n S of these cross between ranks
// - all_to_all, broadcast, send_recv: S, of reading S and writing S
// - reduce_scatter, all_gather, reduce: S (n+1) / 2n, as one side is n times the other
// - gather, scatter: S / n, the root's memory shared out among all ranks
#include <barrier>
#include <thread>

#include "driver.hpp"

namespace stretto::bench {
namespace {

size_t shareOf(const Request& r) {
  const size_t block = r.blockBytes();
  const auto ranks = static_cast<size_t>(r.ranks);
  switch (r.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return block * (ranks + 1) / 2;
    case Collective::kReduce:
      return block * (ranks + 1) / (2 * ranks);
    case Collective::kAllToAll:
      return block * ranks;
    default:
      return block;
  }
}

// One thread; all of them share the barrier, so that large copies compete for the memory as ranks do.
class Memcpy {
 public:
  explicit Memcpy(std::barrier<>& all) : all_(all) {}
  std::string name() const { return "memcpy"; }
  std::string version() const { return "libc"; }
  void* allocate(size_t bytes) { return allocatePlain(bytes); }
  std::string refuse(const Request& r) const {
    return r.inPlace || r.check ? "memcpy copies from one buffer to another and has no result to check" : "";
  }
  bool configure(const Request& r) {
    bytes_ = shareOf(r);
    return true;
  }
  std::string how(const Request&) const { return R"({"algorithm":"memcpy","protocol":"none"})"; }
  Ends endsInPlace(const Request& r, std::byte* buffer) const {
    return stretto::bench::endsInPlace(r, buffer);
  }
  bool run(const Request&, const Ends& ends) {
    memcpy(ends.receive, ends.send, bytes_);
    return true;
  }
  bool barrier() {
    all_.arrive_and_wait();
    return true;
  }
  std::string error() const { return "memcpy cannot fail"; }

 private:
  std::barrier<>& all_;
  size_t bytes_ = 0;
};

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  Arguments arguments;
  if (!parseArguments(argc, argv, &arguments)) {
    fprintf(stderr, "memcpy_driver: started by `stretto bench`, not by hand\n");
    return 2;
  }
  dieWithParent();
  std::barrier<> all(arguments.ranks);
  std::vector<std::thread> threads;
  std::atomic<int> status{0};
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    threads.emplace_back([&arguments, &all, &status, rank] {
      Arguments mine = arguments;
      mine.rank = rank;
      if (mine.pin) pinToCore(rank, mine.ranks);
      Memcpy implementation(all);
      if (serve(implementation, mine) != 0) status = 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}
