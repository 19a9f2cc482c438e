#include "profiler/recording_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/hash.hpp"
#include "platform/clock.hpp"
#include "platform/identity.hpp"
#include "profiler/steady_ticks.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace stretto::profiler {
namespace {

constexpr int kNames = 64;  // tags that are tried until a file name is free

// Names this process among those of a job, in 16 bits of every id.
uint16_t makeTag(const ProcessIdentity& identity) {
  Hash hash;
  hash.add(identity.hostname, sizeof identity.hostname);
  hash.add(identity.bootId, sizeof identity.bootId);
  hash.add(&identity.pid, sizeof identity.pid);
  hash.add(&identity.startTime, sizeof identity.startTime);
  return static_cast<uint16_t>(hash.value() >> 48);
}

// What the process calls itself, as far as there is room; arguments are separated by spaces.
void readProgram(char* text, size_t size) {
  const int descriptor = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  const ssize_t got = ::read(descriptor, text, size);
  ::close(descriptor);
  for (ssize_t i = 0; i + 1 < got; ++i) {
    if (text[i] == 0) text[i] = ' ';
  }
}

// A host's name as part of a file's name.
std::string fileSafe(const char* host) {
  std::string safe = *host != 0 ? host : "host";
  for (char& c : safe) {
    const bool good =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!good) c = '-';
  }
  return safe;
}

// How large the kernel lets a file of this process become. What goes beyond is answered with a signal, so it
// is asked for first.
uint64_t largestFile() {
  rlimit allowed{};
  const bool limited = getrlimit(RLIMIT_FSIZE, &allowed) == 0 && allowed.rlim_cur != RLIM_INFINITY;
  return limited ? allowed.rlim_cur : UINT64_MAX;
}

ProcessIdentity identityOrLess() {
  auto identity = currentIdentity();
  if (identity.ok()) return identity.value();
  ProcessIdentity less;
  gethostname(less.hostname, sizeof less.hostname - 1);
  less.pid = static_cast<uint32_t>(getpid());
  return less;
}

}  // namespace

