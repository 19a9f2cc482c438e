// Sleeping on a word of shared memory, and waking who sleeps there, across processes.
#pragma once

#include <cstdint>

namespace stretto::platform {

// Sleeps while *word == expected, at most `microseconds`; true if it has slept as long as that. Spurious
// wake-ups happen: callers look again.
bool futexWait(const uint32_t* word, uint32_t expected, uint64_t microseconds);
// Wakes every sleeper on `word`.
void futexWake(const uint32_t* word);
// Gives the core to another runnable thread.
void yieldCore();

}  // namespace stretto::platform
