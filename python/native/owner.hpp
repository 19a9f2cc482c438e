// Which process a handle belongs to. A forked child, such as a data loader's worker, has a copy of all that
// Python holds, but not the threads and connections behind it, and shares the memory by which the ranks talk:
// what it does with a handle of its parent's would be done in the parent's name. So destructors do nothing
// there, and calls are refused. Only python/native uses it.
#pragma once

#include <cstdint>

namespace stretto::python {

class Owner {
 public:
  Owner();
  // False in a child that was forked after this was made.
  bool isHere() const;
  // Refuses with ncclInvalidUsage where isHere() is false. `what` is how the message calls the handle.
  void expectHere(const char* what) const;

 private:
  uint32_t generation_;
  int process_;
};

}  // namespace stretto::python