RecordingFile::~RecordingFile() {
  if (base_ != nullptr) munmap(base_, mapped_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status RecordingFile::create(const Settings& settings) {
  segmentBytes_ = settings.segmentBytes;
  if (largestFile() < format::kHeaderBytes + segmentBytes_) {
    return fail(Code::kSystem, "cannot record into %s: the limit on file sizes (ulimit -f) leaves no room",
                settings.directory.c_str());
  }
  STRETTO_TRY(open(settings));
  Status status = map(settings.limit);
  if (status.ok()) {
    const int error = posix_fallocate(descriptor_, 0, format::kHeaderBytes);
    if (error != 0) {
      errno = error;
      status = failErrno("cannot write %s", path_.c_str());
    }
  }
  if (!status.ok()) {
    unlink(path_.c_str());
    if (base_ != nullptr) munmap(base_, mapped_);
    base_ = nullptr;
    return status;
  }
  fillHeader(settings);
  return kOkStatus;
}

Status RecordingFile::open(const Settings& settings) {
  const ProcessIdentity identity = identityOrLess();
  if (::mkdir(settings.directory.c_str(), 0777) != 0 && errno != EEXIST) {
    return failErrno("cannot make the directory %s", settings.directory.c_str());
  }
  const std::string start =
      settings.directory + "/" + fileSafe(identity.hostname) + "." + std::to_string(identity.pid) + ".";
  tag_ = makeTag(identity);
  for (int attempt = 0; attempt < kNames; ++attempt, ++tag_) {
    path_ = start + std::to_string(tag_) + ".rec";
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor_ >= 0) return kOkStatus;
    if (errno != EEXIST) return failErrno("cannot make the file %s", path_.c_str());
  }
  return fail(Code::kSystem, "cannot make a file in %s: every name that was tried is taken",
              settings.directory.c_str());
}

// Address space only: pages come with grow(). Where a process may not have so much, it records less.
Status RecordingFile::map(uint64_t limit) {
  const uint64_t least = format::kHeaderBytes + segmentBytes_;
  for (uint64_t size = std::max(limit, least);; size = std::max(size / 2, least)) {
    mapped_ = format::kHeaderBytes + (size - format::kHeaderBytes) / segmentBytes_ * segmentBytes_;
    void* address =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
    if (address != MAP_FAILED) {
      base_ = static_cast<char*>(address);
      madvise(base_, mapped_, MADV_DONTDUMP);
      return kOkStatus;
    }
    if (size == least) return failErrno("cannot map %s", path_.c_str());
  }
}

namespace {

void setWindow(format::Header& h, const Settings& settings) {
  const auto nanoseconds = [](double seconds) { return static_cast<uint64_t>(seconds * 1e9); };
  if (settings.onDemand) return;  // all are 0: a window that is over
  const uint64_t now = platform::monotonicNanoseconds();
  if (settings.afterSeconds > 0) h.windowFrom = now + nanoseconds(settings.afterSeconds);
  h.windowEach = nanoseconds(settings.eachSeconds);
  // Processes start at different moments; multiples of the period are the same for all.
  if (h.windowEach > 0) {
    h.windowFrom = (std::max(h.windowFrom, now) + h.windowEach - 1) / h.windowEach * h.windowEach;
  }
  h.windowTo = ~uint64_t{0};
  if (settings.forSeconds > 0) h.windowTo = std::max(h.windowFrom, now) + nanoseconds(settings.forSeconds);
}

}  // namespace

void RecordingFile::fillHeader(const Settings& settings) {
  const ProcessIdentity identity = identityOrLess();
  format::Header& h = *header();
  h.headerBytes = format::kHeaderBytes;
  h.segmentBytes = segmentBytes_;
  h.mode = static_cast<uint32_t>(settings.mode);
  h.processStart = identity.startTime;
  h.pid = identity.pid;
  h.tag = tag_;
  h.clock = static_cast<uint8_t>(SteadyTicks::fromCounter() ? format::Clock::kTimeStampCounter
                                                            : format::Clock::kMonotonic);
  memcpy(h.boot, identity.bootId, sizeof h.boot);
  h.mask = settings.mask;
  setWindow(h, settings);
  memcpy(h.host, identity.hostname,
         std::min(sizeof h.host, strnlen(identity.hostname, sizeof identity.hostname)));
  readProgram(h.program, sizeof h.program);
  h.version = format::kVersion;
  memcpy(h.magic, format::kMagic, sizeof h.magic);
}

format::Segment* RecordingFile::segment(uint64_t index) const {
  return reinterpret_cast<format::Segment*>(base_ + format::kHeaderBytes + index * segmentBytes_);
}

void RecordingFile::giveUp(const char* reason) {
  if (ended_.exchange(true)) return;
  snprintf(header()->error, sizeof header()->error, "%s", reason);
}

// Holds growing_. The kernel is asked for the room before anybody touches it.
bool RecordingFile::grow(uint32_t segments) {
  if (ended_.load(std::memory_order_relaxed)) return false;
  const uint64_t available = available_.load(std::memory_order_relaxed);
  const uint64_t most = (mapped_ - format::kHeaderBytes) / segmentBytes_;
  const uint64_t largest = std::max<uint64_t>(largestFile(), format::kHeaderBytes);
  const uint64_t wanted =
      std::min({available + segments, most, (largest - format::kHeaderBytes) / segmentBytes_});
  if (wanted <= available) {
    giveUp(available < most ? "the limit on file sizes (ulimit -f) is reached"
                            : "STRETTO_TRACE_LIMIT is reached");
    return false;
  }
  const off_t offset = static_cast<off_t>(format::kHeaderBytes + available * segmentBytes_);
  const auto bytes = static_cast<off_t>((wanted - available) * segmentBytes_);
  const int error = posix_fallocate(descriptor_, offset, bytes);
  if (error == EINTR) return true;
  if (error != 0 && segments > 1) return grow(1);
  if (error != 0) {
    giveUp(error == ENOSPC ? "the disk is full" : strerror(error));
    return false;
  }
  available_.store(wanted, std::memory_order_release);
  ready_.fetch_add(static_cast<uint32_t>(wanted - available), std::memory_order_release);
  return true;
}

bool RecordingFile::prepare() {
  if (base_ == nullptr) return false;
  std::lock_guard lock(growing_);
  if (!needsPreparing()) return true;
  const uint64_t from = available_.load(std::memory_order_relaxed);
  if (!grow(kReady)) return false;
  const uint64_t to = available_.load(std::memory_order_relaxed);
  // Faults are taken here and not by the threads that record; kernels before 5.14 say no, and nothing is
  // lost.
  madvise(segment(from), (to - from) * segmentBytes_, MADV_POPULATE_WRITE);
  return true;
}

format::Segment* RecordingFile::take(format::SegmentKind kind, uint32_t thread, uint64_t sequence,
                                     uint64_t ticks, uint64_t dropped) {
  if (base_ == nullptr) return nullptr;
  while (!ended_.load(std::memory_order_relaxed) || ready_.load(std::memory_order_relaxed) != 0) {
    {
      std::lock_guard lock(mutex_);
      if (taken_ < available_.load(std::memory_order_acquire)) {
        format::Segment* s = segment(taken_++);
        ready_.fetch_sub(1, std::memory_order_relaxed);
        s->magic = format::kSegmentMagic;
        s->kind = static_cast<uint32_t>(kind);
        s->sequence = sequence;
        s->firstTicks = ticks;
        s->dropped = dropped;
        s->thread = thread;
        std::atomic_ref(header()->segments).store(taken_, std::memory_order_release);
        return s;
      }
    }
    std::lock_guard lock(growing_);
    if (ready_.load(std::memory_order_acquire) == 0 && !grow(1)) return nullptr;
  }
  return nullptr;
}

void RecordingFile::seal() {
  if (base_ == nullptr) return;
  std::lock_guard growing(growing_);
  std::lock_guard lock(mutex_);
  ended_.store(true);
  available_.store(taken_, std::memory_order_release);
  ready_.store(0, std::memory_order_relaxed);
  // Best effort: what is left over is room, not data.
  [[maybe_unused]] const int cut =
      ftruncate(descriptor_, static_cast<off_t>(format::kHeaderBytes + taken_ * segmentBytes_));
  std::atomic_ref(header()->state).store(1, std::memory_order_release);
}

RecordingFile::Window RecordingFile::window() const {
  const uint64_t now = platform::monotonicNanoseconds();
  const uint64_t to = std::atomic_ref(header()->windowTo).load(std::memory_order_acquire);
  const uint64_t from = std::atomic_ref(header()->windowFrom).load(std::memory_order_relaxed);
  const uint64_t each = std::atomic_ref(header()->windowEach).load(std::memory_order_relaxed);
  if (now < from) return {false, from - now};
  if (each == 0 || to <= from) return {now < to, now < to ? to - now : ~uint64_t{0}};
  const uint64_t since = (now - from) % each;
  return since < to - from ? Window{true, to - from - since} : Window{false, each - since};
}

}  // namespace stretto::profiler
