// A small strict JSON reader and writer for the files and texts that Stretto exchanges: measured tables,
// topologies, explanations. Any folder may include this. What is read is not trusted: size, depth, number of
// values and length of strings are bounded, a key may appear once, bytes must be UTF-8, and every refusal is
// kInvalidUsage with a line and a column. Nothing throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace stretto::json {

inline constexpr size_t kMostBytes = size_t{16} << 20;
inline constexpr size_t kMostString = size_t{1} << 20;
inline constexpr size_t kMostValues = size_t{1} << 18;
inline constexpr int kMostDepth = 64;

enum class Kind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

// One value and everything in it. The *At() getters look a key up in an object; what is missing, of another
// kind or out of bounds is kInvalidUsage and says the line, the key and what is allowed.
class Value {
 public:
  Kind kind() const { return kind_; }
  uint32_t line() const { return line_; }
  bool boolean() const { return boolean_; }
  double number() const { return number_; }
  const std::string& text() const { return text_; }
  // Elements of an array, or the values of an object in the order of keys().
  std::span<const Value> items() const { return items_; }
  std::span<const std::string> keys() const { return keys_; }

  // The member, or null.
  const Value* find(std::string_view key) const;
  Result<bool> booleanAt(const char* key) const;
  Result<int64_t> integerAt(const char* key, int64_t low, int64_t high) const;
  Result<double> numberAt(const char* key, double low, double high) const;
  Result<std::string> textAt(const char* key, size_t mostBytes) const;
  // Elements, of which each is of `kind`. Valid as long as this value.
  Result<std::span<const Value>> itemsAt(const char* key, Kind kind, size_t most) const;

 private:
  friend class Reader;
  Result<const Value*> memberAt(const char* key, Kind kind) const;

  Kind kind_ = Kind::kNull;
  bool boolean_ = false;
  bool whole_ = false;  // integer_ holds exactly what was written
  uint32_t line_ = 0;
  double number_ = 0;
  int64_t integer_ = 0;
  std::string text_;
  std::vector<Value> items_;
  std::vector<std::string> keys_;
};

Result<Value> parse(std::string_view text);
// Reads a regular file of at most kMostBytes. Errors name the file.
Result<std::string> readFile(const std::string& path);

// Builds one text, in order; the caller closes what it opens. Bytes that are not UTF-8 become U+FFFD,
// numbers that are not finite become null.
class Writer {
 public:
  // With `indent`, members and elements go on lines of their own.
  explicit Writer(bool indent = false) : indent_(indent) {}

  Writer& beginObject() { return open('{'); }
  Writer& endObject() { return close('}'); }
  Writer& beginArray() { return open('['); }
  Writer& endArray() { return close(']'); }
  Writer& key(std::string_view name);
  Writer& text(std::string_view value);
  Writer& number(double value);
  Writer& integer(int64_t value);
  Writer& boolean(bool value);
  Writer& null();
  std::string take() { return std::move(out_); }

 private:
  Writer& open(char bracket);
  Writer& close(char bracket);
  Writer& raw(std::string_view token);
  void separate();
  void newLine();
  void quote(std::string_view value);

  std::string out_;
  int depth_ = 0;
  bool indent_;
  bool first_ = true;      // nothing yet at this level
  bool afterKey_ = false;  // the next value belongs to a key
};

}  // namespace stretto::json
