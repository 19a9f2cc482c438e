// stretto.h: strettoDoctor, the flight recorders of other processes for those who cannot call observe/.
#include <algorithm>
#include <cstring>

#include "api/handles.hpp"
#include "observe/doctor.hpp"
#include "stretto.h"

extern "C" [[gnu::visibility("default")]] ncclResult_t strettoDoctor(const char* target, char* json,
                                                                     size_t capacity, size_t* needed) {
  using stretto::Code;
  if (target == nullptr || needed == nullptr || (json == nullptr && capacity > 0)) {
    return stretto::api::toResult(stretto::fail(
        Code::kInvalidArgument, "strettoDoctor: target %p, json %p of %zu bytes, needed %p",
        static_cast<const void*>(target), static_cast<void*>(json), capacity, static_cast<void*>(needed)));
  }
  *needed = 0;
  const auto reading = stretto::observe::readTarget(target);
  if (!reading.ok()) return stretto::api::toResult(reading.status());
  const std::string text = stretto::observe::diagnose(reading.value()).json;
  *needed = text.size() + 1;
  if (capacity > 0) {
    const size_t written = std::min(capacity - 1, text.size());
    memcpy(json, text.data(), written);
    json[written] = 0;
  }
  return ncclSuccess;
}
