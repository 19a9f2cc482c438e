// Who answers a call about a communicator: this library, or the NCCL that it was handed over to. The one
// place where src/api chooses; operations go the common way, through submit().
#pragma once

#include <memory>
#include <utility>

#include "api/handles.hpp"
#include "communicator/core/group.hpp"
#include "communicator/handover/foreign.hpp"

namespace stretto::api {

using communicator::ForeignLibrary;
using communicator::kTheirs;

// `ours(communicator)`, or, where it was handed over, the function `theirs` of NCCL's with `arguments`, among
// which kTheirs stands for its communicator.
template <typename Ours, typename Function, typename... Arguments>
Status serve(ncclComm_t handle, const char* name, Ours ours, Function ForeignLibrary::*theirs,
             Arguments... arguments) {
  const InUse communicator(handle, name);
  if (communicator == nullptr) return Status{Code::kInvalidArgument};
  communicator::Foreign* const foreign = communicator->foreign();
  return foreign == nullptr ? ours(*communicator) : foreign->call(name, theirs, arguments...);
}

// The same for a call that all ranks make together: inside a group it is put off to its end, because this
// thread may have several ranks to call for.
template <typename Ours, typename Function, typename... Arguments>
Status serveTogether(ncclComm_t handle, const char* name, Ours ours, Function ForeignLibrary::*theirs,
                     Arguments... arguments) {
  const InUse communicator(handle, name);
  const bool puts =
      communicator != nullptr && (communicator->foreign() != nullptr ||
                                  (communicator->health().usable().ok() && communicator->windows().are()));
  if (!puts || !communicator::Group::current().open()) return serve(handle, name, ours, theirs, arguments...);
  communicator::Group::current().addJob(
      communicator, communicator->self().config().device,
      [kept = communicator->shared_from_this(), name, ours, theirs, arguments...] {
        communicator::Foreign* const foreign = kept->foreign();
        return foreign == nullptr ? ours(*kept) : foreign->call(name, theirs, arguments...);
      });
  return kOkStatus;
}

}  // namespace stretto::api
