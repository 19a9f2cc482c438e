#include "recording.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/stable_sort.hpp"

namespace stretto::testing {
namespace {

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("recording: " + what);
}

template <typename T>
T take(const std::string& bytes, size_t offset) {
  require(offset + sizeof(T) <= bytes.size(), "cut short");
  T value;
  memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct Part {
  format::Segment header;
  std::string records;
};

void define(RecordingFileContents& into, const RecordedEvent& event) {
  switch (event.kind()) {
    case format::Kind::kString: {
      const auto string = event.as<format::String>();
      require(sizeof string + string.length <= event.bytes.size(), "a string longer than its record");
      into.strings[string.number] = event.bytes.substr(sizeof string, string.length);
      return;
    }
    case format::Kind::kContext:
      into.contexts[event.as<format::Context>().number] = event.as<format::Context>();
      return;
    case format::Kind::kThreadDefinition:
      into.threads[event.as<format::Thread>().number] = event.as<format::Thread>();
      return;
    case format::Kind::kAnchor:
      into.anchors.push_back(event.as<format::Anchor>());
      return;
    case format::Kind::kFork:
      into.forks.push_back(event.as<format::Fork>());
      return;
    case format::Kind::kForeignContext:
      into.foreign.push_back(event.as<format::ForeignContext>());
      return;
    case format::Kind::kSample:
      into.samples.push_back(event.as<format::Sample>());
      return;
    default:
      throw std::runtime_error("recording: no definition has that kind");
  }
}

void readRecords(RecordingFileContents& into, const Part& part) {
  const bool definitions = part.header.kind == static_cast<uint32_t>(format::SegmentKind::kDefinitions);
  uint32_t thread = part.header.thread;
  uint64_t before = 0;
  for (size_t at = 0; at < part.records.size();) {
    const auto record = take<format::Record>(part.records, at);
    require(record.bytes >= sizeof record && record.bytes % 8 == 0, "a record of no good length");
    require(at + record.bytes <= part.records.size(), "a record longer than its segment");
    RecordedEvent event{thread, part.records.substr(at, record.bytes)};
    if (definitions) {
      define(into, event);
    } else {
      require(record.ticks >= before, "a thread's records out of order");
      before = record.ticks;
      if (event.kind() == format::Kind::kThread) thread = event.as<format::ThreadChange>().thread;
      event.thread = thread;
      into.events.push_back(event);
    }
    at += record.bytes;
  }
}

std::vector<Part> readParts(RecordingFileContents& into, const std::string& bytes) {
  std::vector<Part> parts;
  const uint64_t size = into.header.segmentBytes;
  for (uint64_t k = 0; k < into.header.segments; ++k) {
    const uint64_t at = format::kHeaderBytes + k * size;
    const auto header = take<format::Segment>(bytes, at);
    require(header.magic == format::kSegmentMagic, "a segment without its mark");
    require(header.kind == 1 || header.kind == 2, "a segment of no kind");
    require(header.committed <= size - sizeof header, "a segment fuller than it is long");
    require(at + size <= bytes.size(), "a segment beyond the end");
    if ((header.generation & 1) != 0) continue;
    parts.push_back({header, bytes.substr(at + sizeof header, header.committed)});
    ++(header.kind == 1 ? into.definitionSegments : into.eventSegments);
  }
  stretto::sortStably(parts, [](const Part& a, const Part& b) {
    return std::tuple(a.header.kind, a.header.thread, a.header.sequence) <
           std::tuple(b.header.kind, b.header.thread, b.header.sequence);
  });
  return parts;
}

}  // namespace

void RecordedEvent::throwShort() {
  throw std::runtime_error("recording: a record shorter than its fields");
}

std::vector<RecordedEvent> RecordingFileContents::of(format::Kind kind, int type) const {
  std::vector<RecordedEvent> found;
  for (const RecordedEvent& event : events) {
    if (event.kind() == kind && (type < 0 || event.record().type == type)) found.push_back(event);
  }
  return found;
}

RecordingFileContents readRecording(const std::string& path) {
  RecordingFileContents contents;
  contents.path = path;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  contents.fileBytes = bytes.size();
  contents.header = take<format::Header>(bytes, 0);
  require(memcmp(contents.header.magic, format::kMagic, sizeof format::kMagic) == 0, "not one");
  require(contents.header.version == format::kVersion, "another version");
  for (const Part& part : readParts(contents, bytes)) {
    readRecords(contents, part);
  }
  return contents;
}

std::vector<std::string> listRecordings(const std::string& directory) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".rec") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace stretto::testing
