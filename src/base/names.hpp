// Names: of an enumeration's values in a list, where the compiler counts both, so that neither can grow
// without the other; and how users' spelling of one is compared.
#pragma once

#include <cstddef>
#include <string_view>

namespace stretto {

// Whether the enumeration has a name for this value: of one without a name compilers write "(Type)12" or
// "12".
template <auto value>
constexpr bool isNamed() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_suffix(1);  // a bracket
  const char before = text[text.find_last_not_of("0123456789")];
  return before != ')' && before != ' ' && before != '=';
}

// Whether the last of the values, which begin at 0 and leave none out, is `count` - 1. The compiler of
// kernels is not asked: another one compiles the same headers.
template <typename E, size_t count>
constexpr bool hasValues() {
#if defined(__CUDACC__)
  return true;
#else
  return isNamed<static_cast<E>(count - 1)>() && !isNamed<static_cast<E>(count)>();
#endif
}

// The name of `value` in a list of all names, in the order of the values.
template <typename E, size_t count>
constexpr const char* nameIn(const char* const (&names)[count], E value) {
  static_assert(hasValues<E, count>(), "the list has a name for each value, and no more");
  return names[static_cast<size_t>(value)];
}

// Of names in ASCII.
constexpr bool equalsIgnoringCase(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (small(a[i]) != small(b[i])) return false;
  }
  return true;
}

}  // namespace stretto
