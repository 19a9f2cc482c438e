#include "platform/process_exit.hpp"

#include <dlfcn.h>
#include <stdlib.h>

namespace stretto::platform {

bool callAtExit(void (*handler)(int status, void* nothing)) {
#ifdef __GLIBC__
  // Unlike atexit's handlers, these are not called when their library is unloaded, but after that.
  Dl_info facts{};
  if (dladdr(reinterpret_cast<const void*>(handler), &facts) == 0) return false;
  void* const self = dlopen(facts.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (self != nullptr) dlclose(self);  // a program itself is not found by its name, and stays anyway
  return on_exit(handler, nullptr) == 0;
#else
  (void)handler;
  return false;
#endif
}

}  // namespace stretto::platform
