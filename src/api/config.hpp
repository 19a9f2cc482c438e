// Reads ncclConfig_t as every version of NCCL lays it out.
#pragma once

#include "communicator/core/communicator.hpp"
#include "nccl.h"

namespace stretto::api {

// `given` over `defaults`; null gives the defaults. `size` is read first: fields beyond it are not touched,
// a longer structure's unknown tail is ignored, and one without the magic number is refused.
Result<communicator::Config> parseConfig(const ncclConfig_t* given, communicator::Config defaults);

}  // namespace stretto::api
