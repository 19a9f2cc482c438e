// nccl.h: puts, signals and waits for signals. Each is one operation or several of one call; the communicator
// runs them in their turn.
#include <vector>

#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"

namespace stretto::api {
namespace {

using communicator::OneSided;
using communicator::Operation;

struct SignalName {
  int peer;
  int index;
  int context;
};

Status checkName(const char* function, const SignalName& name) {
  if (name.index >= 0 && name.index < OneSided::kSignals && name.context >= 0 &&
      name.context < OneSided::kContexts) {
    return kOkStatus;
  }
  return fail(Code::kInvalidArgument, "%s: signal %d of context %d; there are 0 to %d of contexts 0 to %d",
              function, name.index, name.context, OneSided::kSignals - 1, OneSided::kContexts - 1);
}

Operation operationFor(Collective collective, const SignalName& name) {
  Operation operation;
  operation.collective = collective;
  operation.type = DataType::kUint8;
  operation.root = name.peer;
  operation.signal = OneSided::numberOf(name.context, name.index);
  operation.offset = 0;
  return operation;
}

Status checkFlags(const char* function, unsigned flags) {
  if (flags == 0) return kOkStatus;
  return fail(Code::kInvalidArgument, "%s: flags must be 0, not %#x", function, flags);
}

ncclResult_t enterOneSided(const char* function, std::vector<Operation> operations, ncclComm_t comm,
                           cudaStream_t stream) {
  const InUse communicator(comm, function);
  if (communicator == nullptr) return finish(Status{Code::kInvalidArgument});
  std::shared_ptr<executors::host::Stream> where;
  if (stream != nullptr && !communicator->self().onDevice()) {
    where = executors::host::findStream(stream);
    if (where == nullptr) {
      return finish(
          fail(Code::kInvalidArgument,
               "%s: stream %p is not one of strettoStreamCreate; host memory takes those, or 0 (return "
               "when done)",
               function, static_cast<void*>(stream)));
    }
  }
  for (Operation& operation : operations) operation.stream = stream;
  return finish(submitOneSided(*communicator, std::move(operations), where));
}

}  // namespace
}  // namespace stretto::api

using stretto::Code;
using stretto::Collective;
using stretto::Status;
using namespace stretto::api;

STRETTO_API(ncclPutSignal)
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                           ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                           unsigned int flags, ncclComm_t comm, cudaStream_t stream) try {
  STRETTO_PASS_ON(
      ncclPutSignal, comm,
      (localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, comm, stream));
  constexpr auto kName = "ncclPutSignal";
  const int type = static_cast<int>(datatype);
  if (type < 0 || type >= ncclNumTypes) {
    return finish(stretto::fail(Code::kInvalidArgument, "%s: %d is not a data type", kName, type));
  }
  Status status = checkFlags(kName, flags);
  if (status.ok()) status = checkName(kName, {peer, sigIdx, ctx});
  if (!status.ok()) return finish(status);
  auto operation = operationFor(Collective::kPut, {peer, sigIdx, ctx});
  operation.send = localbuff;
  operation.receive = peerWin;
  operation.count = count;
  operation.type = static_cast<stretto::DataType>(datatype);
  operation.offset = peerWinOffset;
  return enterOneSided(kName, {operation}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclPutSignal");
}

STRETTO_API(ncclSignal)
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                        cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclSignal, comm, (peer, sigIdx, ctx, flags, comm, stream));
  constexpr auto kName = "ncclSignal";
  Status status = checkFlags(kName, flags);
  if (status.ok()) status = checkName(kName, {peer, sigIdx, ctx});
  if (!status.ok()) return finish(status);
  return enterOneSided(kName, {operationFor(Collective::kSignal, {peer, sigIdx, ctx})}, comm, stream);
} catch (...) {
  return stretto::api::caught("ncclSignal");
}

STRETTO_API(ncclWaitSignal)
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
                            cudaStream_t stream) try {
  STRETTO_PASS_ON(ncclWaitSignal, comm, (nDesc, signalDescs, comm, stream));
  constexpr auto kName = "ncclWaitSignal";
  if (nDesc < 1 || signalDescs == nullptr) {
    return finish(stretto::fail(Code::kInvalidArgument, "%s: %d descriptors at %p", kName, nDesc,
                                static_cast<void*>(signalDescs)));
  }
  std::vector<stretto::communicator::Operation> operations;
  for (int i = 0; i < nDesc; ++i) {
    const ncclWaitSignalDesc_t& wanted = signalDescs[i];
    const SignalName name{wanted.peer, wanted.sigIdx, wanted.ctx};
    if (const Status status = checkName(kName, name); !status.ok()) return finish(status);
    if (wanted.opCnt < 1) {
      return finish(stretto::fail(Code::kInvalidArgument, "%s: descriptor %d waits for %d signals; 1 or more",
                                  kName, i, wanted.opCnt));
    }
    operations.push_back(operationFor(Collective::kWaitSignal, name));
    operations.back().count = static_cast<size_t>(wanted.opCnt);
  }
  return enterOneSided(kName, std::move(operations), comm, stream);
} catch (...) {
  return stretto::api::caught("ncclWaitSignal");
}
