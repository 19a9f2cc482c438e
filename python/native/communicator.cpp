#include "communicator.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "errors.hpp"
#include "interrupt.hpp"
#include "text.hpp"

namespace stretto::python {
namespace {

// Arrays of operations that were called inside a group run when the group ends; they are kept until then. A
// group belongs to its thread, and so does this.
struct Pending {
  nb::object owner;  // keeps the stream
  Stream* stream;
  std::vector<Array> arrays;
};
thread_local int tGroupDepth = 0;
// A plain pointer, because a thread that dies inside a group has no GIL to free Python objects with: they
// then leak.
thread_local std::vector<Pending>* tPending = nullptr;
// Of the group that is open.
thread_local std::optional<Owner> tGroupOwner;

void keepUntilGroupEnd(Stream* stream, std::vector<Array> arrays) {
  if (tPending == nullptr) tPending = new std::vector<Pending>;
  tPending->push_back({stream != nullptr ? nb::find(stream) : nb::object(), stream, std::move(arrays)});
}

std::unique_ptr<std::vector<Pending>> leaveGroup() {
  if (tGroupDepth > 0) tGroupDepth--;
  if (tGroupDepth > 0) return nullptr;
  return std::unique_ptr<std::vector<Pending>>(std::exchange(tPending, nullptr));
}

ncclDataType_t typeOf(int type) {
  return type < 0 ? ncclNumTypes : static_cast<ncclDataType_t>(type);
}
ncclRedOp_t opOf(int op) {
  return static_cast<ncclRedOp_t>(op);
}

// Both arrays of one operation; the same object is looked at once.
struct Pair {
  std::vector<Array> arrays;
  const void* source;
  void* target;
  size_t sourceCount;
  size_t targetCount;
  ncclDataType_t type;
};

Pair pairOf(const Call& call) {
  Pair pair{};
  if (call.send.is(call.receive)) {
    pair.arrays.emplace_back(call.receive, Access::kWrite, typeOf(call.type), "array");
  } else {
    pair.arrays.emplace_back(call.send, Access::kRead, typeOf(call.type), "array");
    pair.arrays.emplace_back(call.receive, Access::kWrite, typeOf(call.type), "out");
  }
  const Array& source = pair.arrays.front();
  const Array& target = pair.arrays.back();
  if (source.type() != target.type()) {
    refuse(ncclInvalidArgument, "array has elements of type %s and out of type %s: they must be the same",
           nameOf(source.type()), nameOf(target.type()));
  }
  pair.source = source.data();
  pair.target = target.data();
  pair.sourceCount = source.count();
  pair.targetCount = target.count();
  pair.type = source.type();
  return pair;
}

// The one array of an operation that only reads or only writes on this rank.
struct One {
  std::vector<Array> arrays;
  void* data;
  size_t count;
  ncclDataType_t type;
};

One oneOf(nb::handle object, Access access, int type, const char* name) {
  One one{};
  const Array& array = one.arrays.emplace_back(object, access, typeOf(type), name);
  one.data = array.data();
  one.count = array.count();
  one.type = array.type();
  return one;
}

// The arrays of an all-reduce with RMSNorm, opened by name.
class NormArrays {
 public:
  explicit NormArrays(const NormCall& call) : call_(call) {}

  const void* read(const char* name, ncclDataType_t type, size_t count) {
    return open(name, Access::kRead, type, count);
  }
  void* write(const char* name, ncclDataType_t type, size_t count) {
    return open(name, Access::kWrite, type, count);
  }
  // The first, whose type and number of elements the others have.
  const Array& input() {
    arrays_.emplace_back(call_.arrays["input"], Access::kRead, typeOf(call_.type), "array");
    return arrays_.back();
  }
  std::vector<Array> take() { return std::move(arrays_); }

 private:
  void* open(const char* name, Access access, ncclDataType_t type, size_t count) {
    const nb::object object = call_.arrays.contains(name) ? nb::object(call_.arrays[name]) : nb::none();
    if (object.is_none()) return nullptr;
    // Bytes of 8 bits are taken for what is asked; tokens are of the type that the caller says, or their own.
    const ncclDataType_t taken = sizeOf(type) == 1     ? type
                                 : type == ncclFloat32 ? ncclNumTypes
                                                       : typeOf(call_.type);
    const Array& array = arrays_.emplace_back(object, access, taken, name);
    if (array.type() != type) {
      refuse(ncclInvalidArgument, "%s has elements of type %s and needs %s", name, nameOf(array.type()),
             nameOf(type));
    }
    if (array.count() != count) {
      refuse(ncclInvalidArgument, "%s has %zu elements and needs %zu", name, array.count(), count);
    }
    return array.data();
  }

