// Whatever bytes come, the reader answers with a value or a refusal; what it accepts, the writer can write
// and the reader reads again; and the table reader, which stands on it, keeps its promises.
#include <cstdint>
#include <cstdlib>

#include "base/json.hpp"
#include "planner/table.hpp"

namespace {

using stretto::json::Kind;
using stretto::json::Value;
using stretto::json::Writer;

void write(Writer& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kNull:
      out.null();
      return;
    case Kind::kBoolean:
      out.boolean(value.boolean());
      return;
    case Kind::kNumber:
      out.number(value.number());
      return;
    case Kind::kString:
      out.text(value.text());
      return;
    case Kind::kArray:
      out.beginArray();
      for (const Value& item : value.items()) write(out, item);
      out.endArray();
      return;
    case Kind::kObject:
      out.beginObject();
      for (size_t i = 0; i < value.keys().size(); ++i) write(out.key(value.keys()[i]), value.items()[i]);
      out.endObject();
  }
}

std::string written(const Value& value) {
  Writer out;
  write(out, value);
  return out.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto first = stretto::json::parse(text);
  if (first.ok()) {
    const std::string once = written(first.value());
    const auto second = stretto::json::parse(once);
    if (!second.ok() || written(second.value()) != once) abort();
  } else if (stretto::lastError().empty()) {
    abort();
  }
  const auto table = stretto::planner::Table::parse(text);
  if (table.ok() && !first.ok()) abort();
  if (table.ok() &&
      stretto::planner::Table::parse(written(first.value())).value().hash() != table.value().hash()) {
    abort();
  }
  return 0;
}
