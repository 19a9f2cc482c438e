#include "platform/machine.hpp"

namespace stretto::platform {

MachineFacts describeMachine() {
  return {};
}

}  // namespace stretto::platform
