#include "api/build.hpp"

#include <algorithm>
#include <string_view>

#include "base/json.hpp"
#include "base/version.hpp"
#include "platform/cuda/device.hpp"

namespace stretto::api {
namespace {

void writeOr(json::Writer& writer, std::string_view text) {
  if (text.empty()) {
    writer.null();
  } else {
    writer.text(text);
  }
}

}  // namespace

std::string buildJson() {
  const BuildFacts facts = buildFacts();
  json::Writer writer;
  writer.beginObject().key("schema").text("stretto.build/1").key("version").text(kLibraryVersion);
  writeOr(writer.key("commit"), facts.commit);
  writer.key("compiler").text(facts.compiler).key("cuda").boolean(platform::cuda::isBuiltIn());
  writeOr(writer.key("nvcc"), facts.nvcc);
  writer.key("kernels").beginArray();
  std::string_view rest = facts.kernels;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    writer.text(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  writer.endArray().endObject();
  return writer.take();
}

}  // namespace stretto::api
