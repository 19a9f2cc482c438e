// nccl.h: the settings that base/parameters declares, as NCCL's programs ask for theirs. A handle is one of
// the parameters.
#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "api/export.hpp"
#include "api/handles.hpp"
#include "api/pass_on.hpp"
#include "base/log.hpp"
#include "base/parameters.hpp"

namespace stretto::api {
namespace {

const Parameter* named(const char* key) {
  if (key == nullptr) return nullptr;
  for (const Parameter* parameter : parameters::all()) {
    if (std::strcmp(parameter->name(), key) == 0) return parameter;
  }
  return nullptr;
}

Status unknownKey(const char* function, const char* key) {
  return fail(Code::kInvalidArgument,
              "%s: \"%s\" is not a setting of this library; `stretto info` lists them all", function,
              key == nullptr ? "(null)" : key);
}

// Null, with the error said, for a handle that ncclParamBind never gave.
const Parameter* bound(const char* function, ncclParamHandle_t handle) {
  const auto* const wanted = reinterpret_cast<const Parameter*>(handle);
  const auto all = parameters::all();
  if (std::find(all.begin(), all.end(), wanted) != all.end()) return wanted;
  (void)fail(Code::kInvalidArgument, "%s: %p is not a handle of ncclParamBind", function,
             static_cast<const void*>(handle));
  return nullptr;
}

Status noPlace(const char* function) {
  return fail(Code::kInvalidArgument, "%s: no place for the answer", function);
}

template <typename Integer>
ncclResult_t number(const char* function, ncclParamHandle_t handle, Integer* out) {
  const Parameter* const parameter = bound(function, handle);
  if (parameter == nullptr) return finish(Status{Code::kInvalidArgument});
  if (out == nullptr) return finish(noPlace(function));
  using Limits = std::numeric_limits<Integer>;
  constexpr auto kMost = std::min<uint64_t>(Limits::max(), std::numeric_limits<int64_t>::max());
  const auto value = parameter->integer(Limits::min(), static_cast<int64_t>(kMost));
  if (!value.ok()) return finish(value.status());
  *out = static_cast<Integer>(value.value());
  return ncclSuccess;
}

}  // namespace
}  // namespace stretto::api

using stretto::Code;
using stretto::Parameter;
using stretto::Status;
using namespace stretto::api;
namespace parameters = stretto::parameters;

STRETTO_API(ncclParamBind)
ncclResult_t ncclParamBind(ncclParamHandle_t* out, const char* key) try {
  STRETTO_PASS_ON_CALLER(ncclParamBind, (out, key));
  if (out == nullptr) return finish(noPlace("ncclParamBind"));
  const Parameter* const parameter = named(key);
  if (parameter == nullptr) return finish(unknownKey("ncclParamBind", key));
  *out = reinterpret_cast<ncclParamHandle_t>(const_cast<Parameter*>(parameter));
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclParamBind");
}

STRETTO_API(ncclParamGetI8)
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetI8, (h, out));
  return number("ncclParamGetI8", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetI8");
}

STRETTO_API(ncclParamGetI16)
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetI16, (h, out));
  return number("ncclParamGetI16", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetI16");
}

STRETTO_API(ncclParamGetI32)
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetI32, (h, out));
  return number("ncclParamGetI32", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetI32");
}

STRETTO_API(ncclParamGetI64)
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetI64, (h, out));
  return number("ncclParamGetI64", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetI64");
}

STRETTO_API(ncclParamGetU8)
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetU8, (h, out));
  return number("ncclParamGetU8", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetU8");
}

STRETTO_API(ncclParamGetU16)
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetU16, (h, out));
  return number("ncclParamGetU16", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetU16");
}

STRETTO_API(ncclParamGetU32)
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetU32, (h, out));
  return number("ncclParamGetU32", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetU32");
}

STRETTO_API(ncclParamGetU64)
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t* out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetU64, (h, out));
  return number("ncclParamGetU64", h, out);
} catch (...) {
  return stretto::api::caught("ncclParamGetU64");
}

STRETTO_API(ncclParamGetStr)
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char** out) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetStr, (h, out));
  static thread_local std::string text;
  const Parameter* const parameter = bound("ncclParamGetStr", h);
  if (parameter == nullptr) return finish(Status{Code::kInvalidArgument});
  if (out == nullptr) return finish(noPlace("ncclParamGetStr"));
  text = parameter->text();
  *out = text.c_str();
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclParamGetStr");
}

STRETTO_API(ncclParamGet)
ncclResult_t ncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len) try {
  STRETTO_PASS_ON_CALLER(ncclParamGet, (h, out, maxLen, len));
  const Parameter* const parameter = bound("ncclParamGet", h);
  if (parameter == nullptr) return finish(Status{Code::kInvalidArgument});
  if (len == nullptr || maxLen < 0 || (out == nullptr && maxLen > 0)) return finish(noPlace("ncclParamGet"));
  const std::string text = parameter->text();
  if (maxLen > 0) std::memcpy(out, text.data(), std::min(text.size(), static_cast<size_t>(maxLen)));
  *len = static_cast<int>(text.size());
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclParamGet");
}

STRETTO_API(ncclParamGetParameter)
ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* valueLen) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetParameter, (key, value, valueLen));
  static thread_local std::string text;
  const Parameter* const parameter = named(key);
  if (parameter == nullptr) return finish(unknownKey("ncclParamGetParameter", key));
  if (value == nullptr || valueLen == nullptr) return finish(noPlace("ncclParamGetParameter"));
  text = parameter->text();
  *value = text.c_str();
  *valueLen = static_cast<int>(text.size());
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclParamGetParameter");
}

STRETTO_API(ncclParamGetAllParameterKeys)
ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* tableLen) try {
  STRETTO_PASS_ON_CALLER(ncclParamGetAllParameterKeys, (table, tableLen));
  static thread_local std::vector<const char*> keys;
  if (table == nullptr || tableLen == nullptr) return finish(noPlace("ncclParamGetAllParameterKeys"));
  keys.clear();
  for (const Parameter* parameter : parameters::all()) keys.push_back(parameter->name());
  *table = keys.data();
  *tableLen = static_cast<int>(keys.size());
  return ncclSuccess;
} catch (...) {
  return stretto::api::caught("ncclParamGetAllParameterKeys");
}

STRETTO_API(ncclParamDumpAll)
void ncclParamDumpAll(void) try {
  STRETTO_PASS_ON_CALLER(ncclParamDumpAll, ());
  for (const Parameter* parameter : parameters::all()) {
    STRETTO_LOG(kInfo, kEnv, "%s=%s%s", parameter->name(), parameter->text().c_str(),
                parameter->isSet() ? "" : " (default)");
  }
} catch (...) {
  (void)stretto::api::caught("ncclParamDumpAll");
}
