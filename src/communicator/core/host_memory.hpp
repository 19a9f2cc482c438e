// What keeps ranks in host memory from reading memory of a GPU: a library that was built without CUDA may be
// given some, and so may one that was told to stay in host memory. It is refused by name. Costs nothing in a
// process without CUDA: the check is behind watch::anybody(), which every operation looks at anyway.
#pragma once

#include "communicator/core/operation.hpp"

namespace stretto::communicator {

// For the making of a communicator in host memory: from here on buffers are looked at, if CUDA's driver is in
// this process. Who has memory of a GPU has loaded the driver before; one that is loaded after the last
// communicator was made is not noticed.
void lookForDeviceMemory();

// kInvalidArgument if what the operation reads or writes on this rank is memory of a GPU.
Status refuseDeviceMemory(const Operation& operation, int rank, int ranks);
// The same for one address, by its name.
Status refuseDeviceMemory(const char* function, const char* which, const void* address, int rank);

// Says once, where it has GPUs to miss, that this library was built without CUDA.
void warnOfMissingCuda();

}  // namespace stretto::communicator