  const NormCall& call_;
  std::vector<Array> arrays_;
};

strettoAddRmsNorm_t stepOf(const NormCall& call, NormArrays& arrays) {
  strettoAddRmsNorm_t step = STRETTO_ADD_RMS_NORM_INITIALIZER;
  const Array& input = arrays.input();
  const size_t count = input.count();
  step.hidden = call.hidden;
  step.tokens = call.hidden == 0 ? 0 : count / call.hidden;
  step.type = input.type();
  step.epsilon = static_cast<float>(call.epsilon);
  step.input = input.data();
  const ncclDataType_t type = step.type;
  step.residual = arrays.read("residual", type, count);
  step.bias = arrays.read("bias", type, call.hidden);
  step.gamma = arrays.read("weight", type, call.hidden);
  step.residualOut = arrays.write("residual_out", type, count);
  step.normalised = arrays.write("out", type, count);
  step.reduced = arrays.write("reduced", type, count);
  step.scaling = static_cast<strettoScale_t>(call.scaling);
  step.quantisedType = static_cast<ncclDataType_t>(call.quantisedType);
  if (step.scaling == strettoScaleNone) return step;
  step.quantised = arrays.write("quantised", step.quantisedType, count);
  if (step.scaling == strettoScalePerToken) {
    step.scales = static_cast<float*>(arrays.write("scales", ncclFloat32, step.tokens));
  } else {
    step.scales = static_cast<float*>(const_cast<void*>(arrays.read("scales", ncclFloat32, 1)));
  }
  return step;
}

void expect(bool right, const Pair& pair, const char* rule) {
  if (right) return;
  refuse(ncclInvalidArgument, "array has %zu elements and out has %zu, but %s", pair.sourceCount,
         pair.targetCount, rule);
}

}  // namespace

Communicator::Communicator(ncclComm_t comm) : comm_(comm) {
  watchInterrupts();
  check(ncclCommUserRank(comm, &place_.rank), comm);
  check(ncclCommCount(comm, &place_.size), comm);
  check(strettoCommDevice(comm, &place_.device), comm);
}

std::optional<int> Communicator::device() const {
  return place_.device < 0 ? std::nullopt : std::optional(place_.device);
}

// Forgotten by the program without a word: its peers may go on, so it parts in peace if all is well with it.
Communicator::~Communicator() {
  if (comm_ == nullptr || inherited()) return;
  nb::gil_scoped_release released;
  ncclResult_t state = ncclSuccess;
  const bool well = ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state == ncclSuccess;
  well ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
}

Communicator* Communicator::join(int ranks, const std::string& id, int rank, const std::string& name,
                                 bool host) {
  ncclUniqueId unique;
  if (id.size() != sizeof unique)
    refuse(ncclInvalidArgument, "unique_id has %zu bytes and must have 128", id.size());
  memcpy(&unique, id.data(), sizeof unique);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (!name.empty()) config.commName = name.c_str();
  ncclComm_t comm = nullptr;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    const auto init = host ? strettoCommInitHostRank : ncclCommInitRankConfig;
    result = init(&comm, ranks, unique, rank, &config);
  }
  check(result);
  return new Communicator(comm);
}

ncclComm_t Communicator::open() const {
  owner_.expectHere("communicator");
  if (comm_ == nullptr) refuse(ncclInvalidUsage, "this communicator is closed");
  return comm_;
}

ncclComm_t Communicator::take() {
  if (comm_ != nullptr) owner_.expectHere("communicator");
  return std::exchange(comm_, nullptr);
}

template <typename F>
void Communicator::submit(Stream* stream, std::vector<Array> arrays, F f) {
  const ncclComm_t comm = open();
  const cudaStream_t handle = stream != nullptr ? stream->handle() : nullptr;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    const Interruptible here(comm);
    result = f(comm, handle);
  }
  // A call that failed because of Ctrl-C raises that.
  if (result != ncclSuccess && PyErr_CheckSignals() != 0) throw nb::python_error();
  check(result, comm_);
  if (tGroupDepth > 0) {
    keepUntilGroupEnd(stream, std::move(arrays));
  } else if (stream != nullptr) {
    stream->keep(std::move(arrays));
  }
}

void Communicator::allReduce(const Call& call) {
  Pair pair = pairOf(call);
  expect(pair.sourceCount == pair.targetCount, pair, "all_reduce needs as many in both");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(pair.source, pair.target, pair.sourceCount, pair.type, opOf(call.op), comm, stream);
  });
}

void Communicator::allReduceAddRmsNorm(const NormCall& call) {
  NormArrays arrays(call);
  const strettoAddRmsNorm_t step = stepOf(call, arrays);
  submit(call.stream, arrays.take(), [&](ncclComm_t comm, cudaStream_t stream) {
    return strettoAllReduceAddRmsNorm(&step, comm, stream);
  });
}

