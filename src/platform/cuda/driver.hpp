// The driver's own interface, for what CUDA's runtime has no call for. Nothing is linked: its functions are
// asked for by name. For this folder alone.
#pragma once

namespace stretto::platform::cuda {

// As the interface of CUDA 12.0 has it; null if this driver, or this machine, has none. To be asked once: it
// takes microseconds.
void* driverFunction(const char* name);

}  // namespace stretto::platform::cuda
