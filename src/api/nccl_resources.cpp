// nccl.h: what a communicator holds, and giving it back; encryption.
#include <cstring>

#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"
#include "api/serve.hpp"
#include "base/log.hpp"
#include "platform/encryption.hpp"

using stretto::Code;
using stretto::Status;
using namespace stretto::api;
using stretto::communicator::Communicator;

namespace {

Status memoryOf(const char* function, Communicator& communicator, ncclCommMemStat_t stat, uint64_t& value) {
  STRETTO_TRY(communicator.health().usable());
  const uint64_t persistent = communicator.resources().windowBytes();
  const uint64_t suspendable = communicator.resources().suspendableBytes();
  switch (stat) {
    case ncclStatGpuMemSuspend:
      value = suspendable;
      return stretto::kOkStatus;
    case ncclStatGpuMemSuspended:
      value = communicator.resources().isSuspended() ? 1 : 0;
      return stretto::kOkStatus;
    case ncclStatGpuMemPersist:
      value = persistent;
      return stretto::kOkStatus;
    case ncclStatGpuMemTotal:
      value = persistent + suspendable;
      return stretto::kOkStatus;
  }
  return stretto::fail(Code::kInvalidArgument, "%s: %d is none of ncclCommMemStat_t", function,
                       static_cast<int>(stat));
}

void warnOfOlderCommunicators(const char* function) {
  const size_t older = livingHandles();
  if (older == 0) return;
  STRETTO_LOG(kWarn, kInit,
              "%s: %zu communicators of this process are older and keep what they were made with, encrypted "
              "or not; call it before the first unique id is made",
              function, older);
}

}  // namespace

STRETTO_API(ncclCommMemStats)
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) try {
  STRETTO_PASS_ON(ncclCommMemStats, comm, (comm, stat, value));
  constexpr auto kName = "ncclCommMemStats";
  if (InUse(comm, kName) != nullptr && value == nullptr)
    return finish(stretto::fail(Code::kInvalidArgument, "%s: no place for the answer", kName));
  const auto ours = [&](Communicator& communicator) { return memoryOf(kName, communicator, stat, *value); };
  return finish(serve(comm, kName, ours, &ForeignLibrary::ncclCommMemStats, kTheirs, stat, value));
} catch (...) {
  return stretto::api::caught("ncclCommMemStats");
}

STRETTO_API(ncclCommSuspend)
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) try {
  STRETTO_PASS_ON(ncclCommSuspend, comm, (comm, flags));
  constexpr auto kName = "ncclCommSuspend";
  if (InUse(comm, kName) != nullptr && flags != NCCL_SUSPEND_MEM) {
    return finish(
        stretto::fail(Code::kInvalidArgument, "%s: flags must be NCCL_SUSPEND_MEM, not %#x", kName, flags));
  }
  const auto ours = [](Communicator& communicator) {
    const Status may = communicator.mayCall();
    return may.ok() ? communicator.resources().suspend() : may;
  };
  return finish(serve(comm, kName, ours, &ForeignLibrary::ncclCommSuspend, kTheirs, flags));
} catch (...) {
  return stretto::api::caught("ncclCommSuspend");
}

STRETTO_API(ncclCommResume)
ncclResult_t ncclCommResume(ncclComm_t comm) try {
  STRETTO_PASS_ON(ncclCommResume, comm, (comm));
  const auto ours = [](Communicator& communicator) { return communicator.resources().resume(); };
  return finish(serve(comm, "ncclCommResume", ours, &ForeignLibrary::ncclCommResume, kTheirs));
} catch (...) {
  return stretto::api::caught("ncclCommResume");
}

STRETTO_API(ncclSetEncryption)
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config) try {
  STRETTO_PASS_ON_CALLER(ncclSetEncryption, (config));
  constexpr auto kName = "ncclSetEncryption";
  constexpr size_t kShortest = sizeof(ncclEncryptionConfig_t);
  if (config == nullptr || config->size < kShortest || config->magic != NCCL_API_MAGIC) {
    return finish(stretto::fail(Code::kInvalidArgument,
                                "%s: start from NCCL_ENCRYPTION_CONFIG_INITIALIZER (magic %#x)", kName,
                                NCCL_API_MAGIC));
  }
  switch (config->mode) {
    case NCCL_ENCRYPTION_MODE_NONE:
      warnOfOlderCommunicators(kName);
      stretto::chooseEncryption(std::nullopt);
      return ncclSuccess;
    case NCCL_ENCRYPTION_MODE_PSK:
      warnOfOlderCommunicators(kName);
      stretto::chooseEncryption(config->psk != nullptr ? config->psk : "");
      return finish(stretto::encryptionOfProcess().status());
    default:
      return finish(stretto::fail(Code::kInvalidArgument, "%s: %d is none of ncclEncryptionMode_t", kName,
                                  config->mode));
  }
} catch (...) {
  return stretto::api::caught("ncclSetEncryption");
}
