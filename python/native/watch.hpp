// Flight recorders of running processes, read again and again: stretto.h's strettoWatch_t with an owner. Only
// python/native uses it.
#pragma once

#include <string>

#include "errors.hpp"
#include "stretto.h"

namespace stretto::python {

class Watch {
 public:
  explicit Watch(const std::string& pids) { check(strettoWatchOpen(pids.c_str(), &watch_)); }
  ~Watch() { strettoWatchClose(watch_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The JSON "stretto.watch/1".
  std::string read() {
    const char* json = nullptr;
    check(strettoWatchRead(watch_, &json));
    return json;
  }

 private:
  strettoWatch_t watch_ = nullptr;
};

}  // namespace stretto::python
