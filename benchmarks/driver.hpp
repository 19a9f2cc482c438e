// The common part of every benchmark driver: one rank that sleeps on its own FIFO until the orchestrator
// (python/stretto/bench) writes a command, carries it out with one implementation, and writes one JSON line
// back. A new peer is one .cpp file with a class that has what `Implementation` asks for, and a main that
// calls serve() once per rank.
//
// The line protocol, in words of `verb key=value ...`; every reply has "ok", and "error" or "unsupported"
// when that is false:
//   (on start)   -> {"rank", "pid", "implementation", "version"}
//   prepare collective= type= op= count= root= in_place= check= [algorithm= protocol=]
//                -> fills the inputs, runs once, checks: {"wrong", "how": ...}
//   measure warmup= batch= batches= samples=
//                -> `batches` means over `batch` calls back to back, then `samples` single calls, all in
//                   microseconds: {"batch_us": [...], "wrong"}
//   stamps count= -> when each of `count` calls, back to back, began and ended on this rank: nanoseconds of
//   the
//                   clock that all processes of a host share: {"wrong", "began": [...], "ended": [...]}
//   chain length= work= jitter= warmup= batches= late_rank= late_at= late= inside=
//                -> `batches` chains of `length` all-reduces, each of which reduces the result of the one
//                before. After
//                   each the rank works for `work` ns and up to `jitter` more. In every chain `late_rank` is
//                   late by `late` ns at operation `late_at`: before it, or inside. The time of whole chains,
//                   and when the operations of the last began and ended, as in `stamps`:
//                   {"batch_us": [...], "wrong", "began": [...], "ended": [...]}
//   launch calls= batches=
//                -> what a call costs the rank that makes it, in nanoseconds of one call, for each batch of
//                   `calls`: {"empty": [...], "call": [...], "group": [...], "stream": [...]}; launch.hpp
//                   says what these are
//   finish       -> fresh inputs, one more checked run, and the quantiles of all single calls since prepare:
//                   {"wrong", "samples", "p50", "p99", "max"}
//   quit         -> {} and the end; so does the end of the FIFO, when the orchestrator is gone.
// Each command may say seconds=: when it has not ended by then the process dies by SIGALRM.
//
// Why it measures so: batches keep the clock (about 25 ns a look) out of small sizes; single calls are what
// quantiles are made of; an idle rank sleeps in read(), because a rank that spun would be measured as part of
// its rivals.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "chain.hpp"
#include "pattern.hpp"
#include "request.hpp"

namespace stretto::bench {

// What the orchestrator passes to every driver.
struct Arguments {
  std::string folder;  // where in.RANK and out.RANK are
  int rank = 0;
  int ranks = 1;
  bool threads = false;        // the ranks are threads of one process
  bool specialMemory = false;  // the implementation's own allocator
  bool pin = false;            // rank r on the r-th allowed core
  size_t maxBytes = 0;         // of each of the two buffers
};

inline bool parseArguments(int argc, char** argv, Arguments* a) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--threads") {
      a->threads = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::string value = argv[++i];
    if (name == "--folder") a->folder = value;
    if (name == "--rank") a->rank = atoi(value.c_str());
    if (name == "--ranks") a->ranks = atoi(value.c_str());
    if (name == "--max-bytes") a->maxBytes = strtoull(value.c_str(), nullptr, 10);
    if (name == "--buffers") a->specialMemory = value == "alloc";
    if (name == "--pin") a->pin = value == "core";
  }
  return !a->folder.empty() && a->ranks > 0;
}

