// Stackful coroutines, for threads of kernels that must stop anywhere: in a verb, within a loop, within an
// algorithm. On one thread of the system, which runs one of them at a time.
#pragma once

#include <cstddef>
#include <functional>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace stretto::emulator {

// Memory for the stack of one fiber.
struct Stack {
  static constexpr size_t kBytes = 64 * 1024;
  std::byte* begin;
};

class Fiber {
 public:
  // Nothing runs before the first resume(). A body must return before its fiber is destroyed, unless what
  // lies on its stack needs no destructor. One that needs more than a stack ends the program.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it calls pause() or returns. Not from within a fiber.
  void resume();
  bool done() const { return done_; }
  // Back to whoever called resume(). Within a fiber alone.
  void pause();

  // Brings the part of the stack that resume() will need into the caches: six lines, as was measured best.
  void fetch() const {
#if defined(__x86_64__)
    const char* const top = static_cast<const char*>(inside_);
    for (size_t line = 0; line < 6; ++line) __builtin_prefetch(top + 64 * line);
#endif
  }

  // Gives back the memory of all stacks. Only while there is no fiber.
  static void freeStacks();

 private:
#if defined(__x86_64__)
  using Context = void*;  // where the rest of it is, on the stack
#else
  using Context = ucontext_t;
#endif
  static void begin();
  void prepare();
  void enter();

  std::function<void()> body_;
  Stack stack_;
  bool done_ = false;
  Context inside_ = {};
  Context outside_ = {};
};

}  // namespace stretto::emulator
