// The objects of one kind that this process has, by the random number that each was given.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace stretto::memory {

// Does not keep the objects. Any thread.
template <class Object>
class ByToken {
 public:
  // Never destroyed: communicators may be, after static objects were.
  static ByToken& all() {
    static auto* const all = new ByToken;
    return *all;
  }

  void add(uint64_t token, const std::shared_ptr<Object>& object) {
    std::lock_guard lock(mutex_);
    objects_.emplace(token, object);
  }
  void remove(uint64_t token) {
    std::lock_guard lock(mutex_);
    objects_.erase(token);
  }
  // Null if there is none (any more).
  std::shared_ptr<Object> find(uint64_t token) {
    std::lock_guard lock(mutex_);
    const auto found = objects_.find(token);
    return found == objects_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<Object>> objects_;
};

}  // namespace stretto::memory
