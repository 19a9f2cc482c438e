#include "emulator/fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <vector>

namespace stretto::emulator {
namespace {

// What lies at the far end of every stack, as long as nobody has come so far.
constexpr uint64_t kUntouched = 0x5afe57acc5afe57a;

// Stacks are made once, many at a time: a kernel has hundreds of threads, and a process may have no more than
// some ten thousand mappings.
constexpr size_t kAtOnce = 256;
struct Stacks {
  std::vector<Stack> idle;
  std::vector<void*> blocks;  // of kAtOnce stacks each
};
Stacks& stacks() {
  static auto* const all = new Stacks;  // kernels may run until the very end
  return *all;
}

Stack takeStack() {
  auto& idle = stacks().idle;
  if (idle.empty()) {
    void* const memory = mmap(nullptr, kAtOnce * Stack::kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "memory for the stacks of a kernel's threads");
    }
    stacks().blocks.push_back(memory);
    for (size_t i = 0; i < kAtOnce; ++i) {
      idle.push_back({static_cast<std::byte*>(memory) + i * Stack::kBytes});
    }
  }
  const Stack stack = idle.back();
  idle.pop_back();
  std::memcpy(stack.begin, &kUntouched, sizeof kUntouched);
  return stack;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(takeStack()) {}

Fiber::~Fiber() {
  if (std::memcmp(stack_.begin, &kUntouched, sizeof kUntouched) != 0) {
    fputs("a fiber has overrun its stack\n", stderr);
    std::abort();
  }
  stacks().idle.push_back(stack_);
}

void Fiber::freeStacks() {
  for (void* const block : stacks().blocks) (void)munmap(block, kAtOnce * Stack::kBytes);
  stacks() = {};
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
  self->body_();
  self->done_ = true;
  self->pause();
}

// makecontext() prepares the stack; from then on setjmp and longjmp change over, without the system calls of
// swapcontext().
void Fiber::start() {
  started_ = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stack_.begin;
  context.uc_stack.ss_size = Stack::kBytes;
  context.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
  setcontext(&context);
}

void Fiber::resume() {
  if (_setjmp(outside_) != 0) return;
  if (!started_) start();
  _longjmp(inside_, 1);
}

void Fiber::pause() {
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
}

}  // namespace stretto::emulator
