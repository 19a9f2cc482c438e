// How a failure becomes a Python exception: stretto.errors holds one class per ncclResult_t, and these
// functions raise the right one with the library's own words. Called with the GIL held. Only python/native
// uses it.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "nccl.h"

namespace stretto::python {

// Raises what `result` means, with ncclGetLastError as its text; returns if it is ncclSuccess.
void check(ncclResult_t result, ncclComm_t comm = nullptr);
// Raises with words of the binding's own (printf format).
[[noreturn, gnu::format(printf, 2, 3)]] void refuse(ncclResult_t result, const char* format, ...);
// Raises ncclInvalidArgument with "`what` raised ..." and the caller's own exception as its cause. What is no
// error but a wish to end (KeyboardInterrupt, SystemExit) goes on as it is.
[[noreturn]] void refuseBecause(nanobind::python_error& error, const std::string& what);

}  // namespace stretto::python
