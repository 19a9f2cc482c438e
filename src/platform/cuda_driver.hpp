// CUDA's driver as another part of this process may use it, asked without CUDA's headers: a library that was
// built without CUDA, or whose ranks are in host memory, can be given memory of a GPU all the same. Any
// thread.
#pragma once

namespace stretto::platform {

// True if CUDA's driver has been loaded into this process, by whomever; takes microseconds. Once it is true
// it stays so.
bool hasCudaDriver();

// True for memory of a GPU that the host cannot read; false for all else, and until hasCudaDriver() has been
// true. What was found to be ordinary memory is remembered by its page, so that a buffer in use costs a look
// at a table. An address that was freed there and then mapped by CUDA is taken for what it was.
bool isDeviceMemory(const void* address);

// True if NVIDIA's driver runs on this machine.
bool machineHasNvidiaDriver();

}  // namespace stretto::platform
