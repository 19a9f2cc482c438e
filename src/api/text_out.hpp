// How a text leaves the library through a caller's buffer.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "api/handles.hpp"

namespace stretto::api {

// Writes at most `capacity` bytes of `text`, a final 0 included; *needed is what the whole takes.
inline ncclResult_t writeText(const std::string& text, char* to, size_t capacity, size_t* needed) {
  if (needed == nullptr || (to == nullptr && capacity > 0)) {
    return toResult(fail(Code::kInvalidArgument, "no place for %zu bytes of text", text.size() + 1));
  }
  *needed = text.size() + 1;
  if (capacity == 0) return ncclSuccess;
  const size_t written = std::min(capacity - 1, text.size());
  std::memcpy(to, text.data(), written);
  to[written] = 0;
  return ncclSuccess;
}

}  // namespace stretto::api
