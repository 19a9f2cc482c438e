// Stackful coroutines, for threads of kernels that must stop anywhere: in a verb, within a loop, within an
// algorithm. On one thread of the system, which runs one of them at a time.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>

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

  // Gives back the memory of all stacks. Only while there is no fiber.
  static void freeStacks();

 private:
  static void enter(unsigned high, unsigned low);
  void start();

  std::function<void()> body_;
  Stack stack_;
  bool started_ = false;
  bool done_ = false;
  jmp_buf inside_;
  jmp_buf outside_;
};

}  // namespace stretto::emulator
