// OpenMPI's driver: one MPI process per rank, started by mpirun. Compiled with the mpicxx that belongs to
// that mpirun, by python/stretto/bench when it is first needed; nothing of Stretto is in it.
#include <mpi.h>

#include "driver.hpp"

namespace stretto::bench {
namespace {

// Not constexpr: in OpenMPI the name stands for an address that is found when the program is loaded.
MPI_Datatype noType() {
  return MPI_DATATYPE_NULL;
}

// MPI has no portable name for 16- and 8-bit floats: those are moved as bytes and not reduced.
MPI_Datatype mpiType(Type type) {
  switch (type) {
    case Type::kInt8:
      return MPI_INT8_T;
    case Type::kUint8:
      return MPI_UINT8_T;
    case Type::kInt32:
      return MPI_INT32_T;
    case Type::kUint32:
      return MPI_UINT32_T;
    case Type::kInt64:
      return MPI_INT64_T;
    case Type::kUint64:
      return MPI_UINT64_T;
    case Type::kFloat32:
      return MPI_FLOAT;
    case Type::kFloat64:
      return MPI_DOUBLE;
    default:
      return noType();
  }
}

MPI_Op mpiOperator(Operator op) {
  switch (op) {
    case Operator::kSum:
      return MPI_SUM;
    case Operator::kProd:
      return MPI_PROD;
    case Operator::kMax:
      return MPI_MAX;
    case Operator::kMin:
      return MPI_MIN;
    case Operator::kAvg:
      break;
  }
  return MPI_OP_NULL;
}

class OpenMpi {
 public:
  std::string name() const { return "openmpi"; }
  std::string version() const {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<size_t>(length));
    return all.substr(0, all.find(','));
  }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    return MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory
                                                                                              : nullptr;
  }

  std::string refuse(const Request& r) const {
    if (!r.algorithm.empty() || !r.protocol.empty()) return "--algorithm and --protocol are Stretto's";
    if (r.reduces() && r.op == Operator::kAvg) return "MPI has no average";
    if (r.reduces() && mpiType(r.type) == noType()) return "MPI does not reduce this type";
    return r.count > 0x7fffffff ? "more elements than an int counts" : "";
  }

  // Bytes stand in for a type that is only moved.
  bool configure(const Request& r) {
    const MPI_Datatype own = mpiType(r.type);
    type_ = own == noType() ? MPI_BYTE : own;
    count_ = static_cast<int>(own == noType() ? r.blockBytes() : r.count);
    op_ = mpiOperator(r.op);
    return true;
  }
  std::string how(const Request&) const { return R"({"algorithm":"default","protocol":"default"})"; }

  // MPI leaves a reduce_scatter's result at the front of the buffer, where NCCL leaves it in its own place.
  Ends endsInPlace(const Request& r, std::byte* buffer) const {
    if (r.collective == Collective::kReduceScatter) return {buffer, buffer};
    return stretto::bench::endsInPlace(r, buffer);
  }

  bool run(const Request& r, const Ends& ends) {
    const void* send = r.inPlace && (!isRooted(r) || r.atRoot()) ? MPI_IN_PLACE : ends.send;
    return runCollective(r, ends, send) == MPI_SUCCESS;
  }
  bool barrier() { return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS; }
  std::string error() const { return "an MPI call failed"; }

 private:
  static bool isRooted(const Request& r) {
    return r.collective == Collective::kReduce || r.collective == Collective::kGather ||
           r.collective == Collective::kScatter;
  }

  int runCollective(const Request& r, const Ends& ends, const void* send) {
    const MPI_Comm world = MPI_COMM_WORLD;
    switch (r.collective) {
      case Collective::kAllReduce:
        return MPI_Allreduce(send, ends.receive, count_, type_, op_, world);
      case Collective::kReduceScatter:
        return MPI_Reduce_scatter_block(send, ends.receive, count_, type_, op_, world);
      case Collective::kAllGather:
        return MPI_Allgather(send, count_, type_, ends.receive, count_, type_, world);
      case Collective::kAllToAll:
        return MPI_Alltoall(send, count_, type_, ends.receive, count_, type_, world);
      case Collective::kReduce:
        return MPI_Reduce(send, ends.receive, count_, type_, op_, r.root, world);
      case Collective::kGather:
        return MPI_Gather(send, count_, type_, ends.receive, count_, type_, r.root, world);
      case Collective::kScatter:
        return scatter(r, ends);
      case Collective::kBroadcast:
        return broadcast(r, ends);
      case Collective::kSendReceive:
        return pingPong(r, ends);
    }
    return MPI_ERR_OTHER;
  }

  int scatter(const Request& r, const Ends& ends) {
    void* receive = r.inPlace && r.atRoot() ? MPI_IN_PLACE : ends.receive;
    return MPI_Scatter(ends.send, count_, type_, receive, count_, type_, r.root, MPI_COMM_WORLD);
  }

  // MPI's broadcast has one buffer. Out of place, NCCL's root also copies its input to its output: so does
  // this.
  int broadcast(const Request& r, const Ends& ends) {
    if (r.atRoot() && ends.send != ends.receive) memcpy(ends.receive, ends.send, r.blockBytes());
    return MPI_Bcast(ends.receive, count_, type_, r.root, MPI_COMM_WORLD);
  }

  int pingPong(const Request& r, const Ends& ends) {
    const int peer = 1 - r.rank;
    const auto send = [&] { return MPI_Send(ends.send, count_, type_, peer, 0, MPI_COMM_WORLD); };
    const auto receive = [&] {
      return MPI_Recv(ends.receive, count_, type_, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
    const int first = r.rank == 0 ? send() : receive();
    return first != MPI_SUCCESS ? first : (r.rank == 0 ? receive() : send());
  }

  MPI_Datatype type_ = MPI_FLOAT;
  MPI_Op op_ = MPI_SUM;
  int count_ = 0;
};

}  // namespace
}  // namespace stretto::bench

int main(int argc, char** argv) {
  using namespace stretto::bench;
  MPI_Init(&argc, &argv);
  Arguments arguments;
  if (!parseArguments(argc, argv, &arguments)) {
    fprintf(stderr, "openmpi_driver: started by `stretto bench`, not by hand\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &arguments.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &arguments.ranks);
  if (arguments.pin) pinToCore(arguments.rank, arguments.ranks);
  OpenMpi implementation;
  const int status = serve(implementation, arguments);
  MPI_Finalize();
  return status;
}
