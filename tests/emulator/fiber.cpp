#include "emulator/fiber.hpp"

#include <sys/mman.h>

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

// The fiber that this thread has resumed. A live machine runs its kernels on a thread of its own.
thread_local Fiber* entered = nullptr;

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

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(takeStack()) {
  prepare();
}

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

#if defined(__x86_64__)

// Pushes the registers that a function keeps, stores the stack pointer in *left, and goes on where the stack
// `next` was left by the same function. swapcontext(), below, does the same for any CPU, but asks the
// kernel for the mask of signals each time.
asm(R"(
.pushsection .text
.type strettoChangeStacks, @function
strettoChangeStacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size strettoChangeStacks, .-strettoChangeStacks
.popsection
)");
extern "C" void strettoChangeStacks(void** left, void* next);

// What strettoChangeStacks() pops when the stack is entered first: six registers, and begin() as the address
// to return to. Above it lies where begin() would return to: nowhere, so that debuggers stop there.
void Fiber::prepare() {
  constexpr size_t kSaved = 6;
  auto* const top = reinterpret_cast<void**>(stack_.begin + Stack::kBytes) - 2;
  top[0] = reinterpret_cast<void*>(&Fiber::begin);
  top[1] = nullptr;
  inside_ = top - kSaved;
}
void Fiber::enter() {
  strettoChangeStacks(&outside_, inside_);
}
void Fiber::pause() {
  strettoChangeStacks(&inside_, outside_);
}

#else

void Fiber::prepare() {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.begin;
  inside_.uc_stack.ss_size = Stack::kBytes;
  inside_.uc_link = nullptr;
  makecontext(&inside_, &Fiber::begin, 0);
}
void Fiber::enter() {
  swapcontext(&outside_, &inside_);
}
void Fiber::pause() {
  swapcontext(&inside_, &outside_);
}

#endif

void Fiber::begin() {
  Fiber& self = *entered;
  self.body_();
  self.done_ = true;
  self.pause();
}

void Fiber::resume() {
  entered = this;
  enter();
}

}  // namespace stretto::emulator
