// What norm_driver is asked for, and the ways of a step that it measures for that.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "norm_call.hpp"

namespace stretto::bench {

inline constexpr int kMostHidden = 16384;  // of the norm kernel after an all-reduce (engine_norm.cuh)

struct Setup {
  int ranks = 0;
  bool shared = false;
  bool selfLoop = false;
  int turns = 7;
  int seconds = 60;                  // for a way to be recorded, timed once or verified
  std::string flashinfer, json;      // files
  std::vector<std::string> without;  // names of ways
  Call call = kCalls[0];
  std::vector<int> tokens = {1, 8, 32, 128, 512, 2048};
  std::vector<int> hidden = {4096, 5120, 7168, 8192};

  size_t mostElements() const {
    const auto most = [](const std::vector<int>& of) {
      return static_cast<size_t>(*std::max_element(of.begin(), of.end()));
    };
    return most(tokens) * most(hidden);
  }
};

inline std::vector<int> numbersIn(const char* list) {
  std::vector<int> numbers;
  for (const char* at = list; at != nullptr && *at != 0;) {
    numbers.push_back(std::atoi(at));
    at = std::strchr(at, ',');
    if (at != nullptr) ++at;
  }
  return numbers;
}

inline std::vector<std::string> namesIn(const std::string& list) {
  std::vector<std::string> names;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

// Ways that --without can name. The fused call and its parts are always measured.
inline constexpr const char* kOptional[] = {"sum alone", "own parts",   "one_shot", "chunks+norm",
                                            "two_shot",  "fi one-shot", "fi early", "fi two-shot",
                                            "empty",     "bytes",       "floor"};

inline void checkSetup(const Setup& setup) {
  const auto within = [](const std::vector<int>& of, auto fits) {
    return !of.empty() && std::all_of(of.begin(), of.end(), fits);
  };
  if (!within(setup.hidden,
              [](int hidden) { return hidden > 0 && hidden % 8 == 0 && hidden <= kMostHidden; }))
    throw Failure("--hidden: multiples of 8 up to 16384, as the norm kernel after an all-reduce has them");
  if (!within(setup.tokens, [](int tokens) { return tokens > 0 && tokens <= 1 << 16; }))
    throw Failure("--tokens: 1 to 65536");
  for (const std::string& name : setup.without) {
    if (std::find(std::begin(kOptional), std::end(kOptional), name) == std::end(kOptional))
      throw Failure("--without " + name + ": a way by its name in the table, but for parts and fused");
  }
  if (setup.turns < 1 || setup.seconds < 1) throw Failure("--turns and --seconds: 1 or more");
  if (setup.selfLoop && setup.ranks > 2)
    throw Failure("--self-loop: one rank, or two, whose floor is that of one-shot");
  if (!setup.selfLoop && setup.ranks < 2) throw Failure("--ranks: two or more; one only with --self-loop");
}

inline Setup setupFrom(int count, char** words) {
  Setup setup;
  if (const char* path = std::getenv("STRETTO_BENCH_FLASHINFER"); path != nullptr) setup.flashinfer = path;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const char* const value = i + 1 < count ? words[i + 1] : "";
    if (word == "--shared" || word == "--self-loop") {
      (word == "--shared" ? setup.shared : setup.selfLoop) = true;
      continue;
    }
    ++i;
    if (word == "--ranks") {
      setup.ranks = std::atoi(value);
    } else if (word == "--turns") {
      setup.turns = std::atoi(value);
    } else if (word == "--seconds") {
      setup.seconds = std::atoi(value);
    } else if (word == "--tokens") {
      setup.tokens = numbersIn(value);
    } else if (word == "--hidden") {
      setup.hidden = numbersIn(value);
    } else if (word == "--call") {
      setup.call = callNamed(value);
    } else if (word == "--flashinfer") {
      setup.flashinfer = value;
    } else if (word == "--json") {
      setup.json = value;
    } else if (word == "--without") {
      setup.without = namesIn(value);
    } else {
      throw Failure(
          "norm_driver [--ranks N] [--shared] [--self-loop] [--call NAME] [--tokens LIST] [--hidden LIST] "
          "[--flashinfer LIBRARY] [--without NAMES] [--turns N] [--seconds N] [--json FILE]");
    }
  }
  if (setup.ranks == 0) setup.ranks = setup.selfLoop ? 1 : 2;
  setup.shared = setup.shared || setup.selfLoop;
  checkSetup(setup);
  return setup;
}

// How a step runs: by the fused call, forced to a form or not; by parts, of which the norm is a usual kernel
// or that of our own for one rank; the all-reduce alone; by FlashInfer's fused kernel; or what bounds a step
// from below: an empty kernel, one that moves the bytes of a step, and this one with an empty one after it.
enum class What { kFused, kParts, kOwnParts, kSum, kPeer, kEmpty, kMove, kFloor };
struct Way {
  const char* name;
  What what = What::kFused;
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  bool oneShot = false, early = false;  // of a peer

  bool isOurs() const { return what == What::kFused || what == What::kOwnParts; }
  bool isBound() const { return what == What::kEmpty || what == What::kMove || what == What::kFloor; }
};

inline std::vector<Way> waysFor(const Setup& setup, bool withPeer) {
  std::vector<Way> ways = {
      {"sum alone", What::kSum}, {"parts", What::kParts}, {"fused"}, {"own parts", What::kOwnParts}};
  if (setup.ranks > 1) {
    ways.push_back({"one_shot", What::kFused, "one_shot", "lamport"});
    ways.push_back({"chunks+norm", What::kFused, setup.ranks == 2 ? "one_shot" : "two_shot", "warp_chunks"});
  }
  if (setup.ranks > 2) ways.push_back({"two_shot", What::kFused, "two_shot", "lamport"});
  if (withPeer) {
    ways.push_back({"fi one-shot", What::kPeer, nullptr, nullptr, true, false});
    ways.push_back({"fi early", What::kPeer, nullptr, nullptr, true, true});
    ways.push_back({"fi two-shot", What::kPeer});
  }
  if (setup.selfLoop) {
    ways.push_back({"empty", What::kEmpty});
    ways.push_back({"bytes", What::kMove});
    ways.push_back({"floor", What::kFloor});
  }
  for (const std::string& name : setup.without)
    std::erase_if(ways, [&](const Way& way) { return way.name == name; });
  return ways;
}

// The time of the fused call divided by that of the best of other ways.
struct Ratio {
  const char* name;
  std::vector<std::string> of;
};
inline std::vector<Ratio> ratiosOf(const std::vector<Way>& ways) {
  std::vector<Ratio> ratios = {{"/ parts", {"parts"}}};
  std::vector<std::string> peers;
  bool hasFloor = false;
  for (const Way& way : ways) {
    if (way.what == What::kPeer) peers.push_back(way.name);
    hasFloor = hasFloor || way.what == What::kFloor;
  }
  if (!peers.empty()) ratios.push_back({"/ fi", peers});
  if (hasFloor) ratios.push_back({"/ floor", {"floor"}});
  if (hasFloor) ratios.push_back({"/ bytes", {"bytes"}});
  return ratios;
}

}  // namespace stretto::bench
