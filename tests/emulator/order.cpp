#include "emulator/order.hpp"

#include <algorithm>

namespace stretto::emulator {

int Order::numberOf(uint64_t stream, bool odd, unsigned block, unsigned thread) {
  const uint64_t key = stream << 33 | uint64_t{odd} << 32 | uint64_t{block} << 16 | thread;
  const auto [found, isNew] = numbers_.try_emplace(key, static_cast<int>(threads_.size()));
  if (isNew) {
    static const auto kNothing = std::make_shared<const Clock>();
    Thread& made = threads_.emplace_back();
    made.name = "stream " + std::to_string(stream) + ", block " + std::to_string(block) + ", thread " +
                std::to_string(thread);
    made.knows = {kNothing, found->second, 0};
  }
  return found->second;
}

Order::Heard Order::joined(std::span<const Knowledge* const> all) const {
  auto clock = std::make_shared<Clock>(*all.front()->others);
  clock->resize(threads_.size());
  const Clock* last = all.front()->others.get();
  for (const Knowledge* const each : all) {
    const Clock& others = *each->others;
    // Most have met before, and share one.
    if (&others != last) {
      for (size_t i = 0; i < others.size(); ++i) (*clock)[i] = std::max((*clock)[i], others[i]);
    }
    last = &others;
    uint32_t& own = (*clock)[static_cast<size_t>(each->thread)];
    own = std::max(own, each->own);
  }
  return clock;
}

void Order::learn(int thread, std::span<const Knowledge* const> from) {
  Knowledge& knows = of(thread).knows;
  std::vector<const Knowledge*> all{&knows};
  for (const Knowledge* const each : from) {
    const bool isNews = each->others != knows.others || each->own != 0;
    if (isNews) all.push_back(each);
  }
  if (all.size() > 1) knows.others = joined(all);
}

Order::Written& Order::writtenAt(uintptr_t word) {
  const uintptr_t number = word * kGrain / kPage;
  if (lastWritten_.words == nullptr || lastWritten_.number != number) {
    auto& page = written_[number];
    if (page == nullptr) page = std::make_unique<WrittenPage>();
    lastWritten_ = {number, page.get()};
  }
  return (*lastWritten_.words)[word % (kPage / kGrain)];
}

void Order::plainStore(int thread, const void* at, size_t bytes) {
  const uint32_t number = ++of(thread).knows.own;
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t word = begin / kGrain; word < (begin + bytes + kGrain - 1) / kGrain; ++word) {
    writtenAt(word) = {thread, number};
  }
}

void Order::plainLoad(int thread, const void* at, size_t bytes) {
  const Clock& others = *of(thread).knows.others;
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t word = begin / kGrain; word < (begin + bytes + kGrain - 1) / kGrain; ++word) {
    const Written written = writtenAt(word);
    if (written.by < 0 || written.by == thread) continue;
    const auto by = static_cast<size_t>(written.by);
    if (by < others.size() && others[by] >= written.number) continue;
    if (race_.empty()) race_ = of(thread).name + " reads what " + of(written.by).name + " wrote";
    return;
  }
}

void Order::store(int thread, const void* at, Scope scope) {
  const auto word = reinterpret_cast<uintptr_t>(at);
  if (const auto& fenced = of(thread).fenced[static_cast<size_t>(scope)]; fenced) {
    told_[word / kPage][word] = *fenced;
  } else if (const auto page = told_.find(word / kPage); page != told_.end()) {
    page->second.erase(word);
  }
}

const Order::Knowledge* Order::toldAt(const void* at) const {
  const auto word = reinterpret_cast<uintptr_t>(at);
  const auto page = told_.find(word / kPage);
  if (page == told_.end()) return nullptr;
  const auto found = page->second.find(word);
  return found == page->second.end() ? nullptr : &found->second;
}

// A thread forgets nothing, so of what one knew at two times the later includes the earlier. Which is later
// its own stores tell; where it made none between, it may have heard of others' all the same, and both are
// kept.
void Order::load(int thread, const void* at, Scope scope) {
  const Knowledge* const told = toldAt(at);
  if (told == nullptr) return;
  auto& pending = of(thread).pending[static_cast<size_t>(scope)];
  for (Knowledge& before : pending) {
    if (before == *told) return;
    if (before.thread != told->thread || before.own == told->own) continue;
    if (before.own < told->own) before = *told;
    return;
  }
  pending.push_back(*told);
}

void Order::relaxedStore(int thread, const void* at) {
  store(thread, at, Scope::kSystem);
}
void Order::relaxedLoad(int thread, const void* at) {
  load(thread, at, Scope::kSystem);
}
void Order::sharedStore(int thread, const void* at) {
  store(thread, at, Scope::kBlock);
}
void Order::sharedLoad(int thread, const void* at) {
  load(thread, at, Scope::kBlock);
}

void Order::releaseStore(int thread, const void* at) {
  const auto word = reinterpret_cast<uintptr_t>(at);
  told_[word / kPage][word] = of(thread).knows;
}

void Order::acquireLoad(int thread, const void* at) {
  const Knowledge* const told = toldAt(at);
  if (told == nullptr) return;
  Thread& self = of(thread);
  if (self.acquired && *self.acquired == *told) return;  // who polls reads the same again and again
  self.acquired = *told;
  learn(thread, {&told, 1});
}

void Order::fence(int thread, Scope scope) {
  Thread& self = of(thread);
  std::vector<const Knowledge*> read;
  for (size_t each = 0; each <= static_cast<size_t>(scope); ++each) {
    for (const Knowledge& reported : self.pending[each]) read.push_back(&reported);
  }
  if (!read.empty()) learn(thread, read);
  for (size_t each = 0; each <= static_cast<size_t>(scope); ++each) {
    self.pending[each].clear();
    self.fenced[each] = self.knows;
  }
}

void Order::meet(std::span<const int> threads) {
  const Heard all = together(threads);
  for (const int thread : threads) of(thread).knows.others = all;
}

Order::Heard Order::together(std::span<const int> threads) const {
  std::vector<const Knowledge*> all;
  for (const int thread : threads) all.push_back(&of(thread).knows);
  return all.empty() ? nullptr : joined(all);
}

void Order::hear(int thread, const Heard& heard) {
  if (heard == nullptr) return;
  Knowledge& knows = of(thread).knows;
  if (hearing_.before != knows.others || hearing_.heard != heard) {
    hearing_.before = knows.others;
    hearing_.heard = heard;
    auto both = std::make_shared<Clock>(*heard);
    if (both->size() < knows.others->size()) both->resize(knows.others->size());
    for (size_t i = 0; i < knows.others->size(); ++i) (*both)[i] = std::max((*both)[i], (*knows.others)[i]);
    hearing_.after = both;
  }
  knows.others = hearing_.after;
}

void Order::forget(const void* begin, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(begin) + bytes + kPage - 1) / kPage;
  for (uintptr_t page = first; page < end; ++page) {
    written_.erase(page);
    told_.erase(page);
  }
  lastWritten_ = {};
}

}  // namespace stretto::emulator
