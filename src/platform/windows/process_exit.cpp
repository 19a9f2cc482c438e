#include "platform/process_exit.hpp"

namespace stretto::platform {

bool callAtExit(void (*)(int status, void* nothing)) {
  return false;
}

}  // namespace stretto::platform
