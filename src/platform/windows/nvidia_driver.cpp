#include "platform/cuda_driver.hpp"

namespace stretto::platform {

// GPUs are not used on Windows, whatever is there.
bool machineHasNvidiaDriver() {
  return false;
}

}  // namespace stretto::platform
