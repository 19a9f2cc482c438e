// An environment variable for the length of a test. For tests only: one thread, no code that keeps getenv's
// pointers.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace stretto::testing {

class ScopedVariable {
 public:
  // Null removes the variable.
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name); before != nullptr) before_ = before;
    set(value);
  }
  ~ScopedVariable() { set(before_ ? before_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

  void set(const char* value) {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace stretto::testing
