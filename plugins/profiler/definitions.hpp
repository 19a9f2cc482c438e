// What events refer to by number (strings, contexts, threads) and the clock's anchors, as records in segments
// of their own. Every call takes a lock; threads that record come here once for each new thing and remember
// the number. Used by the recorder and its threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "profiler/recording_file.hpp"

namespace stretto::profiler {

// What init said of a communicator, or what an event of v1 to v3 let slip; -1 where nobody did.
struct ContextFacts {
  const char* name = nullptr;
  uint64_t communicator = format::kNone64;
  int32_t rank = -1;
  int32_t ranks = -1;
  int32_t nodes = -1;
  int abi = 0;
};

class Definitions {
 public:
  // `file` outlives this.
  explicit Definitions(RecordingFile& file) : file_(file) {}

  struct Interned {
    const char* text;  // lives as long as this
    uint32_t number;   // 0: not recorded
  };
  // The same text has the same number; of very long ones the beginning counts.
  Interned string(const char* text);
  void context(uint32_t number, const ContextFacts& facts);
  void thread(uint32_t number, uint32_t tid, const char* name);
  void fork(uint32_t parentPid);
  // Our number for a context of another process: `tag` and `foreignNumber` are what its handle says.
  void foreignContext(uint32_t number, uint32_t tag, uint32_t foreignNumber);
  // Of the operations of this context every n-th is recorded.
  void sample(uint32_t context, uint64_t every);
  // Ties ticks to the host's clocks, unless that was done less than `olderThanNs` ago.
  void anchor(uint64_t olderThanNs);

 private:
  // Holds mutex_.
  template <typename T>
  void append(format::Kind kind, T record, const char* text = nullptr, size_t length = 0);

  RecordingFile& file_;
  std::mutex mutex_;
  std::unordered_map<std::string, uint32_t> strings_;
  uint32_t defined_ = 0;
  format::Segment* segment_ = nullptr;
  uint64_t used_ = 0;
  uint64_t sequence_ = 0;
  uint64_t lastAnchor_ = 0;  // monotonic ns, 0 before the first
};

}  // namespace stretto::profiler
