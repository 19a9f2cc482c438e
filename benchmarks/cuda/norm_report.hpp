// What norm_driver prints: a line for each number of tokens and hidden size, lines of JSON if they are
// wanted, and at the end what was wrong or not served. Used by one rank.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "norm_setup.hpp"

namespace stretto::bench {

// Of one number of tokens and hidden size, by the ways' names.
struct Outcome {
  int tokens = 0, hidden = 0;
  std::string device;
  size_t bytesOfStep = 0;                              // that one rank's kernel of the floor moves
  std::map<std::string, std::vector<double>> times;    // microseconds of a step, of each turn
  std::map<std::string, std::string> wrong, unserved;  // and why
};

class NormReport {
 public:
  NormReport(const Setup& setup, const std::vector<Way>& ways) : setup_(setup), ways_(ways) {
    if (!setup.json.empty() && (json_ = std::fopen(setup.json.c_str(), "w")) == nullptr)
      throw Failure("--json " + setup.json + ": " + std::strerror(errno));
  }
  ~NormReport() {
    if (json_ != nullptr) std::fclose(json_);
  }
  NormReport(const NormReport&) = delete;
  NormReport& operator=(const NormReport&) = delete;

  void begin(const std::string& whyNoPeer) const {
    std::printf(
        "microseconds of a step; bfloat16, %d rank%s%s, call %s; parts: all-reduce, then a norm kernel\n",
        setup_.ranks, setup_.ranks == 1 ? "" : "s", setup_.shared ? " on one GPU" : "", setup_.call.name);
    if (!whyNoPeer.empty()) std::printf("FlashInfer is not beside it: %s\n", whyNoPeer.c_str());
    std::printf("tokens hidden");
    for (const Way& way : ways_) std::printf(" %11s", way.name);
    for (const Ratio& ratio : ratiosOf(ways_)) std::printf(" %9s", ratio.name);
    std::printf("\n");
    std::fflush(stdout);
  }
  void add(Outcome outcome) {
    for (auto& [name, all] : outcome.times) std::sort(all.begin(), all.end());
    line(outcome);
    if (json_ != nullptr) objects(outcome);
    std::fflush(nullptr);
    for (const auto& [name, why] : outcome.wrong) notes_.insert(name + ": WRONG: " + why);
    for (const Way& way : ways_) {
      const auto why = outcome.unserved.find(way.name);
      if (way.what != What::kPeer || why == outcome.unserved.end()) continue;
      notes_.insert(std::string(way.name) + " does not serve " + std::to_string(outcome.tokens) + " x " +
                    std::to_string(outcome.hidden) + ": " + why->second);
    }
  }
  void end() const {
    for (const std::string& note : notes_) std::printf("%s\n", note.c_str());
  }

 private:
  // Microseconds, or 0 where there are none or what was computed is wrong.
  static double medianOf(const Outcome& outcome, const std::string& way) {
    const auto found = outcome.times.find(way);
    if (found == outcome.times.end() || outcome.wrong.count(way) != 0) return 0;
    return found->second[found->second.size() / 2];
  }

  void line(const Outcome& outcome) const {
    std::printf("%6d %6d", outcome.tokens, outcome.hidden);
    for (const Way& way : ways_) {
      if (const double median = medianOf(outcome, way.name); median > 0) {
        std::printf(" %11.2f", median);
      } else {
        std::printf(" %11s", outcome.wrong.count(way.name) != 0 ? "wrong" : "-");
      }
    }
    for (const Ratio& ratio : ratiosOf(ways_)) {
      double best = 0;
      for (const std::string& way : ratio.of) {
        const double median = medianOf(outcome, way);
        if (median > 0 && (best == 0 || median < best)) best = median;
      }
      best > 0 ? std::printf(" %9.3f", medianOf(outcome, "fused") / best) : std::printf(" %9s", "-");
    }
    std::printf("\n");
  }

  void objects(const Outcome& outcome) const {
    for (const Way& way : ways_) {
      std::fprintf(json_,
                   "{\"device\": \"%s\", \"ranks\": %d, \"shared\": %s, \"call\": \"%s\", \"tokens\": %d, "
                   "\"hidden\": %d, \"type\": \"bfloat16\", \"way\": \"%s\", ",
                   quoted(outcome.device).c_str(), setup_.ranks, setup_.shared ? "true" : "false",
                   setup_.call.name, outcome.tokens, outcome.hidden, way.name);
      const auto why = outcome.wrong.find(way.name);
      if (outcome.times.count(way.name) == 0) {
        const auto unserved = outcome.unserved.find(way.name);
        const std::string reason = unserved != outcome.unserved.end() ? unserved->second : "";
        std::fprintf(json_, "\"served\": false, \"why\": \"%s\"}\n", quoted(reason).c_str());
      } else if (why != outcome.wrong.end()) {
        std::fprintf(json_, "\"verified\": false, \"why\": \"%s\"}\n", quoted(why->second).c_str());
      } else {
        times(way, outcome);
      }
    }
  }
  void times(const Way& way, const Outcome& outcome) const {
    const std::vector<double>& all = outcome.times.at(way.name);
    std::fprintf(json_, "\"microseconds\": %.3f, \"least\": %.3f, \"most\": %.3f, \"turns\": %zu, ",
                 all[all.size() / 2], all.front(), all.back(), all.size());
    if (!way.isBound()) {
      std::fprintf(json_, "\"verified\": true}\n");
    } else {
      std::fprintf(json_, "\"bytes_of_rank\": %zu}\n", way.what == What::kEmpty ? 0 : outcome.bytesOfStep);
    }
  }
  static std::string quoted(std::string text) {
    for (char& each : text) {
      if (each == '"' || each == '\\' || static_cast<unsigned char>(each) < ' ') each = '\'';
    }
    return text;
  }

  const Setup& setup_;
  const std::vector<Way>& ways_;
  FILE* json_ = nullptr;
  std::set<std::string> notes_;
};

}  // namespace stretto::bench
