// Hints for the caches. They change no result.
#pragma once

namespace stretto::platform {

// This core will read the line soon.
inline void prefetchToRead(const void* line) {
  __builtin_prefetch(line);
}

// This core will write the line soon, and another one has it.
inline void prefetchToWrite(const void* line) {
#if defined(__x86_64__)
  // Compilers make it a plain prefetch for the oldest processors, all of which take the instruction for none.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace stretto::platform
