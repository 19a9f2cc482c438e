// Texts that the library writes into a caller's memory: asked for once with a guess of their length, and
// again if the guess was short. Only python/native uses it.
#pragma once

#include <cstddef>
#include <string>

#include "errors.hpp"
#include "nccl.h"

namespace stretto::python {

// `write(char* text, size_t capacity, size_t* needed)` is one of stretto.h's functions that write JSON. A
// text can grow between two calls (a live job's), so a few are made.
template <typename F>
std::string readText(F write) {
  std::string text(4096, '\0');
  for (int attempt = 0; attempt < 8; attempt++) {
    size_t needed = 0;
    check(write(text.data(), text.size(), &needed));
    if (needed <= text.size()) {
      text.resize(needed > 0 ? needed - 1 : 0);
      return text;
    }
    text.resize(needed + needed / 4);
  }
  refuse(ncclInternalError, "a text of the library grew each time it was asked for");
}

}  // namespace stretto::python
