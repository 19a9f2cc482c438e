// Windows by their handles alone, for entry points that are given no communicator.
#pragma once

#include "api/handles.hpp"

namespace stretto::api {

struct InWindow {
  int peer;
  size_t offset;  // bytes from the begin of the peer's buffer
};

// In this rank's addresses.
Status addressInWindow(const char* function, ncclWindow_t window, InWindow where, void** out);

}  // namespace stretto::api
