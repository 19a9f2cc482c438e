// The driver of the lab's baselines (kinds.hpp): one process per rank, one kind of all-reduce per job.
#include "../driver.hpp"
#include "kinds.hpp"

namespace stretto::bench {
namespace {

class Baseline {
 public:
  Baseline(const Kind& kind, const Arguments& arguments)
      : kind_(kind),
        allReduce_(kind, nameOf(arguments.folder), arguments.rank, arguments.ranks, arguments.maxBytes) {}

  bool isReady() const { return allReduce_.isReady(); }
  std::string name() const { return kind_.name; }
  std::string version() const { return "stretto lab"; }
  void* allocate(size_t bytes) { return allocatePlain(bytes); }
  std::string refuse(const Request& r) const {
    const bool served =
        r.collective == Collective::kAllReduce && r.type == Type::kFloat32 && r.op == Operator::kSum;
    return served ? "" : "the lab's baselines are all-reduces of float32 sums";
  }
  bool configure(const Request&) { return true; }
  std::string how(const Request&) const {
    return R"({"algorithm":)" + quoted(kind_.name) + R"(,"protocol":"flags"})";
  }
  Ends endsInPlace(const Request& r, std::byte* buffer) const {
    return stretto::bench::endsInPlace(r, buffer);
  }
  bool run(const Request& r, const Ends& ends) {
    return allReduce_.allReduce(ends.send, ends.receive, r.count);
  }
  bool barrier() { return allReduce_.meet(); }
  std::string error() const { return "a rank has not come to a barrier for a minute"; }
  void holdInside(size_t nanoseconds) { allReduce_.holdInside(nanoseconds); }

 private:
  // The job's folder is its own; a name of shared memory may hold no slash but the first.
  static std::string nameOf(std::string folder) {
    std::replace(folder.begin(), folder.end(), '/', '-');
    return "/" + folder;
  }

  const Kind& kind_;
  KindOfAllReduce allReduce_;
};
static_assert(Implementation<Baseline> && HoldsInside<Baseline>);

int runRank(const Kind& kind, const Arguments& arguments) {
  if (arguments.pin) pinToCore(arguments.rank, arguments.ranks);
  Baseline implementation(kind, arguments);
  if (!implementation.isReady()) {
    fprintf(stderr, "kinds_driver: rank %d: no shared memory, or not all ranks came to it\n", arguments.rank);
    return 1;
  }
  return serve(implementation, arguments);
}

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  Arguments arguments;
  const Kind* kind = argc > 2 && std::string(argv[1]) == "--kind" ? findKind(argv[2]) : nullptr;
  if (kind == nullptr || !parseArguments(argc, argv, &arguments)) {
    fprintf(stderr, "kinds_driver: started by `stretto lab`, not by hand\n");
    return 2;
  }
  dieWithParent();
  return runRank(*kind, arguments);
}
