// What limits_driver found, as a table for people and as JSON (schema "stretto.limits/1"). Used by limits.cu.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "failure.hpp"

namespace stretto::bench {

// Zero where it says nothing. `us` is the time of one kernel, line or copy.
struct Limit {
  std::string limit;
  int blocks = 0;
  size_t chunk = 0;
  size_t bytes = 0;
  double us = 0;

  double rate() const { return bytes == 0 ? 0 : static_cast<double>(bytes) / us / 1000; }
};

class LimitsReport {
 public:
  LimitsReport(std::string gpus, int count) : gpus_(std::move(gpus)), count_(count) {}

  void add(const Limit& limit) {
    if (!(limit.us > 0)) throw Failure(limit.limit + " took no time at all, so it did not run");
    limits_.push_back(limit);
  }
  void fail(const std::string& why) { failure_ = why; }
  const std::string& failure() const { return failure_; }

  void print() const {
    printf("limits of %d GPUs (%s), each to the next, all at once\n\n", count_, gpus_.c_str());
    printf("%-30s %6s %9s %11s %10s %8s\n", "", "blocks", "chunk", "bytes", "us", "GB/s");
    for (const Limit& l : limits_) {
      printf("%-30s %6s %9s %11s %10.3f %8s\n", l.limit.c_str(), number(l.blocks).c_str(),
             number(l.chunk).c_str(), number(l.bytes).c_str(), l.us,
             l.bytes == 0 ? "" : rounded(l.rate()).c_str());
    }
    if (!failure_.empty()) printf("\nFAILED: %s\n", failure_.c_str());
  }

  void save(const std::string& path) const {
    FILE* file = fopen(path.c_str(), "w");
    if (file == nullptr) throw Failure("cannot write " + path);
    fprintf(file,
            "{\"schema\":\"stretto.limits/1\",\"gpus\":%d,\"names\":\"%s\",\"failure\":\"%s\",\"rows\":[",
            count_, gpus_.c_str(), plain(failure_).c_str());
    const char* separator = "\n";
    for (const Limit& l : limits_) {
      fprintf(file,
              "%s {\"limit\":\"%s\",\"blocks\":%d,\"chunk\":%zu,\"bytes\":%zu,\"us\":%.4f,\"gbps\":%.3f}",
              separator, l.limit.c_str(), l.blocks, l.chunk, l.bytes, l.us, l.rate());
      separator = ",\n";
    }
    fprintf(file, "\n]}\n");
    if (fclose(file) != 0) throw Failure("cannot write all of " + path);
  }

 private:
  static std::string number(size_t value) { return value == 0 ? "" : std::to_string(value); }
  static std::string rounded(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.1f", value);
    return text;
  }
  static std::string plain(std::string text) {
    for (char& c : text) {
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) c = ' ';
    }
    return text;
  }

  std::string gpus_;
  int count_;
  std::vector<Limit> limits_;
  std::string failure_;
};

}  // namespace stretto::bench
