// A backend on which remote writes take their time: what is put, reduced into a peer's window, signalled or
// sent as lines happens later, in an order that keeps only what the verbs promise. Puts to one peer come in
// any order but before the signal that follows them; nothing is promised between peers. An algorithm that
// needs more than the promise computes wrong results here, sooner or later.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "harness/wrapped_host.hpp"

namespace stretto::testing {

class Chaos : public WrappedHost {
 public:
  Chaos(Host& host, uint64_t seed)
      : WrappedHost(host), random_(seed), owed_(static_cast<size_t>(host.ranks())) {}

  // Everything that was begun happens: the operation has ended.
  void finish() {
    for (int peer = 0; peer < ranks(); ++peer) {
      while (happen(peer)) {
      }
    }
    host_.end();
  }

  void put(Coop, int peer, void* to, const void* from, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    owe(peer, static_cast<std::byte*>(to), std::vector<std::byte>(begin, begin + bytes));
  }
  void signal(Coop coop, int peer, Mailbox* mailbox, uint64_t value) {
    oweInOrder(peer, [=, this] { host_.signal(coop, peer, mailbox, value); });
    someHappens();
  }
  void putLines(Coop coop, int peer, const void* from, size_t bytes, Phase phase = Phase::kScatter) {
    const auto* begin = static_cast<const std::byte*>(from);
    oweInOrder(peer, [=, this, data = std::vector<std::byte>(begin, begin + bytes)] {
      host_.putLines(coop, peer, data.data(), data.size(), phase);
    });
    someHappens();
  }
  Status wait(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    linger(mailbox, value);
    return host_.wait(coop, peer, mailbox, value);
  }
  Status waitCount(Coop coop, int peer, const Mailbox* mailbox, uint64_t value) {
    linger(mailbox, value);
    return host_.waitCount(coop, peer, mailbox, value);
  }
  Status readLines(Coop coop, int peer, void* to, size_t bytes, Phase phase = Phase::kScatter) {
    finish();
    dawdle();
    return host_.readLines(coop, peer, to, bytes, phase);
  }
  Status reduceLines(Coop coop, const ReduceSpec& spec, std::byte* to, const std::byte* own, size_t bytes) {
    finish();
    dawdle();
    return host_.reduceLines(coop, spec, to, own, bytes);
  }
  void copy(Coop coop, void* to, const void* from, size_t bytes, bool stream) {
    dawdle();
    host_.copy(coop, to, from, bytes, stream);
  }
  // What goes into peers' windows is computed here and put.
  void reduce(Coop coop, const ReduceSpec& spec, Destinations to, const std::byte* const* sources,
              int sourceCount, size_t count, bool stream) {
    dawdle();
    std::vector<std::byte> result(count * sizeOf(spec.type));
    const bool remote = isRemote(to.own);
    std::byte* const own = remote ? result.data() : to.own;
    host_.reduce(coop, spec, {own}, sources, sourceCount, count, stream);
    if (remote) owe(ownerOf(to.own), to.own, result);
    for (int place = 0; place < to.pushedCount; ++place) {
      owe(ownerOf(to.pushed[place]), to.pushed[place], std::vector<std::byte>(own, own + result.size()));
    }
  }

  void addNorm(Coop coop, const Arguments& arguments, const NormTokens& tokens) {
    dawdle();
    std::vector<std::byte> sums(tokens.many * arguments.tokenBytes());
    std::byte* const place = sums.data();
    NormTokens here = tokens;
    if (tokens.pushedCount > 0) here.pushed = &place, here.pushedCount = 1;
    host_.addNorm(coop, arguments, here);
    for (int i = 0; i < tokens.pushedCount; ++i) owe(ownerOf(tokens.pushed[i]), tokens.pushed[i], sums);
  }

 private:
  // What a peer is owed: sets of writes that may happen in any order, one set after the other.
  struct Set {
    std::vector<std::function<void()>> writes;
    bool open = true;  // more may join it
  };

  // In two halves: one may be visible long before the other.
  void owe(int peer, std::byte* to, std::vector<std::byte> bytes) {
    auto& owed = owed_[static_cast<size_t>(peer)];
    if (owed.empty() || !owed.back().open) owed.emplace_back();
    const auto data = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    const size_t half = data->size() / 2;
    for (const auto& [begin, end] : {std::pair(size_t{0}, half), std::pair(half, data->size())}) {
      const size_t offset = begin, size = end - begin;
      owed.back().writes.push_back(
          [=, this] { host_.put(coop(), peer, to + offset, data->data() + offset, size); });
    }
    someHappens();
  }

  void oweInOrder(int peer, std::function<void()> write) {
    auto& owed = owed_[static_cast<size_t>(peer)];
    if (!owed.empty()) owed.back().open = false;
    owed.push_back({{std::move(write)}, false});
  }

  // One write to `peer` happens; false if nothing is owed.
  bool happen(int peer) {
    auto& owed = owed_[static_cast<size_t>(peer)];
    while (!owed.empty() && owed.front().writes.empty() && !owed.front().open) owed.pop_front();
    if (owed.empty() || owed.front().writes.empty()) return false;
    auto& writes = owed.front().writes;
    const size_t which = random_() % writes.size();
    const auto write = std::move(writes[which]);
    writes.erase(writes.begin() + static_cast<ptrdiff_t>(which));
    write();
    return true;
  }

  void someHappens() {
    dawdle();
    while (random_() % 3 == 0) happen(anyPeer());
  }

  void linger(const Mailbox* mailbox, uint64_t value) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!ready(mailbox, value) && std::chrono::steady_clock::now() < deadline) {
      bool any = false;
      for (int look = 0; look < ranks() && !any; ++look) any = happen(anyPeer());
      if (!any) finish();
      dawdle();
    }
    dawdle();
  }

  void dawdle() {
    const uint64_t mood = random_() % 64;
    if (mood < 8) std::this_thread::yield();
    if (mood == 8) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
  }

  int anyPeer() { return static_cast<int>(random_() % static_cast<uint64_t>(ranks())); }

  std::mt19937_64 random_;
  std::vector<std::deque<Set>> owed_;  // by peer
};

}  // namespace stretto::testing
