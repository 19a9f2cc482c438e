#include "platform/this_thread.hpp"

#include <pthread.h>

namespace stretto::platform {

void nameThisThread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace stretto::platform
