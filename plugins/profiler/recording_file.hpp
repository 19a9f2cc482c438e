// The file of one process's recording: created, grown, handed out segment by segment, closed. It is mapped
// once, as large as it may become, and only touched where the disk has promised the room, so that a full disk
// is an answer and not a signal. Growing is slow and meant for the recorder's own thread; taking a segment
// that is ready takes a lock and no system call but a wake-up. Used by the recorder alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/status.hpp"
#include "profiler/format.hpp"
#include "profiler/settings.hpp"

namespace stretto::profiler {

class RecordingFile {
 public:
  RecordingFile() = default;
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;
  ~RecordingFile();

  // Makes the file; kSystem and a text in lastError() when that is not possible.
  Status create(const Settings& settings);
  bool isOpen() const { return base_ != nullptr; }
  const std::string& path() const { return path_; }
  uint16_t tag() const { return tag_; }
  uint32_t segmentBytes() const { return segmentBytes_; }
  // Whether events are recorded now, and for how many nanoseconds that holds as far as is known now.
  struct Window {
    bool open;
    uint64_t nanoseconds;
  };
  Window window() const;
  // Null when there is no file.
  format::Header* header() const { return reinterpret_cast<format::Header*>(base_); }

  // A new segment with a complete header of that kind; null when there is no more room, which header()->error
  // then says.
  format::Segment* take(format::SegmentKind kind, uint32_t thread, uint64_t sequence, uint64_t ticks,
                        uint64_t dropped);
  // Gets segments ready ahead of need. Returns false when there is nothing more to get.
  bool prepare();
  bool needsPreparing() const { return ready_.load(std::memory_order_relaxed) < kReady; }

  // Ends growth for good, gives unused room back and marks the file as closed. Mappings stay: threads may be
  // writing.
  void seal();

 private:
  static constexpr uint32_t kReady = 16;

  Status open(const Settings& settings);
  Status map(uint64_t limit);
  void fillHeader(const Settings& settings);
  bool grow(uint32_t segments);
  void giveUp(const char* reason);
  format::Segment* segment(uint64_t index) const;

  std::mutex growing_;  // held while the file grows; before mutex_
  std::mutex mutex_;    // held while a segment is taken
  std::string path_;
  std::string name_;
  int descriptor_ = -1;
  char* base_ = nullptr;
  uint64_t mapped_ = 0;
  uint32_t segmentBytes_ = 0;
  uint16_t tag_ = 0;
  uint64_t taken_ = 0;                  // under mutex_
  std::atomic<uint64_t> available_{0};  // grows under growing_
  std::atomic<uint32_t> ready_{0};      // available_ - taken_
  std::atomic<bool> ended_{false};      // no more growth
};

}  // namespace stretto::profiler