// One rank's handle on the library under measurement. run() and barrier() return false on an error, which
// error() then names. refuse() must give the same answer on every rank: it is what keeps ranks from waiting
// for one that stepped aside.
template <class T>
concept Implementation = requires(T& t, const Request& request, const Ends& ends, void* memory,
                                  size_t bytes) {
  { t.name() } -> std::convertible_to<std::string>;
  { t.version() } -> std::convertible_to<std::string>;
  { t.allocate(bytes) } -> std::same_as<void*>;
  { t.refuse(request) } -> std::convertible_to<std::string>;
  { t.configure(request) } -> std::same_as<bool>;
  { t.how(request) } -> std::convertible_to<std::string>;  // a JSON value: which algorithm runs
  { t.endsInPlace(request, static_cast<std::byte*>(memory)) } -> std::same_as<Ends>;
  { t.run(request, ends) } -> std::same_as<bool>;
  { t.barrier() } -> std::same_as<bool>;
  { t.error() } -> std::convertible_to<std::string>;
};

// An implementation that can be made late between what it tells its peers and what it reads of theirs, in its
// next call.
template <class T>
concept HoldsInside = requires(T& t, size_t nanoseconds) {
  t.holdInside(nanoseconds);
};

// One way to call a library, and nanoseconds of one call, for each batch.
struct CallCost {
  std::string way;
  std::vector<double> nanoseconds;
};

// An implementation that says what its calls cost the rank that makes them; nothing on an error.
template <class T>
concept CostsCalls = requires(T& t, size_t calls, size_t batches) {
  { t.callCosts(calls, batches) } -> std::same_as<std::vector<CallCost>>;
};

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

inline std::string decimal(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.4f", value);
  return text;
}

// Memory of the ordinary kind: page-aligned, touched by the caller's first fill.
inline void* allocatePlain(size_t bytes) {
  void* memory = nullptr;
  return posix_memalign(&memory, 4096, bytes) == 0 ? memory : nullptr;
}

// More ranks than cores run where the scheduler likes; nothing is gained by pinning them.
inline void pinToCore(int rank, int ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || seen++ != rank) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

inline void dieWithParent() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// The last resort against a rank that nobody is left to kill. Counts, because the ranks may be threads.
class Alarm {
 public:
  explicit Alarm(size_t seconds) {
    running() += 1;
    if (seconds > 0) alarm(static_cast<unsigned>(seconds));
  }
  ~Alarm() {
    if (--running() == 0) alarm(0);
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  static std::atomic<int>& running() {
    static std::atomic<int> count{0};
    return count;
  }
};

// The rank's two FIFOs. The orchestrator holds the other ends open from before the rank starts.
class Channel {
 public:
  Channel(const std::string& folder, int rank) {
    const std::string tail = "." + std::to_string(rank);
    in_ = open((folder + "/in" + tail).c_str(), O_RDONLY | O_CLOEXEC);
    out_ = open((folder + "/out" + tail).c_str(), O_WRONLY | O_CLOEXEC);
  }
  ~Channel() {
    close(in_);
    close(out_);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  bool isOpen() const { return in_ >= 0 && out_ >= 0; }

  // Sleeps until a line is there; false when the orchestrator is gone.
  bool read(std::string* line) {
    for (;;) {
      const size_t end = pending_.find('\n');
      if (end != std::string::npos) {
        *line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        return true;
      }
      char bytes[1024];
      const ssize_t got = ::read(in_, bytes, sizeof bytes);
      if (got <= 0) return false;
      pending_.append(bytes, static_cast<size_t>(got));
    }
  }

  bool write(std::string line) {
    line += '\n';
    for (size_t done = 0; done < line.size();) {
      const ssize_t put = ::write(out_, line.data() + done, line.size() - done);
      if (put <= 0) return false;
      done += static_cast<size_t>(put);
    }
    return true;
  }

 private:
  int in_ = -1;
  int out_ = -1;
  std::string pending_;
};

// One rank's state between commands: its buffers, the prepared request and the single calls timed so far.
template <Implementation T>
class Session {
 public:
  Session(T& implementation, const Arguments& arguments)
      : implementation_(implementation), arguments_(arguments) {
    send_ = allocate();
    receive_ = allocate();
  }
  bool hasMemory() const { return send_ != nullptr && receive_ != nullptr; }

