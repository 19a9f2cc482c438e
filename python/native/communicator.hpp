// The native halves of stretto.Communicator and stretto.Stream: each method turns Python objects into
// arguments of one NCCL function, lets go of the GIL, calls it, and raises what it returns. Shapes, defaults
// and words for people are in python/stretto/communicator.py. Only python/native uses it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "array.hpp"
#include "nccl.h"
#include "owner.hpp"
#include "stretto.h"

namespace stretto::python {

// Where operations run in order: an asynchronous host stream of this object, with the arrays that its
// operations still use; or a CUDA stream of the caller's, who waits for it and keeps the memory.
class Stream {
 public:
  Stream();
  // `cuda`: a cudaStream_t as a number; 0 is the default stream.
  explicit Stream(uintptr_t cuda);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool inherited() const { return !owner_.isHere(); }
  void synchronize();
  bool idle();
  void close();
  cudaStream_t handle() const;
  void keep(std::vector<Array> arrays);

 private:
  // The host stream, for what only its owner may do.
  cudaStream_t own() const;

  Owner owner_;
  bool borrowed_ = false;
  cudaStream_t stream_ = nullptr;
  std::vector<Array> kept_;
};

// One operation's arguments as Python passes them; `type` is a number of ncclDataType_t, or -1 for the
// array's own.
struct Call {
  nb::handle send;
  nb::handle receive;
  int type = -1;
  int op = ncclSum;
  int root = 0;
  Stream* stream = nullptr;
};

// Those of an all-reduce with RMSNorm. `arrays`: by the names of strettoAddRmsNorm_t; None is not there.
struct NormCall {
  nb::dict arrays;
  size_t hidden = 0;
  double epsilon = 0;
  int type = -1;
  int scaling = 0;
  int quantisedType = 0;
  Stream* stream = nullptr;
};

// Where in a communicator this rank is, and on which GPU; -1 is host memory.
struct Place {
  int rank = 0;
  int size = 0;
  int device = -1;
};

class Communicator {
 public:
  explicit Communicator(ncclComm_t comm);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // `host`: the data of this rank is in host memory, whatever STRETTO_DEVICE says.
  static Communicator* join(int ranks, const std::string& id, int rank, const std::string& name, bool host);

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  bool closed() const { return comm_ == nullptr; }
  // The GPU whose memory this rank's data is in; nothing for the host's.
  std::optional<int> device() const;
  // Whether this is a forked child's copy of its parent's.
  bool inherited() const { return !owner_.isHere(); }

  void allReduce(const Call& call);
  void allReduceAddRmsNorm(const NormCall& call);
  void reduce(const Call& call);
  void broadcast(const Call& call);
  void reduceScatter(const Call& call);
  void allGather(const Call& call);
  void allToAll(const Call& call);
  void gather(const Call& call);
  void scatter(const Call& call);
  void send(const Call& call);
  void receive(const Call& call);
  void barrier();

  int createPreMulSum(const std::string& scalar, int type);
  void destroyOp(int op);

  Communicator* split(std::optional<int> color, int key);
  Communicator* shrink(std::vector<int> exclude, bool abort);
  void finalize();
  void destroy();
  void abort();
  void revoke();
  int asyncError();

  nb::dict counters();
  std::string explain(const std::string& collective, size_t bytes, int type, int op, size_t hidden);
  void force(const std::string& collective, const std::optional<std::string>& algorithm,
             const std::optional<std::string>& protocol, size_t chunkBytes);

  // The handle; an error once it is closed.
  ncclComm_t open() const;

 private:
  // The handle for the call that ends it; null if that was called before.
  ncclComm_t take();
  // Runs f(cudaStream_t) without the GIL and keeps the arrays for as long as the operation may use them.
  template <typename F>
  void submit(Stream* stream, std::vector<Array> arrays, F f);

  Owner owner_;
  ncclComm_t comm_ = nullptr;
  Place place_;
};

// Whether a message of that rank has begun to arrive.
bool probe(const Communicator& communicator, int peer);

void groupStart();
void groupEnd();
void groupDiscard();
std::vector<Communicator*> initAll(int ranks);

}  // namespace stretto::python
