// One process's recording: its file, its definitions, its threads, its communicators, and a thread of its own
// that gets room ready and ties the clocks together while communicators are open. A forked child starts one
// of its own at its first event. Nothing here is on the way of an event but takeIds and takeSegment, which a
// thread calls once in thousands. The ABI families (plugin_v*.cpp) call init and finalize.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "profiler/definitions.hpp"
#include "profiler/recording_file.hpp"
#include "profiler/settings.hpp"
#include "profiler/thread_writer.hpp"

namespace stretto::profiler {

class Recorder {
 public:
  static constexpr uint64_t kIdsAtOnce = 4096;

  explicit Recorder(Settings settings);
  // Makes the file, if there is a directory for it. To be called once, first; `parentPid` is 0 but in a
  // forked child.
  Status start(uint32_t parentPid);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The library that calls us: the version of NCCL that it says it is, 0 where it cannot be asked; and its
  // own if it is Stretto.
  struct Host {
    uint32_t nccl = 0;
    std::string stretto;
  };
  // A new communicator: returns its handle, never null.
  void* open(const ContextFacts& facts, const Host& host);
  // False for a handle that is not open (twice, foreign, null).
  bool close(void* context);
  // v1 to v3 say what a communicator is in its first operation; this tells the reader. Cheap when already
  // told.
  void learn(uint32_t context, const ContextFacts& facts);

  // The host's word for which types of events it makes: `types` while the window of the recording is open,
  // and `always` (those of a chained plugin) all the time. The word is the host's, one for the process, and
  // stays.
  void setMask(int* word, uint32_t types, uint32_t always);

  // Of the operations of a communicator that is open every n-th is told of.
  void sample(void* context, uint64_t every);

  // The writer of the calling thread, a new one or one that an ended thread left.
  ThreadWriter* attach();
  void detach(ThreadWriter* writer);

  const std::string& path() const { return file_.path(); }
  uint16_t tag() const { return tag_; }
  // Whether there is a file; without one it only passes calls on.
  bool isRecording() const { return file_.isOpen(); }
  const Settings& settings() const { return settings_; }
  format::Mode mode() const { return settings_.mode; }
  uint32_t segmentsPerThread() const { return settings_.segmentsPerThread; }
  uint32_t segmentBytes() const { return file_.segmentBytes(); }
  uint8_t extras() const { return extras_; }
  void setExtras(uint8_t extras) { extras_ = extras; }
  Definitions& definitions() { return definitions_; }

  uint64_t takeIds() { return nextId_.fetch_add(kIdsAtOnce, std::memory_order_relaxed); }
  format::Segment* takeSegment(uint32_t thread, uint64_t sequence, uint64_t now, uint64_t dropped);
  uint32_t foreignContext(uint64_t handle);
  void countDropped() { count(&format::Header::dropped, 1); }
  void countUnmatched() { count(&format::Header::unmatched, 1); }
  void countSelf(uint64_t ticks) {
    count(&format::Header::selfTicks, ticks);
    count(&format::Header::selfSamples, 1);
  }

  // The process ends: last anchor, then the file is closed.
  void shutDown();

 private:
  static constexpr uint32_t kMostContexts = 1 << 20;

  bool isOwn(uint64_t handle) const;
  void startKeeper();
  void stopKeeper();
  void endKeeper();
  void keep();
  void wakeKeeper();
  void followWindow();
  void count(uint64_t format::Header::*counter, uint64_t by);

  Settings settings_;
  RecordingFile file_;
  Definitions definitions_{file_};
  uint16_t tag_ = 0;
  uint8_t extras_ = 0;
  std::atomic<uint64_t> nextId_{1};

  std::mutex mutex_;  // what follows, to the blank line
  uint32_t nextContext_ = 0;
  uint32_t nextThread_ = 0;
  std::unordered_set<uint32_t> open_;
  std::unordered_map<uint64_t, uint32_t> foreign_;
  std::vector<std::unique_ptr<ThreadWriter>> writers_;
  std::vector<ThreadWriter*> ended_;  // writers that no thread owns, in the order of ending

  std::unique_ptr<std::atomic<uint64_t>[]> learned_;  // a bit for each context

  std::mutex maskMutex_;  // what follows, to the blank line
  int* maskWord_ = nullptr;
  uint32_t maskTypes_ = 0;
  uint32_t maskAlways_ = 0;
  bool maskOpen_ = true;

  std::mutex life_;  // held while the keeper is started or stopped; before mutex_
  std::thread keeper_;
  std::mutex keeperMutex_;
  std::condition_variable keeperWakes_;
  bool keeperEnds_ = false;
  bool roomNeeded_ = false;
  bool shutDown_ = false;  // under life_
};

}  // namespace stretto::profiler
