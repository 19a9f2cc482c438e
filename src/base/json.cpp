#include "base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <locale>
#include <sstream>
#include <system_error>

namespace stretto::json {
namespace {

// Reads a number that is known to be well-formed; false if it is too large. A library that has from_chars for
// integers only, as libc++ long had, takes a hundred times as long; strtod obeys the program's locale.
bool readNumber(const char* first, const char* last, double& into) {
#ifdef __cpp_lib_to_chars
  return std::from_chars(first, last, into).ec == std::errc();
#else
  std::istringstream in{std::string(first, last)};
  in.imbue(std::locale::classic());
  return static_cast<bool>(in >> into);
#endif
}

// Bytes of the UTF-8 character at the front of `text`, 0 if there is none.
size_t characterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return text.empty() ? 0 : 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool overlong = lead == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = lead == 0xed && byte(1) > 0x9f;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead < 0xf0 || lead > 0xf4) return 0;
  const bool outside = (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f);
  return follows(1) && follows(2) && follows(3) && !outside ? 4 : 0;
}

void appendCharacter(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t bits) { out += static_cast<char>(bits); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  }
}

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

// Line breaks occur between tokens only (strings may not hold them), so the line is counted there.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Status document(Value& out) {
    if (text_.size() > kMostBytes) return refuse("the text is longer than 16 MB");
    STRETTO_TRY(value(out, 0));
    skipSpace();
    return at_ == text_.size() ? kOkStatus : refuse("there is text after the end of the value");
  }

 private:
  Status refuse(const char* what) const {
    return fail(Code::kInvalidUsage, "JSON, line %u column %zu: %s", line_, at_ - lineBegin_ + 1, what);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skipSpace() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        lineBegin_ = at_ + 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  Status value(Value& out, int depth) {
    skipSpace();
    if (++values_ > kMostValues) return refuse("more values than allowed");
    out.line_ = line_;
    switch (peek()) {
      case '{':
        return object(out, depth + 1);
      case '[':
        return array(out, depth + 1);
      case '"':
        out.kind_ = Kind::kString;
        return string(out.text_);
      case 't':
        return word("true", Kind::kBoolean, out);
      case 'f':
        return word("false", Kind::kBoolean, out);
      case 'n':
        return word("null", Kind::kNull, out);
      default:
        return number(out);
    }
  }

  Status word(std::string_view name, Kind kind, Value& out) {
    if (text_.substr(at_, name.size()) != name) return refuse("this is no JSON value");
    at_ += name.size();
    out.kind_ = kind;
    out.boolean_ = name == "true";
    return kOkStatus;
  }

  Status number(Value& out) {
    const size_t begin = at_;
    take('-');
    if (!isDigit(peek())) return refuse(at_ < text_.size() ? "this is no JSON value" : "the text ends early");
    if (take('0') && isDigit(peek())) return refuse("a number must not begin with 0");
    skipDigits();
    const bool whole = peek() != '.' && peek() != 'e' && peek() != 'E';
    if (take('.') && skipDigits() == 0) return refuse("digits are missing after the point");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (skipDigits() == 0) return refuse("digits are missing in the exponent");
    }
    const char* const first = text_.data() + begin;
    const char* const last = text_.data() + at_;
    out.kind_ = Kind::kNumber;
    if (!readNumber(first, last, out.number_)) return refuse("the number is too large");
    out.whole_ = whole && std::from_chars(first, last, out.integer_).ec == std::errc();
    return kOkStatus;
  }
  size_t skipDigits() {
    const size_t begin = at_;
    while (isDigit(peek())) ++at_;
    return at_ - begin;
  }

  Status string(std::string& out) {
    ++at_;
    while (!take('"')) {
      if (at_ >= text_.size()) return refuse("the text ends inside a string");
      if (out.size() >= kMostString) return refuse("the string is longer than 1 MB");
      if (take('\\')) {
        STRETTO_TRY(escape(out));
        continue;
      }
      const size_t bytes = characterBytes(text_.substr(at_, 4));
      if (static_cast<uint8_t>(text_[at_]) < 0x20) return refuse("a control character stands in a string");
      if (bytes == 0) return refuse("these bytes are not UTF-8");
      out.append(text_, at_, bytes);
      at_ += bytes;
    }
    return kOkStatus;
  }

  Status escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    uint32_t code = 0;
    if (!take('u')) {
      const size_t which = at_ < text_.size() ? kNames.find(text_[at_]) : kNames.npos;
      if (which == kNames.npos) return refuse("this escape does not exist");
      out += kMeanings[which];
      ++at_;
      return kOkStatus;
    }
    if (!hex(code)) return refuse("\\u needs four hexadecimal digits");
    if (code >= 0xd800 && code < 0xe000) {
      uint32_t low = 0;
      const bool pair = code < 0xdc00 && take('\\') && take('u') && hex(low) && low >= 0xdc00 && low < 0xe000;
      if (!pair) return refuse("half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    appendCharacter(out, code);
    return kOkStatus;
  }
  bool hex(uint32_t& code) {
    if (text_.size() - at_ < 4) return false;
    const char* const first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, first + 4, code, 16);
    at_ += 4;
    return error == std::errc() && end == first + 4;
  }

  Status array(Value& out, int depth) {
    if (depth > kMostDepth) return refuse("nested deeper than 64");
    out.kind_ = Kind::kArray;
    ++at_;
    skipSpace();
    if (take(']')) return kOkStatus;
    do {
      STRETTO_TRY(value(out.items_.emplace_back(), depth));
      skipSpace();
    } while (take(','));
    return take(']') ? kOkStatus : refuse("a list goes on with , or ends with ]");
  }

  Status object(Value& out, int depth) {
    if (depth > kMostDepth) return refuse("nested deeper than 64");
    out.kind_ = Kind::kObject;
    ++at_;
    skipSpace();
    if (take('}')) return kOkStatus;
    do {
      skipSpace();
      if (peek() != '"') return refuse("a key in quotes is missing");
      STRETTO_TRY(string(out.keys_.emplace_back()));
      skipSpace();
      if (!take(':')) return refuse("a : is missing after the key");
      STRETTO_TRY(value(out.items_.emplace_back(), depth));
      skipSpace();
    } while (take(','));
    if (!take('}')) return refuse("an object goes on with , or ends with }");
    std::vector<std::string_view> sorted(out.keys_.begin(), out.keys_.end());
    std::sort(sorted.begin(), sorted.end());
    const bool unique = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    return unique ? kOkStatus : refuse("a key appears twice in the object that ends here");
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t lineBegin_ = 0;
  uint32_t line_ = 1;
  size_t values_ = 0;
};

