// What a library does when its process ends by exit() or a return from main, and how that ended.
#pragma once

namespace stretto::platform {

// Calls `handler` with the status of the process, at exit() and not at _exit() or a signal. The library that
// holds it stays loaded from here on. Forked children call it too. False where the C library has no such
// thing.
bool callAtExit(void (*handler)(int status, void* nothing));

}  // namespace stretto::platform
