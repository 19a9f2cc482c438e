// The typed getters of a JSON value, and reading the file that holds one.
#include <cstdio>
#include <memory>

#include "base/json.hpp"
#include "base/names.hpp"
#include "base/os.hpp"

namespace stretto::json {
namespace {

const char* nameOf(Kind kind) {
  constexpr const char* kNames[] = {"null", "true or false", "a number", "a string", "a list", "an object"};
  return nameIn(kNames, kind);
}

}  // namespace

Result<std::string> readFile(const std::string& path) {
  // A pipe would be waited for until somebody writes, a device might never end.
  const std::unique_ptr<FILE, int (*)(FILE*)> file(os::openFile(path, os::Access::kRead), fclose);
  if (file == nullptr) return failErrno("cannot open %s", path.c_str());
  if (!os::isRegularFile(file.get())) {
    return fail(Code::kInvalidUsage, "%s is no regular file: name a file that holds the text", path.c_str());
  }
  std::string text;
  char block[4096];
  while (const size_t got = fread(block, 1, sizeof block, file.get())) {
    text.append(block, got);
    if (text.size() > kMostBytes) return fail(Code::kInvalidUsage, "%s is longer than 16 MB", path.c_str());
  }
  if (ferror(file.get()) != 0) return failErrno("cannot read %s", path.c_str());
  return text;
}

const Value* Value::find(std::string_view key) const {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] == key) return &items_[i];
  }
  return nullptr;
}

Result<const Value*> Value::memberAt(const char* key, Kind kind) const {
  const Value* const member = find(key);
  if (member == nullptr) return fail(Code::kInvalidUsage, "line %u: \"%s\" is missing here", line_, key);
  if (member->kind_ != kind) {
    return fail(Code::kInvalidUsage, "line %u: \"%s\" must be %s", member->line_, key, nameOf(kind));
  }
  return member;
}

Result<bool> Value::booleanAt(const char* key) const {
  const auto member = memberAt(key, Kind::kBoolean);
  if (!member.ok()) return member.status();
  return member.value()->boolean_;
}

Result<int64_t> Value::integerAt(const char* key, int64_t low, int64_t high) const {
  const auto member = memberAt(key, Kind::kNumber);
  if (!member.ok()) return member.status();
  const Value& value = *member.value();
  if (!value.whole_ || value.integer_ < low || value.integer_ > high) {
    return fail(Code::kInvalidUsage, "line %u: \"%s\" must be a whole number from %lld to %lld", value.line_,
                key, static_cast<long long>(low), static_cast<long long>(high));
  }
  return value.integer_;
}

Result<double> Value::numberAt(const char* key, double low, double high) const {
  const auto member = memberAt(key, Kind::kNumber);
  if (!member.ok()) return member.status();
  const Value& value = *member.value();
  if (!(value.number_ >= low && value.number_ <= high)) {
    return fail(Code::kInvalidUsage, "line %u: \"%s\" must be a number from %g to %g", value.line_, key, low,
                high);
  }
  return value.number_;
}

Result<std::string> Value::textAt(const char* key, size_t mostBytes) const {
  const auto member = memberAt(key, Kind::kString);
  if (!member.ok()) return member.status();
  const Value& value = *member.value();
  if (value.text_.size() > mostBytes || value.text_.find('\0') != std::string::npos) {
    return fail(Code::kInvalidUsage, "line %u: \"%s\" must be a text of at most %zu bytes, none of them 0",
                value.line_, key, mostBytes);
  }
  return value.text_;
}

Result<std::span<const Value>> Value::itemsAt(const char* key, Kind kind, size_t most) const {
  const auto member = memberAt(key, Kind::kArray);
  if (!member.ok()) return member.status();
  const Value& list = *member.value();
  if (list.items_.size() > most) {
    return fail(Code::kInvalidUsage, "line %u: \"%s\" has more than %zu elements", list.line_, key, most);
  }
  for (const Value& item : list.items_) {
    if (item.kind_ == kind) continue;
    return fail(Code::kInvalidUsage, "line %u: each element of \"%s\" must be %s", item.line_, key,
                nameOf(kind));
  }
  return std::span<const Value>(list.items_);
}

}  // namespace stretto::json
