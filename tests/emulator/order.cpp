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

void Order::plainStore(int thread, const void* at, size_t bytes) {
  const uint32_t number = ++of(thread).knows.own;
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t word = begin / kGrain; word < (begin + bytes + kGrain - 1) / kGrain; ++word) {
    written_[word] = {thread, number};
  }
}

void Order::plainLoad(int thread, const void* at, size_t bytes) {
  const Clock& others = *of(thread).knows.others;
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t word = begin / kGrain; word < (begin + bytes + kGrain - 1) / kGrain; ++word) {
    const auto found = written_.find(word);
    if (found == written_.end() || found->second.by == thread) continue;
    const auto by = static_cast<size_t>(found->second.by);
    if (by < others.size() && others[by] >= found->second.number) continue;
    if (race_.empty()) race_ = of(thread).name + " reads what " + of(found->second.by).name + " wrote";
    return;
  }
}

void Order::store(int thread, const void* at, Scope scope) {
  const auto word = reinterpret_cast<uintptr_t>(at);
  if (const auto& fenced = of(thread).fenced[static_cast<size_t>(scope)]; fenced) {
    told_[word] = *fenced;
  } else {
    told_.erase(word);
  }
}

void Order::load(int thread, const void* at, Scope scope) {
  const auto found = told_.find(reinterpret_cast<uintptr_t>(at));
  if (found == told_.end()) return;
  const Knowledge& reported = found->second;
  auto& pending = of(thread).pending[static_cast<size_t>(scope)];
  if (std::find(pending.begin(), pending.end(), reported) == pending.end()) pending.push_back(reported);
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
  told_[reinterpret_cast<uintptr_t>(at)] = of(thread).knows;
}

void Order::acquireLoad(int thread, const void* at) {
  const auto found = told_.find(reinterpret_cast<uintptr_t>(at));
  if (found == told_.end()) return;
  const Knowledge& reported = found->second;
  Thread& self = of(thread);
  if (self.acquired && *self.acquired == reported) return;  // who polls reads the same again and again
  self.acquired = reported;
  const Knowledge* const all[] = {&reported};
  learn(thread, all);
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
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t last = first + bytes;
  std::erase_if(written_, [&](const auto& each) {
    return (each.first + 1) * kGrain > first && each.first * kGrain < last;
  });
  std::erase_if(told_, [&](const auto& each) { return each.first >= first && each.first < last; });
}

}  // namespace stretto::emulator