void Communicator::reduce(const Call& call) {
  if (place_.rank != call.root) {
    One one = oneOf(call.send, Access::kRead, call.type, "array");
    return submit(call.stream, std::move(one.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduce(one.data, nullptr, one.count, one.type, opOf(call.op), call.root, comm, stream);
    });
  }
  Pair pair = pairOf(call);
  expect(pair.sourceCount == pair.targetCount, pair, "reduce needs as many in both");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclReduce(pair.source, pair.target, pair.sourceCount, pair.type, opOf(call.op), call.root, comm,
                      stream);
  });
}

void Communicator::broadcast(const Call& call) {
  if (place_.rank != call.root || call.send.is(call.receive)) {
    const Access access = place_.rank == call.root ? Access::kRead : Access::kWrite;
    One one = oneOf(call.receive, access, call.type, call.send.is(call.receive) ? "array" : "out");
    return submit(call.stream, std::move(one.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(one.data, one.data, one.count, one.type, call.root, comm, stream);
    });
  }
  Pair pair = pairOf(call);
  expect(pair.sourceCount == pair.targetCount, pair, "broadcast needs as many in both");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(pair.source, pair.target, pair.sourceCount, pair.type, call.root, comm, stream);
  });
}

void Communicator::reduceScatter(const Call& call) {
  Pair pair = pairOf(call);
  expect(pair.sourceCount == pair.targetCount * place_.size, pair,
         "reduce_scatter needs array to be size times out");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(pair.source, pair.target, pair.targetCount, pair.type, opOf(call.op), comm,
                             stream);
  });
}

void Communicator::allGather(const Call& call) {
  Pair pair = pairOf(call);
  expect(pair.sourceCount * place_.size == pair.targetCount, pair,
         "all_gather needs out to be size times array");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(pair.source, pair.target, pair.sourceCount, pair.type, comm, stream);
  });
}

void Communicator::allToAll(const Call& call) {
  Pair pair = pairOf(call);
  expect(pair.sourceCount == pair.targetCount && pair.sourceCount % place_.size == 0, pair,
         "all_to_all needs as many in both, a multiple of size");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAlltoAll(pair.source, pair.target, pair.sourceCount / place_.size, pair.type, comm, stream);
  });
}

void Communicator::gather(const Call& call) {
  if (place_.rank != call.root) {
    One one = oneOf(call.send, Access::kRead, call.type, "array");
    return submit(call.stream, std::move(one.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclGather(one.data, nullptr, one.count, one.type, call.root, comm, stream);
    });
  }
  Pair pair = pairOf(call);
  expect(pair.sourceCount * place_.size == pair.targetCount, pair,
         "gather needs the root's out to be size times array");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclGather(pair.source, pair.target, pair.sourceCount, pair.type, call.root, comm, stream);
  });
}

void Communicator::scatter(const Call& call) {
  if (place_.rank != call.root) {
    One one = oneOf(call.receive, Access::kWrite, call.type, "out");
    return submit(call.stream, std::move(one.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclScatter(nullptr, one.data, one.count, one.type, call.root, comm, stream);
    });
  }
  Pair pair = pairOf(call);
  expect(pair.sourceCount == pair.targetCount * place_.size, pair,
         "scatter needs the root's array to be size times out");
  submit(call.stream, std::move(pair.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclScatter(pair.source, pair.target, pair.targetCount, pair.type, call.root, comm, stream);
  });
}

void Communicator::send(const Call& call) {
  One one = oneOf(call.send, Access::kRead, call.type, "array");
  submit(call.stream, std::move(one.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclSend(one.data, one.count, one.type, call.root, comm, stream);
  });
}

void Communicator::receive(const Call& call) {
  One one = oneOf(call.receive, Access::kWrite, call.type, "array");
  submit(call.stream, std::move(one.arrays), [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclRecv(one.data, one.count, one.type, call.root, comm, stream);
  });
}

void Communicator::barrier() {
  if (tGroupDepth > 0)
    refuse(ncclInvalidUsage, "a barrier inside a group would not wait: call it after the group");
  submit(nullptr, {}, [](ncclComm_t comm, cudaStream_t stream) {
    int32_t arrived = 1;
    return ncclAllReduce(&arrived, &arrived, 1, ncclInt32, ncclSum, comm, stream);
  });
}

int Communicator::createPreMulSum(const std::string& scalar, int type) {
  ncclRedOp_t op = ncclSum;
  std::string value = scalar;  // The interface wants it mutable; it is only read.
  check(ncclRedOpCreatePreMulSum(&op, value.data(), typeOf(type), ncclScalarHostImmediate, open()), comm_);
  return op;
}

void Communicator::destroyOp(int op) {
  if (comm_ != nullptr) check(ncclRedOpDestroy(opOf(op), open()), comm_);
}

