// Stretto's own driver: nothing but nccl.h and stretto.h, as any user has them. One process per rank, or all
// ranks as threads of one process.
#include <nccl.h>
#include <stretto.h>
#include <sys/stat.h>

#include <memory>
#include <thread>

#include "driver.hpp"
#include "launch.hpp"

namespace stretto::bench {
namespace {

constexpr double kSecondsForId = 60;

// Rank 0 makes the communicator's name and leaves it in the job's folder; the others wait until it is there.
bool exchangeId(const Arguments& arguments, ncclUniqueId* id) {
  const std::string path = arguments.folder + "/id";
  if (arguments.rank == 0) {
    if (ncclGetUniqueId(id) != ncclSuccess) return false;
    const std::string draft = path + ".draft";
    FILE* file = fopen(draft.c_str(), "wb");
    if (file == nullptr) return false;
    const bool whole = fwrite(id, sizeof *id, 1, file) == 1;
    return fclose(file) == 0 && whole && rename(draft.c_str(), path.c_str()) == 0;
  }
  for (double waited = 0; waited < kSecondsForId; waited += 0.005) {
    FILE* file = fopen(path.c_str(), "rb");
    if (file != nullptr) {
      const bool whole = fread(id, sizeof *id, 1, file) == 1;
      fclose(file);
      return whole;
    }
    usleep(5000);
  }
  return false;
}

class Stretto {
 public:
  explicit Stretto(const Arguments& arguments) {
    ncclUniqueId id;
    isReady_ = exchangeId(arguments, &id) &&
               ncclCommInitRank(&comm_, arguments.ranks, id, arguments.rank) == ncclSuccess;
  }
  ~Stretto() {
    if (comm_ != nullptr) ncclCommDestroy(comm_);
  }
  Stretto(const Stretto&) = delete;
  Stretto& operator=(const Stretto&) = delete;
  bool isReady() const { return isReady_; }

  std::string name() const { return "stretto"; }
  std::string version() const { return strettoVersion(); }
  std::string error() const { return ncclGetLastError(comm_); }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    return ncclMemAlloc(&memory, bytes) == ncclSuccess ? memory : nullptr;
  }

  std::string refuse(const Request& r) const {
    if (r.inPlace && r.collective == Collective::kAllToAll) return "an all_to_all does not work in place";
    const bool forced = !r.algorithm.empty() || !r.protocol.empty();
    if (forced && r.algorithm.empty()) return "--protocol needs --algorithm";
    return forced && r.collective == Collective::kSendReceive ? "send_recv has no algorithms to force" : "";
  }

  bool configure(const Request& r) {
    type_ = static_cast<ncclDataType_t>(r.type);
    op_ = static_cast<ncclRedOp_t>(r.op);
    if (r.collective == Collective::kSendReceive) return true;
    const char* algorithm = r.algorithm.empty() ? nullptr : r.algorithm.c_str();
    const char* protocol = r.protocol.empty() ? nullptr : r.protocol.c_str();
    return strettoCommForce(comm_, collectiveName(r), algorithm, protocol, 0, 0) == ncclSuccess;
  }

  // The library's own explanation, whole.
  std::string how(const Request& r) const {
    if (r.collective == Collective::kSendReceive) return R"({"algorithm":"link","protocol":"credits"})";
    const size_t bytes = std::max(sendCount(r), receiveCount(r)) * r.elementBytes();
    std::string text(16384, ' ');
    size_t needed = 0;
    const strettoQuestion_t question{collectiveName(r), bytes, type_, op_, 0, 0, 0};
    const ncclResult_t result = strettoExplain(comm_, &question, text.data(), text.size(), &needed);
    if (result != ncclSuccess || needed == 0 || needed > text.size()) return "null";
    text.resize(needed - 1);
    std::erase(text, '\n');  // a reply is one line
    return text;
  }

  Ends endsInPlace(const Request& r, std::byte* buffer) const {
    return stretto::bench::endsInPlace(r, buffer);
  }

  bool run(const Request& r, const Ends& ends) { return runCollective(r, ends) == ncclSuccess; }

  std::vector<CallCost> callCosts(size_t calls, size_t batches) {
    return Launches(comm_).measure(calls, batches);
  }

  // NCCL has no barrier; the smallest all-reduce is one.
  bool barrier() {
    return ncclAllReduce(token_, token_ + 1, 1, ncclInt32, ncclMax, comm_, nullptr) == ncclSuccess;
  }

 private:
  static const char* collectiveName(const Request& r) {
    return kCollectiveNames[static_cast<int>(r.collective)];
  }

  ncclResult_t runCollective(const Request& r, const Ends& ends) {
    switch (r.collective) {
      case Collective::kAllReduce:
        return ncclAllReduce(ends.send, ends.receive, r.count, type_, op_, comm_, nullptr);
      case Collective::kReduceScatter:
        return ncclReduceScatter(ends.send, ends.receive, r.count, type_, op_, comm_, nullptr);
      case Collective::kAllGather:
        return ncclAllGather(ends.send, ends.receive, r.count, type_, comm_, nullptr);
      case Collective::kAllToAll:
        return ncclAlltoAll(ends.send, ends.receive, r.count, type_, comm_, nullptr);
      case Collective::kBroadcast:
        return ncclBroadcast(ends.send, ends.receive, r.count, type_, r.root, comm_, nullptr);
      case Collective::kReduce:
        return ncclReduce(ends.send, ends.receive, r.count, type_, op_, r.root, comm_, nullptr);
      case Collective::kGather:
        return ncclGather(ends.send, ends.receive, r.count, type_, r.root, comm_, nullptr);
      case Collective::kScatter:
        return ncclScatter(ends.send, ends.receive, r.count, type_, r.root, comm_, nullptr);
      case Collective::kSendReceive:
        return pingPong(r, ends);
    }
    return ncclInvalidArgument;
  }

  ncclResult_t pingPong(const Request& r, const Ends& ends) {
    const int peer = 1 - r.rank;
    const auto send = [&] { return ncclSend(ends.send, r.count, type_, peer, comm_, nullptr); };
    const auto receive = [&] { return ncclRecv(ends.receive, r.count, type_, peer, comm_, nullptr); };
    const ncclResult_t first = r.rank == 0 ? send() : receive();
    return first != ncclSuccess ? first : (r.rank == 0 ? receive() : send());
  }

  ncclComm_t comm_ = nullptr;
  bool isReady_ = false;
  ncclDataType_t type_ = ncclFloat32;
  ncclRedOp_t op_ = ncclSum;
  int token_[2] = {1, 0};
};

int runRank(const Arguments& arguments) {
  if (arguments.pin) pinToCore(arguments.rank, arguments.ranks);
  Stretto implementation(arguments);
  if (!implementation.isReady()) {
    fprintf(stderr, "stretto_driver: rank %d: %s\n", arguments.rank, implementation.error().c_str());
    return 1;
  }
  return serve(implementation, arguments);
}

int runThreads(const Arguments& arguments) {
  std::vector<std::thread> threads;
  std::atomic<int> status{0};
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    threads.emplace_back([&arguments, &status, rank] {
      Arguments mine = arguments;
      mine.rank = rank;
      if (runRank(mine) != 0) status = 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  Arguments arguments;
  if (!parseArguments(argc, argv, &arguments)) {
    fprintf(stderr, "stretto_driver: started by `stretto bench`, not by hand\n");
    return 2;
  }
  dieWithParent();
  return arguments.threads ? runThreads(arguments) : runRank(arguments);
}
