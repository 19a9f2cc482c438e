// A tool as people write them: it defines NCCL's functions under NCCL's file name and calls the library that
// it was given by pointers, from the function itself or from a helper. For order_driver.cpp.
#include <cstdlib>

#include "nccl.h"

#define TOOL extern "C" [[gnu::weak, gnu::visibility("default")]]

namespace {

void* (*gFind)(const char*) = nullptr;

// A call that comes back to the function that made it would do so for ever.
class Once {
 public:
  explicit Once(int& depth) : depth_(depth) {
    if (++depth_ > 1) abort();
  }
  ~Once() { --depth_; }
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;

 private:
  int& depth_;
};

[[gnu::noinline]] ncclResult_t call(ncclResult_t (*function)()) {
  const ncclResult_t result = function();
  return result == ncclSuccess ? ncclSuccess : result;
}

}  // namespace

// `find` gives the address of a function of the library to call.
TOOL void toolUse(void* (*find)(const char*)) {
  gFind = find;
}
TOOL ncclResult_t ncclGetVersion(int* version) {
  static int depth = 0;
  const Once once(depth);
  return reinterpret_cast<decltype(&ncclGetVersion)>(gFind("ncclGetVersion"))(version);
}
TOOL ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  static int depth = 0;
  const Once once(depth);
  return reinterpret_cast<decltype(&ncclCommCount)>(gFind("ncclCommCount"))(comm, count);
}
TOOL ncclResult_t ncclGroupStart() {
  static int depth = 0;
  const Once once(depth);
  return call(reinterpret_cast<decltype(&ncclGroupStart)>(gFind("ncclGroupStart")));
}
TOOL ncclResult_t ncclGroupEnd() {
  static int depth = 0;
  const Once once(depth);
  return call(reinterpret_cast<decltype(&ncclGroupEnd)>(gFind("ncclGroupEnd")));
}
