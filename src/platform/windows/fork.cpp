#include "platform/fork.hpp"

namespace stretto::platform {

// There is no fork.
std::atomic<uint32_t> internal::gForks{0};

}  // namespace stretto::platform
