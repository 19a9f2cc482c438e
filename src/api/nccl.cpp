// nccl.h: operations and groups. Each entry point says what was asked and hands it to submit(). The life of
// communicators is in nccl_communicator.cpp, collectives with a config of their own in nccl_configured.cpp,
// one-sided operations in nccl_one_sided.cpp, everything else in nccl_library.cpp.
#include "api/enter.hpp"
#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"
#include "communicator/core/group.hpp"
#include "communicator/handover/foreign.hpp"

namespace stretto::api {
namespace {

using communicator::Communicator;
using communicator::Group;
using communicator::Operation;

static_assert(static_cast<int>(DataType::kFloat8e5m2) == ncclFloat8e5m2 && kDataTypes == ncclNumTypes);
static_assert(static_cast<int>(Operator::kAvg) == ncclAvg && kOperators == ncclNumOps);

Status setType(Operation& operation, ncclDataType_t type) {
  if (static_cast<int>(type) < 0 || static_cast<int>(type) >= kDataTypes) {
    return fail(Code::kInvalidArgument, "%s: %d is not a data type (ncclDataType_t has 0 to %d)",
                nameOf(operation.collective), static_cast<int>(type), kDataTypes - 1);
  }
  operation.type = static_cast<DataType>(type);
  return kOkStatus;
}

Status setOperator(Operation& operation, Communicator& communicator, ncclRedOp_t op) {
  operation.reduces = true;
  const int number = static_cast<int>(op);
  operation.givenOp = number;
  if (communicator.foreign() != nullptr) return kOkStatus;
  if (number >= 0 && number < kOperators) {
    operation.op = static_cast<Operator>(number);
    return kOkStatus;
  }
  const auto multiplier = communicator.operators().find(number - kOperators);
  if (!multiplier) {
    return fail(Code::kInvalidArgument,
                "%s: %d is neither a built-in operator nor a PreMulSum of this communicator",
                nameOf(operation.collective), number);
  }
  if (multiplier->type != operation.type) {
    return fail(Code::kInvalidArgument, "%s: operator %d multiplies %s, the buffers are %s",
                nameOf(operation.collective), number, nameOf(multiplier->type), nameOf(operation.type));
  }
  operation.op = Operator::kSum;
  operation.scaled = true;
  operation.scalarPlace = multiplier->place;
  std::memcpy(operation.scalar, multiplier->scalar, sizeOf(operation.type));
  return kOkStatus;
}

// Made once: a call that makes its own also has to destroy it.
const std::shared_ptr<executors::host::Stream> kNoStream;

}  // namespace

ncclResult_t enter(const char* function, const Call& call, ncclComm_t handle, cudaStream_t stream) {
  const InUse communicator(handle, function, true);
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  Operation operation;
  operation.collective = call.collective;
  operation.send = call.send;
  operation.receive = call.receive;
  operation.count = call.count;
  operation.root = call.root;
  operation.profiled.userTag = call.profilerTag;
  if (call.norm != nullptr) [[unlikely]] {
    if (communicator->foreign() != nullptr) {
      return finish(fail(Code::kInvalidUsage, "%s: %s", function, communicator->foreign()->words().c_str()));
    }
    operation.norm = *call.norm;
  }
  Status status = setType(operation, call.type);
  if (status.ok() && call.op != nullptr) status = setOperator(operation, *communicator, *call.op);
  if (!status.ok()) [[unlikely]]
    return finish(status);
  operation.stream = stream;
  if (stream == nullptr || communicator->self().onDevice()) [[likely]] {
    return finish(submit(*communicator, operation, kNoStream));
  }
  const auto where = executors::host::findStream(stream);
  if (where == nullptr) {
    return finish(fail(
        Code::kInvalidArgument,
        "%s: stream %p is not one of strettoStreamCreate; host memory takes those, or 0 (return when done)",
        function, static_cast<void*>(stream)));
  }
  return finish(submit(*communicator, operation, where));
}

}  // namespace stretto::api

using stretto::Collective;
using stretto::api::enter;
using stretto::api::finish;
using stretto::communicator::Group;

STRETTO_API(ncclAllReduce)
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclAllReduce, comm, (sendbuff, recvbuff, count, datatype, op, comm, stream));
  return enter("ncclAllReduce", {Collective::kAllReduce, sendbuff, recvbuff, count, datatype, -1, &op}, comm,
               stream);
} catch (...) {
  return stretto::api::caught("ncclAllReduce");
}

