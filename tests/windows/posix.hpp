// What the tests use of POSIX and Windows lacks. Included before every test's own headers (cmake: -include).
#pragma once

// For rand_s.
#define _CRT_RAND_S
#include <stdlib.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

inline int setenv(const char* name, const char* value, int replace) {
  if (replace == 0 && getenv(name) != nullptr) return 0;
  return _putenv_s(name, value);
}
inline int unsetenv(const char* name) {
  return _putenv_s(name, "");
}

extern "C" int __cdecl _mkdir(const char* path);
inline char* mkdtemp(char* pattern) {
  char* const end = pattern + strlen(pattern) - 6;
  for (unsigned attempt = 0; attempt < 1000; ++attempt) {
    unsigned number = 0;
    rand_s(&number);
    for (int i = 0; i < 6; ++i, number /= 26) end[i] = static_cast<char>('a' + number % 26);
    if (_mkdir(pattern) == 0) return pattern;
    if (errno != EEXIST) return nullptr;
  }
  return nullptr;
}

extern "C" __declspec(dllimport) void __stdcall Sleep(unsigned long milliseconds);
[[noreturn]] inline int pause() {
  for (;;) Sleep(1000);
}