  std::string answer(const Command& command) {
    if (command.verb() == "prepare") return prepare(command);
    if (command.verb() == "measure") return measure(command);
    if (command.verb() == "stamps") return stamps(command.number("count"));
    if (command.verb() == "chain") return chain(parseChain(command));
    if (command.verb() == "launch") return launch(command.number("calls"), command.number("batches"));
    if (command.verb() == "finish") return finish();
    return R"({"ok":true})";
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::byte* allocate() {
    void* memory = arguments_.specialMemory ? implementation_.allocate(arguments_.maxBytes)
                                            : allocatePlain(arguments_.maxBytes);
    if (memory != nullptr) memset(memory, 0, arguments_.maxBytes);
    return static_cast<std::byte*>(memory);
  }

  static std::string refusal(const char* kind, const std::string& why) {
    return std::string(R"({"ok":false,")") + kind + "\":" + quoted(why) + "}";
  }
  std::string failure() { return refusal("error", implementation_.error()); }

  std::string prepare(const Command& command) {
    const std::string mistake = parseRequest(command, arguments_.rank, arguments_.ranks, &request_);
    if (!mistake.empty()) return refusal("error", mistake);
    if (request_.collective == Collective::kSendReceive && arguments_.ranks != 2) {
      return refusal("error", "send_recv is a ping-pong of exactly two ranks");
    }
    if (std::max(sendCount(request_), receiveCount(request_)) * request_.elementBytes() >
        arguments_.maxBytes) {
      return refusal("error", "larger than the buffers that this driver was started with");
    }
    const std::string reason = implementation_.refuse(request_);
    if (!reason.empty()) return refusal("unsupported", reason);
    if (!implementation_.configure(request_)) return failure();
    ends_ = request_.inPlace ? implementation_.endsInPlace(request_, receive_) : Ends{send_, receive_};
    samples_.clear();
    size_t wrong = 0;
    if (!runChecked(&wrong)) return failure();
    return R"({"ok":true,"wrong":)" + std::to_string(wrong) + ",\"how\":" + implementation_.how(request_) +
           "}";
  }

  // Fresh inputs, one call, and how many elements of the result are wrong.
  bool runChecked(size_t* wrong) {
    const Pattern pattern(request_.type, request_.op, request_.ranks);
    spoilResult();
    pattern.fill(ends_.send, sendCount(request_), request_.rank);
    if (!implementation_.run(request_, ends_)) return false;
    *wrong = countWrong();
    return true;
  }

  size_t countWrong() const {
    if (!request_.check) return 0;
    const Pattern pattern(request_.type, request_.op, request_.ranks);
    const auto* at = static_cast<const std::byte*>(ends_.receive);
    size_t wrong = 0;
    for (const Block& block : expectedBlocks(request_)) {
      wrong += pattern.countWrong(at, block);
      at += block.count * request_.elementBytes();
    }
    return wrong;
  }

  // So that a result that was not written cannot pass for one that was.
  void spoilResult() {
    if (request_.check) memset(ends_.receive, 0xa5, receiveCount(request_) * request_.elementBytes());
  }

  std::string measure(const Command& command) {
    // In place, results become inputs: zeros stay zeros, where sums of sums would run out of the type's
    // range.
    if (request_.inPlace)
      memset(receive_, 0, std::max(sendCount(request_), receiveCount(request_)) * request_.elementBytes());
    if (!request_.inPlace) spoilResult();
    for (size_t i = command.number("warmup"); i > 0; --i) {
      if (!implementation_.run(request_, ends_)) return failure();
    }
    std::vector<double> batches;
    if (!timeBatches(command.number("batch"), command.number("batches"), &batches)) return failure();
    if (!timeSingles(command.number("samples"))) return failure();
    const size_t wrong = request_.inPlace ? 0 : countWrong();
    return R"({"ok":true,"wrong":)" + std::to_string(wrong) + ",\"batch_us\":" + list(batches) + "}";
  }

  std::string stamps(size_t count) {
    std::vector<Clock::time_point> began(count), ended(count);
    spoilResult();
    if (!implementation_.barrier()) return failure();
    for (size_t i = 0; i < count; ++i) {
      began[i] = Clock::now();
      if (!implementation_.run(request_, ends_)) return failure();
      ended[i] = Clock::now();
    }
    return R"({"ok":true,"wrong":)" + std::to_string(countWrong()) + ",\"began\":" + nanoseconds(began) +
           ",\"ended\":" + nanoseconds(ended) + "}";
  }

  std::string launch(size_t calls, size_t batches) {
    if constexpr (CostsCalls<T>) {
      const std::vector<CallCost> costs = implementation_.callCosts(calls, batches);
      if (costs.empty()) return failure();
      std::string reply = R"({"ok":true)";
      for (const CallCost& cost : costs) reply += "," + quoted(cost.way) + ":" + list(cost.nanoseconds);
      return reply + "}";
    }
    return refusal("unsupported", "does not say what its calls cost");
  }

  std::string chain(const Chain& chain) {
    if (chain.inside && !HoldsInside<T>)
      return refusal("unsupported", "cannot be made late inside an operation");
    if (request_.collective != Collective::kAllReduce || request_.type != Type::kFloat32 ||
        request_.op != Operator::kSum) {
      return refusal("error", "a chain is of all-reduces of float32 sums");
    }
    std::vector<Clock::time_point> began(chain.length), ended(chain.length);
    std::string times;
    size_t wrong = 0;
    for (size_t turn = 0; turn < chain.warmup + chain.batches; ++turn) {
      Pattern(request_.type, request_.op, request_.ranks).fill(send_, request_.count, request_.rank);
      if (!implementation_.barrier() || !runChain(chain, &began, &ended)) return failure();
      wrong += countWrongOfChain(chain.length);
      if (turn >= chain.warmup)
        times += (times.empty() ? "" : ",") + decimal(microseconds(began[0], chainEnd_));
    }
    return R"({"ok":true,"wrong":)" + std::to_string(wrong) + ",\"batch_us\":[" + times +
           "],\"began\":" + nanoseconds(began) + ",\"ended\":" + nanoseconds(ended) + "}";
  }

  bool runChain(const Chain& chain, std::vector<Clock::time_point>* began,
                std::vector<Clock::time_point>* ended) {
    Ends ends{send_, receive_};
    for (size_t i = 0; i < chain.length; ++i, std::swap(ends.send, ends.receive)) {
      (*began)[i] = Clock::now();
      if (chain.isLate(request_.rank, i)) beLate(chain);
      if (!implementation_.run(request_, ends)) return false;
      (*ended)[i] = Clock::now();
      keepBusy(chain.workOf(request_.rank, i));
    }
    chainEnd_ = Clock::now();
    return true;
  }

  void beLate(const Chain& chain) {
    if constexpr (HoldsInside<T>) {
      if (chain.inside) return implementation_.holdInside(chain.late);
    }
    keepBusy(chain.late);
  }

  // Each all-reduce after the first multiplies by the number of ranks.
  size_t countWrongOfChain(size_t length) const {
    const auto* result = reinterpret_cast<const float*>(length % 2 == 0 ? send_ : receive_);
    std::vector<float> expected(request_.count);
    Pattern(request_.type, request_.op, request_.ranks).fill(expected.data(), request_.count, kReduced);
    const double factor = std::pow(request_.ranks, static_cast<double>(length - 1));
    const double tolerance = std::ldexp(static_cast<double>(length), -23);
    size_t wrong = 0;
    for (size_t i = 0; i < request_.count; ++i) {
      const double want = expected[i] * factor;
      if (!(std::fabs(result[i] - want) <= want * tolerance)) ++wrong;
    }
    return wrong;
  }

  static std::string list(const std::vector<double>& values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ",") + decimal(values[i]);
    return text + "]";
  }