Result<Value> parse(std::string_view text) {
  Value value;
  STRETTO_TRY(Reader(text).document(value));
  return value;
}

void Writer::newLine() {
  if (!indent_) return;
  out_ += '\n';
  out_.append(static_cast<size_t>(depth_) * 2, ' ');
}

void Writer::separate() {
  if (afterKey_) {
    afterKey_ = false;
    return;
  }
  if (!first_) out_ += ',';
  if (depth_ > 0) newLine();
  first_ = false;
}

Writer& Writer::open(char bracket) {
  separate();
  out_ += bracket;
  ++depth_;
  first_ = true;
  return *this;
}

Writer& Writer::close(char bracket) {
  --depth_;
  if (!first_) newLine();
  out_ += bracket;
  first_ = false;
  return *this;
}

Writer& Writer::key(std::string_view name) {
  separate();
  quote(name);
  out_ += indent_ ? ": " : ":";
  afterKey_ = true;
  return *this;
}

Writer& Writer::raw(std::string_view token) {
  separate();
  out_ += token;
  return *this;
}

Writer& Writer::text(std::string_view value) {
  separate();
  quote(value);
  return *this;
}

void Writer::quote(std::string_view value) {
  out_ += '"';
  while (!value.empty()) {
    const size_t bytes = characterBytes(value.substr(0, 4));
    const uint8_t c = static_cast<uint8_t>(value[0]);
    if (bytes == 0) {
      out_ += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += value[0];
    } else if (c < 0x20 || c == 0x7f) {
      char escaped[8];
      snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out_ += escaped;
    } else {
      out_ += value.substr(0, bytes);
    }
    value.remove_prefix(std::max<size_t>(1, bytes));
  }
  out_ += '"';
}

Writer& Writer::number(double value) {
  if (!std::isfinite(value)) return null();
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return raw(std::string_view(digits, static_cast<size_t>(end - digits)));
}

Writer& Writer::integer(int64_t value) {
  return raw(std::to_string(value));
}
Writer& Writer::boolean(bool value) {
  return raw(value ? "true" : "false");
}
Writer& Writer::null() {
  return raw("null");
}

}  // namespace stretto::json
