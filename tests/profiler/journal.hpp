// What the recording plugin wrote down, with names in place of numbers: the first CollApi of rank 1 is
// "CollApi/1.0". For tests of what a profiler plugin hears; a call is a line such as
//
//   start CollApi/1.0 in GroupApi/0.0 func=AllReduce count=1024 type=ncclFloat32 root=0
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace stretto::testing {

struct JournalCall {
  std::string thread;
  std::string kind;   // start, stop, state, init, finalize
  std::string event;  // the name; empty for init and finalize
  std::map<std::string, std::string> words;

  std::string word(const std::string& key) const {
    const auto found = words.find(key);
    return found == words.end() ? "" : found->second;
  }
  uint64_t number(const std::string& key) const {
    const std::string text = word(key);
    return text.empty() ? 0 : std::stoull(text, nullptr, 10);
  }
};

class Journal {
 public:
  static Journal read(const std::string& path) {
    Journal journal;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) journal.add(line);
    return journal;
  }

  const std::vector<JournalCall>& calls() const { return calls_; }
  // Handles that were used without having been given out, or after their stop.
  const std::vector<std::string>& complaints() const { return complaints_; }
  std::set<std::string> neverStopped() const { return open_; }

  // The thread that made the rank's first call, and what it wrote; `without` leaves out one kind of event.
  std::string threadOf(const std::string& event) const {
    for (const JournalCall& call : calls_) {
      if (call.event == event) return call.thread;
    }
    return "";
  }
  std::vector<std::string> script(const std::string& thread, const std::string& without = "ProxyCtrl") const {
    std::vector<std::string> lines;
    for (const JournalCall& call : calls_) {
      if (call.thread == thread && !call.event.starts_with(without)) lines.push_back(inWords(call));
    }
    return lines;
  }
  std::vector<JournalCall> of(const std::string& kind, const std::string& type) const {
    std::vector<JournalCall> found;
    for (const JournalCall& call : calls_) {
      const bool same = type.empty() || call.event.starts_with(type + "/");
      if (call.kind == kind && same) found.push_back(call);
    }
    return found;
  }

 private:
  static std::string inWords(const JournalCall& call) {
    std::string line = call.kind + (call.event.empty() ? "" : " " + call.event);
    if (!call.word("in").empty()) line += " in " + call.word("in");
    for (const char* key : {"name",  "nodes", "ranks", "rank",  "captured", "depth",    "group",
                            "seq",   "func",  "count", "type",  "root",     "channels", "peer",
                            "steps", "send",  "step",  "state", "args",     "appended", "bytes"}) {
      const bool initOnly = std::string(key) == "rank";
      if (call.words.count(key) == 0 || (initOnly && call.kind != "init")) continue;
      line += std::string(" ") + key + "=" + call.word(key);
    }
    return line;
  }

  std::string nameOf(const std::string& handle) {
    if (handle == "0") return "";
    const auto found = names_.find(handle);
    if (found == names_.end()) complaints_.push_back("unknown handle " + handle);
    return found == names_.end() ? "?" : found->second;
  }

  void add(const std::string& line) {
    JournalCall call;
    std::istringstream stream(line);
    for (std::string word; stream >> word;) {
      const size_t equals = word.find('=');
      call.words[word.substr(0, equals)] = word.substr(equals + 1);
    }
    call.thread = call.word("tid");
    call.kind = call.word("call");
    if (call.kind == "start") {
      const std::string of = call.word("event") + "/" + call.word("rank") + ".";
      call.event = of + std::to_string(counts_[of]++);
      names_[call.word("h")] = call.event;
      open_.insert(call.event);
      call.words["in"] = nameOf(call.word("parent"));
      if (call.words.count("group") != 0) call.words["group"] = nameOf(call.word("group"));
    } else if (call.kind == "stop" || call.kind == "state") {
      call.event = nameOf(call.word("h"));
      if (open_.count(call.event) == 0) complaints_.push_back(call.kind + " of a stopped " + call.event);
      if (call.kind == "stop") open_.erase(call.event);
    }
    calls_.push_back(call);
  }

  std::vector<JournalCall> calls_;
  std::vector<std::string> complaints_;
  std::map<std::string, std::string> names_;
  std::map<std::string, int> counts_;
  std::set<std::string> open_;
};

}  // namespace stretto::testing