  static std::string nanoseconds(const std::vector<Clock::time_point>& points) {
    std::string list = "[";
    for (const Clock::time_point point : points) {
      const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(point.time_since_epoch());
      list += (list.size() == 1 ? "" : ",") + std::to_string(since.count());
    }
    return list + "]";
  }

  // A ping-pong call is a round trip; what is reported is one way.
  double scale() const { return request_.collective == Collective::kSendReceive ? 0.5 : 1.0; }
  double microseconds(Clock::time_point from, Clock::time_point to) const {
    return std::chrono::duration<double, std::micro>(to - from).count() * scale();
  }

  // The barrier between batches bounds how far a root can run ahead of those it sends to.
  bool timeBatches(size_t batch, size_t batches, std::vector<double>* means) {
    for (size_t b = 0; b < batches; ++b) {
      if (!implementation_.barrier()) return false;
      const auto began = Clock::now();
      for (size_t i = 0; i < batch; ++i) {
        if (!implementation_.run(request_, ends_)) return false;
      }
      means->push_back(microseconds(began, Clock::now()) / static_cast<double>(batch));
      if (batch == 1) samples_.push_back(means->back());
    }
    return true;
  }

  bool timeSingles(size_t count) {
    if (count == 0) return true;
    samples_.reserve(samples_.size() + count);
    if (!implementation_.barrier()) return false;
    auto before = Clock::now();
    for (size_t i = 0; i < count; ++i) {
      if (!implementation_.run(request_, ends_)) return false;
      const auto after = Clock::now();
      samples_.push_back(microseconds(before, after));
      before = after;
    }
    return true;
  }