Communicator* Communicator::split(std::optional<int> color, int key) {
  const ncclComm_t comm = open();
  ncclComm_t child = nullptr;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = ncclCommSplit(comm, color.value_or(NCCL_SPLIT_NOCOLOR), key, &child, nullptr);
  }
  check(result, comm_);
  return child != nullptr ? new Communicator(child) : nullptr;
}

Communicator* Communicator::shrink(std::vector<int> exclude, bool abort) {
  const ncclComm_t comm = open();
  ncclComm_t child = nullptr;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = ncclCommShrink(comm, exclude.data(), static_cast<int>(exclude.size()), &child, nullptr,
                            abort ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT);
  }
  check(result, comm_);
  return new Communicator(child);
}

void Communicator::finalize() {
  const ncclComm_t comm = open();
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = ncclCommFinalize(comm);
  }
  check(result, comm_);
}

void Communicator::destroy() {
  const ncclComm_t comm = take();
  if (comm == nullptr) return;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = ncclCommDestroy(comm);
  }
  check(result);
}

void Communicator::abort() {
  const ncclComm_t comm = take();
  if (comm == nullptr) return;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = ncclCommAbort(comm);
  }
  check(result);
}

void Communicator::revoke() {
  check(ncclCommRevoke(open(), NCCL_REVOKE_DEFAULT), comm_);
}

int Communicator::asyncError() {
  ncclResult_t result = ncclSuccess;
  check(ncclCommGetAsyncError(open(), &result), comm_);
  return result;
}

nb::dict Communicator::counters() {
  strettoCounters_t counters{};
  counters.size = sizeof counters;
  check(strettoCommCounters(open(), &counters), comm_);
  nb::dict result;
  result["init_ns"] = counters.initNanoseconds;
  result["init_bootstrap_ns"] = counters.initBootstrapNanoseconds;
  result["init_connect_ns"] = counters.initConnectNanoseconds;
  result["operations"] = counters.operations;
  result["bytes"] = counters.bytes;
  result["slow_waits"] = counters.slowWaits;
  result["sleeps"] = counters.sleeps;
  result["wakeups"] = counters.wakeups;
  result["allocations"] = counters.allocations;
  result["window_bytes"] = counters.windowBytes;
  return result;
}

std::string Communicator::explain(const std::string& collective, size_t bytes, int type, int op,
                                  size_t hidden) {
  const ncclComm_t comm = open();
  return readText([&](char* text, size_t capacity, size_t* needed) {
    const strettoQuestion_t question{collective.c_str(), bytes, typeOf(type), opOf(op), 0, 0, hidden};
    return strettoExplain(comm, &question, text, capacity, needed);
  });
}

void Communicator::force(const std::string& collective, const std::optional<std::string>& algorithm,
                         const std::optional<std::string>& protocol, size_t chunkBytes) {
  check(strettoCommForce(open(), collective.c_str(), algorithm ? algorithm->c_str() : nullptr,
                         protocol ? protocol->c_str() : nullptr, chunkBytes, 0),
        comm_);
}

bool probe(const Communicator& communicator, int peer) {
  const ncclComm_t comm = communicator.open();
  int arrived = 0;
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = strettoCommProbe(comm, peer, &arrived);
  }
  check(result, comm);
  return arrived != 0;
}

void groupStart() {
  check(ncclGroupStart());
  if (tGroupDepth++ == 0) tGroupOwner.emplace();
}

// What the group's operations used is kept while it runs, and afterwards by the streams that still run them.
void groupEnd() {
  // A child that was forked inside the group has a copy of its operations, which are the parent's to run.
  if (tGroupOwner && !tGroupOwner->isHere()) {
    groupDiscard();
    tGroupOwner->expectHere("group");
  }
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = ncclGroupEnd();
  }
  const auto pending = leaveGroup();
  if (pending != nullptr && result == ncclSuccess) {
    for (Pending& one : *pending) {
      if (one.stream != nullptr) one.stream->keep(std::move(one.arrays));
    }
  }
  check(result);
}

void groupDiscard() {
  ncclGroupSimulateEnd(nullptr);
  leaveGroup();
}

std::vector<Communicator*> initAll(int ranks) {
  if (ranks < 1) refuse(ncclInvalidArgument, "ranks is %d and must be at least 1", ranks);
  std::vector<ncclComm_t> handles(static_cast<size_t>(ranks), nullptr);
  ncclResult_t result;
  {
    nb::gil_scoped_release released;
    result = ncclCommInitAll(handles.data(), ranks, nullptr);
  }
  check(result);
  std::vector<Communicator*> all;
  for (ncclComm_t handle : handles) all.push_back(new Communicator(handle));
  return all;
}

}  // namespace stretto::python
