// What a model is made of: the library's verbs (src/primitives/backend.hpp) as steps of straight-line
// programs, one program per actor. An actor is one coop of one rank. Tests in this folder build programs from
// these steps (slots.hpp, links.hpp) and hand them to the explorer, which runs them in every order there is.
//
// The library's verb, its step, and what the model lets happen:
// - put: kPut per word. The word is issued; it lands in the peer's window at any later time, in any order
//   with other words (same word: in program order).
// - signal (release): kSignal. Issued; lands only after everything that this actor issued before to that peer
//   has landed and every earlier load has been performed. The counter grows to `value`.
// - wait (acquire): kWait. Blocks until the counter >= value; later steps stay behind.
// - putLines: kPutLine per line. The line lands whole (payload and epoch together), at any time, in any order
//   with everything else: no signal, no fence.
// - readLines: kReadLine per line. Blocks until the line's own flag says ready, and takes the payload by the
//   same load.
// - get, loads of reduce: kRead per word. Takes what the cell holds now, without asking.
// - (sentinel variant): kClear. A store of "nothing" into one's own window; lands like a put.
// - (end of a launch): kFence, kJoin. All of this actor's stores have landed; all coops of this rank have
//   come this far.
//
// A blocked wait polls in the library; here it is simply not enabled, so a spin is not a step and every run
// of a model is finite. A cell holds what a cell can hold without tearing: one line, or one word.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stretto::model {

// What a payload says about itself: who sent it, in which epoch (for links: which message), and its place
// there.
struct Tag {
  int source = 0;
  int epoch = 0;
  int sequence = 0;
  friend bool operator==(const Tag&, const Tag&) = default;
};

enum class Verb : uint8_t { kPut, kPutLine, kClear, kSignal, kWait, kRead, kReadLine, kFence, kJoin };

// How readLines decides that a line is ready.
enum class Ready : uint8_t {
  kAtLeast,  // flag >= value: the rule of the library
  kDiffers,  // flag != value, value being what the previous use of the slot left: wrong, a negative control
  kNotSentinel,  // anything but the sentinel, which is what kClear leaves behind
};

struct Step {
  Verb verb{};
  int rank = 0;  // whose window: the peer's for put, putLine, signal and get; one's own for the others
  int cell = 0;  // the line or word of that window; for signal and wait the counter
  int value =
      0;  // signal: what the counter grows to; wait: the least count; readLine: what its rule compares with
  Tag tag{};  // the payload written, or the one that a reader must find
  Ready ready = Ready::kAtLeast;
  // Signal: it is a release. Read: the load has been performed when the verb returns. Made false only by
  // negative controls, and by tests that ask whether such a fault would matter.
  bool ordered = true;
};

struct Actor {
  int rank = 0;
  int coop = 0;
  std::vector<Step> program;
};

struct Model {
  int ranks = 0;
  int cells = 0;     // of each rank's window
  int counters = 0;  // of each rank's window
  std::string unit = "epoch";
  std::vector<Actor> actors;
};

inline bool isWrite(Verb verb) {
  return verb == Verb::kPut || verb == Verb::kPutLine || verb == Verb::kClear;
}
inline bool isRead(Verb verb) {
  return verb == Verb::kRead || verb == Verb::kReadLine;
}

// Steps whose effect comes later than their issue: every store, and a load that is allowed to linger.
inline bool isDeferred(const Step& step) {
  return isWrite(step.verb) || step.verb == Verb::kSignal || (step.verb == Verb::kRead && !step.ordered);
}

}  // namespace stretto::model
