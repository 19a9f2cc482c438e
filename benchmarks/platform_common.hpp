// What the two platform_drivers share (Linux here, Windows in windows/): timing of the best of some
// stretches, threads that hand a turn to each other, locks, moves of memory, and the list of cases, which is
// measured and printed the same way.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace stretto::bench {

// Each system's own: the cores that this thread may run on, and one that it is to run on alone.
std::vector<int> allowedCores();
void pinTo(int core);

using Clock = std::chrono::steady_clock;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastSeconds = 0.0002;

inline double since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

template <class T>
void keep(T const& value) {
  asm volatile("" : : "g"(value) : "memory");
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Nanoseconds of one call: the best of five stretches, each of as many calls as take a fifth of a
// millisecond, so that a stretch that the scheduler interrupted does not count.
template <class F>
double each(F call) {
  double best = kNone;
  size_t calls = 1;
  for (int stretches = 0; stretches < 5;) {
    const auto began = Clock::now();
    for (size_t i = 0; i < calls; ++i) call();
    const double seconds = since(began);
    if (seconds < kLeastSeconds && stretches == 0) {
      calls *= 4;
      continue;
    }
    best = std::fmin(best, seconds / static_cast<double>(calls) * 1e9);
    ++stretches;
  }
  return best;
}

inline double startThread() {
  return each([] { std::thread([] {}).join(); }) / 1000;
}

inline double sleepFor(int microseconds) {
  const auto began = Clock::now();
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  return since(began) * 1e6;
}

// ---- Locks, uncontended

inline double spinLock() {
  static std::atomic<bool> taken{false};
  return each([] {
    while (taken.exchange(true, std::memory_order_acquire)) relax();
    taken.store(false, std::memory_order_release);
  });
}

inline double standardMutex() {
  static std::mutex mutex;
  return each([] { const std::lock_guard<std::mutex> held(mutex); });
}

inline std::atomic<uint64_t> word{0};

inline double compareAndSwap() {
  return each([] {
    uint64_t expected = word.load(std::memory_order_relaxed);
    keep(word.compare_exchange_strong(expected, expected + 1));
  });
}

// ---- Wake-ups: microseconds one way, between a thread on the first core and one on another

// Two ends that take turns. give(side) hands the turn to the other side; take(side) waits for it.
// Microseconds one way, of the best stretch of `rounds`; as many stretches as a few milliseconds hold, so
// that a core that another program sits on does not take seconds.
template <class Ends>
double pingPong(Ends& ends, int core, int rounds) {
  constexpr double kSeconds = 0.05;
  constexpr int kMostStretches = 200;
  const std::vector<int> cores = allowedCores();
  std::atomic<bool> over{false};
  std::thread other([&] {
    pinTo(core);
    while (true) {
      ends.take(1);
      if (over) return;
      ends.give(1);
    }
  });
  double best = kNone;
  const auto ask = [&] {
    pinTo(cores.front());
    const auto start = Clock::now();
    for (int stretch = 0; stretch < kMostStretches && (stretch == 0 || since(start) < kSeconds); ++stretch) {
      const auto began = Clock::now();
      for (int i = 0; i < rounds; ++i) {
        ends.give(0);
        ends.take(0);
      }
      best = std::fmin(best, since(began));
    }
  };
  const auto end = [&] {
    over = true;
    ends.give(0);
    other.join();
  };
  try {
    std::thread(ask).join();
  } catch (...) {
    end();
    throw;  // RLIMIT_NPROC
  }
  end();
  return best / (2.0 * rounds) * 1e6;
}

struct alignas(64) Line {
  std::atomic<uint32_t> turn{0};
};

struct SpinEnds {
  Line lines[2];
  uint32_t seen[2] = {0, 0};
  void give(int side) { lines[1 - side].turn.fetch_add(1, std::memory_order_release); }
  void take(int side) {
    ++seen[side];
    while (lines[side].turn.load(std::memory_order_acquire) != seen[side]) relax();
  }
};

struct ConditionEnds {
  std::mutex mutex;
  std::condition_variable changed;
  int turns[2] = {0, 0};
  void give(int side) {
    const std::lock_guard<std::mutex> held(mutex);
    ++turns[1 - side];
    changed.notify_all();
  }
  void take(int side) {
    std::unique_lock<std::mutex> held(mutex);
    changed.wait(held, [&] { return turns[side] > 0; });
    --turns[side];
  }
};

// ---- Memory

// What memory is measured with: of `bytes`, half for the buffers that are kept and half for those of the
// threads of copyOnAllCores.
struct Sizes {
  size_t large, threads;
  explicit Sizes(size_t bytes)
      : large(std::clamp(std::bit_floor(bytes / 8), size_t{1} << 20, size_t{32} << 20)),
        threads(std::clamp<size_t>(bytes / 2 / large, 1, 16)) {}
};

inline void plainCopy(std::byte* to, const std::byte* from, size_t bytes) {
  memcpy(to, from, bytes);
  keep(to);
}

inline void sumUp(std::byte*, const std::byte* from, size_t bytes) {
  uint64_t sum = 0;
  const auto* words = reinterpret_cast<const uint64_t*>(from);
  for (size_t i = 0; i < bytes / sizeof *words; ++i) sum += words[i];
  keep(sum);
}

inline void fill(std::byte* to, const std::byte*, size_t bytes) {
  memset(to, 3, bytes);
  keep(to);
}

// ---- The list

struct Case {
  std::string probe, name, unit;
  std::function<double()> once;
  std::vector<double> values;
};

using Cases = std::vector<Case>;

// A thread that RLIMIT_NPROC refuses or memory that is not there costs this one value.
inline double measure(const Case& one) {
  try {
    return one.once();
  } catch (const std::exception&) {
    return kNone;
  }
}

inline void print(const Case& one) {
  printf(R"({"probe":"%s","case":"%s","unit":"%s","values":[)", one.probe.c_str(), one.name.c_str(),
         one.unit.c_str());
  for (size_t i = 0; i < one.values.size(); ++i) {
    printf(i == 0 ? "" : ",");
    if (std::isnan(one.values[i])) {
      printf("null");
    } else {
      printf("%.6g", one.values[i]);
    }
  }
  printf("]}\n");
}

// --rounds N --seconds S --bytes B, which nobody writes by hand. False if it is anything else.
inline bool parsePlatformCommand(int argc, char** argv) {
  return argc == 7 && std::string(argv[1]) == "--rounds" && std::string(argv[3]) == "--seconds" &&
         std::string(argv[5]) == "--bytes" && atoi(argv[2]) >= 1;
}

// What such a command line asks for.
inline void measureAll(Cases& all, char** argv) {
  const auto began = Clock::now();
  for (int round = 0; round < atoi(argv[2]) && (round == 0 || since(began) < atof(argv[4])); ++round) {
    for (Case& one : all) one.values.push_back(measure(one));
  }
  for (const Case& one : all) print(one);
}

}  // namespace stretto::bench
