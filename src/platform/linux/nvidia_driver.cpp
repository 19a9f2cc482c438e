#include <unistd.h>

#include "platform/cuda_driver.hpp"

namespace stretto::platform {

bool machineHasNvidiaDriver() {
  return access("/dev/nvidiactl", F_OK) == 0;
}

}  // namespace stretto::platform