  double quantile(double q) const {
    if (samples_.empty()) return 0;
    const double last = static_cast<double>(samples_.size() - 1);
    return samples_[static_cast<size_t>(std::ceil(q * last))];
  }

  std::string finish() {
    size_t wrong = 0;
    if (!runChecked(&wrong)) return failure();
    std::sort(samples_.begin(), samples_.end());
    return R"({"ok":true,"wrong":)" + std::to_string(wrong) +
           ",\"samples\":" + std::to_string(samples_.size()) + ",\"p50\":" + decimal(quantile(0.5)) +
           ",\"p99\":" + decimal(quantile(0.99)) + ",\"max\":" + decimal(quantile(1)) + "}";
  }

  T& implementation_;
  const Arguments& arguments_;
  std::byte* send_ = nullptr;  // live as long as the process: the implementation's allocator may not free
  std::byte* receive_ = nullptr;
  Request request_;
  Ends ends_;
  std::vector<double> samples_;
  Clock::time_point chainEnd_;
};

// Answers commands until told to quit, or until the orchestrator is gone. False when nobody hears the answer.
template <class T>
bool obey(Channel& channel, T& session) {
  for (std::string line; channel.read(&line);) {
    const Command command(line);
    const Alarm alarm(command.number("seconds"));
    if (!channel.write(session.answer(command))) return false;
    if (command.verb() == "quit") break;
  }
  return true;
}

// Says that the rank is there, then obeys until told to quit. Returns the process's exit status.
template <Implementation T>
int serve(T& implementation, const Arguments& arguments) {
  Channel channel(arguments.folder, arguments.rank);
  if (!channel.isOpen()) {
    fprintf(stderr, "rank %d: cannot open its FIFOs in %s\n", arguments.rank, arguments.folder.c_str());
    return 1;
  }
  Session<T> session(implementation, arguments);
  if (!session.hasMemory()) {
    fprintf(stderr, "rank %d: no memory for two buffers of %zu bytes: %s\n", arguments.rank,
            arguments.maxBytes, std::string(implementation.error()).c_str());
    return 1;
  }
  channel.write("{\"ok\":true,\"rank\":" + std::to_string(arguments.rank) + ",\"pid\":" +
                std::to_string(getpid()) + ",\"implementation\":" + quoted(implementation.name()) +
                ",\"version\":" + quoted(implementation.version()) + "}");
  return obey(channel, session) ? 0 : 1;
}

}  // namespace stretto::bench
