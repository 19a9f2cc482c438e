#include "platform/fork.hpp"

#include <pthread.h>

namespace stretto::platform {

std::atomic<uint32_t> internal::gForks{0};

namespace {
[[maybe_unused]] const int gRegistered =
    pthread_atfork(nullptr, nullptr, [] { internal::gForks.fetch_add(1, std::memory_order_relaxed); });
}  // namespace

}  // namespace stretto::platform
