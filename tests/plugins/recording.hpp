// Reads recordings for tests and benchmarks: every record of a file as its bytes, definitions by number,
// nothing interpreted. Complains (throws std::runtime_error) about whatever the format does not allow.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "profiler/format.hpp"

namespace stretto::testing {

namespace format = profiler::format;

struct RecordedEvent {
  uint32_t thread = 0;  // who recorded it, after hand-overs
  std::string bytes;

  const format::Record& record() const { return *reinterpret_cast<const format::Record*>(bytes.data()); }
  format::Kind kind() const { return static_cast<format::Kind>(record().kind); }
  profiler::format::Start start() const { return as<format::Start>(); }
  // The record as that structure; throws when it is shorter.
  template <typename T>
  T as() const {
    if (bytes.size() < sizeof(T)) throwShort();
    T copy;
    memcpy(&copy, bytes.data(), sizeof copy);
    return copy;
  }

 private:
  [[noreturn]] static void throwShort();
};

struct RecordingFileContents {
  std::string path;
  uint64_t fileBytes = 0;
  format::Header header{};
  std::map<uint32_t, std::string> strings{{0, ""}};
  std::map<uint32_t, format::Context> contexts;  // the last definition of each
  std::map<uint32_t, format::Thread> threads;
  std::vector<format::Anchor> anchors;
  std::vector<format::Fork> forks;
  std::vector<format::ForeignContext> foreign;
  std::vector<format::Sample> samples;
  std::vector<RecordedEvent> events;  // by thread, in its order
  uint64_t eventSegments = 0;
  uint64_t definitionSegments = 0;

  // Events of that kind, and of that type unless it is negative.
  std::vector<RecordedEvent> of(format::Kind kind, int type = -1) const;
  std::string text(uint32_t number) const { return strings.at(number); }
};

RecordingFileContents readRecording(const std::string& path);
// The files of a recording, by name.
std::vector<std::string> listRecordings(const std::string& directory);

}  // namespace stretto::testing
