#include "base/status.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/log.hpp"

namespace stretto {
namespace {

thread_local std::string tLastError;

std::string format(const char* format, va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  return text;
}

Status record(int peer, Code code, std::string text) {
  STRETTO_LOG(kWarn, kInit, "%s", text.c_str());
  tLastError = std::move(text);
  return Status{code, static_cast<int16_t>(peer)};
}

}  // namespace

const char* nameOf(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInProgress:
      return "in progress";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kInvalidUsage:
      return "invalid usage";
    case Code::kSystem:
      return "system error";
    case Code::kInternal:
      return "internal error";
    case Code::kRemote:
      return "remote error";
    case Code::kTimeout:
      return "timeout";
    case Code::kAborted:
      return "aborted";
  }
  return "unknown";
}

Status fail(Code code, const char* text, ...) {
  va_list arguments;
  va_start(arguments, text);
  std::string message = format(text, arguments);
  va_end(arguments);
  return record(-1, code, std::move(message));
}

Status failAbout(int peer, Code code, const char* text, ...) {
  va_list arguments;
  va_start(arguments, text);
  std::string message = format(text, arguments);
  va_end(arguments);
  return record(peer, code, std::move(message));
}

Status failErrno(const char* text, ...) {
  const int error = errno;
  va_list arguments;
  va_start(arguments, text);
  std::string message = format(text, arguments);
  va_end(arguments);
  return record(-1, Code::kSystem, message + ": " + strerror(error));
}

const std::string& lastError() {
  return tLastError;
}
void setLastError(std::string text) {
  tLastError = std::move(text);
}

}  // namespace stretto
