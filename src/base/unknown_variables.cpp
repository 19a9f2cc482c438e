#include "base/unknown_variables.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <string_view>

#include "base/log.hpp"
#include "base/os.hpp"
#include "base/parameters.hpp"

namespace stretto {
namespace {

constexpr std::string_view kPrefix = "STRETTO_";

// Read by the Python package and by the plugins, which the library does not know.
constexpr const char* kElsewhere[] = {"STRETTO_BENCH_DRIVERS",
                                      "STRETTO_LOCAL_RANKS",
                                      "STRETTO_RANK",
                                      "STRETTO_RANKS",
                                      "STRETTO_REMOTE_SHELL",
                                      "STRETTO_RENDEZVOUS",
                                      "STRETTO_RENDEZVOUS_PORT",
                                      "STRETTO_RENDEZVOUS_SECRET",
                                      "STRETTO_RUN_LOG",
                                      "STRETTO_SGLANG",
                                      "STRETTO_TRACE_CHAIN",
                                      "STRETTO_TRACE_CUPTI",
                                      "STRETTO_TRACE_DIR",
                                      "STRETTO_TRACE_EMPTY",
                                      "STRETTO_TRACE_EVENTS",
                                      "STRETTO_TRACE_LIMIT",
                                      "STRETTO_TRACE_MODE",
                                      "STRETTO_TRACE_NVTX",
                                      "STRETTO_TRACE_SEGMENTS",
                                      "STRETTO_TRACE_SEGMENT_BYTES",
                                      "STRETTO_UNIQUE_ID",
                                      "STRETTO_VLLM"};
// Of this project's own tests.
constexpr std::string_view kTests[] = {"STRETTO_TEST_", "STRETTO_EMULATED_"};

// How many letters must be put in, left out or replaced to make one of the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t i = 0; i <= b.size(); ++i) row[i] = i;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string_view> knownNames() {
  std::vector<std::string_view> names(std::begin(kElsewhere), std::end(kElsewhere));
  for (const Parameter* one : parameters::all()) names.emplace_back(one->name());
  return names;
}

}  // namespace

std::vector<std::string> aboutUnknownVariables(const std::vector<std::string>& names) {
  const auto known = knownNames();
  std::vector<std::string> sentences;
  for (const std::string& name : names) {
    const auto begins = [&](std::string_view prefix) { return name.compare(0, prefix.size(), prefix) == 0; };
    if (!begins(kPrefix) || std::any_of(std::begin(kTests), std::end(kTests), begins)) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto nearest = std::min_element(
        known.begin(), known.end(), [&](auto a, auto b) { return distance(name, a) < distance(name, b); });
    // A third of what is behind the prefix may be wrong, but not all of a short name.
    const size_t most = std::max<size_t>(2, (name.size() - kPrefix.size()) / 3);
    const bool near = distance(name, *nearest) <= most;
    sentences.push_back("the variable " + name + " is set, and nothing of Stretto reads it" +
                        (near ? "; is " + std::string(*nearest) + " meant?" : ""));
  }
  return sentences;
}

std::vector<std::string> aboutUnknownVariables() {
  std::vector<std::string> names;
  for (const std::string& entry : os::environmentEntries()) names.push_back(entry.substr(0, entry.find('=')));
  return aboutUnknownVariables(names);
}

// `stretto run` has told of them, once for all its ranks.
void warnOfUnknownVariables() {
  if (getenv("STRETTO_RUN_LOG") != nullptr) return;
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string& sentence : aboutUnknownVariables()) {
      STRETTO_LOG(kWarn, kInit, "%s", sentence.c_str());
    }
  });
}

}  // namespace stretto