STRETTO_API(ncclReduce)
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclReduce, comm, (sendbuff, recvbuff, count, datatype, op, root, comm, stream));
  return enter("ncclReduce", {Collective::kReduce, sendbuff, recvbuff, count, datatype, root, &op}, comm,
               stream);
} catch (...) {
  return stretto::api::caught("ncclReduce");
}

STRETTO_API(ncclReduceScatter)
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclReduceScatter, comm, (sendbuff, recvbuff, recvcount, datatype, op, comm, stream));
  return enter("ncclReduceScatter",
               {Collective::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, -1, &op}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclReduceScatter");
}

STRETTO_API(ncclAllGather)
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclAllGather, comm, (sendbuff, recvbuff, sendcount, datatype, comm, stream));
  return enter("ncclAllGather", {Collective::kAllGather, sendbuff, recvbuff, sendcount, datatype}, comm,
               stream);
} catch (...) {
  return stretto::api::caught("ncclAllGather");
}

STRETTO_API(ncclAlltoAll)
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclAlltoAll, comm, (sendbuff, recvbuff, count, datatype, comm, stream));
  return enter("ncclAlltoAll", {Collective::kAllToAll, sendbuff, recvbuff, count, datatype}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclAlltoAll");
}

STRETTO_API(ncclBroadcast)
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclBroadcast, comm, (sendbuff, recvbuff, count, datatype, root, comm, stream));
  return enter("ncclBroadcast", {Collective::kBroadcast, sendbuff, recvbuff, count, datatype, root}, comm,
               stream);
} catch (...) {
  return stretto::api::caught("ncclBroadcast");
}

STRETTO_API(ncclBcast)
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclBcast, comm, (buff, count, datatype, root, comm, stream));
  return enter("ncclBcast", {Collective::kBroadcast, buff, buff, count, datatype, root}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclBcast");
}

STRETTO_API(ncclGather)
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclGather, comm, (sendbuff, recvbuff, count, datatype, root, comm, stream));
  return enter("ncclGather", {Collective::kGather, sendbuff, recvbuff, count, datatype, root}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclGather");
}

STRETTO_API(ncclScatter)
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclScatter, comm, (sendbuff, recvbuff, count, datatype, root, comm, stream));
  return enter("ncclScatter", {Collective::kScatter, sendbuff, recvbuff, count, datatype, root}, comm,
               stream);
} catch (...) {
  return stretto::api::caught("ncclScatter");
}

STRETTO_API(ncclSend)
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclSend, comm, (sendbuff, count, datatype, peer, comm, stream));
  return enter("ncclSend", {Collective::kSend, sendbuff, nullptr, count, datatype, peer}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclSend");
}

STRETTO_API(ncclRecv)
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclRecv, comm, (recvbuff, count, datatype, peer, comm, stream));
  return enter("ncclRecv", {Collective::kReceive, nullptr, recvbuff, count, datatype, peer}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclRecv");
}

STRETTO_API(ncclGroupStart)
ncclResult_t ncclGroupStart(void) try {
  STRETTO_PASS_ON_CALLER(ncclGroupStart, ());
  Group::current().begin();
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclGroupStart");
}

STRETTO_API(ncclGroupEnd)
ncclResult_t ncclGroupEnd(void) try {
  STRETTO_PASS_ON_CALLER(ncclGroupEnd, ());
  return stretto::api::toResult(Group::current().end());
} catch (...) {
  return stretto::api::caught("ncclGroupEnd");
}

STRETTO_API(ncclGroupSimulateEnd)
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo) try {
  STRETTO_PASS_ON_CALLER(ncclGroupSimulateEnd, (simInfo));
  constexpr unsigned kMagic = 0x74685283;
  if (simInfo != nullptr &&
      (simInfo->magic != kMagic || simInfo->size < offsetof(ncclSimInfo_t, estimatedTime))) {
    return finish(
        stretto::fail(stretto::Code::kInvalidArgument,
                      "ncclGroupSimulateEnd: start from NCCL_SIM_INFO_INITIALIZER (magic %#x, size %zu)",
                      simInfo->magic, simInfo->size));
  }
  double microseconds = 0;
  const stretto::Status status = Group::current().simulate(simInfo == nullptr ? nullptr : &microseconds);
  if (status.ok() && simInfo != nullptr && simInfo->size >= sizeof(ncclSimInfo_t)) {
    simInfo->estimatedTime = static_cast<float>(microseconds);
  }
  return stretto::api::toResult(status);
} catch (...) {
  return stretto::api::caught("ncclGroupSimulateEnd");
}
