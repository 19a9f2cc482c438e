// stretto.h: strettoDoctor and strettoWatch..., the flight recorders of other processes for those who cannot
// call observe/.
#include "observe/doctor.hpp"

#include <memory>

#include "api/handles.hpp"
#include "api/text_out.hpp"
#include "observe/watch.hpp"
#include "platform/export.hpp"
#include "stretto.h"

// The body behind strettoWatch_t.
struct strettoWatch {
  stretto::observe::Watch watch;
  std::string json;  // of the last reading
};

extern "C" STRETTO_EXPORTED ncclResult_t strettoDoctor(const char* target, char* json, size_t capacity,
                                                       size_t* needed) try {
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

extern "C" STRETTO_EXPORTED ncclResult_t strettoWatchOpen(const char* pids, strettoWatch_t* watch) try {
  using stretto::Code;
  if (pids == nullptr || watch == nullptr) {
    return stretto::api::toResult(stretto::fail(Code::kInvalidArgument, "strettoWatchOpen: pids %p, watch %p",
                                                static_cast<const void*>(pids), static_cast<void*>(watch)));
  }
  *watch = nullptr;
  const auto parsed = stretto::observe::parsePids(pids);
  if (!parsed.ok()) return stretto::api::toResult(parsed.status());
  auto opened = stretto::observe::Watch::open(parsed.value());
  if (!opened.ok()) return stretto::api::toResult(opened.status());
  *watch = std::make_unique<strettoWatch>(strettoWatch{std::move(opened.value()), {}}).release();
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("strettoWatchOpen");
}

extern "C" STRETTO_EXPORTED ncclResult_t strettoWatchRead(strettoWatch_t watch, const char** json) try {
  if (watch == nullptr || json == nullptr) {
    return stretto::api::toResult(stretto::fail(stretto::Code::kInvalidArgument,
                                                "strettoWatchRead: watch %p, json %p",
                                                static_cast<void*>(watch), static_cast<void*>(json)));
  }
  watch->json = watch->watch.read();
  *json = watch->json.c_str();
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("strettoWatchRead");
}

extern "C" STRETTO_EXPORTED ncclResult_t strettoWatchClose(strettoWatch_t watch) {
  const std::unique_ptr<strettoWatch> owned(watch);
  return ncclSuccess;
}
