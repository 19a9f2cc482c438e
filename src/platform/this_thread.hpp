// Which thread runs this, as cheaply as it can be asked: a register; and its name.
#pragma once

#include <cstdint>

namespace stretto::platform {

// A number of the thread that calls, which no other thread has at the same time; an address, so not small. A
// thread that begins after another one has ended may have the same.
inline uintptr_t thisThread() {
  uintptr_t name;
#if defined(_WIN32) && defined(__x86_64__)
  asm("mov %%gs:0x30, %0" : "=r"(name));  // its environment block
#elif defined(__x86_64__)
  asm("mov %%fs:0, %0" : "=r"(name));
#else
  asm("mrs %0, tpidr_el0" : "=r"(name));
#endif
  return name;
}

// Names the calling thread for debuggers and lists of threads; at most 15 bytes.
void nameThisThread(const char* name);

}  // namespace stretto::platform
