#include "setup.hpp"

#include <cstring>
#include <functional>
#include <map>
#include <sstream>

#include "crew.hpp"

namespace stretto::bench {
namespace {

constexpr size_t kMostInGroup = 1024;

using Take = std::function<bool(const std::string&)>;

bool parseWhole(const std::string& text, size_t* value) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  char* end = nullptr;
  *value = strtoull(text.c_str(), &end, 10);
  const std::string unit = end;
  if (unit == "K" || unit == "k") *value <<= 10;
  if (unit == "M" || unit == "m") *value <<= 20;
  if (unit == "G" || unit == "g") *value <<= 30;
  return unit.empty() || strchr("KkMmGg", unit[0]) != nullptr;
}

Take whole(size_t* value) {
  return [value](const std::string& text) { return parseWhole(text, value); };
}
Take whole(int* value) {
  return [value](const std::string& text) {
    size_t number = 0;
    if (!parseWhole(text, &number) || number > 1 << 20) return false;
    *value = static_cast<int>(number);
    return true;
  };
}
Take positive(double* value) {
  return [value](const std::string& text) { return (*value = atof(text.c_str())) > 0; };
}
Take any(std::string* value) {
  return [value](const std::string& text) { return !(*value = text).empty(); };
}
Take list(std::vector<std::string>* value) {
  return [value](const std::string& text) { return !(*value = split(text, ',')).empty(); };
}

Take numbers(std::vector<int>* value) {
  return [value](const std::string& text) {
    value->clear();
    for (const std::string& part : split(text, ',')) {
      if (!whole(&value->emplace_back())(part) || value->back() >= CPU_SETSIZE) return false;
    }
    return !value->empty();
  };
}

bool parseVariable(const std::string& text, Setup* setup) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  setup->environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  return true;
}

std::map<std::string, Take> valued(Setup* s) {
  return {
      {"--library", any(&s->library)},
      {"--name", any(&s->name)},
      {"--folder", any(&s->folder)},
      {"--rank", whole(&s->rank)},
      {"--ranks", whole(&s->ranks)},
      {"--hosts", whole(&s->hosts)},
      {"--max-bytes", whole(&s->maxBytes)},
      {"--timeout", positive(&s->timeout)},
      {"--env", [s](const std::string& text) { return parseVariable(text, s); }},
      {"--force", [s](const std::string& text) { return parseForced(text, &s->forced); }},
      {"--blocks", whole(&s->blocks)},
      {"--cores", numbers(&s->seats.cores)},
      {"--helpers", numbers(&s->seats.helpers)},
      {"--collective", list(&s->sweep.collectives)},
      {"--type", list(&s->sweep.types)},
      {"--op", any(&s->sweep.op)},
      {"-b", whole(&s->sweep.least)},
      {"-e", whole(&s->sweep.most)},
      {"-f", whole(&s->sweep.factor)},
      {"--group", whole(&s->sweep.group)},
      {"--budget-ms", positive(&s->sweep.budgetMilliseconds)},
  };
}

std::map<std::string, std::function<void()>> plain(Setup* s) {
  return {
      {"--threads", [s] { s->threads = true; }},
      {"--processes", [s] { s->processes = true; }},
      {"--shared-device", [s] { s->sharedDevice = true; }},
      {"--window", [s] { s->window = true; }},
      {"--in-place", [s] { s->sweep.inPlace = true; }},
      {"--graph", [s] { s->sweep.graph = true, s->sweep.eager = false; }},
      {"--eager", [s] { s->sweep.graph = false, s->sweep.eager = true; }},
      {"--both", [s] { s->sweep.graph = s->sweep.eager = true; }},
  };
}

std::string faultOf(const Setup& s) {
  if (s.library.empty()) return "--library PATH is missing";
  if (s.library[0] != '/')
    return "--library wants an absolute path, so that no other library is found by its name";
  if (s.ranks < 1 || s.ranks > kMostRanks) return "--ranks goes from 1 to " + std::to_string(kMostRanks);
  if (s.folder.empty() && (s.sweep.least < 1 || s.sweep.most < s.sweep.least || s.sweep.factor < 2)) {
    return "sizes need 1 <= -b <= -e and -f of at least 2";
  }
  if (s.hosts > 0 && (s.threads || (s.folder.empty() && !s.processes)))
    return "--hosts is for ranks that are processes: threads of one have one NCCL_HOSTID";
  if (s.sweep.group < 1 || s.sweep.group > kMostInGroup)
    return "--group goes from 1 to " + std::to_string(kMostInGroup);
  if (!s.folder.empty() && (s.rank >= s.ranks || s.maxBytes == 0))
    return "--folder needs --rank and --max-bytes";
  if (s.seats.cores.empty() != s.seats.helpers.empty()) return "--cores and --helpers need each other";
  if (!s.seats.cores.empty() && s.seats.cores.size() < static_cast<size_t>(s.ranks))
    return "--cores names fewer cores than there are ranks";
  return "";
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool parseForced(const std::string& text, Forced* forced) {
  auto parts = split(text, ':');
  if (parts.empty() || parts.size() > 4) return false;
  parts.resize(4);
  forced->algorithm = parts[0];
  forced->protocol = parts[1];
  if (!parts[2].empty() && !parseWhole(parts[2], &forced->chunkBytes)) return false;
  return parts[3].empty() || whole(&forced->blocks)(parts[3]);
}

std::string parseSetup(int argc, char** argv, Setup* setup) {
  const auto takesValue = valued(setup);
  const auto isFlag = plain(setup);
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto flag = isFlag.find(name); flag != isFlag.end()) {
      flag->second();
      continue;
    }
    const auto take = takesValue.find(name);
    if (take == takesValue.end()) return "unknown option " + name;
    if (i + 1 == argc) return name + " needs a value";
    if (!take->second(argv[++i])) return name + " " + argv[i] + ": not understood";
  }
  if (setup->sweep.most < setup->sweep.least) setup->sweep.most = setup->sweep.least;
  return faultOf(*setup);
}

}  // namespace stretto::bench
