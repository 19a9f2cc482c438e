// Net plugins that are wrong in one way or another, for the tests of net/plugin. Which, the build says.
#include <unistd.h>

#include "net/plugin/abi.hpp"

namespace {

using namespace stretto::net::abi;

int init(Logger logger) {
#ifdef FAKE_HANGS
  while (true) ::sleep(1);
#endif
#ifdef FAKE_FAILS
  return kSystemError;
#endif
  logger(3, 16, "fake", 1, "a net that is made up: %d", 42);
  return kSuccess;
}
int devices(int* count) {
#ifdef FAKE_MANY
  *count = 1'000'000;
#elif defined(FAKE_NONE)
  *count = 0;
#else
  *count = 1;
#endif
  return kSuccess;
}
int getProperties(int, PropertiesV8* properties) {
  static char name[] = "made up";
  *properties = {};
  properties->name = name;
  properties->pointers = kPointerHost;
  properties->speed = 1000;
  properties->mostConnections = 1;
#ifndef FAKE_NONSENSE
  properties->mostGrouped = 100;
#endif
  return kSuccess;
}
int listen(int, void*, void** listener) {
  *listener = nullptr;  // which is no listener, though it says success
  return kSuccess;
}
int connect(int, void*, void**, DeviceHandle**) {
  return 77;
}
int accept(void*, void**, DeviceHandle**) {
  return kInternalError;
}
int regMr(void*, void*, size_t, int, void**) {
  return kSuccess;
}
int deregMr(void*, void*) {
  return kSuccess;
}
[[maybe_unused]] int isend(void*, void*, int, int, void*, void**) {
  return kInternalError;
}
int irecv(void*, int, void**, int*, int*, void**, void**) {
  return kInternalError;
}
int test(void*, int*, int*) {
  return kInternalError;
}
int close(void*) {
  return kSuccess;
}

}  // namespace

#ifdef FAKE_EMPTY
#define ncclNetPlugin_v8 ncclNetPlugin_v5  // which nobody calls any more
#endif
extern "C" __attribute__((visibility("default")))
const TableV8 ncclNetPlugin_v8 = {{"Made up", init, devices, getProperties},
                                  {listen, connect, accept},
                                  {regMr, nullptr, deregMr},
#ifdef FAKE_HOLES
                                  {nullptr, irecv},
#else
                                  {isend, irecv},
#endif
                                  {nullptr, test, close, close, close},
                                  {nullptr, nullptr}};
