// What glibc 2.28 lacks of what newer headers and C++ runtimes call; linked into all that a wheel holds
// (portable.cmake), and seen by nothing else. Each says from which release on glibc has it.
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace {

constexpr long kSecond = 1'000'000'000;

// What the functions of that family were called before.
constexpr int kLayout = 1;  // of struct stat, on x86-64
extern "C" int __xstat(int layout, const char* path, struct stat* about);
extern "C" int __fxstat(int layout, int file, struct stat* about);
extern "C" int __lxstat(int layout, const char* path, struct stat* about);

long nanoseconds(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

long now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return nanoseconds(time);
}

}  // namespace

#pragma GCC visibility push(hidden)
extern "C" {

// 2.30
pid_t gettid() noexcept {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// 2.30. Whoever sets the time of day would move the end of this wait, so it is at most a second long, and
// then ends as if it had been woken, which every caller expects.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  const long left = nanoseconds(*until) - now(clock);
  if (left <= 0) return ETIMEDOUT;
  const bool whole = left <= kSecond;
  const long end = now(CLOCK_REALTIME) + (whole ? left : kSecond);
  const timespec time{end / kSecond, end % kSecond};
  const int status = pthread_cond_timedwait(condition, mutex, &time);
  return status == ETIMEDOUT && !whole ? 0 : status;
}

// 2.32. Only saves atomic instructions where it is true.
char __libc_single_threaded = 0;

// 2.33
int stat(const char* path, struct stat* about) noexcept {
  return __xstat(kLayout, path, about);
}
int fstat(int file, struct stat* about) noexcept {
  return __fxstat(kLayout, file, about);
}
int lstat(const char* path, struct stat* about) noexcept {
  return __lxstat(kLayout, path, about);
}
int fstat64(int file, struct stat64* about) noexcept {
  return __fxstat(kLayout, file, reinterpret_cast<struct stat*>(about));  // the same, on x86-64
}

// 2.34. What starts a program then runs the program's own initialisers; before, the program brought a
// function for that, which newer compilers' start files lack.
using Main = int(int, char**, char**);
using Start = int(Main* main, int count, char** words, Main* initialise, void (*finish)(), void (*unload)(),
                  void* stack);
extern Main* const __init_array_start[] __attribute__((weak));
extern Main* const __init_array_end[] __attribute__((weak));
__asm__(".symver strettoStartMain, __libc_start_main@GLIBC_2.2.5");
Start strettoStartMain __attribute__((visibility("default")));

static int initialise(int count, char** words, char** environment) {
  for (Main* const* each = __init_array_start; each != __init_array_end; ++each)
    (*each)(count, words, environment);
  return 0;
}

int __libc_start_main(Main* main, int count, char** words, Main*, void (*finish)(), void (*unload)(),
                      void* stack) {
  return strettoStartMain(main, count, words, initialise, finish, unload, stack);
}
}
#pragma GCC visibility pop
