// stretto.h: strettoDoctor, the flight recorders of other processes for those who cannot call observe/.
#include "observe/doctor.hpp"
#include "api/handles.hpp"
#include "api/text_out.hpp"
#include "stretto.h"

extern "C" [[gnu::visibility("default")]] ncclResult_t strettoDoctor(const char* target, char* json,
                                                                     size_t capacity, size_t* needed) try {
  using stretto::Code;
  if (target == nullptr || needed == nullptr) {
    return stretto::api::toResult(stretto::fail(Code::kInvalidArgument, "strettoDoctor: target %p, needed %p",
                                                static_cast<const void*>(target),
                                                static_cast<void*>(needed)));
  }
  *needed = 0;
  const auto reading = stretto::observe::readTarget(target);
  if (!reading.ok()) return stretto::api::toResult(reading.status());
  return stretto::api::writeText(stretto::observe::diagnose(reading.value()).json, json, capacity, needed);
} catch (...) {
  return stretto::api::caught("strettoDoctor");
}
